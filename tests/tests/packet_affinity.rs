//! Session affinity: which backend the new flows of a client go to.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
};

use lb_common::{AffinityKey, AffinityValue, Verdict, backend::state, flow::SECOND, maps};
use lb_tests::{
    addrs::*,
    conversation::*,
    packet::{ACK, Packet, RST, SYN},
    prog::Datapath,
    seed::{Frontend, tcp, udp},
};

const ALL: [SocketAddr; 3] = [BACKEND_1, BACKEND_2, BACKEND_3];
const TIMEOUT: u32 = 10;

/// A datapath that serves the VIP, TCP and UDP, with affinity of [`TIMEOUT`].
fn sticky(backends: &[SocketAddr]) -> Datapath {
    let mut datapath = Datapath::load();
    for frontend in [tcp(VIP), udp(VIP)] {
        datapath.set_affinity(frontend, TIMEOUT);
        datapath.serve(frontend, backends);
    }
    datapath
}

/// The client with another port.
fn client(port: u16) -> SocketAddr {
    SocketAddr::new(CLIENT.ip(), port)
}

/// Opens a connection from that port of the client. Tells which of the backends it goes to.
fn open(datapath: &mut Datapath, port: u16, backends: &[SocketAddr]) -> SocketAddr {
    datapath.to_backend(&Packet::tcp(client(port), VIP, SYN), Verdict::FlowCreated, backends)
}

/// Where 20 new connections go.
fn open_20(datapath: &mut Datapath, first_port: u16, backends: &[SocketAddr]) -> BTreeSet<SocketAddr> {
    (first_port..first_port + 20).map(|port| open(datapath, port, backends)).collect()
}

/// The backend of the client's record.
fn recorded(datapath: &mut Datapath, frontend: Frontend) -> Option<SocketAddr> {
    let id = datapath.affinity(frontend, CLIENT)?.backend_id;
    ALL.into_iter().find(|backend| datapath.backend_id(frontend, *backend) == id)
}

#[test]
fn new_flows_of_a_client_go_to_one_backend_and_those_of_another_are_its_own() {
    let mut datapath = sticky(&ALL);
    let first = open(&mut datapath, 1000, &ALL);
    assert_eq!(open_20(&mut datapath, 1001, &ALL), [first].into());
    assert_eq!(recorded(&mut datapath, tcp(VIP)), Some(first));

    // A port of the Service is one of its protocols.
    let asked = |port| Packet::udp(client(port), VIP, b"ask");
    let of_udp = datapath.to_backend(&asked(1000), Verdict::FlowCreated, &ALL);
    for port in 1001..1021 {
        datapath.to_backend(&asked(port), Verdict::FlowCreated, &[of_udp]);
    }
    assert_eq!(datapath.hash::<AffinityKey, AffinityValue>(maps::AFFINITY).iter().count(), 2);

    let of_others: BTreeSet<_> = (1..=100)
        .map(|host| SocketAddr::new(Ipv4Addr::new(10, 244, 3, host).into(), 1000))
        .map(|other| {
            let syn = |port| Packet::tcp(SocketAddr::new(other.ip(), port), VIP, SYN);
            let its = datapath.to_backend(&syn(1000), Verdict::FlowCreated, &ALL);
            datapath.to_backend(&syn(1001), Verdict::FlowCreated, &[its])
        })
        .collect();
    assert_eq!(of_others, ALL.into(), "100 clients share three backends");
}

#[test]
fn it_is_the_same_over_ipv6() {
    let mut datapath = Datapath::load();
    let others = [9, 0x23].map(|host| {
        let mut other = BACKEND_V6;
        other.set_ip(format!("2001:db8:2::{host:x}").parse().unwrap());
        other
    });
    let all = [BACKEND_V6, others[0], others[1]];
    datapath.set_affinity(tcp(VIP_V6), TIMEOUT);
    datapath.serve(tcp(VIP_V6), &all);
    let syn = |port| Packet::tcp(SocketAddr::new(CLIENT_V6.ip(), port), VIP_V6, SYN);
    let first = datapath.to_backend(&syn(1000), Verdict::FlowCreated, &all);
    for port in 1001..1021 {
        datapath.to_backend(&syn(port), Verdict::FlowCreated, &[first]);
    }
}

#[test]
fn without_affinity_nothing_is_recorded_and_what_was_is_ignored() {
    let mut datapath = sticky(&[BACKEND_1]);
    open(&mut datapath, 1000, &[BACKEND_1]);
    let before = datapath.affinity(tcp(VIP), CLIENT);
    datapath.set_affinity(tcp(VIP), 0);
    datapath.serve(tcp(VIP), &ALL);
    let reached: BTreeSet<_> = (2000..2100).map(|port| open(&mut datapath, port, &ALL)).collect();
    assert_eq!(reached, ALL.into());
    assert_eq!(datapath.affinity(tcp(VIP), CLIENT), before);
}

