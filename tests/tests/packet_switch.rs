//! A backend set that changes under the packets: each of them sees the old set or the new one.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU16, Ordering},
    thread,
};

use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey, Verdict, addr::from_ip,
    backend::state, maps, service::proto,
};
use lb_tests::{
    addrs::*,
    packet::{Packet, SYN},
    prog::Datapath,
    seed::{service_key, tcp, udp},
};

const CONNECTIONS: u16 = 10_000;

/// Of so many connections at least one meets a new set, however the machine divides its time.
const CONNECTIONS_PER_SWITCH: u16 = 10;

/// Sets of different sizes without a backend in common.
const SETS: [&[SocketAddr]; 2] = [&[BACKEND_1], &[BACKEND_2, BACKEND_3]];

#[test]
fn no_new_connection_falls_between_two_sets() {
    let mut datapath = Datapath::load();
    datapath.serve(tcp(VIP), SETS[0]);
    let mut services = datapath.take_hash::<ServiceKey, ServiceValue>(maps::SERVICES);
    let mut backends = datapath.take_hash::<SlotKey, BackendValue>(maps::BACKENDS);
    let mut states = datapath.take_hash::<u32, BackendState>(maps::BACKEND_STATE);
    for backend_id in 1..=3 {
        states.insert(backend_id, BackendState { flags: state::ACTIVE }, 0).unwrap();
    }

    let (done, opened, switched) = (AtomicBool::new(false), AtomicU16::new(0), AtomicU16::new(0));
    let hits = thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = Stop(&done);
            let mut old = services.get(&service_key(tcp(VIP)), 0).unwrap().set;
            let mut seen = 0;
            for set in SETS.iter().cycle() {
                let new =
                    BackendSet { block: old.block + 1, count: u16::try_from(set.len()).unwrap(), local: 0 };
                for (slot, backend) in (0u16..).zip(*set) {
                    let (address, port) = (from_ip(backend.ip()), backend.port());
                    let value = BackendValue { address, port, pad: 0, backend_id: 1 };
                    backends.insert(SlotKey { block: new.block, slot, pad: 0 }, value, 0).unwrap();
                }
                let value = ServiceValue { set: new, service_id: 1, ..ServiceValue::default() };
                services.insert(service_key(tcp(VIP)), value, 0).unwrap();
                // At once, where the agent waits: the programs have to notice by themselves.
                for slot in 0..old.count {
                    backends.remove(&SlotKey { block: old.block, slot, pad: 0 }).unwrap();
                }
                old = new;
                switched.fetch_add(1, Ordering::Release);
                // One switch a connection at most: a packet meets two of them at worst, and has more tries than that. Without
                // this a program that is held up between its tries would rightly give up.
                if !wait_for(&done, || opened.load(Ordering::Acquire) != seen) {
                    break;
                }
                seen = opened.load(Ordering::Acquire);
            }
        });
        let _stop = Stop(&done);
        let mut hits = BTreeSet::new();
        for port in 1..=CONNECTIONS {
            hits.insert(connect(&mut datapath, SocketAddr::new(CLIENT.ip(), port)));
            opened.store(port, Ordering::Release);
            wait_for(&done, || switched.load(Ordering::Acquire) >= port / CONNECTIONS_PER_SWITCH);
        }
        hits
    });
    assert_eq!(hits.len(), 3, "both sets were seen");
    assert!(switched.into_inner() >= CONNECTIONS / CONNECTIONS_PER_SWITCH);
}

/// As a map whose blocks somebody has removed by hand: the packet is dropped, and no empty backend is ever sent to.
#[test]
fn a_set_whose_slots_have_gone_takes_no_new_connection() {
    for frontend in [tcp(VIP), udp(VIP)] {
        let mut datapath = Datapath::load();
        datapath.serve(frontend, SETS[0]);
        let set = BackendSet { block: 999, count: 2, local: 0 };
        let value = ServiceValue { set, service_id: 1, ..ServiceValue::default() };
        let mut services = datapath.hash::<ServiceKey, ServiceValue>(maps::SERVICES);
        services.insert(service_key(frontend), value, 0).unwrap();
        let packet = match frontend.1 {
            proto::TCP => Packet::tcp(CLIENT, VIP, SYN),
            _ => Packet::udp(CLIENT, VIP, b"ask"),
        };
        datapath.dropped(&packet, Verdict::BackendSetUnsettled);
        assert!(datapath.flows().is_empty());
    }
}

/// Opens a connection, which has to get a backend of one of the sets.
fn connect(datapath: &mut Datapath, client: SocketAddr) -> SocketAddr {
    let syn = Packet::tcp(client, VIP, SYN);
    datapath.to_backend(&syn, Verdict::FlowCreated, &SETS.concat())
}

/// Whether it came true before the test was over.
fn wait_for(done: &AtomicBool, condition: impl Fn() -> bool) -> bool {
    while !condition() {
        if done.load(Ordering::Relaxed) {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// Ends the wait of the other thread, also when an assertion fails in this one.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
