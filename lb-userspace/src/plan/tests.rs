use lb_common::{
    BackendSet, BackendState, BackendValue, Prefix, SlotKey,
    backend::state,
    service::{flags, scope},
};

use super::*;
use crate::{
    desired::{Identity, NodeView, compile},
    maps::Snapshot,
    model::{EndpointSlice, Policy, Service, ServiceType, SessionAffinity},
    testing::{
        BACKEND_1, BACKEND_2, BACKEND_3, NODE, OTHER_NODE, VIP, balanced, endpoint, service as a_service,
        web, web_slice,
    },
};

/// An address of this node.
const NODE_IP: &str = "192.168.50.11";
/// A load balancer's.
const BALANCED: &str = "203.0.113.20";

/// Backends on this node.
const OWN_1: &str = "10.244.1.31";
const OWN_2: &str = "10.244.1.32";

/// The maps, the ids and the desired state of `default/web`.
struct World {
    desired: Desired,
    record: Record,
    ids: Ids,
    complete: bool,
}

impl World {
    fn new() -> Self {
        let record = Record::default();
        Self { desired: Desired::default(), ids: Ids::adopt(&record), record, complete: true }
    }

    /// The same maps, taken over by a new agent that has not listed anything.
    fn restarted(self) -> Self {
        let whole = self.record.addresses();
        let whole =
            whole.filter_map(|address| Some((ServiceKey::whole(address), *self.record.address(&address)?)));
        let snapshot = Snapshot {
            services: self.record.services().iter().map(|(key, value)| (*key, *value)).chain(whole).collect(),
            backends: self.record.backends().iter().map(|(key, value)| (*key, *value)).collect(),
            states: self.record.states().iter().map(|(id, state)| (*id, *state)).collect(),
            ranges: self.record.all_ranges().clone(),
            settings: self.record.settings(),
        };
        let record = Record::adopt(snapshot);
        Self { desired: Desired::default(), ids: Ids::adopt(&record), record, complete: false }
    }

    fn want(&mut self, service: &Service, slices: &[EndpointSlice]) {
        let identity = Identity::of(NODE);
        let node = NodeView { nodeport_addresses: vec![NODE_IP.parse().unwrap()], ..NodeView::default() };
        let desired = compile(service, &slices.iter().collect::<Vec<_>>(), &identity, &node);
        self.desired.update(&service.key, Some(desired));
    }

    fn plan(&mut self) -> Result<Plan, PlanError> {
        service(&web().key, &self.desired, &self.record, &mut self.ids, self.complete)
    }

    fn carry_out(&mut self, ops: &[Op]) {
        ops.iter().for_each(|op| self.record.apply(op));
    }

    /// Goes to a state, and tells the operations now and after the grace period.
    fn go_to(&mut self, service: &Service, slices: &[EndpointSlice]) -> (Vec<String>, Vec<String>) {
        self.want(service, slices);
        let plan = self.plan().unwrap();
        self.carry_out(&plan.now);
        let mut later = Vec::new();
        let mut leftovers = plan.leftovers;
        while leftovers != Leftovers::default() {
            let ops = leftovers.collect(&self.record);
            let left = leftovers.left_by_insides(&self.record);
            self.carry_out(&ops);
            later.extend(ops);
            leftovers.forget_ids(&self.record, &mut self.ids);
            leftovers = left;
        }
        (told(&plan.now), told(&later))
    }

    fn flags(&self) -> Vec<(String, u8, u32)> {
        let services = self.record.services().iter();
        let mut flags: Vec<_> = services
            .map(|(key, value)| (addr::to_ip(&key.address).to_string(), key.scope, value.flags))
            .collect();
        flags.sort();
        flags
    }

    fn addresses(&self) -> Vec<String> {
        let sets = self.record.services().values().map(|value| value.set);
        let slots = sets.flat_map(|set| self.record.block(set.block).take(set.count.into()));
        slots.map(|(_, value)| addr::to_ip(&value.address).to_string()).collect()
    }
}

