//! Source NAT: a backend on another node sees an address of this node, so that its replies come back through it.

use std::{collections::BTreeSet, net::SocketAddr};

use lb_common::{
    Direction, LinkValue, NodeValue, Verdict,
    addr::from_ip,
    flow::seen,
    service::proto,
    source_nat::{FIRST_PORT, PORTS, is_port},
};
use lb_tests::{
    addrs::*,
    external::*,
    flows::{Table, flow_key},
    packet::{ACK, Packet, SYN},
    prog::{Action, Datapath, Hook, Outcome},
    seed::Frontend,
};

/// A client, a frontend and a backend on another node, of each family.
const ENDS: [(SocketAddr, SocketAddr, SocketAddr); 2] =
    [(OUTSIDER, NODE_PORT, BACKEND_2), (OUTSIDER_V6, NODE_PORT_V6, BACKEND_V6)];

const FRONTEND: Frontend = (NODE_PORT, proto::UDP);

fn serving_node_port(backends: &[SocketAddr]) -> Datapath {
    let mut datapath = on_a_node();
    datapath.serve_outside(FRONTEND, &[], backends);
    datapath
}

fn ask() -> Packet {
    packet(proto::UDP, OUTSIDER, NODE_PORT, 0)
}

fn answer(stand_in: SocketAddr) -> Packet {
    packet(proto::UDP, BACKEND_2, stand_in, 0)
}

#[test]
fn a_conversation_with_a_backend_on_another_node_leaves_and_comes_back_through_this_one() {
    for (client, vip, backend) in ENDS {
        for number in [proto::TCP, proto::UDP] {
            let mut datapath = on_a_node();
            datapath.serve_outside((vip, number), &[], &[backend]);
            let stand_in = datapath.hidden(&packet(number, client, vip, SYN), Verdict::FlowCreated, backend);
            assert_eq!(stand_in.ip(), if client.is_ipv4() { NODE_PORT.ip() } else { NODE_PORT_V6.ip() });
            assert!(is_port(stand_in.port()));
            let again = datapath.hidden(&packet(number, client, vip, SYN), Verdict::FlowContinued, backend);
            assert_eq!(again, stand_in, "a retransmission");
            datapath.called_back(&packet(number, backend, stand_in, SYN | ACK), vip, client);
            for _ in 0..2 {
                let next =
                    datapath.hidden(&packet(number, client, vip, ACK), Verdict::FlowContinued, backend);
                assert_eq!(next, stand_in);
                datapath.called_back(&packet(number, backend, stand_in, ACK), vip, client);
            }
            let tables: Vec<Table> = datapath.flows().into_iter().map(|(table, ..)| table).collect();
            assert_eq!(tables, [Table::Settled; 4], "{datapath:?}");
        }
    }
}

#[test]
fn a_backend_on_this_node_sees_its_client() {
    for (client, vip, backend) in ENDS {
        let mut datapath = on_a_node();
        datapath.serve_outside((vip, proto::TCP), &[backend], &[]);
        datapath.seen(&Packet::tcp(client, vip, SYN), Verdict::FlowCreated, backend);
        datapath.from_vip(&Packet::tcp(backend, client, SYN | ACK), vip);
        datapath.seen(&Packet::tcp(client, vip, ACK), Verdict::FlowContinued, backend);
        assert_eq!(datapath.flows().len(), 2);
    }
}

#[test]
fn among_backends_here_and_there_only_those_there_see_the_node() {
    let mut datapath = on_a_node();
    datapath.serve_outside((NODE_PORT, proto::TCP), &[BACKEND_1], &[BACKEND_2]);
    let mut chosen = BTreeSet::new();
    for port in 1..=40 {
        let client = SocketAddr::new(OUTSIDER.ip(), port);
        let syn = Packet::tcp(client, NODE_PORT, SYN);
        let outcome = datapath.forwarded(&syn);
        let (want, backend) = match datapath.stand_in(client, BACKEND_2, proto::TCP) {
            Some(stand_in) => (syn.from(stand_in).to(BACKEND_2), BACKEND_2),
            None => (syn.to(BACKEND_1), BACKEND_1),
        };
        assert_eq!(outcome.bytes, want.bytes());
        chosen.insert(backend);
    }
    assert_eq!(chosen.len(), 2);
}

