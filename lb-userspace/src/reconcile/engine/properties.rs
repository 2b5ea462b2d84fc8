//! Whatever happens on the way, the end is the same: that of a fresh agent which is told the last objects once.

use std::collections::{BTreeMap, BTreeSet};

use lb_common::{
    Address, ServiceKey, SlotKey, addr,
    backend::state,
    service::{
        flags::{INSIDE_APART, SOURCE_RANGES, USABLE},
        scope,
    },
};
use proptest::{collection::vec, prelude::*, sample::select};

use super::tests::{Agent, assert_nothing_leaks};
use crate::{
    desired::FrontendKind,
    maps::{Op, fake::FakeMaps},
    model::{
        AddressType, Endpoint, EndpointSlice, Hints, Host, Kind, Object, ObjectRef, Policy, Protocol,
        Service, ServiceType,
    },
    render::BackendView,
    source::Event,
    testing::{NODE, OTHER_NODE, apply, balanced, delete, endpoint, node, on, service, slice},
};

const NODE_IP: &str = "192.168.50.11";

/// What can happen to an agent.
#[derive(Clone, Debug)]
enum Step {
    Apply(Object),
    Delete(Object),
    /// A list of one kind that is begun, and perhaps never completed.
    List {
        services: bool,
        objects: Vec<Object>,
        completes: bool,
    },
    /// Time passes, to the next timer.
    Wait,
    /// It is killed, and another one takes over.
    Restart,
}

// Few names, addresses and ports, so that the objects meet and collide.

fn a_service() -> impl Strategy<Value = Object> {
    let vips = select(vec![
        vec!["10.96.0.1"],
        vec!["10.96.0.2"],
        vec!["10.96.0.1", "2001:db8:f0::1"],
        vec!["None"],
        vec!["10.96.0.300"],
    ]);
    let ports = select(vec![
        vec![("http", 80, Protocol::Tcp)],
        vec![("http", 80, Protocol::Tcp), ("admin", 81, Protocol::Tcp)],
        vec![("dns", 53, Protocol::Udp), ("dns", 53, Protocol::Tcp)],
        vec![("", 80, Protocol::Tcp), ("", 81, Protocol::Tcp)],
    ]);
    let types = select(vec![
        ServiceType::ClusterIP,
        ServiceType::ClusterIP,
        ServiceType::NodePort,
        ServiceType::LoadBalancer,
        ServiceType::ExternalName,
    ]);
    let policy = || select(vec![Policy::Cluster, Policy::Local]);
    // The first is also a cluster IP, the second also an address of the node.
    let external = || vec(select(vec!["10.96.0.1", NODE_IP, "203.0.113.1"]), 0..2);
    let ranges = select(vec![
        vec![],
        vec![],
        vec!["192.0.2.0/24"],
        vec!["192.0.2.0/24", "2001:db8::/32"],
        vec!["wrong"],
    ]);
    let name = select(vec!["default/a", "default/b", "other/a"]);
    let rest = (policy(), policy(), external(), external(), select(vec![None, Some(31000)]), ranges);
    (name, vips, ports, types, rest, proptest::option::of(0i64..2)).prop_map(
        |(name, vips, ports, service_type, rest, created)| {
            let (internal_policy, external_policy, external_ips, balanced_ips, health_check_port, ranges) =
                rest;
            let empty = Service {
                created,
                internal_policy,
                external_policy,
                external_ips: external_ips.into_iter().map(Into::into).collect(),
                load_balancer_ips: balanced_ips.into_iter().map(balanced).collect(),
                health_check_port,
                source_ranges: ranges.into_iter().map(Into::into).collect(),
                ..service(name, &vips).of_type(service_type)
            };
            let add = |service: Service, (name, port, protocol)| service.port_of(name, port, Ok(protocol));
            let mut service = ports.into_iter().fold(empty, add);
            service.ports.iter_mut().for_each(|port| port.node_port = Some(30_000 + port.port));
            Object::Service(service)
        },
    )
}

/// This node or another one.
fn a_node() -> impl Strategy<Value = Object> {
    let zone = select(vec!["", "zone-1", "zone-2"]);
    let ips = select(vec![vec![], vec![NODE_IP], vec!["192.168.60.5", "2001:db8::11"]]);
    (select(vec![NODE, NODE, OTHER_NODE]), zone, ips)
        .prop_map(|(name, zone, ips)| Object::Node(node(name, zone, &ips)))
}

