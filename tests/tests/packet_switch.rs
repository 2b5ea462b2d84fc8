//! A backend set that changes under the packets: each of them sees the old set or the new one.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey, Verdict, addr::from_ip,
    backend::state, maps,
};
use lb_tests::{
    addrs::*,
    packet::{Packet, SYN},
    prog::Datapath,
    seed::{service_key, tcp},
};

const CONNECTIONS: u16 = 10_000;

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

    let done = AtomicBool::new(false);
    let (switches, hits) = thread::scope(|scope| {
        let switching = scope.spawn(|| {
            let mut old = services.get(&service_key(tcp(VIP)), 0).unwrap().set;
            let mut switches = 0u32;
            while !done.load(Ordering::Relaxed) {
                let set = SETS[switches as usize % SETS.len()];
                let new =
                    BackendSet { block: old.block + 1, count: u16::try_from(set.len()).unwrap(), local: 0 };
                for (slot, backend) in (0u16..).zip(set) {
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
                switches += 1;
            }
            switches
        });
        // Ends the other thread also when an assertion fails.
        let _stop = Stop(&done);
        let hits: BTreeSet<SocketAddr> = (1..=CONNECTIONS)
            .map(|port| connect(&mut datapath, SocketAddr::new(CLIENT.ip(), port)))
            .collect();
        done.store(true, Ordering::Relaxed);
        (switching.join().unwrap(), hits)
    });
    assert_eq!(hits.len(), 3, "both sets were seen");
    assert!(switches > 1000, "only {switches} switches");
}

/// Opens a connection, which has to get a backend of one of the sets.
fn connect(datapath: &mut Datapath, client: SocketAddr) -> SocketAddr {
    let syn = Packet::tcp(client, VIP, SYN);
    datapath.to_backend(&syn, Verdict::FlowCreated, &SETS.concat())
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