/// Operations in short: what is written, without addresses.
fn told(ops: &[Op]) -> Vec<String> {
    let one = |op: &Op| match op {
        Op::PutService(key, ServiceValue { flags, .. }) if key.is_whole() => {
            format!("address{}", if flags & flags::USABLE == 0 { "" } else { ", usable" })
        }
        Op::DeleteService(key) if key.is_whole() => "address gone".to_owned(),
        Op::PutService(key, ServiceValue { set: BackendSet { block, count, local }, .. })
            if key.scope == scope::INSIDE =>
        {
            format!("inside -> block {block}, {count} backends, {local} local")
        }
        Op::DeleteService(key) if key.scope == scope::INSIDE => "inside gone".to_owned(),
        Op::PutService(_, ServiceValue { set: BackendSet { block, count, local }, .. }) => {
            format!("service -> block {block}, {count} backends, {local} local")
        }
        Op::DeleteService(_) => "service gone".to_owned(),
        Op::PutBackend(SlotKey { block, slot, .. }, BackendValue { backend_id, .. }) => {
            format!("block {block} slot {slot} = backend {backend_id}")
        }
        Op::DeleteBackend(SlotKey { block, slot, .. }) => format!("block {block} slot {slot} gone"),
        Op::PutState(id, BackendState { flags }) => {
            let names = [(state::ACTIVE, "active"), (state::DRAINING, "draining"), (state::LOCAL, "local")];
            let names = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name);
            format!("backend {id} {}", names.collect::<Vec<_>>().join(" "))
        }
        Op::DeleteState(id) => format!("backend {id} gone"),
        Op::PutRange(range) => {
            format!("range {}/{} of {}", addr::to_ip(&range.client), range.bits, range.service_id)
        }
        Op::DeleteRange(range) => {
            format!("range {}/{} of {} gone", addr::to_ip(&range.client), range.bits, range.service_id)
        }
        Op::PutSettings(settings) => format!("settings, flags {}", settings.flags),
    };
    ops.iter().map(one).collect()
}

#[test]
fn a_new_frontend_is_written_from_the_back_to_the_front() {
    let slice = web_slice(&[]).with(endpoint(BACKEND_1).on(NODE)).with(endpoint(BACKEND_2).on(OTHER_NODE));
    let (now, later) = World::new().go_to(&web(), &[slice]);
    assert_eq!(
        now,
        [
            "settings, flags 0",
            "backend 1 active local",
            "backend 2 active",
            "block 1 slot 0 = backend 1",
            "block 1 slot 1 = backend 2",
            "service -> block 1, 2 backends, 1 local",
            "address, usable",
        ]
    );
    assert!(later.is_empty());
}

#[test]
fn a_changed_set_is_a_new_block_and_one_write_and_the_old_one_goes_after_the_grace_period() {
    let mut world = World::new();
    world.go_to(&web(), &[web_slice(&[BACKEND_1, BACKEND_2])]);
    let (now, later) = world.go_to(&web(), &[web_slice(&[BACKEND_2, BACKEND_3])]);
    assert_eq!(
        now,
        [
            "backend 3 active",
            "block 2 slot 0 = backend 2",
            "block 2 slot 1 = backend 3",
            "service -> block 2, 2 backends, 0 local",
        ]
    );
    assert_eq!(later, ["block 1 slot 0 gone", "block 1 slot 1 gone", "backend 1 gone"]);
}

#[test]
fn the_backends_of_a_set_are_in_the_order_of_ids_with_those_of_this_node_on_their_own() {
    let mut world = World::new();
    let here = |address: &str| endpoint(address).on(NODE);
    // Listed first, and so with lower ids, are those that come later by address.
    world.go_to(&web(), &[web_slice(&[BACKEND_3]).with(here(OWN_2))]);
    let all = web_slice(&[BACKEND_1, BACKEND_2, BACKEND_3]).with(here(OWN_1)).with(here(OWN_2));
    let (now, _) = world.go_to(&web(), &[all]);
    assert_eq!(
        now,
        [
            "backend 3 active local",
            "backend 4 active",
            "backend 5 active",
            "block 2 slot 0 = backend 1",
            "block 2 slot 1 = backend 3",
            "block 2 slot 2 = backend 2",
            "block 2 slot 3 = backend 4",
            "block 2 slot 4 = backend 5",
            "service -> block 2, 5 backends, 2 local",
        ]
    );
}

