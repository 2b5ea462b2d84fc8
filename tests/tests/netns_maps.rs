//! The maps in the kernel: what is written can be read, a full map says so, and flows end when they should.

use lb_common::{
    BackendSet, BackendState, BackendValue, FlowKey, FlowValue, ServiceKey, ServiceValue, Settings, SlotKey,
    Verdict,
    addr::from_v4,
    backend::state,
    flow::{Direction, SECOND, Tuple, flags::SOURCE_NAT, seen},
    maps,
    service::{proto, scope},
    settings::flags,
};
use lb_tests::{
    bpf_root::BpfRoot,
    datapath::{MAP_SIZE, config},
};
use lb_userspace::{
    clock,
    datapath::{Datapath, TcAttach},
    flow_gc::{FlowGc, Removed},
    maps::{BpfMaps, LbMaps, MapError, Op, PinnedMaps, SettingsMap, SourceRange, Table},
    object::OBJECT,
};
use std::time::Duration;

const VIP: ServiceKey =
    ServiceKey { address: from_v4([10, 96, 0, 50]), port: 80, proto: proto::TCP, scope: scope::ANY };
const SERVICE: ServiceValue = ServiceValue {
    set: BackendSet { block: 7, count: 1, local: 0 },
    service_id: 3,
    flags: 0,
    affinity_seconds: 0,
    pad: 0,
};
const SLOT: SlotKey = SlotKey { block: 7, slot: 0, pad: 0 };
const BACKEND: BackendValue =
    BackendValue { address: from_v4([10, 244, 1, 21]), port: 8080, pad: 0, backend_id: 11 };
const ACTIVE: BackendState = BackendState { flags: state::ACTIVE };

#[test]
fn what_is_applied_is_in_the_snapshot_and_doing_it_twice_changes_nothing() {
    let root = BpfRoot::new().unwrap();
    let datapath = Datapath::open(OBJECT, &config(root.path(), TcAttach::Tcx)).unwrap();
    let mut maps = BpfMaps::open(datapath.folder()).unwrap();
    let settings = Settings { next_block: 8, ..maps.snapshot().unwrap().settings };
    let puts = [
        Op::PutBackend(SLOT, BACKEND),
        Op::PutState(BACKEND.backend_id, ACTIVE),
        Op::PutService(VIP, SERVICE),
        Op::PutSettings(settings),
    ];
    for op in puts.iter().chain(&puts) {
        maps.apply(op).unwrap();
    }
    let snapshot = maps.snapshot().unwrap();
    assert_eq!(snapshot.services, [(VIP, SERVICE)].into());
    assert_eq!(snapshot.backends, [(SLOT, BACKEND)].into());
    assert_eq!(snapshot.states, [(BACKEND.backend_id, ACTIVE)].into());
    assert_eq!(snapshot.settings, settings);

    // Another agent, and a reader that is none, find the same.
    assert_eq!(BpfMaps::open(datapath.folder()).unwrap().snapshot().unwrap(), snapshot);
    let read = PinnedMaps::open(datapath.folder()).unwrap();
    assert_eq!((read.services.count().unwrap(), read.backends.count().unwrap()), (1, 1));
    assert_eq!(read.counters().unwrap().get(&Verdict::FlowCreated), Some(&0));

    let deletes = [Op::DeleteService(VIP), Op::DeleteBackend(SLOT), Op::DeleteState(BACKEND.backend_id)];
    for op in deletes.iter().chain(&deletes) {
        maps.apply(op).unwrap();
    }
    let snapshot = maps.snapshot().unwrap();
    assert_eq!((snapshot.services.len(), snapshot.backends.len(), snapshot.states.len()), (0, 0, 0));
}

