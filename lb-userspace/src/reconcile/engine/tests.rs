use std::collections::{BTreeMap, BTreeSet};

use lb_common::{
    ServiceKey, SlotKey, addr,
    service::{
        flags::{INSIDE_APART, SOURCE_RANGES},
        scope,
    },
};
use tokio::time::Duration;

use super::{
    write::{COLLECTION, GRACE},
    *,
};
use crate::{
    maps::{
        Snapshot, Which,
        fake::{FakeMaps, Sizes},
    },
    model::{EndpointSlice, Host, Protocol, Service},
    source::Event,
    testing::{
        BACKEND_1, BACKEND_2, BACKEND_3, NODE, OTHER_VIP, VIP, apply, delete, key, on, service, slice, web,
        web_slice,
    },
};

const SERVICES: usize = 0;
const SLICES: usize = 1;

/// An agent on maps, with a clock of its own.
pub(super) struct Agent {
    pub(super) engine: Engine,
    maps: FakeMaps,
    now: Instant,
}

impl Agent {
    /// On maps that do not fail, with both first lists complete.
    fn new() -> Self {
        let maps = FakeMaps::new(0);
        maps.fail(0.0);
        let mut agent = Self::on(&maps);
        agent.complete();
        agent
    }

    /// On maps as they are, before the first lists.
    pub(super) fn on(maps: &FakeMaps) -> Self {
        Self::with_feeds(maps, 2)
    }

    fn with_feeds(maps: &FakeMaps, feeds: usize) -> Self {
        let identity = Identity::of(NODE);
        let config = Config { identity, feeds, optional: Vec::new(), remembered: Vec::new() };
        let engine = Engine::start(Box::new(maps.clone()), config).unwrap();
        Self { engine, maps: maps.clone(), now: Instant::now() }
    }

    pub(super) fn say(&mut self, event: SourceEvent) {
        self.engine.handle(event);
        self.engine.step(self.now);
    }

    pub(super) fn complete(&mut self) {
        self.say(on(SERVICES, Event::ListComplete));
        self.say(on(SLICES, Event::ListComplete));
        self.settle();
    }

    /// Goes on to the next timer, if there is one.
    pub(super) fn wait(&mut self) -> bool {
        let Some(next) = self.engine.next_step(self.now) else { return false };
        self.now = next.max(self.now);
        self.engine.step(self.now);
        true
    }

    /// Goes on until nothing is left to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.wait() {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.engine.status());
    }

    fn later(&mut self, by: Duration) {
        self.now += by;
        self.engine.step(self.now);
    }

    /// The frontends in the maps, each with the addresses that it leads to.
    pub(super) fn shown(&self) -> Vec<String> {
        shown(&self.maps.holds())
    }

    /// Reads the next part of the maps back.
    pub(super) fn audit(&mut self) {
        self.now = self.engine.audit(self.now);
    }

    pub(super) fn step(&mut self) {
        self.engine.step(self.now);
    }

    /// Reads all of the maps back, twice, which is to take less than 5 s.
    pub(super) fn audit_for_two_passes(&mut self) {
        let begun = self.now;
        for _ in 0..2 * Which::ALL.len() {
            self.audit();
        }
        self.step();
        assert!(self.now - begun < Duration::from_secs(5));
    }

    pub(super) fn error(&self) -> Vec<&str> {
        self.engine.status().errors.values().map(String::as_str).collect()
    }
}

fn shown(holds: &Snapshot) -> Vec<String> {
    let socket = |address, port| std::net::SocketAddr::new(addr::to_ip(&address), port).to_string();
    let frontends = holds.services.iter().filter(|(key, _)| !key.is_whole());
    let services = frontends.map(|(key, value)| {
        let slots = (0..value.set.count).map(|slot| SlotKey { block: value.set.block, slot, pad: 0 });
        let backends = slots.map(|slot| holds.backends[&slot]).map(|it| socket(it.address, it.port));
        let protocol = Protocol::from_number(key.proto).unwrap();
        (socket(key.address, key.port) + "/" + &protocol.to_string(), backends.collect::<Vec<_>>())
    });
    let services: BTreeMap<_, _> = services.collect();
    services.into_iter().map(|(frontend, backends)| format!("{frontend} -> {}", backends.join(" "))).collect()
}

