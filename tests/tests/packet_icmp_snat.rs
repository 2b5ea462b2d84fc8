//! ICMP errors about flows with source NAT: who gets one finds in it the packet that it has sent, on both sides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lb_common::{Verdict, service::proto};
use lb_tests::{
    addrs::*,
    external::*,
    packet::{IcmpError, Kind, SYN},
    prog::{Datapath, Hook, Outcome},
};

/// A client outside, a frontend, a backend on another node, and a router, of each family.
const ENDS: [(SocketAddr, SocketAddr, SocketAddr, IpAddr); 2] = [
    (OUTSIDER, NODE_PORT, BACKEND_2, IpAddr::V4(Ipv4Addr::new(192, 168, 50, 1))),
    (OUTSIDER_V6, NODE_PORT_V6, BACKEND_V6, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x50, 0, 0, 0, 0, 1))),
];

const KINDS: [Kind; 3] = [Kind::TooBig(1400), Kind::PortUnreachable, Kind::TimeExceeded];

/// The least that is quoted behind the IP header, and all of it.
const QUOTED: [usize; 2] = [8, 1461];

/// A datapath with one flow, and the address and port of the node that stand for its client.
fn with_flow(number: u8, client: SocketAddr, vip: SocketAddr, backend: SocketAddr) -> (Datapath, SocketAddr) {
    let mut datapath = on_a_node();
    datapath.serve_outside((vip, number), &[], &[backend]);
    let stand_in = datapath.hidden(&packet(number, client, vip, SYN), Verdict::FlowCreated, backend);
    (datapath, stand_in)
}

/// What an error ends as that has crossed both hooks.
fn through_both(bytes: Vec<u8>) -> Outcome {
    Outcome {
        counted: vec![(Verdict::ErrorForwarded, 1), (Verdict::ErrorRestored, 1)],
        ..Outcome::passed(bytes, Verdict::ErrorRestored)
    }
}

#[test]
fn the_client_is_told_of_a_packet_that_left_with_an_address_of_the_node() {
    for (client, vip, backend, router) in ENDS {
        for number in [proto::TCP, proto::UDP] {
            let (mut datapath, stand_in) = with_flow(number, client, vip, backend);
            let flows = datapath.flows();
            let (sent, original) = (packet(number, stand_in, backend, SYN), packet(number, client, vip, SYN));
            for (kind, len) in KINDS.into_iter().flat_map(|kind| QUOTED.map(|len| (kind, len))) {
                for (from, from_then) in [(router, router), (backend.ip(), vip.ip())] {
                    let error = IcmpError::about(&sent, from, kind).quoting(len).bytes();
                    let want = IcmpError::about(&original, from_then, kind).quoting(len).bytes();
                    let outcome = datapath.journey(&[Hook::Ingress, Hook::Egress], &error);
                    assert_eq!(outcome, through_both(want), "{kind:?} from {from}, {len} bytes of {sent:?}");
                }
            }
            assert_eq!(datapath.flows(), flows, "nothing is recorded, and nothing renewed");
        }
    }
}

#[test]
fn the_backend_is_told_of_its_reply_as_it_has_sent_it() {
    for (client, vip, backend, router) in ENDS {
        for number in [proto::TCP, proto::UDP] {
            let (mut datapath, stand_in) = with_flow(number, client, vip, backend);
            let (seen, original) = (packet(number, vip, client, SYN), packet(number, backend, stand_in, SYN));
            for (kind, len) in KINDS.into_iter().flat_map(|kind| QUOTED.map(|len| (kind, len))) {
                for (from, from_then) in [(router, router), (client.ip(), stand_in.ip())] {
                    let error = IcmpError::about(&seen, from, kind).quoting(len).bytes();
                    let want = IcmpError::about(&original, from_then, kind).quoting(len).bytes();
                    let outcome = datapath.journey(&[Hook::Ingress, Hook::Egress], &error);
                    assert_eq!(outcome, through_both(want), "{kind:?} from {from}, {len} bytes of {seen:?}");
                }
            }
        }
    }
}

/// Between the two hooks the client is the source of the flow's packets, and only this node can tell.
#[test]
fn what_quotes_the_client_to_the_backend_is_restored_from_this_node_and_else_of_a_direct_conversation() {
    for (client, vip, backend, router) in ENDS {
        let (mut datapath, _) = with_flow(proto::UDP, client, vip, backend);
        let error =
            |to| IcmpError::about(&packet(proto::UDP, client, to, 0), router, Kind::TooBig(1400)).bytes();
        let outcome = datapath.run(Hook::Egress, &error(backend));
        assert_eq!(outcome, Outcome::untouched(error(backend)));
        datapath.come_in_by(0);
        let outcome = datapath.run(Hook::Egress, &error(backend));
        assert_eq!(outcome, Outcome::passed(error(vip), Verdict::ErrorRestored));
    }
}