#[test]
fn a_full_map_is_named_with_its_size_and_keeps_what_it_has() {
    let root = BpfRoot::new().unwrap();
    let datapath = Datapath::open(OBJECT, &config(root.path(), TcAttach::Tcx)).unwrap();
    let mut maps = BpfMaps::open(datapath.folder()).unwrap();
    for id in 0..MAP_SIZE {
        maps.apply(&Op::PutState(id, ACTIVE)).unwrap();
    }
    let full = maps.apply(&Op::PutState(MAP_SIZE, ACTIVE));
    assert!(
        matches!(full, Err(MapError::Full { map: maps::BACKEND_STATE, max_entries: MAP_SIZE })),
        "{full:?}"
    );
    maps.apply(&Op::PutState(0, ACTIVE)).unwrap();
    assert_eq!(maps.snapshot().unwrap().states.len(), MAP_SIZE as usize);
}

#[test]
fn source_ranges_are_read_back_as_they_were_written_and_a_full_trie_says_so() {
    let root = BpfRoot::new().unwrap();
    let datapath = Datapath::open(OBJECT, &config(root.path(), TcAttach::Tcx)).unwrap();
    let mut maps = BpfMaps::open(datapath.folder()).unwrap();
    let range = |service_id, client, bits| SourceRange { service_id, client, bits };
    let v4 = from_v4([192, 0, 2, 0]);
    let ranges = [
        range(1, v4, 120),
        range(1, v4, 128),
        range(1, [0; 16], 0),
        range(2, v4, 120),
        range(u32::MAX, from_v4([0; 4]), 96),
    ];
    for op in ranges.map(Op::PutRange) {
        maps.apply(&op).unwrap();
        maps.apply(&op).unwrap();
    }
    assert_eq!(maps.snapshot().unwrap().ranges, ranges.into());
    for _ in 0..2 {
        maps.apply(&Op::DeleteRange(ranges[1])).unwrap();
    }
    assert_eq!(maps.snapshot().unwrap().ranges.len(), ranges.len() - 1);
    let numbered = |number: u32| Op::PutRange(range(3, from_v4(number.to_be_bytes()), 128));
    for number in 0..MAP_SIZE - 4 {
        maps.apply(&numbered(number)).unwrap();
    }
    let full = maps.apply(&numbered(MAP_SIZE));
    assert!(
        matches!(full, Err(MapError::Full { map: maps::SOURCE_RANGES, max_entries: MAP_SIZE })),
        "{full:?}"
    );
    maps.apply(&Op::DeleteRange(ranges[0])).unwrap();
    maps.apply(&numbered(MAP_SIZE)).unwrap();
    assert_eq!(maps.snapshot().unwrap().ranges.len(), MAP_SIZE as usize);
}

