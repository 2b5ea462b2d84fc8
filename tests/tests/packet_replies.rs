//! Whose replies are whose: two VIPs over one backend, entries that the kernel has evicted, and conversations with a
//! backend itself.

use std::net::SocketAddr;

use lb_common::{Direction, Verdict, flow::TOUCH_INTERVAL, service::proto};
use lb_tests::{
    addrs::*,
    conversation::*,
    flows::{Table, flow_key},
    packet::{ACK, FIN, Packet, RST, SYN},
    prog::{Datapath, Hook, Outcome},
    seed::tcp,
};

#[test]
fn two_vips_over_one_backend_never_share_a_reply_tuple() {
    let mut datapath = serving(&[BACKEND_1]);
    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    let other = |flags| Packet::tcp(CLIENT, OTHER_VIP, flags);
    datapath.dropped(&other(SYN), Verdict::TupleInUse);
    assert_eq!(datapath.flows().len(), 2, "nothing is left of the attempt");
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);

    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1, BACKEND_2]);
    datapath.to_backend(&other(SYN), Verdict::FlowCreated, &[BACKEND_2]);
    datapath.from_vip(&segment_of(BACKEND_2, SYN | ACK), OTHER_VIP);
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
}

#[test]
fn the_backend_that_is_free_is_found_whichever_is_chosen_first() {
    let mut datapath = serving(&[BACKEND_1]);
    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1, BACKEND_2]);
    for port in 1..=40 {
        let client = SocketAddr::new(CLIENT.ip(), port);
        establish(&mut datapath, client, &[BACKEND_1]);
        datapath.to_backend(&Packet::tcp(client, OTHER_VIP, SYN), Verdict::FlowCreated, &[BACKEND_2]);
    }
}

#[test]
fn a_dead_flow_gives_its_reply_tuple_to_another_vip() {
    let mut datapath = serving(&[BACKEND_1]);
    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, RST), VIP);

    let other = |flags| Packet::tcp(CLIENT, OTHER_VIP, flags);
    datapath.to_backend(&other(SYN), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, SYN | ACK), OTHER_VIP);
    datapath.refused(&segment(ACK), Verdict::MidflowUnknown);
    datapath.to_backend(&other(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    assert_eq!(tables(&datapath), [Table::Settled; 2], "{datapath:?}");
}

#[test]
fn a_reply_entry_without_its_flow_gives_way() {
    let mut datapath = serving(&[BACKEND_1]);
    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    datapath.evict_flow(&forward_key(proto::TCP));
    datapath.to_backend(&Packet::tcp(CLIENT, OTHER_VIP, SYN), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, SYN | ACK), OTHER_VIP);
}

#[test]
fn a_reply_entry_whose_flow_has_gone_to_another_backend_gives_way() {
    let mut datapath = serving(&[BACKEND_1]);
    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    // As when two CPUs bind the datagrams of one socket at the same time.
    let elsewhere = flow_key(CLIENT, BACKEND_2, proto::TCP, Direction::Forward).tuple;
    datapath.edit_flow(&forward_key(proto::TCP), |value| value.translated = elsewhere);
    datapath.to_backend(&Packet::tcp(CLIENT, OTHER_VIP, SYN), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, SYN | ACK), OTHER_VIP);
}

#[test]
fn an_evicted_reply_entry_comes_back() {
    let mut datapath = serving(&[BACKEND_1]);
    let (forward, reply) = (forward_key(proto::TCP), reply_key(BACKEND_1, proto::TCP));
    datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.evict_flow(&reply);
    datapath.to_backend(&segment(SYN), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, SYN | ACK), VIP);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);

    datapath.evict_flow(&reply);
    for table in [Table::New, Table::Settled] {
        datapath.edit_flow(&forward, |value| value.last_seen -= TOUCH_INTERVAL);
        datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
        datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
        assert_eq!(tables(&datapath), [Table::Settled, table]);
    }
}

#[test]
fn an_evicted_reply_entry_whose_key_was_taken_is_not_taken_back() {
    for begins in [false, true] {
        let mut datapath = serving(&[BACKEND_1]);
        datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
        datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_1]);
        datapath.evict_flow(&reply_key(BACKEND_1, proto::TCP));
        datapath.to_backend(&Packet::tcp(CLIENT, OTHER_VIP, SYN), Verdict::FlowCreated, &[BACKEND_1]);
        datapath.dropped(&segment(if begins { SYN } else { ACK }), Verdict::TupleInUse);
        datapath.from_vip(&segment_of(BACKEND_1, SYN | ACK), OTHER_VIP);
    }
}