#[test]
fn a_client_may_go_back_to_who_has_left_for_a_moment_and_not_to_who_has_left_for_good() {
    let sticky = Service { affinity: SessionAffinity::ClientIP { timeout_seconds: 10 }, ..web() };
    let mut world = World::new();
    let (now, _) = world.go_to(&sticky, &[web_slice(&[BACKEND_1])]);
    assert_eq!(now[1], "backend 1 active");
    assert!(world.record.services().values().all(|value| value.affinity_seconds == 10));
    world.go_to(&sticky, &[web_slice(&[BACKEND_2])]);
    let (now, _) = world.go_to(&sticky, &[web_slice(&[BACKEND_1, BACKEND_2])]);
    assert_eq!(now[0], "backend 3 active", "1 is never given out again");

    // That it no longer asks for affinity is one write, and no new block.
    let (now, _) = world.go_to(&web(), &[web_slice(&[BACKEND_1, BACKEND_2])]);
    assert_eq!(now, ["service -> block 3, 2 backends, 0 local"]);
    assert!(world.record.services().values().all(|value| value.affinity_seconds == 0));
}

#[test]
fn who_only_drains_keeps_its_id_behind_the_set_and_is_active_until_nobody_can_choose_it() {
    let mut world = World::new();
    world.go_to(&web(), &[web_slice(&[BACKEND_1, BACKEND_2])]);
    let leaving = web_slice(&[BACKEND_2]).with(endpoint(BACKEND_1).leaving());
    let (now, later) = world.go_to(&web(), &[leaving]);
    assert_eq!(
        now,
        [
            "backend 1 active draining",
            "block 2 slot 0 = backend 2",
            "block 2 slot 1 = backend 1",
            "service -> block 2, 1 backends, 0 local",
        ]
    );
    assert_eq!(later, ["block 1 slot 0 gone", "block 1 slot 1 gone", "backend 1 draining"]);

    // Back again: active before it can be chosen.
    let (now, _) = world.go_to(&web(), &[web_slice(&[BACKEND_1, BACKEND_2])]);
    assert_eq!(now.first().map(String::as_str), Some("backend 1 active"));
}

#[test]
fn a_backend_used_while_terminating_is_active_and_draining_without_a_new_block() {
    let mut world = World::new();
    world.go_to(&web(), &[web_slice(&[BACKEND_1])]);
    let (now, later) = world.go_to(&web(), &[web_slice(&[]).with(endpoint(BACKEND_1).leaving())]);
    assert_eq!(now, ["backend 1 active draining"]);
    assert!(later.is_empty());
}

#[test]
fn an_empty_set_needs_no_block_and_says_whether_to_drop() {
    let mut world = World::new();
    let elsewhere = web_slice(&[]).with(endpoint(BACKEND_2).on(OTHER_NODE));
    for (service, want) in [(web(), 0), (web().local(), flags::DROP_WHEN_EMPTY)] {
        let slices = if want == 0 { vec![] } else { vec![elsewhere.clone()] };
        let (now, _) = world.go_to(&service, &slices);
        assert!(now.contains(&"service -> block 0, 0 backends, 0 local".to_owned()), "{now:?}");
        let flags: Vec<_> = world.record.services().values().map(|value| value.flags).collect();
        assert_eq!(flags, [want | flags::CLUSTER_IP]);
    }
}

#[test]
fn e08_the_same_input_twice_gives_no_operation() {
    let mut world = World::new();
    let slices = [web_slice(&[BACKEND_1]).with(endpoint(BACKEND_2).leaving())];
    world.go_to(&web(), &slices);
    assert_eq!(world.go_to(&web(), &slices), (vec![], vec![]));
    // Nor does a new agent find anything to do.
    let mut world = world.restarted();
    world.complete = true;
    assert_eq!(world.go_to(&web(), &slices), (vec![], vec![]));
    assert_eq!(Leftovers::unused(&world.record).collect(&world.record), []);
}

#[test]
fn frontends_of_one_set_share_its_block() {
    let service = a_service("default/web", &[VIP]).port("http", 80).port("http", 8000);
    let (now, _) = World::new().go_to(&service, &[web_slice(&[BACKEND_1])]);
    assert_eq!(
        now,
        [
            "settings, flags 0",
            "backend 1 active",
            "block 1 slot 0 = backend 1",
            "service -> block 1, 1 backends, 0 local",
            "service -> block 1, 1 backends, 0 local",
            "address, usable",
        ]
    );
}