#[test]
fn a_packet_leaves_with_the_address_of_its_interface_or_else_of_the_node() {
    let own = [SocketAddr::from(([192, 0, 2, 7], 0)), "[2001:db8:7::7]:0".parse().unwrap()];
    for ((client, vip, backend), own) in ENDS.into_iter().zip(own) {
        let mut datapath = on_a_node();
        datapath.serve_outside((vip, proto::TCP), &[], &[backend]);
        let mut link = LinkValue::default();
        link.addresses[usize::from(client.is_ipv6())] = from_ip(own.ip());
        datapath.set_link(WAY_OUT, link);
        let syn = |port| Packet::tcp(SocketAddr::new(client.ip(), port), vip, SYN);
        assert_eq!(datapath.hidden(&syn(1), Verdict::FlowCreated, backend).ip(), own.ip());
        // An address of the other family is of no use.
        link.addresses.swap(0, 1);
        datapath.set_link(WAY_OUT, link);
        assert_eq!(datapath.hidden(&syn(2), Verdict::FlowCreated, backend).ip(), vip.ip());

        datapath.set_node(NodeValue::default());
        let outcome = datapath.forwarded(&syn(3));
        let counted = vec![(Verdict::FlowCreated, 1), (Verdict::NoSourceAddress, 1)];
        assert_eq!((outcome.action, outcome.counted), (Action::Drop, counted));
        // What was chosen before stays.
        assert_eq!(datapath.hidden(&syn(1), Verdict::FlowContinued, backend).ip(), own.ip());
    }
}

#[test]
fn a_packet_that_meets_more_hooks_on_its_way_is_translated_once() {
    use Hook::{Egress, Ingress};
    let mut datapath = serving_node_port(&[BACKEND_2]);
    let stand_in = datapath.hidden(&ask(), Verdict::FlowCreated, BACKEND_2);
    for hooks in [&[Ingress, Ingress, Egress][..], &[Ingress, Egress, Egress], &[Ingress, Egress, Ingress]] {
        let outcome = datapath.journey(hooks, &ask().bytes());
        let want = ask().from(stand_in).to(BACKEND_2).bytes();
        assert_eq!(outcome.bytes, want, "{hooks:?}");
        assert_eq!(outcome.counted, [(Verdict::FlowContinued, 1), (Verdict::SourceNat, 1)], "{hooks:?}");
    }
    let outcome = datapath.journey(&[Ingress, Ingress, Egress], &answer(stand_in).bytes());
    assert_eq!(outcome.bytes, answer(stand_in).from(NODE_PORT).to(OUTSIDER).bytes());
    assert_eq!(outcome.counted, [(Verdict::ReplyRestored, 1), (Verdict::SourceNat, 1)]);
}

#[test]
fn packets_to_other_ports_of_the_node_and_from_others_pass() {
    let mut datapath = serving_node_port(&[BACKEND_2]);
    let stand_in = datapath.hidden(&ask(), Verdict::FlowCreated, BACKEND_2);
    let other_port = if stand_in.port() == FIRST_PORT { FIRST_PORT + 1 } else { FIRST_PORT };
    datapath.untouched(&answer(SocketAddr::new(stand_in.ip(), other_port)));
    datapath.untouched(&Packet::udp(BACKEND_3, stand_in, b"hello"));
    datapath.untouched(&Packet::tcp(BACKEND_2, stand_in, SYN));
}

#[test]
fn what_a_client_and_a_backend_have_without_the_vip_is_not_touched() {
    let mut datapath = serving_node_port(&[BACKEND_2]);
    let stand_in = datapath.hidden(&ask(), Verdict::FlowCreated, BACKEND_2);
    for _ in 0..2 {
        let direct = Packet::udp(OUTSIDER, BACKEND_2, b"direct");
        for packet in [&direct, &Packet::udp(BACKEND_2, OUTSIDER, b"directly")] {
            assert_eq!(datapath.forwarded(packet), Outcome::untouched(packet.bytes()));
        }
        datapath.called_back(&answer(stand_in), NODE_PORT, OUTSIDER);
        datapath.hidden(&ask(), Verdict::FlowContinued, BACKEND_2);
    }
}

#[test]
fn entries_that_the_kernel_has_evicted_come_back() {
    let mut datapath = serving_node_port(&[BACKEND_2]);
    let stand_in = datapath.hidden(&ask(), Verdict::FlowCreated, BACKEND_2);
    datapath.evict_flow(&return_key(BACKEND_2, stand_in, proto::UDP));
    assert_eq!(datapath.hidden(&ask(), Verdict::FlowContinued, BACKEND_2), stand_in);
    datapath.called_back(&answer(stand_in), NODE_PORT, OUTSIDER);

    datapath.evict_flow(&flow_key(BACKEND_2, OUTSIDER, proto::UDP, Direction::Reply));
    assert_eq!(datapath.hidden(&ask(), Verdict::FlowContinued, BACKEND_2), stand_in);
    datapath.called_back(&answer(stand_in), NODE_PORT, OUTSIDER);

    datapath.evict_flow(&outward_key(OUTSIDER, BACKEND_2, proto::UDP));
    let other = datapath.hidden(&ask(), Verdict::FlowContinued, BACKEND_2);
    datapath.called_back(&answer(other), NODE_PORT, OUTSIDER);
}