/// Every id, backend and slot in the maps and in the agent is one of the same.
pub(super) fn assert_nothing_leaks(agent: &Agent) {
    let holds = agent.maps.holds();
    let in_slots: BTreeSet<_> = holds.backends.values().map(|value| value.backend_id).collect();
    let with_state: BTreeSet<_> = holds.states.keys().copied().collect();
    let frontends = holds.services.iter().filter(|(key, _)| !key.is_whole());
    let service_ids: BTreeSet<_> = frontends.map(|(_, value)| value.service_id).collect();
    assert_eq!(in_slots, with_state);
    assert_eq!(agent.engine.ids.live(), (service_ids.len(), in_slots.len()), "{:?}", agent.engine.ids);
    let blocks: BTreeSet<_> = holds.backends.keys().map(|slot| slot.block).collect();
    let used: BTreeSet<_> =
        holds.services.values().map(|value| value.set.block).filter(|block| *block != 0).collect();
    assert_eq!(blocks, used);
    for (key, _) in holds.services.iter().filter(|(key, _)| key.scope == scope::INSIDE) {
        let of_all = &holds.services[&ServiceKey { scope: scope::ANY, ..*key }];
        assert_ne!(of_all.flags & INSIDE_APART, 0, "nobody is sent to {key:?}");
    }
    let guarded = holds.services.values().filter(|value| value.flags & SOURCE_RANGES != 0);
    let guarded: BTreeSet<_> = guarded.map(|value| value.service_id).collect();
    assert!(holds.ranges.iter().all(|range| guarded.contains(&range.service_id)), "{:?}", holds.ranges);
}

#[test]
fn a_backend_that_has_gone_is_stateless_at_once_and_its_slot_stays_for_the_grace_period() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    let [gone] = agent.maps.holds().states.into_keys().collect::<Vec<_>>()[..] else { panic!("one backend") };
    agent.say(apply(SLICES, web_slice(&[BACKEND_2])));
    let holds = agent.maps.holds();
    assert!(!holds.states.contains_key(&gone), "its datagrams move with the next one");
    assert!(
        holds.backends.values().any(|backend| backend.backend_id == gone),
        "who reads its slot still finds it"
    );
    agent.settle();
    assert_nothing_leaks(&agent);
}

#[test]
fn the_first_change_goes_out_at_once_and_a_flood_becomes_one() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    agent.say(apply(SLICES, web_slice(&[BACKEND_2])));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.2.22:8080"]);

    // Inside the grace period of that change: what comes now waits, so there are never more than two blocks.
    agent.maps.take_log();
    for _ in 0..20 {
        agent.say(apply(SLICES, web_slice(&[BACKEND_1, BACKEND_3])));
        agent.say(apply(SLICES, web_slice(&[BACKEND_3])));
    }
    assert!(agent.maps.take_log().is_empty());
    assert!(agent.engine.status().applied < agent.engine.status().generation);
    agent.later(GRACE - Duration::from_millis(1));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.2.22:8080"]);
    agent.later(Duration::from_millis(1));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.2.23:8080"]);
    let switches = agent.maps.take_log().iter().filter(|op| matches!(op, Op::PutService(..))).count();
    assert_eq!(switches, 1);
    assert_eq!(agent.engine.status().applied, agent.engine.status().generation);
    agent.settle();
    assert_nothing_leaks(&agent);
}

#[test]
fn e08_what_is_said_again_writes_nothing() {
    let mut agent = Agent::new();
    let objects = || [apply(SERVICES, web()), apply(SLICES, web_slice(&[BACKEND_1, BACKEND_2]))];
    objects().into_iter().for_each(|event| agent.say(event));
    agent.settle();
    agent.maps.take_log();
    let relist = [on(SERVICES, Event::ListStarted), on(SLICES, Event::ListStarted)];
    let complete = [on(SERVICES, Event::ListComplete), on(SLICES, Event::ListComplete)];
    relist.into_iter().chain(objects()).chain(complete).for_each(|event| agent.say(event));
    agent.settle();
    assert_eq!(agent.maps.take_log(), []);
}