#[test]
fn a_frontend_is_removed_once_the_programs_look_for_its_flows() {
    let mut world = World::new();
    world.go_to(&web(), &[web_slice(&[BACKEND_1])]);
    let frontend = *world.record.services().keys().next().unwrap();
    let plan = removal(&frontend, &world.record);
    assert_eq!(told(&plan.now), ["settings, flags 1", "address gone", "service gone"]);
    world.carry_out(&plan.now);
    assert_eq!(told(&plan.leftovers.collect(&world.record)), ["block 1 slot 0 gone", "backend 1 gone"]);
    assert_eq!(removal(&frontend, &world.record), Plan::default(), "it is gone already");
}

#[test]
fn a_cluster_ip_as_a_whole_comes_after_its_first_frontend_and_goes_with_its_last() {
    let slices = [web_slice(&[BACKEND_1])];
    let mut world = World { complete: false, ..World::new() };
    let (now, _) = world.go_to(&web(), &slices);
    assert!(!now.iter().any(|op| op.starts_with("address")), "before every list is complete: {now:?}");
    assert!(world.record.settings().cluster_ips.iter().all(|prefix| *prefix == Prefix::NOTHING));
    world.complete = true;
    let two_ports = a_service("default/web", &[VIP]).port("http", 80).port("none", 81);
    let (now, _) = world.go_to(&two_ports, &slices);
    assert_eq!(
        now,
        ["settings, flags 0", "service -> block 0, 0 backends, 0 local", "address, usable"],
        "settings first: programs look for a ClusterIP only where these say that one may be"
    );
    assert!(world.record.settings().may_be_cluster_ip(addr::from_ip(VIP.parse().unwrap())));

    let mut frontends: Vec<_> = world.record.services().keys().copied().collect();
    frontends.sort_unstable();
    let wanted = [vec!["settings, flags 1", "address", "service gone"], vec!["address gone", "service gone"]];
    for (frontend, want) in frontends.iter().zip(wanted) {
        let plan = removal(frontend, &world.record);
        assert_eq!(told(&plan.now), want);
        world.carry_out(&plan.now);
    }
    assert_eq!(world.record.addresses().count(), 0);
}

#[test]
fn only_a_cluster_ip_is_ours_as_a_whole() {
    let mut world = World::new();
    world.go_to(&web(), &[web_slice(&[BACKEND_1])]);
    // Another kind has the address and port now.
    let (key, value) = world.record.services().iter().next().map(|(key, value)| (*key, *value)).unwrap();
    let other_kind = ServiceValue { flags: flags::EXTERNAL, ..value };
    let addresses = Addresses::of([(key, Some(other_kind))].into_iter(), &world.record, true);
    assert_eq!((told(&addresses.before), addresses.after), (vec!["address gone".to_owned()], vec![]));
}

/// `default/web` on a node port, and at a load balancer's address.
fn outward(service_type: ServiceType) -> Service {
    let mut service = web().of_type(service_type);
    if service_type == ServiceType::LoadBalancer {
        service.load_balancer_ips = vec![balanced(BALANCED)];
    } else {
        service.ports[0].node_port = Some(30080);
    }
    service
}

fn with_ranges(ranges: &[&str]) -> Service {
    let source_ranges = ranges.iter().map(|range| (*range).into()).collect();
    Service { source_ranges, ..outward(ServiceType::LoadBalancer) }
}

fn here_and_there() -> [EndpointSlice; 1] {
    [web_slice(&[]).with(endpoint(OWN_1).on(NODE)).with(endpoint(BACKEND_2).on(OTHER_NODE))]
}