#[test]
fn a_walk_reads_every_entry_once_while_others_come_and_go() {
    let root = BpfRoot::new().unwrap();
    let datapath = Datapath::open(OBJECT, &config(root.path(), TcAttach::Tcx)).unwrap();
    let mut table = Table::<u32, BackendState>::open(datapath.folder(), maps::BACKEND_STATE).unwrap();
    let lasting = 0..500;
    for id in lasting.clone() {
        table.put(&id, &ACTIVE).unwrap();
    }
    let mut seen = Vec::new();
    let mut from = None;
    for passing in 500.. {
        let step = table.step(from, 16).unwrap();
        // What the walk has just read goes, apart from what has to last.
        for (id, _) in &step.entries {
            if !lasting.contains(id) {
                table.remove(id).unwrap();
            }
        }
        table.put(&passing, &ACTIVE).unwrap();
        seen.extend(step.entries.into_iter().map(|(id, _)| id).filter(|id| lasting.contains(id)));
        from = step.next;
        if from.is_none() {
            break;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, lasting.collect::<Vec<_>>());
}

#[test]
fn the_migration_window_begins_with_the_first_start_and_restarts_do_not_prolong_it() {
    let root = BpfRoot::new().unwrap();
    let mut config = config(root.path(), TcAttach::Tcx);
    config.migration_window = Duration::from_secs(60);
    let before = clock::monotonic();
    let datapath = Datapath::open(OBJECT, &config).unwrap();
    let until = SettingsMap::open(datapath.folder()).unwrap().get().unwrap().migration_until;
    assert!((before + 60 * SECOND..=clock::monotonic() + 60 * SECOND).contains(&until));
    drop(datapath);

    config.migration_window = Duration::from_secs(3600);
    let datapath = Datapath::open(OBJECT, &config).unwrap();
    assert_eq!(SettingsMap::open(datapath.folder()).unwrap().get().unwrap().migration_until, until);
}

/// The entries of a flow from `client_port` to the VIP, silent since `last_seen`.
fn flow(client_port: u16, forward_seen: u8, reply_seen: u8, last_seen: u64) -> [(FlowKey, FlowValue); 2] {
    let client = from_v4([10, 244, 1, 5]);
    let tuple = |source, source_port, destination, destination_port| Tuple {
        source,
        destination,
        source_port,
        destination_port,
    };
    let value = |translated, seen| FlowValue {
        last_seen,
        translated,
        backend_id: BACKEND.backend_id,
        service_id: SERVICE.service_id,
        seen,
        flags: 0,
        pad: 0,
    };
    let requests = tuple(client, client_port, VIP.address, VIP.port);
    let translated = tuple(client, client_port, BACKEND.address, BACKEND.port);
    [
        (FlowKey::new(requests, VIP.proto, Direction::Forward), value(translated, forward_seen)),
        (
            FlowKey::new(translated.reversed(), VIP.proto, Direction::Reply),
            value(requests.reversed(), reply_seen),
        ),
    ]
}

/// The entries of such a flow when `port` of the node stands for its client; the latter two are as old as `chosen`.
fn flow_with_source_nat(
    client_port: u16,
    [forward_seen, reply_seen]: [u8; 2],
    last_seen: u64,
    port: u16,
    chosen: u64,
) -> [(FlowKey, FlowValue); 4] {
    let [mut forward, mut reply] = flow(client_port, forward_seen, reply_seen, last_seen);
    (forward.1.flags, reply.1.flags) = (SOURCE_NAT, SOURCE_NAT);
    let to_backend = forward.1.translated;
    let from_node = Tuple { source: from_v4([192, 168, 50, 11]), source_port: port, ..to_backend };
    let value = |translated| FlowValue { last_seen: chosen, translated, seen: 0, ..forward.1 };
    let outward = (FlowKey::new(to_backend, VIP.proto, Direction::Outward), value(from_node));
    let back =
        (FlowKey::new(from_node.reversed(), VIP.proto, Direction::Return), value(to_backend.reversed()));
    [forward, reply, outward, back]
}

const HOUR: u64 = 3600 * SECOND;
/// The time of the last packet of flows that have been silent for long.
const LONG_AGO: u64 = SECOND;
const NOW: u64 = LONG_AGO + 2 * HOUR;
/// Frontends removed so far.
const REMOVALS: u64 = 4;
const ESTABLISHED: [u8; 2] = [seen::ANY | seen::ANSWERED, seen::ANY];

/// The tables of flows, and what collects them.
struct Flows {
    _root: BpfRoot,
    datapath: Datapath,
    flows_new: Table<FlowKey, FlowValue>,
    flows: Table<FlowKey, FlowValue>,
    gc: FlowGc,
}

impl Flows {
    fn new() -> anyhow::Result<Self> {
        let root = BpfRoot::new()?;
        let datapath = Datapath::open(OBJECT, &config(root.path(), TcAttach::Tcx))?;
        Ok(Self {
            flows_new: Table::open(datapath.folder(), maps::FLOWS_NEW)?,
            flows: Table::open(datapath.folder(), maps::FLOWS)?,
            gc: FlowGc::open(datapath.folder())?,
            datapath,
            _root: root,
        })
    }
}

#[test]
fn flows_that_have_ended_go_with_both_entries_wherever_these_are_and_others_stay() {
    let mut tables = Flows::new().unwrap();
    let [forward, reply] = ESTABLISHED;
    let closed = flow(1, forward | seen::FIN, reply | seen::FIN, LONG_AGO);
    let unanswered = flow(2, seen::ANY, 0, LONG_AGO);
    let between_tables = flow(3, forward | seen::RST, reply, LONG_AGO);
    let idle = flow(4, forward | seen::FIN, reply, LONG_AGO);
    let established = flow(5, forward, reply, LONG_AGO);
    let fresh = flow(6, seen::ANY, 0, NOW);
    let mut half_fresh = flow(7, seen::ANY, 0, LONG_AGO);
    half_fresh[1].1.last_seen = NOW;
    let in_flows =
        [&closed[0], &closed[1], &between_tables[0], &idle[0], &idle[1], &established[0], &established[1]];
    for (key, value) in in_flows {
        tables.flows.put(key, value).unwrap();
    }
    let in_new = [
        &unanswered[0],
        &unanswered[1],
        &between_tables[1],
        &fresh[0],
        &fresh[1],
        &half_fresh[0],
        &half_fresh[1],
    ];
    for (key, value) in in_new {
        tables.flows_new.put(key, value).unwrap();
    }

    let pass = tables.gc.round(NOW, REMOVALS, usize::MAX).unwrap().unwrap();
    assert_eq!(pass.removed, Removed { closed: 2, unanswered: 1, idle: 1 });
    assert_eq!((pass.began, pass.removals), (NOW, REMOVALS));
    assert_eq!(pass.orphans, None, "nobody asked");
    for (key, _) in established {
        assert!(tables.flows.get(&key).unwrap().is_some());
    }
    for (key, _) in fresh.iter().chain(&half_fresh) {
        assert!(tables.flows_new.get(key).unwrap().is_some());
    }
    assert_eq!((tables.flows.count().unwrap(), tables.flows_new.count().unwrap()), (2, 4));

    let again = tables.gc.round(NOW, REMOVALS, usize::MAX).unwrap().unwrap();
    assert_eq!((again.removed, again.entries), (pass.removed, 6));
}

#[test]
fn a_port_that_stands_for_a_client_is_free_when_its_flow_ends_and_not_before() {
    let mut tables = Flows::new().unwrap();
    let [forward, reply] = ESTABLISHED;
    let closed =
        flow_with_source_nat(1, [forward | seen::FIN, reply | seen::FIN], LONG_AGO, 61_001, LONG_AGO);
    let established = flow_with_source_nat(2, ESTABLISHED, LONG_AGO, 61_002, LONG_AGO);
    let unanswered = flow_with_source_nat(3, [seen::ANY, 0], LONG_AGO, 61_003, LONG_AGO);
    let without_flow = flow_with_source_nat(4, ESTABLISHED, LONG_AGO, 61_004, LONG_AGO);
    let alone = flow_with_source_nat(5, ESTABLISHED, LONG_AGO, 61_005, LONG_AGO);
    let being_made = flow_with_source_nat(6, ESTABLISHED, NOW, 61_006, NOW);
    let forward_evicted = flow_with_source_nat(7, ESTABLISHED, LONG_AGO, 61_007, LONG_AGO);
    // Of a flow that another one has since followed, without source NAT.
    let followed = flow_with_source_nat(8, ESTABLISHED, LONG_AGO, 61_008, LONG_AGO);
    let follower = flow(8, forward, reply, NOW);
    for (key, value) in closed.iter().chain(&established) {
        tables.flows.put(key, value).unwrap();
    }
    let in_new = unanswered
        .iter()
        .chain(&without_flow[2..])
        .chain(&alone[3..])
        .chain(&being_made[3..])
        .chain(&forward_evicted[1..])
        .chain(&follower)
        .chain(&followed[2..]);
    for (key, value) in in_new {
        tables.flows_new.put(key, value).unwrap();
    }

    let pass = tables.gc.round(NOW, REMOVALS, usize::MAX).unwrap().unwrap();
    assert_eq!(pass.removed, Removed { closed: 1, unanswered: 2, idle: 0 });
    let left = |table: &Table<FlowKey, FlowValue>| {
        let mut keys: Vec<_> = table.iter().map(|entry| entry.unwrap().0).collect();
        keys.sort_unstable();
        keys
    };
    let keys = |entries: &[(FlowKey, FlowValue)]| {
        let mut keys: Vec<_> = entries.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    };
    assert_eq!(left(&tables.flows), keys(&established));
    assert_eq!(left(&tables.flows_new), keys(&[follower[0], follower[1], being_made[3]]));
}

#[test]
fn a_reply_entry_of_an_earlier_backend_goes_without_the_live_flow_of_its_client() {
    let mut tables = Flows::new().unwrap();
    let [forward, reply] = ESTABLISHED;
    let mut live = flow(1, forward, reply, NOW);
    let [_, stale] = flow(1, seen::ANY, seen::ANY, LONG_AGO);
    let other_backend = from_v4([10, 244, 2, 22]);
    live[0].1.translated.destination = other_backend;
    live[1].0.tuple.source = other_backend;
    for (key, value) in live.iter().chain([&stale]) {
        tables.flows.put(key, value).unwrap();
    }
    tables.gc.round(NOW, REMOVALS, usize::MAX).unwrap();
    assert!(tables.flows.get(&stale.0).unwrap().is_none());
    assert_eq!(tables.flows.count().unwrap(), 2);
}

#[test]
fn a_pass_in_small_rounds_ends_and_finds_the_same() {
    let mut tables = Flows::new().unwrap();
    const FLOWS: u16 = 200;
    for port in 0..FLOWS {
        for (key, value) in flow(port, seen::ANY, 0, LONG_AGO) {
            tables.flows_new.put(&key, &value).unwrap();
        }
    }
    let mut rounds = 1;
    let pass = loop {
        if let Some(pass) = tables.gc.round(NOW, REMOVALS, 16).unwrap() {
            break pass;
        }
        rounds += 1;
    };
    assert!(rounds > 1);
    assert_eq!(pass.removed, Removed { unanswered: FLOWS.into(), ..Removed::default() });
    assert_eq!(tables.flows_new.count().unwrap(), 0);
}

#[test]
fn a_crowded_table_gives_up_closed_flows_sooner() {
    let mut tables = Flows::new().unwrap();
    let [forward, reply] = ESTABLISHED;
    let closed_at = LONG_AGO;
    for port in 0..u16::try_from(MAP_SIZE * 2 / 5).unwrap() {
        for (key, value) in flow(port, forward | seen::FIN, reply | seen::FIN, closed_at) {
            tables.flows.put(&key, &value).unwrap();
        }
    }
    let now = closed_at + 11 * SECOND;
    let first = tables.gc.round(now, REMOVALS, usize::MAX).unwrap().unwrap();
    assert_eq!(first.removed, Removed::default(), "that it is crowded is known at the end of a pass");
    let second = tables.gc.round(now, REMOVALS, usize::MAX).unwrap().unwrap();
    assert_eq!(second.removed.closed, u64::from(MAP_SIZE * 2 / 5));
    assert_eq!(tables.flows.count().unwrap(), 0);
}

#[test]
fn flows_without_a_frontend_are_counted_while_somebody_asks() {
    let mut tables = Flows::new().unwrap();
    let [forward, reply] = ESTABLISHED;
    for (key, value) in flow(1, forward, reply, NOW) {
        tables.flows.put(&key, &value).unwrap();
    }
    let mut maps = BpfMaps::open(tables.datapath.folder()).unwrap();
    maps.apply(&Op::PutSettings(Settings { flags: flags::ORPHAN_FLOWS, ..Settings::default() })).unwrap();
    assert_eq!(tables.gc.round(NOW, REMOVALS, usize::MAX).unwrap().unwrap().orphans, Some(1));
    maps.apply(&Op::PutService(VIP, SERVICE)).unwrap();
    assert_eq!(tables.gc.round(NOW, REMOVALS, usize::MAX).unwrap().unwrap().orphans, Some(0));
}