#[test]
fn b56_a_set_is_replaced_exactly_at_each_step() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    let steps: [&[&str]; 4] = [
        &["10.244.1.1", "10.244.1.2", "10.244.1.3", "10.244.1.4"],
        &["10.244.1.1", "10.244.1.2"],
        &[],
        &["10.244.1.5"],
    ];
    for addresses in steps {
        agent.say(apply(SLICES, web_slice(addresses)));
        agent.settle();
        let sockets: Vec<_> = addresses.iter().map(|address| format!("{address}:8080")).collect();
        assert_eq!(agent.shown(), [format!("10.96.0.50:80/TCP -> {}", sockets.join(" "))]);
        assert_eq!(agent.maps.holds().backends.len(), addresses.len(), "no key of a removed backend");
        assert_nothing_leaks(&agent);
    }
    agent.say(delete(SLICES, web_slice(&[])));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> "]);
    assert!(agent.maps.holds().backends.is_empty());
}

#[test]
fn b59_ids_backends_and_keys_are_the_same_through_70_000_changes() {
    let mut agent = Agent::new();
    let other_slice = |addresses| slice("default/other-1", "other").port("http", 8080).ready(addresses);
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SERVICES, service("default/other", &[OTHER_VIP]).port("http", 80)));
    // One backend belongs to both Services: that is two memberships. It is listed twice in one of them: that is one.
    agent.say(apply(SLICES, other_slice(&[BACKEND_1, BACKEND_1])));
    let mut alive: BTreeSet<u8> = BTreeSet::new();
    let mut random = fastrand::Rng::with_seed(59);
    for _ in 0..70_000 {
        let one = random.u8(..100);
        if !alive.remove(&one) {
            alive.insert(one);
        }
        // Slices of ten keep the test fast; together they hold up to a hundred.
        let of_ten = one / 10;
        let name = format!("default/web-{of_ten}");
        let addresses: Vec<_> =
            alive.range(of_ten * 10..of_ten * 10 + 10).map(|n| format!("10.244.3.{n}")).collect();
        let mut changed = slice(&name, "web").port("http", 8080).ready(&[BACKEND_1]);
        changed = changed.ready(&addresses.iter().map(String::as_str).collect::<Vec<_>>());
        agent.say(apply(SLICES, changed));
        agent.settle();
        let holds = agent.maps.holds();
        // Those that came, BACKEND_1 of web, and BACKEND_1 of other.
        assert_eq!(holds.backends.len(), alive.len() + 2);
        assert_eq!(holds.states.len(), holds.backends.len());
        assert_eq!(agent.engine.ids.live(), (2, holds.backends.len()));
        agent.maps.take_log();
    }
    agent.say(delete(SERVICES, web()));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.53:80/TCP -> 10.244.1.21:8080"]);
    assert_nothing_leaks(&agent);
    agent.say(delete(SERVICES, service("default/other", &[])));
    agent.settle();
    assert_eq!(agent.engine.ids.live(), (0, 0));
    assert_nothing_leaks(&agent);
}

#[test]
fn e07_slices_of_one_name_in_two_namespaces_are_never_joined() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, service("a/web", &[VIP]).port("http", 80)));
    agent.say(apply(SERVICES, service("b/web", &[OTHER_VIP]).port("http", 80)));
    agent.say(apply(SLICES, slice("a/web-1", "web").port("http", 8080).ready(&[BACKEND_1])));
    agent.say(apply(SLICES, slice("b/web-1", "web").port("http", 8080).ready(&[BACKEND_2])));
    agent.settle();
    assert_eq!(
        agent.shown(),
        ["10.96.0.50:80/TCP -> 10.244.1.21:8080", "10.96.0.53:80/TCP -> 10.244.2.22:8080"]
    );
}