/// The addresses of the machine.
fn a_host() -> impl Strategy<Value = Object> {
    let ips = select(vec![vec![NODE_IP], vec![NODE_IP, "192.168.70.5"], vec!["2001:db8::12"]]);
    ips.prop_map(|ips| {
        let addresses: Vec<_> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Object::Host(Host { primary: addresses[..1].to_vec(), addresses, ..Host::default() })
    })
}

fn a_slice() -> impl Strategy<Value = Object> {
    let name = select(vec!["default/s1", "default/s2", "default/s3", "other/s1"]);
    let owner = select(vec!["a", "a", "b", ""]);
    let ports = select(vec![
        vec![("http", 8080, Protocol::Tcp)],
        vec![("http", 9090, Protocol::Tcp), ("admin", 9091, Protocol::Tcp)],
        vec![("dns", 5353, Protocol::Udp), ("dns", 5353, Protocol::Tcp)],
        vec![("", 8080, Protocol::Tcp)],
    ]);
    let hints = select(vec![
        None,
        Some(Hints { nodes: vec![NODE.into()], zones: vec!["zone-1".into()] }),
        Some(Hints { nodes: vec![OTHER_NODE.into()], zones: vec!["zone-2".into()] }),
    ]);
    let nodes = select(vec![None, Some(NODE), Some(OTHER_NODE)]);
    let one = (1u8..5, any::<(bool, bool, bool)>(), nodes, hints);
    let kind = select(vec![Kind::EndpointSlice, Kind::EndpointSlice, Kind::Endpoints]);
    let which = (name, owner, kind, any::<bool>());
    (which, ports, vec(one, 0..4)).prop_map(|((name, owner, kind, is_v6), ports, endpoints)| {
        let address_type = if is_v6 { AddressType::Ipv6 } else { AddressType::Ipv4 };
        let empty = EndpointSlice { kind, ..slice(name, owner).of(address_type) };
        let add =
            |slice: EndpointSlice, (name, port, protocol)| slice.port_of(name, Some(port), Ok(protocol));
        let empty = ports.into_iter().fold(empty, add);
        let endpoints = endpoints.into_iter().map(|(n, (ready, serving, terminating), node, hints)| {
            let text = if is_v6 { format!("2001:db8:2::{n}") } else { format!("10.244.1.{n}") };
            let hints = hints.map(Into::into);
            let endpoint = Endpoint { hints, ..endpoint(&text).when(ready, serving, terminating) };
            node.map_or(endpoint.clone(), |node| endpoint.on(node))
        });
        Object::EndpointSlice(endpoints.fold(empty, EndpointSlice::with))
    })
}

fn object() -> impl Strategy<Value = Object> {
    prop_oneof![4 => a_service(), 4 => a_slice(), 1 => a_node(), 1 => a_host()]
}