#[test]
fn a_direct_connection_after_one_to_the_vip_is_not_touched_and_the_vip_works_again() {
    let direct = |flags| Packet::tcp(CLIENT, BACKEND_1, flags);
    type End = fn(&mut Datapath);
    let ends: &[(&str, End)] = &[
        ("closed", |datapath| {
            datapath.to_backend(&segment(FIN | ACK), Verdict::FlowContinued, &[BACKEND_1]);
            datapath.from_vip(&segment_of(BACKEND_1, FIN | ACK), VIP);
        }),
        ("forgotten by the client", |_| {}),
    ];
    for (name, end) in ends {
        println!("{name}");
        let mut datapath = serving(&[BACKEND_1]);
        establish(&mut datapath, CLIENT, &[BACKEND_1]);
        end(&mut datapath);
        datapath.untouched(&direct(SYN));
        datapath.untouched(&segment_of(BACKEND_1, SYN | ACK));
        datapath.untouched(&direct(ACK));
        datapath.untouched(&segment_of(BACKEND_1, ACK));
        // What is left of the old connection must not get into the new one.
        datapath.refused(&segment(FIN | ACK), Verdict::MidflowUnknown);
        datapath.untouched(&segment_of(BACKEND_1, ACK));

        datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_1]);
        datapath.from_vip(&segment_of(BACKEND_1, SYN | ACK), VIP);
        datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    }
}

#[test]
fn a_direct_syn_that_the_backend_does_not_take_up_leaves_the_connection_alone() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    // Forged, say: the backend holds the connection and answers with an ACK. From its own address, the client would answer
    // that with an RST, and the connection would be lost.
    datapath.untouched(&Packet::tcp(CLIENT, BACKEND_1, SYN));
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
}

#[test]
fn datagrams_to_the_vip_and_to_its_backend_from_one_port_get_their_own_answers() {
    let direct = Packet::udp(CLIENT_UDP, BACKEND_1, b"ask");
    for answered in [false, true] {
        let mut datapath = serving(&[BACKEND_1]);
        if answered {
            converse(&mut datapath, &[BACKEND_1]);
        } else {
            datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_1]);
        }
        for _ in 0..3 {
            datapath.untouched(&direct);
            datapath.untouched(&datagram_of(BACKEND_1));
            datapath.untouched(&datagram_of(BACKEND_1));
            datapath.to_backend(&datagram(), Verdict::FlowContinued, &[BACKEND_1]);
            datapath.from_vip(&datagram_of(BACKEND_1), VIP);
            datapath.from_vip(&datagram_of(BACKEND_1), VIP);
            assert!(datapath.flows().iter().all(|(.., value)| value.flags == 0), "{datapath:?}");
        }
    }
}

#[test]
fn a_direct_conversation_with_another_backend_or_port_changes_nothing() {
    let mut datapath = serving(&[BACKEND_1]);
    establish(&mut datapath, CLIENT, &[BACKEND_1]);
    datapath.untouched(&Packet::tcp(CLIENT, BACKEND_2, SYN));
    datapath.untouched(&Packet::tcp(CLIENT_UDP, BACKEND_1, SYN));
    datapath.untouched(&Packet::udp(CLIENT, BACKEND_1, b"x"));
    datapath.from_vip(&segment_of(BACKEND_1, ACK), VIP);
}

#[test]
fn a_translated_packet_at_a_second_ingress_hook_is_no_direct_conversation() {
    for (packet, reply) in
        [(segment(SYN), segment_of(BACKEND_1, SYN | ACK)), (datagram(), datagram_of(BACKEND_1))]
    {
        let mut datapath = serving(&[BACKEND_1]);
        let outcome = datapath.run_repeatedly(Hook::Ingress, &packet.bytes(), 2);
        assert_eq!(outcome, Outcome::passed(packet.to(BACKEND_1).bytes(), Verdict::FlowCreated));
        datapath.from_vip(&reply, VIP);
    }
}