#[test]
fn e13_service_and_slices_come_and_go_in_either_order() {
    let mut agent = Agent::new();
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    assert!(agent.shown().is_empty());
    agent.say(apply(SERVICES, web()));
    agent.say(delete(SERVICES, web()));
    agent.settle();
    assert!(agent.shown().is_empty());
    agent.say(apply(SERVICES, web()));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    agent.say(delete(SLICES, web_slice(&[])));
    agent.say(delete(SERVICES, web()));
    agent.settle();
    assert!(agent.shown().is_empty());
    assert_nothing_leaks(&agent);
}

#[test]
fn a_service_that_was_replaced_is_back_at_once() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    agent.settle();
    let before = agent.maps.holds().states;
    agent.say(delete(SERVICES, web()));
    assert!(agent.shown().is_empty());
    agent.say(apply(SERVICES, web()));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    agent.settle();
    assert_eq!(agent.maps.holds().states, before, "its backend has the same id");
    assert_nothing_leaks(&agent);
}

#[test]
fn b10_a_renamed_port_keeps_its_frontend_and_gets_its_backends_when_the_slice_follows() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    agent.settle();
    let renamed = service("default/web", &[VIP]).port("web-http", 80);
    agent.say(apply(SERVICES, renamed));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> "]);
    assert!(!agent.maps.take_log().iter().any(|op| matches!(op, Op::DeleteService(_))));
    agent.say(apply(SLICES, slice("default/web-1", "web").port("web-http", 8080).ready(&[BACKEND_1])));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    assert_nothing_leaks(&agent);
}

#[test]
fn b32_a_restarted_agent_takes_nothing_away_before_both_lists_are_complete() {
    let mut agent = Agent::new();
    let gone = service("default/gone", &[OTHER_VIP]).port("http", 80);
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SERVICES, gone));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1, BACKEND_2])));
    agent.settle();
    let before = agent.maps.holds();
    let Agent { maps, .. } = agent;
    maps.take_log();

    let mut agent = Agent::on(&maps);
    agent.say(apply(SERVICES, web()));
    agent.say(on(SERVICES, Event::ListComplete));
    agent.later(Duration::from_secs(5));
    agent.settle();
    assert_eq!(maps.take_log(), []);

    agent.say(apply(SLICES, web_slice(&[BACKEND_1, BACKEND_2])));
    agent.say(on(SLICES, Event::ListComplete));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080 10.244.2.22:8080"]);
    assert_eq!(maps.holds().backends, before.backends, "the same ids in the same block");
    assert_eq!(maps.holds().states, before.states);
    assert_nothing_leaks(&agent);
}

#[test]
fn while_the_addresses_of_the_machine_are_not_known_nothing_is_taken_away() {
    const HOST: usize = 2;
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SERVICES, service("default/gone", &[OTHER_VIP]).port("http", 80)));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1, BACKEND_2])));
    agent.settle();
    let Agent { maps, .. } = agent;
    maps.take_log();

    let mut agent = Agent::with_feeds(&maps, 3);
    agent.say(on(HOST, Event::Failing("the addresses of this machine cannot be read: denied".into())));
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    agent.complete();
    agent.later(Duration::from_secs(3600));
    assert_eq!(maps.take_log(), []);
    assert!(!agent.engine.status().complete);

    agent.say(on(HOST, Event::ListStarted));
    agent.say(apply(HOST, Host::default()));
    agent.say(on(HOST, Event::ListComplete));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    assert_nothing_leaks(&agent);
}

