//! Which packets keep the backend of their flow, and which get another, as backends and frontends come and go.

use std::net::SocketAddr;

use lb_common::{Settings, Verdict, backend::state, settings};
use lb_tests::{
    addrs::*,
    conversation::*,
    flows::Table,
    packet::{ACK, FIN, Packet, RST, SYN},
    prog::Datapath,
    seed::{tcp, udp},
};

const ALL: [SocketAddr; 3] = [BACKEND_1, BACKEND_2, BACKEND_3];

#[test]
fn a_repeated_syn_keeps_its_backend() {
    let mut datapath = serving(&ALL);
    let backend = datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &ALL);
    for _ in 0..20 {
        datapath.to_backend(&segment(SYN), Verdict::FlowContinued, &[backend]);
    }
    datapath.from_vip(&segment_of(backend, SYN | ACK), VIP);
    datapath.to_backend(&segment(SYN), Verdict::FlowContinued, &[backend]);
    assert_eq!(datapath.flows().len(), 2);
}

#[test]
fn b35_a_syn_whose_backend_has_gone_chooses_afresh() {
    for (name, gone_state) in [("gone", None), ("draining", Some(state::DRAINING))] {
        let mut datapath = serving(&[BACKEND_1]);
        establish(&mut datapath, CLIENT, &[BACKEND_1]);
        datapath.serve(tcp(VIP), &[BACKEND_2, BACKEND_3]);
        datapath.set_state(tcp(VIP), BACKEND_1, gone_state);

        println!("{name}");
        let backend = datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_2, BACKEND_3]);
        assert_eq!(tables(&datapath), [Table::New; 2], "nothing is left of the old flow: {datapath:?}");
        datapath.from_vip(&segment_of(backend, SYN | ACK), VIP);
        datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[backend]);
        datapath.untouched(&segment_of(BACKEND_1, ACK));
    }
}

#[test]
fn a_syn_on_a_closed_connection_chooses_afresh() {
    type End = fn(&mut Datapath, SocketAddr);
    let ends: &[(&str, End)] = &[
        ("both have closed", |datapath, backend| {
            datapath.to_backend(&segment(FIN | ACK), Verdict::FlowContinued, &[backend]);
            datapath.from_vip(&segment_of(backend, FIN | ACK), VIP);
            datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[backend]);
        }),
        ("the backend has reset it", |datapath, backend| {
            datapath.from_vip(&segment_of(backend, RST), VIP);
        }),
        ("the client has reset it", |datapath, backend| {
            datapath.to_backend(&segment(RST), Verdict::FlowContinued, &[backend]);
        }),
    ];
    for (name, end) in ends {
        println!("{name}");
        let mut datapath = serving(&[BACKEND_1]);
        establish(&mut datapath, CLIENT, &[BACKEND_1]);
        end(&mut datapath, BACKEND_1);
        // With one backend, the new flow has the key of the old one.
        datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_1]);
        assert_eq!(tables(&datapath), [Table::New; 2]);
        datapath.from_vip(&segment_of(BACKEND_1, SYN | ACK), VIP);
        datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
        assert_eq!(tables(&datapath), [Table::Settled; 2]);
    }
}

#[test]
fn a_backend_that_left_and_came_back_takes_over_its_own_flows() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    converse(&mut datapath, &[BACKEND_1]);
    for frontend in [tcp(VIP), udp(VIP)] {
        datapath.retire(frontend, BACKEND_1);
        datapath.serve(frontend, &[BACKEND_1]);
    }
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.from_vip(&datagram_of(BACKEND_1), VIP);
    assert_eq!(datapath.flows().len(), 4);
}

#[test]
fn b34_a_connection_goes_on_while_its_backend_drains_and_after_it_has_gone() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    datapath.serve(tcp(VIP), &[BACKEND_2]);
    for gone_state in [Some(state::DRAINING), None] {
        datapath.set_state(tcp(VIP), BACKEND_1, gone_state);
        datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
        datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
    }
    let other = Packet::tcp(CLIENT_UDP, VIP, SYN);
    datapath.to_backend(&other, Verdict::FlowCreated, &[BACKEND_2]);
}

#[test]
fn b36_without_backends_connections_go_on_and_new_ones_are_refused() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    datapath.serve(tcp(VIP), &[]);
    datapath.set_state(tcp(VIP), BACKEND_1, None);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.refused(&Packet::tcp(CLIENT_UDP, VIP, SYN), Verdict::NoBackend);
    datapath.refused(&segment(SYN), Verdict::NoBackend);
    // The SYN may have been forged, or late.
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
}

/// A kubelet that restarts calls pods with probes not ready for a moment.
#[test]
fn b18_a_backend_that_is_not_ready_for_a_moment_keeps_its_connections() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    datapath.serve(tcp(VIP), &[]);
    datapath.retire(tcp(VIP), BACKEND_1);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
    let other = Packet::tcp(CLIENT_UDP, VIP, SYN);
    datapath.refused(&other, Verdict::NoBackend);
    datapath.serve(tcp(VIP), &[BACKEND_1]);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.to_backend(&other, Verdict::FlowCreated, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
}

#[test]
fn udp_stays_while_its_backend_serves_and_moves_when_it_has_gone() {
    let mut datapath = serving(&[BACKEND_1]);
    converse(&mut datapath, &[BACKEND_1]);
    datapath.serve(udp(VIP), &[BACKEND_2]);
    datapath.set_state(udp(VIP), BACKEND_1, Some(state::DRAINING));
    datapath.to_backend(&datagram(), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.set_state(udp(VIP), BACKEND_1, None);
    datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_2]);
    datapath.from_vip(&datagram_of(BACKEND_2), VIP);
    assert_eq!(datapath.flows().len(), 2, "{datapath:?}");
}

#[test]
fn b30_udp_reaches_a_backend_as_soon_as_there_is_one() {
    let mut datapath = Datapath::load();
    datapath.untouched(&datagram());
    datapath.serve(udp(VIP), &[]);
    datapath.refused(&datagram(), Verdict::NoBackend);
    datapath.serve(udp(VIP), &[BACKEND_1]);
    datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_1]);
}

#[test]
fn udp_moves_with_an_address_that_now_belongs_to_another_service() {
    let mut datapath = serving(&[BACKEND_1]);
    converse(&mut datapath, &[BACKEND_1]);
    // Another Service now has the address, while the first keeps its backends elsewhere.
    datapath.serve(udp(OTHER_VIP), &[BACKEND_2]);
    datapath.hand_over(udp(OTHER_VIP), udp(VIP));
    datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_2]);
}

#[test]
fn connections_of_a_removed_frontend_go_on_while_the_agent_says_that_there_are_some() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    converse(&mut datapath, &[BACKEND_1]);
    datapath.stop_serving(tcp(VIP));
    datapath.stop_serving(udp(VIP));
    datapath.set_settings(Settings { flags: settings::flags::ORPHAN_FLOWS, ..Settings::default() });
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
    let fragment = segment(ACK).fragment(0, true);
    datapath.to_backend(&fragment, Verdict::FlowContinued, &[BACKEND_1]);
    datapath.untouched(&segment(SYN));
    datapath.untouched(&datagram());
    datapath.untouched(&Packet::tcp(CLIENT_UDP, VIP, ACK));

    datapath.set_settings(Settings::default());
    datapath.untouched(&segment(ACK));
}