#[test]
fn a_port_that_was_lost_to_another_flow_is_given_up() {
    let mut datapath = serving_node_port(&[BACKEND_2]);
    let stand_in = datapath.hidden(&ask(), Verdict::FlowCreated, BACKEND_2);
    let other_client = flow_key(BACKEND_2, CLIENT, proto::UDP, Direction::Reply).tuple;
    datapath.edit_flow(&return_key(BACKEND_2, stand_in, proto::UDP), |value| value.translated = other_client);
    let next = datapath.hidden(&ask(), Verdict::FlowContinued, BACKEND_2);
    assert_ne!(next, stand_in);
    datapath.called_back(&answer(next), NODE_PORT, OUTSIDER);
}

#[test]
fn when_every_port_is_taken_a_new_flow_is_dropped_until_one_ends() {
    const ALIVE: u8 = seen::ANY | seen::ANSWERED;
    let mut datapath = serving_node_port(&[BACKEND_2]);
    datapath.hidden(&packet(proto::UDP, CLIENT_UDP, NODE_PORT, 0), Verdict::FlowCreated, BACKEND_2);
    datapath.fill_ports(BACKEND_2, ALIVE);
    let entries = datapath.flows().len();
    let outcome = datapath.forwarded(&ask());
    let exhausted = |first| vec![(first, 1), (Verdict::SnatExhausted, 1)];
    assert_eq!((outcome.action, outcome.counted), (Action::Drop, exhausted(Verdict::FlowCreated)));
    assert_eq!(datapath.flows().len(), entries + 2, "no port was taken");
    assert_eq!(datapath.forwarded(&ask()).counted, exhausted(Verdict::FlowContinued));

    // Neither another backend nor another protocol has to do with it.
    datapath.serve_outside(FRONTEND, &[], &[BACKEND_3]);
    let other = SocketAddr::new(OUTSIDER.ip(), 1);
    datapath.hidden(&packet(proto::UDP, other, NODE_PORT, 0), Verdict::FlowCreated, BACKEND_3);
    datapath.serve_outside((NODE_PORT, proto::TCP), &[], &[BACKEND_2]);
    datapath.hidden(&packet(proto::TCP, other, NODE_PORT, SYN), Verdict::FlowCreated, BACKEND_2);

    datapath.fill_ports(BACKEND_2, ALIVE | seen::RST);
    let stand_in = datapath.hidden(&ask(), Verdict::FlowContinued, BACKEND_2);
    datapath.called_back(&answer(stand_in), NODE_PORT, OUTSIDER);
    let loser = SocketAddr::new(STRANGER.ip(), stand_in.port());
    for key in [
        outward_key(loser, BACKEND_2, proto::UDP),
        flow_key(loser, NODE_PORT, proto::UDP, Direction::Forward),
    ] {
        assert_eq!(datapath.flow(&key), None, "no late packet of it has that source any more");
    }
}

#[test]
fn flows_of_many_clients_have_ports_of_their_own() {
    let mut datapath = serving_node_port(&[BACKEND_2]);
    let mut stand_ins = BTreeSet::new();
    for port in 1..=2000 {
        let client = SocketAddr::new(OUTSIDER.ip(), port);
        let ask = packet(proto::UDP, client, NODE_PORT, 0);
        let bytes = datapath.forwarded(&ask).bytes;
        let start = ask.headers_len() - 8;
        stand_ins.insert(u16::from_be_bytes([bytes[start], bytes[start + 1]]));
    }
    assert_eq!(stand_ins.len(), 2000);
    assert!(stand_ins.into_iter().all(is_port), "of {PORTS} ports");
}

#[test]
fn datagrams_of_one_flow_on_several_processors_leave_from_one_port() {
    let datapath = serving_node_port(&[BACKEND_2]);
    for port in 1..=300 {
        let client = SocketAddr::new(OUTSIDER.ip(), port);
        let ask = packet(proto::UDP, client, NODE_PORT, 0);
        let left = datapath.race(&ask, 4);
        let stand_in = datapath.stand_in(client, BACKEND_2, proto::UDP).unwrap();
        let want = ask.from(stand_in).to(BACKEND_2).bytes();
        assert!(left.iter().all(|bytes| *bytes == want), "{left:?}\n{datapath:?}");
    }
    let returns = datapath.flows().into_iter().filter(|(_, key, _)| key.direction == Direction::Return as u8);
    assert_eq!(returns.count(), 300, "none is left of who came second");
}