#[test]
fn every_kind_of_frontend_has_its_flags() {
    let mut service = Service {
        external_ips: vec!["203.0.113.10".into()],
        source_ranges: vec!["192.0.2.0/24".into()],
        ..outward(ServiceType::LoadBalancer)
    };
    service.ports[0].node_port = Some(30080);
    let mut world = World::new();
    world.go_to(&service, &here_and_there());
    let of = |address: &str, scope, flags| (address.to_owned(), scope, flags);
    let guarded = flags::EXTERNAL | flags::SOURCE_RANGES;
    assert_eq!(
        world.flags(),
        [
            of(VIP, scope::ANY, flags::CLUSTER_IP),
            of(NODE_IP, scope::ANY, flags::EXTERNAL),
            of("203.0.113.10", scope::ANY, flags::EXTERNAL),
            of(BALANCED, scope::ANY, guarded),
        ]
    );
    world.go_to(&Service { external_policy: Policy::Local, ..service.clone() }, &here_and_there());
    let apart = flags::INSIDE_APART | flags::DROP_WHEN_EMPTY;
    assert_eq!(
        world.flags(),
        [
            of(VIP, scope::ANY, flags::CLUSTER_IP),
            of(NODE_IP, scope::ANY, flags::EXTERNAL | apart),
            of(NODE_IP, scope::INSIDE, flags::EXTERNAL),
            of("203.0.113.10", scope::ANY, flags::EXTERNAL | apart),
            of("203.0.113.10", scope::INSIDE, flags::EXTERNAL),
            of(BALANCED, scope::ANY, guarded | apart),
            of(BALANCED, scope::INSIDE, guarded),
        ]
    );
    assert_eq!(world.record.frontend_count(), 4);
    let ids: HashSet<_> = world.record.services().values().map(|value| value.service_id).collect();
    assert_eq!(ids.len(), 1, "of one Service port");
    // Without an endpoint here, only who is outside is dropped.
    let elsewhere = [web_slice(&[]).with(endpoint(BACKEND_2).on(OTHER_NODE))];
    world.go_to(&Service { external_policy: Policy::Local, ..outward(ServiceType::NodePort) }, &elsewhere);
    let node_port = world.flags().into_iter().filter(|(address, ..)| address == NODE_IP);
    assert_eq!(
        node_port.collect::<Vec<_>>(),
        [of(NODE_IP, scope::ANY, flags::EXTERNAL | apart), of(NODE_IP, scope::INSIDE, flags::EXTERNAL)]
    );
}

#[test]
fn b27_what_is_apart_for_clients_inside_is_there_before_they_are_sent_to_it_and_goes_after_a_grace_period() {
    let open = outward(ServiceType::NodePort);
    let local = Service { external_policy: Policy::Local, ..open.clone() };
    let mut world = World::new();
    world.go_to(&open, &here_and_there());
    let (now, later) = world.go_to(&local, &here_and_there());
    assert_eq!(
        now,
        [
            "block 2 slot 0 = backend 1",
            "inside -> block 1, 2 backends, 1 local",
            "service -> block 2, 1 backends, 1 local",
        ]
    );
    assert!(later.is_empty(), "the block is the ClusterIP's, too");
    assert_eq!(world.go_to(&local, &here_and_there()), (vec![], vec![]));

    // Nobody here: what is inside does not change.
    let elsewhere = [web_slice(&[]).with(endpoint(BACKEND_2).on(OTHER_NODE))];
    let (now, _) = world.go_to(&local, &elsewhere);
    assert_eq!(
        now,
        [
            "block 3 slot 0 = backend 2",
            "inside -> block 3, 1 backends, 0 local",
            "service -> block 3, 1 backends, 0 local",
            "service -> block 0, 0 backends, 0 local",
        ]
    );
    let (now, later) = world.go_to(&open, &elsewhere);
    assert_eq!(
        (now, later),
        (vec!["service -> block 3, 1 backends, 0 local".into()], vec!["inside gone".into()])
    );

    world.go_to(&local, &here_and_there());
    let node_port = *world.record.services().keys().find(|key| key.port == 30080).unwrap();
    let node_port = ServiceKey { scope: scope::ANY, ..node_port };
    let plan = removal(&node_port, &world.record);
    assert_eq!(told(&plan.now), ["settings, flags 1", "service gone"]);
    world.carry_out(&plan.now);
    assert_eq!(told(&plan.leftovers.collect(&world.record)), ["block 5 slot 0 gone", "inside gone"]);
}

#[test]
fn what_is_apart_of_a_frontend_that_an_earlier_agent_has_left_half_removed_is_found() {
    let local = Service { external_policy: Policy::Local, ..outward(ServiceType::NodePort) };
    let mut world = World::new();
    world.go_to(&local, &here_and_there());
    let node_port = *world.record.services().keys().find(|key| key.port == 30080).unwrap();
    world.carry_out(&removal(&ServiceKey { scope: scope::ANY, ..node_port }, &world.record).now);
    let world = world.restarted();
    let unused = Leftovers::unused(&world.record);
    assert_eq!(told(&unused.collect(&world.record)), ["block 2 slot 0 gone", "inside gone"]);
}