#[test]
fn what_a_killed_agent_left_is_collected_once_the_lists_are_complete() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    agent.say(apply(SLICES, web_slice(&[BACKEND_2])));
    // Killed inside the grace period, and while it wrote yet another block.
    let maps = agent.maps;
    let mut half_written = maps.clone();
    let slot = *maps.holds().backends.iter().next().unwrap().1;
    half_written.apply(&Op::PutBackend(SlotKey { block: 900, slot: 0, pad: 0 }, slot)).unwrap();
    assert_eq!(maps.holds().backends.len(), 3);

    let mut agent = Agent::on(&maps);
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_2])));
    agent.settle();
    assert_eq!(maps.holds().backends.len(), 3);
    agent.complete();
    assert_eq!(maps.holds().backends.len(), 1);
    assert_nothing_leaks(&agent);
}

#[test]
fn the_api_server_keeps_its_last_usable_set() {
    let mut agent = Agent::new();
    let slice_of = |addresses| slice("default/kubernetes", "kubernetes").port("https", 6443).ready(addresses);
    agent.say(apply(SERVICES, service("default/kubernetes", &["10.96.0.1"]).port("https", 443)));
    assert_eq!(agent.shown(), ["10.96.0.1:443/TCP -> "]);
    for (addresses, warnings) in [(&[BACKEND_1][..], 0), (&[], 1), (&[BACKEND_2], 0)] {
        agent.say(apply(SLICES, slice_of(addresses)));
        agent.settle();
        let last = addresses.first().unwrap_or(&BACKEND_1);
        assert_eq!(agent.shown(), [format!("10.96.0.1:443/TCP -> {last}:6443")]);
        assert_eq!(agent.engine.status().warnings, warnings);
    }
    assert_nothing_leaks(&agent);
}

#[test]
fn b69_without_the_list_of_slices_nothing_is_written() {
    let maps = FakeMaps::new(0);
    maps.fail(0.0);
    let mut agent = Agent::on(&maps);
    agent.say(apply(SERVICES, web()));
    agent.say(on(SERVICES, Event::ListComplete));
    agent.say(on(SLICES, Event::Failing("endpointslices: forbidden".into())));
    agent.later(Duration::from_secs(3600));
    assert_eq!(maps.take_log(), []);
    let status = agent.engine.status();
    assert!(!status.complete);
    assert_eq!(status.feeds[SLICES].failing.as_deref(), Some("endpointslices: forbidden"));
}

#[test]
fn a_full_map_keeps_the_earlier_set_and_names_itself() {
    let mut agent = Agent::new();
    agent.maps.resize(Sizes { backends: 4, ..Sizes::default() });
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1, BACKEND_2])));
    agent.settle();
    let before = agent.maps.holds();
    agent.say(apply(SLICES, web_slice(&[BACKEND_1, BACKEND_2, BACKEND_3])));
    let full = "map BACKENDS is full: it has room for 4 entries; a larger one takes `readylb cleanup` and a start with --map-size BACKENDS=N";
    assert_eq!(agent.engine.status().errors, BTreeMap::from([("Service default/web".into(), full.into())]));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080 10.244.2.22:8080"]);
    assert_eq!(agent.maps.holds(), before, "nothing of the new set is left");

    for _ in 0..100 {
        assert!(agent.wait());
    }
    assert_eq!(agent.error(), [full]);
    assert_eq!(agent.maps.holds(), before);

    agent.maps.resize(Sizes::default());
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080 10.244.2.22:8080 10.244.2.23:8080"]);
    assert!(agent.error().is_empty());
    let ids: BTreeSet<_> = agent.maps.holds().states.into_keys().collect();
    assert_eq!(ids, [1, 2, 3].into(), "trying has used up no id");
    assert_nothing_leaks(&agent);
}

#[test]
fn services_that_find_no_room_are_written_as_soon_as_there_is_some() {
    let mut agent = Agent::new();
    // A frontend, and the ClusterIP as a whole.
    agent.maps.resize(Sizes { services: 2, ..Sizes::default() });
    agent.say(apply(SERVICES, web()));
    for (name, vip) in
        [("default/one", "10.96.0.51"), ("default/two", "10.96.0.52"), ("default/three", OTHER_VIP)]
    {
        agent.say(apply(SERVICES, service(name, &[vip]).port("http", 80)));
    }
    for _ in 0..20 {
        agent.wait();
    }
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> "]);
    assert_eq!(agent.error().len(), 3);
    agent.maps.resize(Sizes { services: 4, ..Sizes::default() });
    agent.say(delete(SERVICES, web()));
    assert_eq!(agent.shown().len(), 2, "at once, one after the other, and not after the backoff");
    assert_eq!(agent.error().len(), 1);
}