#[test]
fn b40_new_connections_leave_a_terminating_backend_and_the_open_one_stays() {
    let mut datapath = sticky(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    datapath.serve_here_and_there(tcp(VIP), &[], &[BACKEND_2], &[BACKEND_1]);
    assert_eq!(open_20(&mut datapath, 1000, &ALL), [BACKEND_2].into());
    assert_eq!(recorded(&mut datapath, tcp(VIP)), Some(BACKEND_2));
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);

    // Whole again, the set has the client's new backend too.
    datapath.serve(tcp(VIP), &ALL);
    assert_eq!(open_20(&mut datapath, 2000, &ALL), [BACKEND_2].into());
    assert_eq!(recorded(&mut datapath, tcp(VIP)), Some(BACKEND_2));
}

#[test]
fn a_backend_that_has_left_is_not_taken_again_whatever_its_state_says() {
    for gone_state in [Some(state::ACTIVE), Some(state::DRAINING), None] {
        let mut datapath = sticky(&[BACKEND_1]);
        open(&mut datapath, 1000, &[BACKEND_1]);
        datapath.serve(tcp(VIP), &[BACKEND_2, BACKEND_3]);
        datapath.set_state(tcp(VIP), BACKEND_1, gone_state);
        let next = open(&mut datapath, 1001, &[BACKEND_2, BACKEND_3]);
        assert_eq!(open_20(&mut datapath, 1002, &ALL), [next].into());
    }
}

#[test]
fn a_backend_that_comes_back_as_another_is_any_of_the_set() {
    let mut datapath = sticky(&[BACKEND_1]);
    open(&mut datapath, 1000, &[BACKEND_1]);
    let before = datapath.affinity(tcp(VIP), CLIENT).unwrap().backend_id;
    datapath.retire(tcp(VIP), BACKEND_1);
    datapath.serve(tcp(VIP), &[BACKEND_1]);
    open(&mut datapath, 1001, &[BACKEND_1]);
    let after = datapath.affinity(tcp(VIP), CLIENT).unwrap().backend_id;
    assert_ne!(after, before);
    assert_eq!(after, datapath.backend_id(tcp(VIP), BACKEND_1));
}

#[test]
fn b42_a_client_comes_back_within_the_timeout_and_is_free_after_it() {
    // No entry can be older than the machine's start.
    const LATE: u64 = 11 * SECOND;
    let mut datapath = sticky(&ALL);
    let first = open(&mut datapath, 1000, &ALL);
    for port in 1001..1021 {
        // The age counts from the last use: 20 times 9 s are far beyond the timeout.
        datapath.age_affinity(tcp(VIP), CLIENT, 9 * SECOND);
        assert_eq!(open(&mut datapath, port, &ALL), first);
    }
    let mut reached = BTreeSet::new();
    for port in 2000..2100 {
        datapath.age_affinity(tcp(VIP), CLIENT, LATE);
        reached.insert(open(&mut datapath, port, &ALL));
    }
    assert_eq!(reached, ALL.into());
    let last = recorded(&mut datapath, tcp(VIP)).unwrap();
    assert_eq!(open_20(&mut datapath, 3000, &ALL), [last].into(), "and then stays with that one");
}

#[test]
fn b42_packets_of_established_flows_neither_move_nor_renew() {
    let mut datapath = sticky(&ALL);
    let backend = establish(&mut datapath, CLIENT, &ALL);
    datapath.age_affinity(tcp(VIP), CLIENT, 11 * SECOND);
    let before = datapath.affinity(tcp(VIP), CLIENT);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[backend]);
    datapath.to_backend(&segment(SYN), Verdict::FlowContinued, &[backend]);
    assert_eq!(datapath.affinity(tcp(VIP), CLIENT), before);
    // A connection in place of a closed one is a new one.
    datapath.from_vip(&segment_of(backend, RST), VIP);
    datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &ALL);
    assert!(datapath.affinity(tcp(VIP), CLIENT).unwrap().last_used > before.unwrap().last_used);
}