#[test]
fn a_guarded_frontend_has_its_ranges_before_it_and_loses_them_after_it() {
    let mut world = World::new();
    let slices = [web_slice(&[BACKEND_1])];
    let (now, _) = world.go_to(&with_ranges(&["192.0.2.0/24", "2001:db8:c::/48"]), &slices);
    assert_eq!(
        now,
        [
            "settings, flags 0",
            "backend 1 active",
            "block 1 slot 0 = backend 1",
            "range 192.0.2.0/120 of 1",
            "range 2001:db8:c::/48 of 1",
            "service -> block 1, 1 backends, 0 local",
            "service -> block 1, 1 backends, 0 local",
            "address, usable",
        ]
    );
    let (now, later) = world.go_to(&with_ranges(&["198.51.100.0/24", "2001:db8:c::/48"]), &slices);
    assert_eq!(now, ["range 198.51.100.0/120 of 1", "range 192.0.2.0/120 of 1 gone"]);
    assert!(later.is_empty());

    // None that can be read lets nobody in.
    let (now, _) = world.go_to(&with_ranges(&["everybody"]), &slices);
    assert_eq!(now, ["range 198.51.100.0/120 of 1 gone", "range 2001:db8:c::/48 of 1 gone"]);
    assert!(world.flags().contains(&(
        BALANCED.to_owned(),
        scope::ANY,
        flags::EXTERNAL | flags::SOURCE_RANGES
    )));

    world.go_to(&with_ranges(&["192.0.2.0/24"]), &slices);
    let (now, later) = world.go_to(&with_ranges(&[]), &slices);
    assert_eq!(now, ["service -> block 1, 1 backends, 0 local"], "a packet may have read that it is guarded");
    assert_eq!(later, ["range 192.0.2.0/120 of 1 gone"]);
}

#[test]
fn the_ranges_of_a_frontend_that_has_gone_go_with_it_also_after_a_restart() {
    let ranges = with_ranges(&["192.0.2.0/24"]);
    let mut world = World::new();
    world.go_to(&ranges, &[web_slice(&[BACKEND_1])]);
    let key =
        *world.record.services().keys().find(|key| key.address == addr::from_v4([203, 0, 113, 20])).unwrap();
    let plan = removal(&key, &world.record);
    world.carry_out(&plan.now);
    let gone = "range 192.0.2.0/120 of 1 gone";
    assert_eq!(told(&plan.leftovers.collect(&world.record)), [gone]);
    let world = world.restarted();
    assert_eq!(told(&Leftovers::unused(&world.record).collect(&world.record)), [gone]);
}

#[test]
fn before_every_list_is_complete_clients_inside_lose_nothing_and_who_may_connect_is_obeyed() {
    let with_policy = |external_policy, ranges: &[&str]| Service { external_policy, ..with_ranges(ranges) };
    let slices = here_and_there();
    let mut world = World::new();
    world.go_to(&with_policy(Policy::Cluster, &["192.0.2.0/24"]), &slices);
    let mut world = world.restarted();
    // The set of those outside would shrink.
    let (now, _) = world.go_to(&with_policy(Policy::Local, &["192.0.2.0/24"]), &slices);
    assert_eq!(now, <[&str; 0]>::default());
    assert!(world.plan().unwrap().held_back);
    // A Service says by itself who may connect.
    let (now, _) = world.go_to(&with_policy(Policy::Cluster, &["198.51.100.0/24"]), &[]);
    assert_eq!(now, ["range 198.51.100.0/120 of 1", "range 192.0.2.0/120 of 1 gone"]);
    let more = [web_slice(&[BACKEND_3]).with(endpoint(OWN_1).on(NODE))];
    world.go_to(&with_policy(Policy::Local, &["198.51.100.0/24"]), &more);
    let balanced = addr::from_v4([203, 0, 113, 20]);
    let count = |scope| {
        let key = ServiceKey { address: balanced, port: 80, proto: 6, scope };
        world.record.services().get(&key).map(|value| value.set.count)
    };
    assert_eq!((count(scope::ANY), count(scope::INSIDE)), (Some(2), Some(3)));
}

