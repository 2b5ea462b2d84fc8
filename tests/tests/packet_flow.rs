//! The life of a flow: where its entries are, how long, and what a flood or a full table does to it.

use std::net::SocketAddr;

use lb_common::{
    Verdict,
    flow::{SECOND, TOUCH_INTERVAL},
    maps,
    service::proto,
};
use lb_tests::{
    addrs::*,
    conversation::*,
    flows::Table,
    packet::{ACK, Packet, SYN},
    prog::Datapath,
    seed::tcp,
};

const ALL: [SocketAddr; 3] = [BACKEND_1, BACKEND_2, BACKEND_3];

#[test]
fn a_connection_moves_to_flows_when_its_client_answers_and_goes_on_there() {
    let mut datapath = serving(&ALL);
    let backend = datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &ALL);
    datapath.from_vip(&segment_of(backend, SYN | ACK), VIP);
    assert_eq!(tables(&datapath), [Table::New; 2]);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[backend]);
    assert_eq!(tables(&datapath), [Table::Settled; 2]);
    for _ in 0..3 {
        datapath.to_backend(&segment(ACK).with_payload(b"GET"), Verdict::FlowContinued, &[backend]);
        datapath.from_vip(&segment_of(backend, ACK).with_payload(b"200"), VIP);
    }
    assert_eq!(tables(&datapath), [Table::Settled; 2]);
}

#[test]
fn a_datagram_after_the_answer_moves_its_flow_to_flows() {
    let mut datapath = serving(&ALL);
    let backend = datapath.to_backend(&datagram(), Verdict::FlowCreated, &ALL);
    datapath.to_backend(&datagram(), Verdict::FlowContinued, &[backend]);
    datapath.from_vip(&datagram_of(backend), VIP);
    assert_eq!(tables(&datapath), [Table::New; 2]);
    datapath.to_backend(&datagram(), Verdict::FlowContinued, &[backend]);
    assert_eq!(tables(&datapath), [Table::Settled; 2]);
    datapath.from_vip(&datagram_of(backend), VIP);
}

#[test]
fn silence_ends_a_flow_and_only_when_both_directions_were_silent() {
    // Unanswered, so that 30 seconds are enough: no entry can be older than the machine's start.
    let mut datapath = serving(&[BACKEND_1]);
    let (forward, reply) = (forward_key(proto::UDP), reply_key(BACKEND_1, proto::UDP));
    datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.edit_flow(&forward, |value| value.last_seen -= 31 * SECOND);
    datapath.to_backend(&datagram(), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.edit_flow(&forward, |value| value.last_seen -= 31 * SECOND);
    datapath.edit_flow(&reply, |value| value.last_seen -= 31 * SECOND);
    datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_1]);
}

#[test]
fn the_time_of_a_flow_is_renewed_once_in_an_interval() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    let keys = [forward_key(proto::TCP), reply_key(BACKEND_1, proto::TCP)];
    let times = |datapath: &Datapath| keys.map(|key| datapath.flow(&key).expect("it is there").1.last_seen);
    let pass = |datapath: &mut Datapath| {
        datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
        datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
    };
    // In the future, so that no interval can end while the test runs.
    keys.iter().for_each(|key| datapath.edit_flow(key, |value| value.last_seen += 3600 * SECOND));
    let before = times(&datapath);
    pass(&mut datapath);
    assert_eq!(times(&datapath), before);

    keys.iter()
        .for_each(|key| datapath.edit_flow(key, |value| value.last_seen -= 3600 * SECOND + TOUCH_INTERVAL));
    let before = times(&datapath);
    pass(&mut datapath);
    let after = times(&datapath);
    assert!(
        before.iter().zip(after).all(|(before, after)| after >= before + TOUCH_INTERVAL),
        "{before:?} {after:?}"
    );
}

#[test]
fn b38_a_flood_of_syns_displaces_no_established_connection() {
    const FLOOD: u16 = 10_000;
    let mut datapath = Datapath::load_with(&[(maps::FLOWS_NEW, 1024), (maps::FLOWS, 1024)]);
    datapath.serve(tcp(VIP), &ALL[..2]);
    let backend = establish(&mut datapath, CLIENT, &ALL[..2]);
    let half_open = SocketAddr::new(CLIENT.ip(), 39_999);
    datapath.to_backend(&Packet::tcp(half_open, VIP, SYN), Verdict::FlowCreated, &ALL[..2]);
    for port in 1..=FLOOD {
        let flood = Packet::tcp(SocketAddr::new(STRANGER.ip(), port), VIP, SYN);
        datapath.to_backend(&flood, Verdict::FlowCreated, &ALL[..2]);
    }
    datapath.serve(tcp(VIP), &ALL);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[backend]);
    datapath.from_vip(&segment_of(backend, ACK), VIP);
    // What the flood has displaced never goes on at another backend.
    datapath.refused(&Packet::tcp(half_open, VIP, ACK), Verdict::MidflowUnknown);
}

#[test]
fn when_flows_is_full_a_connection_goes_on_where_it_is() {
    let mut datapath = Datapath::load_with(&[(maps::FLOWS, 2)]);
    datapath.serve(tcp(VIP), &ALL);
    let first = establish(&mut datapath, CLIENT, &ALL);
    let second = establish(&mut datapath, CLIENT_UDP, &ALL);
    assert_eq!(tables(&datapath), [Table::Settled, Table::Settled, Table::New, Table::New]);
    for (client, backend) in [(CLIENT, first), (CLIENT_UDP, second)] {
        datapath.to_backend(&Packet::tcp(client, VIP, ACK), Verdict::FlowContinued, &[backend]);
        datapath.from_vip(&Packet::tcp(backend, client, ACK), VIP);
    }
    assert_eq!(tables(&datapath), [Table::Settled, Table::Settled, Table::New, Table::New]);
}