#[test]
fn the_error_of_a_service_goes_with_it() {
    let mut agent = Agent::new();
    agent.maps.resize(Sizes { services: 0, ..Sizes::default() });
    agent.say(apply(SERVICES, web()));
    assert_eq!(agent.error().len(), 1);
    agent.say(delete(SERVICES, web()));
    assert!(agent.error().is_empty());
    assert_eq!(agent.engine.status().applied, agent.engine.status().generation);
}

#[test]
fn a_set_has_its_full_grace_period_also_after_a_failed_change() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    agent.settle();
    let old_slots = |agent: &Agent| {
        let holds = agent.maps.holds();
        holds.backends.keys().filter(|slot| slot.block == 1).count()
    };
    // A second port finds no room, after the first one went over to another block and came back.
    agent.maps.resize(Sizes { services: 1, ..Sizes::default() });
    agent.engine.handle(apply(SLICES, web_slice(&[BACKEND_1, BACKEND_2])));
    agent.say(apply(SERVICES, web().port("http", 81)));
    assert_eq!(agent.error().len(), 1);
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    agent.later(GRACE / 2);
    agent.say(apply(SERVICES, web()));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080 10.244.2.22:8080"]);
    agent.later(GRACE / 2);
    assert_eq!(old_slots(&agent), 1, "it went out of use half a grace period ago");
    agent.later(GRACE / 2);
    assert_eq!(old_slots(&agent), 0);
    assert_nothing_leaks(&agent);
}

#[test]
fn a_service_is_written_whole_or_not_at_all() {
    let mut agent = Agent::new();
    agent.maps.resize(Sizes { services: 2, ..Sizes::default() });
    let three = service("default/web", &[VIP]).port("http", 80).port("http", 81).port("http", 82);
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    agent.say(apply(SERVICES, three));
    assert!(agent.shown().is_empty());
    assert_eq!(
        agent.error(),
        [
            "map SERVICES is full: it has room for 2 entries; a larger one takes `readylb cleanup` and a start with --map-size SERVICES=N"
        ]
    );
    // It was in reach of packets for a moment, so its slots stay for the grace period.
    assert_eq!(agent.maps.holds().backends.len(), 1);
    agent.later(GRACE);
    assert!(agent.maps.holds().backends.is_empty());
    assert!(agent.maps.holds().states.is_empty());
}

#[test]
fn a_failed_write_is_tried_again_later_and_later_for_its_service_only() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SERVICES, service("default/other", &[OTHER_VIP]).port("http", 80)));
    agent.settle();
    agent.maps.take_log();
    agent.maps.fail(1.0);
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    assert_eq!(agent.engine.status().errors.keys().collect::<Vec<_>>(), ["Service default/web"]);
    assert_eq!(agent.engine.status().write_failures, 1);
    let mut waits = Vec::new();
    for _ in 0..12 {
        let before = agent.now;
        assert!(agent.wait());
        waits.push(agent.now - before);
    }
    // Doubling, with up to as much again in jitter.
    assert!(waits[0] < Duration::from_millis(401), "{waits:?}");
    assert!(waits[11] >= Duration::from_secs(30) && waits[11] <= Duration::from_secs(60), "{waits:?}");
    assert!(agent.engine.status().applied < agent.engine.status().generation);

    agent.maps.fail(0.0);
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080", "10.96.0.53:80/TCP -> "]);
    assert_eq!(agent.engine.status().errors, BTreeMap::new());
    assert_eq!(agent.engine.status().write_failures, 0);
    assert_eq!(agent.engine.status().applied, agent.engine.status().generation);
    let of_other =
        |op: &&Op| matches!(op, Op::PutService(key, _) if key.address == addr::from_v4([10, 96, 0, 53]));
    assert_eq!(agent.maps.take_log().iter().filter(of_other).count(), 0);
}