#[test]
fn b43_many_source_ports_have_one_backend_for_each_port_of_the_service() {
    // The frontends of a Local policy have the backends of this node only.
    let local: Vec<_> =
        (21..=30).map(|host| SocketAddr::new(Ipv4Addr::new(10, 244, 1, host).into(), 5060)).collect();
    let mut datapath = Datapath::load();
    let frontends = [5060, 40_982].map(|port| udp(SocketAddr::new(VIP.ip(), port)));
    for frontend in frontends {
        datapath.set_affinity(frontend, 10_800);
        datapath.serve_here_and_there(frontend, &local, &[], &[]);
        let its: BTreeSet<_> = (1000..1010)
            .map(|port| Packet::udp(client(port), frontend.0, b"INVITE"))
            .map(|asked| datapath.to_backend(&asked, Verdict::FlowCreated, &local))
            .collect();
        assert_eq!(its.len(), 1, "{frontend:?}: {its:?}");
    }
    let keys: BTreeSet<_> =
        datapath.hash::<AffinityKey, AffinityValue>(maps::AFFINITY).keys().map(Result::unwrap).collect();
    assert_eq!(keys, frontends.map(|frontend| datapath.affinity_key(frontend, CLIENT)).into());
}

#[test]
fn clients_find_their_backends_again_in_large_sets_that_change() {
    const CLIENTS: u8 = 100;
    let pods = |third: u32, count: u16| -> Vec<_> {
        (0..count)
            .map(|n| {
                SocketAddr::new(Ipv4Addr::from_bits(0x0af4_0000 + (third << 12) + u32::from(n)).into(), 80)
            })
            .collect()
    };
    let (here, there) = (pods(1, 900), pods(2, 1100));
    let all = [here.clone(), there.clone()].concat();
    let mut datapath = Datapath::load_with(&[(maps::BACKENDS, 16_384)]);
    datapath.set_affinity(tcp(VIP), TIMEOUT);
    datapath.serve_here_and_there(tcp(VIP), &here, &there, &[]);
    let syn =
        |host: u8, port| Packet::tcp(SocketAddr::new(Ipv4Addr::new(10, 245, 3, host).into(), port), VIP, SYN);
    let had: Vec<_> =
        (0..CLIENTS).map(|host| datapath.to_backend(&syn(host, 1), Verdict::FlowCreated, &all)).collect();

    // Every third one leaves, and as many that are new come with the highest ids: nobody's slot is the same.
    let stays = |backends: &[SocketAddr]| -> Vec<_> {
        backends.iter().enumerate().filter(|(n, _)| n % 3 != 0).map(|(_, backend)| *backend).collect()
    };
    let here = [stays(&here), pods(3, 300)].concat();
    let there = [stays(&there), pods(4, 366)].concat();
    let now = [here.clone(), there.clone()].concat();
    datapath.serve_here_and_there(tcp(VIP), &here, &there, &[]);
    for (host, had) in (0..CLIENTS).zip(had) {
        let may = if now.contains(&had) { vec![had] } else { now.clone() };
        let its = datapath.to_backend(&syn(host, 2), Verdict::FlowCreated, &may);
        datapath.to_backend(&syn(host, 3), Verdict::FlowCreated, &[its]);
    }
}

#[test]
fn a_backend_that_cannot_take_one_connection_stays_the_clients_backend() {
    let mut datapath = sticky(&[BACKEND_1]);
    open(&mut datapath, 1000, &[BACKEND_1]);
    datapath.serve(tcp(VIP), &[BACKEND_1, BACKEND_2]);
    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
    let other = Packet::tcp(CLIENT, OTHER_VIP, SYN);
    datapath.to_backend(&other, Verdict::FlowCreated, &[BACKEND_1]);
    datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_2]);
    assert_eq!(recorded(&mut datapath, tcp(VIP)), Some(BACKEND_1));
    assert_eq!(open_20(&mut datapath, 2000, &ALL), [BACKEND_1].into());
}

#[test]
fn the_backend_that_takes_a_clients_first_connection_is_the_one_it_keeps() {
    for _ in 0..8 {
        let mut datapath = sticky(&[BACKEND_1, BACKEND_2]);
        datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
        let other = Packet::tcp(CLIENT, OTHER_VIP, SYN);
        datapath.to_backend(&other, Verdict::FlowCreated, &[BACKEND_1]);
        datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_2]);
        assert_eq!(recorded(&mut datapath, tcp(VIP)), Some(BACKEND_2));
    }
}

#[test]
fn without_a_backend_a_client_is_refused_as_ever_and_goes_back_if_it_returns() {
    let mut datapath = sticky(&[BACKEND_1]);
    open(&mut datapath, 1000, &[BACKEND_1]);
    datapath.serve(tcp(VIP), &[]);
    datapath.refused(&Packet::tcp(client(1001), VIP, SYN), Verdict::NoBackend);
    datapath.serve(tcp(VIP), &ALL);
    assert_eq!(open_20(&mut datapath, 1002, &ALL), [BACKEND_1].into());
}
