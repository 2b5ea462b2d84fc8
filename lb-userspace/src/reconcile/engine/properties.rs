//! Whatever happens on the way, the end is the same: that of a fresh agent which is told the last objects once.

use std::collections::{BTreeMap, BTreeSet};

use lb_common::{SlotKey, addr, backend::state, service::flags::USABLE};
use proptest::{collection::vec, prelude::*, sample::select};

use super::tests::{Agent, assert_nothing_leaks};
use crate::{
    desired::FrontendKind,
    maps::{Op, fake::FakeMaps},
    model::{
        AddressType, Endpoint, EndpointSlice, Hints, Host, Kind, Object, ObjectRef, Policy, Protocol,
        Service, ServiceType,
    },
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
    let name = select(vec!["default/a", "default/b", "other/a"]);
    let rest = (policy(), policy(), external(), external(), select(vec![None, Some(31000)]));
    (name, vips, ports, types, rest, proptest::option::of(0i64..2)).prop_map(
        |(name, vips, ports, service_type, rest, created)| {
            let (internal_policy, external_policy, external_ips, balanced_ips, health_check_port) = rest;
            let empty = Service {
                created,
                internal_policy,
                external_policy,
                external_ips: external_ips.into_iter().map(Into::into).collect(),
                load_balancer_ips: balanced_ips.into_iter().map(balanced).collect(),
                health_check_port,
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
        Object::Host(Host { primary: addresses[..1].to_vec(), addresses })
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

/// How the name of an address as a whole ends in [`seen`].
const WHOLE: &str = ":0/0";

/// What packets would see: for each frontend its backends with their states, in order, then those that drain, and what
/// happens without any; and addresses as a whole, which have flags only.
fn seen(maps: &FakeMaps) -> BTreeMap<String, (Vec<String>, BTreeSet<String>, u32)> {
    let holds = maps.holds();
    let backend = |slot: SlotKey| {
        let value = holds.backends.get(&slot)?;
        let flags = holds.states[&value.backend_id].flags;
        Some(format!("{}:{} {flags}", addr::to_ip(&value.address), value.port))
    };
    let frontends = holds.services.iter().map(|(key, value)| {
        let slot = |slot| SlotKey { block: value.set.block, slot, pad: 0 };
        let chosen = (0..value.set.count).map_while(|n| backend(slot(n))).collect();
        let draining = (value.set.count..u16::MAX).map_while(|n| backend(slot(n))).collect();
        let name = format!("{}:{}/{}", addr::to_ip(&key.address), key.port, key.proto);
        (name, (chosen, draining, value.flags))
    });
    frontends.collect()
}

/// The addresses that each frontend leads to.
fn chosen(maps: &FakeMaps) -> BTreeMap<String, BTreeSet<String>> {
    let address = |text: String| text.split(' ').next().unwrap_or_default().to_owned();
    seen(maps)
        .into_iter()
        .filter(|(name, _)| !name.ends_with(WHOLE))
        .map(|(name, (of_it, ..))| (name, of_it.into_iter().map(address).collect()))
        .collect()
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
            .map(|it| {
                let name = format!("{}:{}/{}", it.address, it.port, it.protocol.number());
                (name, it.backends.iter().map(|backend| format!("{}:{}", backend.address, backend.port)).collect())
            })
            .collect();
        prop_assert_eq!(chosen(&maps), rendered);
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