fn step() -> impl Strategy<Value = Step> {
    let list = (any::<bool>(), vec(object(), 0..4), any::<bool>());
    prop_oneof![
        8 => object().prop_map(Step::Apply),
        2 => object().prop_map(Step::Delete),
        2 => list.prop_map(|(services, objects, completes)| Step::List { services, objects, completes }),
        3 => Just(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// The last objects, one of each identity, in two orders.
fn last_objects() -> impl Strategy<Value = (Vec<Object>, Vec<Object>)> {
    vec(object(), 0..8).prop_flat_map(|objects| {
        let unique: BTreeMap<ObjectRef, Object> =
            objects.into_iter().map(|object| (object.reference(), object)).collect();
        let unique: Vec<_> = unique.into_values().collect();
        (Just(unique.clone()).prop_shuffle(), Just(unique).prop_shuffle())
    })
}

const fn feed_of(kind: Kind) -> usize {
    match kind {
        Kind::Service => 0,
        Kind::EndpointSlice | Kind::Endpoints | Kind::Node | Kind::Host => 1,
    }
}

fn feed(object: &Object) -> usize {
    feed_of(object.reference().kind)
}

/// The name of an entry.
fn name(key: &ServiceKey) -> String {
    let inside = if key.scope == scope::INSIDE { INSIDE } else { "" };
    format!("{}:{}/{}{inside}", addr::to_ip(&key.address), key.port, key.proto)
}

/// How the name of what is apart for clients inside ends.
const INSIDE: &str = " inside";

/// What packets would see: for each frontend its backends with their states, those of this node first (else they are in the
/// order of their ids, which is that of the events), then those that drain, and what happens without any; the same of what is apart for clients inside; and addresses as a whole, which have flags only.
fn seen(maps: &FakeMaps) -> BTreeMap<String, (Vec<String>, BTreeSet<String>, u32)> {
    let holds = maps.holds();
    let backend = |slot: SlotKey| {
        let value = holds.backends.get(&slot)?;
        let flags = holds.states[&value.backend_id].flags;
        Some(format!("{}:{} {flags}", addr::to_ip(&value.address), value.port))
    };
    let frontends = holds.services.iter().map(|(key, value)| {
        let slot = |slot| SlotKey { block: value.set.block, slot, pad: 0 };
        let mut chosen: Vec<_> = (0..value.set.count).map_while(|n| backend(slot(n))).collect();
        let (local, others) = chosen.split_at_mut(value.set.local.into());
        local.sort_unstable();
        others.sort_unstable();
        let draining = (value.set.count..u16::MAX).map_while(|n| backend(slot(n))).collect();
        (name(key), (chosen, draining, value.flags))
    });
    frontends.collect()
}

/// The addresses that each frontend leads to, clients outside the cluster and clients inside.
fn chosen(maps: &FakeMaps) -> BTreeMap<String, BTreeSet<String>> {
    let address = |text: &String| text.split(' ').next().unwrap_or_default().to_owned();
    let (services, seen) = (maps.holds().services, seen(maps));
    let addresses = |key: &ServiceKey| seen[&name(key)].0.iter().map(address).collect::<BTreeSet<_>>();
    let frontends = services.iter().filter(|(key, _)| !key.is_whole() && key.scope == scope::ANY);
    frontends
        .flat_map(|(key, value)| {
            let apart = ServiceKey { scope: scope::INSIDE, ..*key };
            let met_inside = if value.flags & INSIDE_APART == 0 { key } else { &apart };
            [(name(key), addresses(key)), (name(&apart), addresses(met_inside))]
        })
        .collect()
}

/// The ranges of the clients that each guarded frontend lets in.
fn guards(maps: &FakeMaps) -> BTreeMap<String, BTreeSet<(Address, u32)>> {
    let holds = maps.holds();
    let guarded = holds.services.iter().filter(|(_, value)| value.flags & SOURCE_RANGES != 0);
    let ranges = |service_id| {
        let of_it = holds.ranges.iter().filter(move |range| range.service_id == service_id);
        of_it.map(|range| (range.client, range.bits)).collect()
    };
    guarded.map(|(key, value)| (name(key), ranges(value.service_id))).collect()
}

fn go_through(agent: &mut Agent, maps: &FakeMaps, step: Step) {
    match step {
        Step::Apply(object) => agent.say(apply(feed(&object), object)),
        Step::Delete(object) => agent.say(delete(feed(&object), object)),
        Step::List { services, objects, completes } => {
            let of = usize::from(!services);
            agent.say(on(of, Event::ListStarted));
            let objects = objects.into_iter().filter(|object| feed(object) == of);
            objects.for_each(|object| agent.say(apply(of, object)));
            if completes {
                agent.say(on(of, Event::ListComplete));
            }
        }
        Step::Wait => drop(agent.wait()),
        Step::Restart => *agent = Agent::on(maps),
    }
}

/// Two relists with these objects.
fn relist(agent: &mut Agent, objects: &[Object]) {
    for of in [0, 1] {
        agent.say(on(of, Event::ListStarted));
    }
    for object in objects {
        agent.say(apply(feed(object), object.clone()));
    }
    for of in [0, 1] {
        agent.say(on(of, Event::ListComplete));
    }
}

proptest! {
    #[test]
    fn any_history_with_any_failures_ends_as_a_fresh_agent_does(
        history in vec(step(), 0..30),
        (objects, in_another_order) in last_objects(),
        seed: u64,
    ) {
        let maps = FakeMaps::new(seed);
        maps.audit();
        // Each operation is tried three times: one in eleven fails for good.
        maps.fail(0.45);
        let mut agent = Agent::on(&maps);
        for step in history {
            let (before, is_restart) = (chosen(&maps), matches!(step, Step::Restart));
            go_through(&mut agent, &maps, step);
            if is_restart || !agent.engine.status().complete {
                let now = chosen(&maps);
                for (frontend, backends) in before {
                    prop_assert!(
                        now.get(&frontend).is_some_and(|now| backends.is_subset(now)),
                        "{frontend} has lost a backend before the first lists are complete"
                    );
                }
            }
        }
        relist(&mut agent, &objects);
        agent.settle();
        prop_assert_eq!(maps.violations(), Vec::<String>::new());
        prop_assert!(agent.engine.status().errors.is_empty());
        prop_assert_eq!(agent.engine.status().applied, agent.engine.status().generation);
        assert_nothing_leaks(&agent);

        let fresh_maps = FakeMaps::new(0);
        fresh_maps.fail(0.0);
        let mut fresh = Agent::on(&fresh_maps);
        relist(&mut fresh, &in_another_order);
        fresh.settle();
        prop_assert_eq!(seen(&maps), seen(&fresh_maps));
        prop_assert_eq!(guards(&maps), guards(&fresh_maps));
        prop_assert_eq!(agent.engine.state().render(), fresh.engine.state().render());

        maps.take_log();
        relist(&mut agent, &in_another_order);
        agent.settle();
        prop_assert_eq!(maps.take_log(), Vec::<Op>::new(), "the same input twice");
    }

    #[test]
    fn what_the_maps_hold_is_what_render_says(objects in vec(object(), 0..8)) {
        let maps = FakeMaps::new(0);
        maps.fail(0.0);
        let mut agent = Agent::on(&maps);
        relist(&mut agent, &objects);
        agent.settle();
        let rendered: BTreeMap<_, BTreeSet<_>> = agent
            .engine
            .state()
            .render()
            .frontends
            .into_iter()
            .filter(|it| it.withheld.is_none())
            .flat_map(|it| {
                let name = format!("{}:{}/{}", it.address, it.port, it.protocol.number());
                let sockets = |backends: &[BackendView]| {
                    backends.iter().map(|backend| format!("{}:{}", backend.address, backend.port)).collect()
                };
                let inside = it.inside_backends.as_ref().unwrap_or(&it.backends);
                [(name.clone() + INSIDE, sockets(inside)), (name, sockets(&it.backends))]
            })
            .collect();
        prop_assert_eq!(chosen(&maps), rendered);
        let apart = maps.holds().services.into_keys().filter(|key| key.scope == scope::INSIDE).count();
        let wanted = agent.engine.state().render().frontends;
        let wanted = wanted.iter().filter(|it| it.withheld.is_none() && it.inside_backends.is_some()).count();
        prop_assert_eq!(apart, wanted);
        let guarded: BTreeMap<_, usize> = agent
            .engine
            .state()
            .render()
            .frontends
            .iter()
            .filter(|it| it.withheld.is_none() && (it.closed || !it.source_ranges.is_empty()))
            .flat_map(|it| {
                let name = format!("{}:{}/{}", it.address, it.port, it.protocol.number());
                let inside = it.inside_backends.is_some().then(|| name.clone() + INSIDE);
                inside.into_iter().chain([name]).map(|name| (name, it.source_ranges.len()))
            })
            .collect();
        prop_assert_eq!(guards(&maps).into_iter().map(|(name, ranges)| (name, ranges.len())).collect::<BTreeMap<_, _>>(), guarded);
        // Of external kinds only the ports are ours.
        let mut cluster_ips = BTreeMap::<_, bool>::new();
        for it in agent.engine.state().render().frontends {
            if it.withheld.is_none() && it.kind == FrontendKind::ClusterIP {
                *cluster_ips.entry(it.address).or_default() |= !it.backends.is_empty();
            }
        }
        let whole = maps.holds().services.into_iter().filter(|(key, _)| key.is_whole());
        let whole: BTreeMap<_, _> = whole.map(|(key, value)| (addr::to_ip(&key.address), value.flags & USABLE != 0)).collect();
        prop_assert_eq!(whole, cluster_ips);
        let active = maps.holds().states.values().filter(|it| it.flags & state::ACTIVE != 0).count();
        prop_assert!(active <= maps.holds().backends.len());
    }
}