#[test]
fn what_cannot_be_collected_is_tried_again() {
    let mut agent = Agent::new();
    agent.say(apply(SERVICES, web()));
    agent.say(apply(SLICES, web_slice(&[BACKEND_1])));
    agent.say(apply(SLICES, web_slice(&[BACKEND_2])));
    agent.maps.fail(1.0);
    agent.later(GRACE);
    assert_eq!(agent.engine.status().errors.keys().collect::<Vec<_>>(), [COLLECTION]);
    assert_eq!(agent.engine.status().write_failures, 1);
    agent.maps.fail(0.0);
    agent.settle();
    assert_eq!(agent.engine.status().errors, BTreeMap::new());
    assert_eq!(agent.engine.status().write_failures, 0);
    assert_nothing_leaks(&agent);
}

#[test]
fn b47_when_the_winner_of_an_address_goes_the_other_takes_over() {
    let mut agent = Agent::new();
    let claimant =
        |name, created| Service { created: Some(created), ..service(name, &[VIP]).port("http", 80) };
    let slice_of =
        |name: &str, address| slice(&format!("default/{name}-1"), name).port("http", 8080).ready(&[address]);
    agent.say(apply(SLICES, slice_of("old", BACKEND_1)));
    agent.say(apply(SLICES, slice_of("young", BACKEND_2)));
    agent.say(apply(SERVICES, claimant("default/young", 200)));
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.2.22:8080"]);
    agent.say(apply(SERVICES, claimant("default/old", 100)));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    assert_nothing_leaks(&agent);
    agent.say(delete(SERVICES, claimant("default/old", 100)));
    agent.settle();
    assert_eq!(agent.shown(), ["10.96.0.50:80/TCP -> 10.244.2.22:8080"]);
    assert_nothing_leaks(&agent);
    assert!(!agent.maps.take_log().iter().any(|op| matches!(op, Op::DeleteService(_))));
}

#[test]
fn the_flag_of_orphan_flows_is_cleared_unless_a_frontend_was_removed_since() {
    let mut agent = Agent::new();
    let flags = |agent: &Agent| agent.maps.holds().settings.flags;
    agent.say(apply(SERVICES, web()));
    agent.say(delete(SERVICES, web()));
    agent.settle();
    assert_eq!(flags(&agent), ORPHAN_FLOWS);
    let searched_from = agent.engine.status().removals;
    agent.say(apply(SERVICES, web()));
    agent.say(delete(SERVICES, web()));
    agent.settle();
    assert!(!agent.engine.clear_orphan_flows(searched_from).unwrap());
    assert_eq!(flags(&agent), ORPHAN_FLOWS);
    assert!(agent.engine.clear_orphan_flows(agent.engine.status().removals).unwrap());
    assert_eq!(flags(&agent), 0);
}

#[test]
fn a_change_touches_only_its_service_whatever_else_there_is() {
    let mut agent = Agent::new();
    let many = 500;
    let name = |n: usize| format!("default/service-{n}");
    let slice_of = |n: usize, addresses: &[&str]| -> EndpointSlice {
        slice(&name(n), &format!("service-{n}")).port("http", 8080).ready(addresses)
    };
    for n in 0..many {
        agent.say(apply(
            SERVICES,
            service(&name(n), &[&format!("10.96.{}.{}", 1 + n / 250, n % 250)]).port("http", 80),
        ));
        agent.say(apply(SLICES, slice_of(n, &[BACKEND_1])));
    }
    agent.settle();
    agent.maps.take_log();
    agent.say(apply(SLICES, slice_of(77, &[BACKEND_1, BACKEND_2])));
    agent.settle();
    // State of the new backend, two slots, the switch; and the old slot.
    assert_eq!(agent.maps.take_log().len(), 5);
    assert!(agent.engine.state.desired().service(&key(&name(77))).is_some());
}