#[test]
fn a_backend_that_comes_back_within_the_grace_period_keeps_its_id_and_state() {
    let mut world = World::new();
    world.go_to(&web(), &[web_slice(&[BACKEND_1])]);
    world.want(&web(), &[]);
    let gone = world.plan().unwrap();
    world.carry_out(&gone.now);
    world.want(&web(), &[web_slice(&[BACKEND_1])]);
    let back = world.plan().unwrap();
    assert_eq!(
        told(&back.now),
        ["block 2 slot 0 = backend 1", "service -> block 2, 1 backends, 0 local", "address, usable"]
    );
    world.carry_out(&back.now);
    assert_eq!(told(&gone.leftovers.collect(&world.record)), ["block 1 slot 0 gone"]);
}

#[test]
fn b32_before_every_list_is_complete_nothing_shrinks() {
    let two = web_slice(&[BACKEND_1, BACKEND_2]);
    let mut world = World::new();
    world.go_to(&web(), &[two]);
    let mut world = world.restarted();
    let leaving = web_slice(&[BACKEND_1]).with(endpoint(BACKEND_2).leaving());
    let held_back: [(&str, &[EndpointSlice]); 3] = [
        ("no slice yet", &[]),
        ("one of two", &[web_slice(&[BACKEND_1])]),
        ("one of two only drains", std::slice::from_ref(&leaving)),
    ];
    for (name, slices) in &held_back {
        assert_eq!(world.go_to(&web(), slices).0, <[&str; 0]>::default(), "{name}");
        assert!(world.plan().unwrap().held_back, "{name}");
    }
    world.go_to(&web(), &[web_slice(&[BACKEND_1, BACKEND_3])]);
    assert_eq!(world.addresses(), [BACKEND_1, BACKEND_2, BACKEND_3], "a set may grow, and keeps what it has");
    assert!(world.plan().unwrap().held_back, "it has one that is to go");
    assert_eq!(world.go_to(&web(), &[web_slice(&[BACKEND_3])]).0, <[&str; 0]>::default());
    world.want(&web(), &[web_slice(&[BACKEND_1, BACKEND_2, BACKEND_3])]);
    assert!(!world.plan().unwrap().held_back);
    let (now, _) = world.go_to(&web(), &[web_slice(&[]).with(endpoint("10.244.1.4").on(NODE))]);
    assert!(now.last().unwrap().ends_with("4 backends, 1 local"), "{now:?}");

    world.complete = true;
    world.go_to(&web(), &[leaving]);
    assert_eq!(world.addresses(), [BACKEND_1]);
}

#[test]
fn b69_before_every_list_is_complete_no_frontend_is_made_without_a_backend() {
    let mut world = World::new().restarted();
    assert!(world.go_to(&web(), &[]).0.is_empty());
    assert!(world.plan().unwrap().held_back);
    world.go_to(&web(), &[web_slice(&[BACKEND_1])]);
    assert_eq!(world.addresses(), [BACKEND_1]);
}

#[test]
fn a_draining_backend_may_stay_draining_before_every_list_is_complete() {
    let slices = |ready: &[&str]| [web_slice(ready).with(endpoint(BACKEND_1).leaving())];
    let mut world = World::new();
    world.go_to(&web(), &slices(&[BACKEND_2]));
    let mut world = world.restarted();
    world.go_to(&web(), &slices(&[BACKEND_2, BACKEND_3]));
    assert_eq!(world.addresses(), [BACKEND_2, BACKEND_3]);
}

#[test]
fn a_set_that_slots_cannot_number_is_refused_and_takes_no_ids() {
    let mut world = World::new();
    let addresses: Vec<_> = (0..=u16::MAX).map(|n| format!("10.244.{}.{}", n >> 8, n & 255)).collect();
    let too_many =
        addresses.iter().map(|address| endpoint(address)).fold(web_slice(&[]), EndpointSlice::with);
    world.want(&web(), &[too_many]);
    let error = world.plan().unwrap_err();
    assert_eq!(
        error.to_string(),
        "port \"http\" has 65536 endpoints, more than the 65535 that a set can hold"
    );
    let (now, _) = world.go_to(&web(), &[web_slice(&[BACKEND_1])]);
    assert_eq!(now[1], "backend 1 active");
}
