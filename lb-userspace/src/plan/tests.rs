use lb_common::{BackendSet, BackendState, BackendValue, Prefix, SlotKey, backend::state, service::flags};

use super::*;
use crate::{
    desired::{Identity, NodeView, compile},
    maps::Snapshot,
    model::{EndpointSlice, Service},
    testing::{
        BACKEND_1, BACKEND_2, BACKEND_3, NODE, OTHER_NODE, VIP, endpoint, service as a_service, web,
        web_slice,
    },
};

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
            settings: self.record.settings(),
        };
        let record = Record::adopt(snapshot);
        Self { desired: Desired::default(), ids: Ids::adopt(&record), record, complete: false }
    }

    fn want(&mut self, service: &Service, slices: &[EndpointSlice]) {
        let identity = Identity::of(NODE);
        let desired = compile(service, &slices.iter().collect::<Vec<_>>(), &identity, &NodeView::default());
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
        let later = plan.leftovers.collect(&self.record);
        self.carry_out(&later);
        plan.leftovers.forget_ids(&self.record, &mut self.ids);
        (told(&plan.now), told(&later))
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
    // Another kind has the address and port now; the feature level withholds such, so the maps are told by hand.
    let (key, value) = world.record.services().iter().next().map(|(key, value)| (*key, *value)).unwrap();
    let other_kind = ServiceValue { flags: 0, ..value };
    let addresses = Addresses::of([(key, Some(other_kind))].into_iter(), &world.record, true);
    assert_eq!((told(&addresses.before), addresses.after), (vec!["address gone".to_owned()], vec![]));
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
    assert_eq!(world.addresses(), [BACKEND_1, BACKEND_3, BACKEND_2], "a set may grow, and keeps what it has");
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
