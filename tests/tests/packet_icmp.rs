//! ICMP errors through the translation, byte for byte: who gets one finds in it the packet that it has sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aya::util::KernelVersion;
use etherparse::EtherType;
use lb_common::Verdict;
use lb_tests::{
    addrs::*,
    conversation::{datagram, datagram_of, serving},
    packet::{ACK, Extension, IcmpError, Kind, Packet, SYN},
    prog::{Datapath, Hook, Outcome},
    received_sum::run_with_received_sum,
    seed::{tcp, udp},
};

const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 50, 12));
const ROUTER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x50, 0, 0, 0, 0, 0x12));

/// A client, a VIP, the backend of its flows, and a router on either side.
type Ends = (SocketAddr, SocketAddr, SocketAddr, IpAddr);

const V4: Ends = (CLIENT, VIP, BACKEND_2, ROUTER);
const V6: Ends = (CLIENT_V6, VIP_V6, BACKEND_V6, ROUTER_V6);

const KINDS: [Kind; 5] = [
    Kind::HostUnreachable,
    Kind::PortUnreachable,
    Kind::TooBig(1400),
    Kind::TimeExceeded,
    Kind::ParameterProblem(9),
];

/// A datapath with a TCP and a UDP flow of each family.
fn datapath() -> Datapath {
    let mut datapath = Datapath::load();
    for (client, vip, backend, _) in [V4, V6] {
        datapath.serve(tcp(vip), &[backend]);
        datapath.serve(udp(vip), &[backend]);
        datapath.to_backend(&Packet::tcp(client, vip, SYN), Verdict::FlowCreated, &[backend]);
        datapath.to_backend(&Packet::udp(client, vip, b"x"), Verdict::FlowCreated, &[backend]);
    }
    datapath
}

/// Packets between two ends, as they may be quoted.
fn packets(from: SocketAddr, to: SocketAddr) -> Vec<Packet> {
    let data = Packet::tcp(from, to, ACK).with_payload(&[0x5a; 1401]);
    let query = Packet::udp(from, to, b"an odd one!");
    let mut packets = vec![
        data.clone(),
        Packet::tcp(from, to, SYN),
        query.clone(),
        query.clone().with_checksum(0),
        data.tagged(EtherType::VLAN_TAGGED_FRAME),
        query.clone().tagged(EtherType::PROVIDER_BRIDGING).tagged(EtherType::VLAN_TAGGED_FRAME),
        query.clone().fragment(0, true),
    ];
    packets.push(if from.is_ipv4() {
        query.with_ip_options(&[1; 40])
    } else {
        query.with_extension(Extension::HopByHop).with_extension(Extension::DestinationOptions)
    });
    packets
}

/// How much may be quoted of a packet behind its IP header: the least that is allowed, some more, with and without the
/// checksum of TCP, and all.
const QUOTED: [usize; 6] = [8, 9, 16, 18, 20, 1461];

#[test]
fn the_client_is_told_of_a_packet_to_the_vip() {
    let mut datapath = datapath();
    let flows = datapath.flows();
    for (client, vip, backend, router) in [V4, V6] {
        for (sent, original) in packets(client, backend).into_iter().zip(packets(client, vip)) {
            for (kind, len) in KINDS.into_iter().flat_map(|kind| QUOTED.map(|len| (kind, len))) {
                for (from, from_then) in [(router, router), (backend.ip(), vip.ip())] {
                    let len = len + sent.extensions_len();
                    let error = IcmpError::about(&sent, from, kind).quoting(len).bytes();
                    let want = IcmpError::about(&original, from_then, kind).quoting(len).bytes();
                    assert_ne!(error, want);
                    let outcome = datapath.run(Hook::Egress, &error);
                    let want = Outcome::passed(want, Verdict::ErrorRestored);
                    assert_eq!(outcome, want, "{kind:?} from {from}, {len} bytes of {sent:?}");
                }
            }
        }
    }
    assert_eq!(datapath.flows(), flows, "nothing is recorded, and nothing renewed");
}

#[test]
fn the_backend_is_told_of_its_own_reply() {
    let mut datapath = datapath();
    let flows = datapath.flows();
    for (client, vip, backend, router) in [V4, V6] {
        for (seen, original) in packets(vip, client).into_iter().zip(packets(backend, client)) {
            for (kind, len) in KINDS.into_iter().flat_map(|kind| QUOTED.map(|len| (kind, len))) {
                for from in [router, client.ip()] {
                    let len = len + seen.extensions_len();
                    let error = IcmpError::about(&seen, from, kind).quoting(len).bytes();
                    let want = IcmpError::about(&original, from, kind).quoting(len).bytes();
                    let outcome = datapath.run(Hook::Ingress, &error);
                    let want = Outcome::passed(want, Verdict::ErrorForwarded);
                    assert_eq!(outcome, want, "{kind:?} from {from}, {len} bytes of {seen:?}");
                }
            }
        }
    }
    assert_eq!(datapath.flows(), flows, "nothing is recorded, and nothing renewed");
}

#[test]
fn b51_a_quoted_udp_checksum_of_zero_is_sent_as_0xffff() {
    let mut datapath = Datapath::load();
    datapath.serve(udp(VIP_DNS), &[BACKEND_2_DNS]);
    // The worked vector whose sum is zero after the translation; here that is the packet that is quoted.
    let query = Packet::udp(CLIENT_UDP, VIP_DNS, &[0x35, 0xad]);
    datapath.to_backend(&query, Verdict::FlowCreated, &[BACKEND_2_DNS]);
    let translated = query.to(BACKEND_2_DNS);
    assert_eq!(translated.bytes()[40..42], [0xff, 0xff]);
    let error = IcmpError::about(&translated, ROUTER, Kind::TimeExceeded).bytes();
    let want = IcmpError::about(&query, ROUTER, Kind::TimeExceeded).bytes();
    assert_eq!(datapath.run(Hook::Egress, &error), Outcome::passed(want, Verdict::ErrorRestored));

    // The other way round: a reply whose sum is zero before the translation.
    let reply = Packet::udp(BACKEND_2_DNS, CLIENT_UDP, &[0x35, 0xad]);
    assert_eq!(reply.bytes()[40..42], [0xff, 0xff]);
    let error = IcmpError::about(&reply.from(VIP_DNS), ROUTER, Kind::TooBig(1280)).bytes();
    let want = IcmpError::about(&reply, ROUTER, Kind::TooBig(1280)).bytes();
    assert_eq!(datapath.run(Hook::Ingress, &error), Outcome::passed(want, Verdict::ErrorForwarded));
}

#[test]
fn errors_about_other_packets_pass_untouched_and_uncounted() {
    let mut datapath = datapath();
    for (client, vip, backend, router) in [V4, V6] {
        let to_backend = Packet::udp(client, backend, b"query");
        let reply = Packet::udp(vip, client, b"answer");
        let other_port = |address: SocketAddr| SocketAddr::new(address.ip(), 9);
        let echo = Packet::echo_request(client, backend, b"ping");
        let error = |packet: &Packet| IcmpError::about(packet, router, Kind::TooBig(1400));
        let rows = [
            ("another port of the client", error(&to_backend.from(other_port(client)))),
            ("another port of the backend", error(&to_backend.to(other_port(backend)))),
            ("another port of the VIP", error(&reply.from(other_port(vip)))),
            ("an echo request", error(&echo)),
            ("a later fragment", error(&to_backend.clone().fragment(185, false))),
            ("a later fragment of a reply", error(&reply.clone().fragment(185, true))),
            ("quoted too shortly", error(&to_backend).quoting(7)),
            ("a reply quoted too shortly", error(&reply).quoting(7)),
            ("nothing quoted", error(&to_backend).quoting(0)),
            ("to somebody else", error(&to_backend).to(router)),
            ("a reply, to somebody else", error(&reply).to(router)),
        ];
        for (name, error) in rows {
            for hook in [Hook::Ingress, Hook::Egress] {
                let bytes = error.bytes();
                assert_eq!(datapath.run(hook, &bytes), Outcome::untouched(bytes), "{name}, {hook:?}");
            }
        }
        // In the other direction than it goes.
        for (hook, error) in [(Hook::Ingress, error(&to_backend)), (Hook::Egress, error(&reply))] {
            assert_eq!(datapath.run(hook, &error.bytes()), Outcome::untouched(error.bytes()), "{hook:?}");
        }
    }
}

#[test]
fn an_error_cut_in_the_headers_that_it_quotes_passes_untouched() {
    let mut datapath = datapath();
    for (client, vip, backend, router) in [V4, V6] {
        let quoted = Packet::udp(client, backend, b"query");
        let whole = IcmpError::about(&quoted, router, Kind::TooBig(1400)).bytes();
        let want = IcmpError::about(&quoted.to(vip), router, Kind::TooBig(1400)).bytes();
        assert_eq!(datapath.run(Hook::Egress, &whole), Outcome::passed(want, Verdict::ErrorRestored));
        let start = whole.len() - b"query".len() - 8;
        for len in start - 8..start + 8 {
            let outcome = datapath.run(Hook::Egress, &whole[..len]);
            assert_eq!(outcome, Outcome::untouched(whole[..len].to_vec()), "{len} bytes");
        }
    }
}

#[test]
fn messages_of_other_types_that_quote_a_packet_of_a_flow_pass() {
    let mut datapath = datapath();
    for (client, _, backend, router) in [V4, V6] {
        let error = IcmpError::about(&Packet::udp(client, backend, b"query"), router, Kind::TimeExceeded);
        let at = if client.is_ipv4() { 34 } else { 54 };
        // IPv4: echo reply, source quench, redirect. IPv6: no such error, redirect.
        let kinds: &[u8] = if client.is_ipv4() { &[0, 4, 5] } else { &[0, 5, 137] };
        for &kind in kinds {
            let mut bytes = error.bytes();
            bytes[at] = kind;
            assert_eq!(datapath.run(Hook::Egress, &bytes), Outcome::untouched(bytes), "type {kind}");
        }
    }
}

/// A bridge above the port, or a VLAN device above its parent: the second hook sees what the first has made.
#[test]
fn b52_an_error_that_meets_a_hook_twice_is_translated_once() {
    let mut datapath = datapath();
    for (client, vip, backend, router) in [V4, V6] {
        let reply = Packet::tcp(vip, client, ACK);
        let error = IcmpError::about(&reply, router, Kind::TooBig(1400)).bytes();
        let want = IcmpError::about(&reply.from(backend), router, Kind::TooBig(1400)).bytes();
        let outcome = datapath.run_repeatedly(Hook::Ingress, &error, 2);
        assert_eq!(outcome, Outcome::passed(want, Verdict::ErrorForwarded));
    }
}

#[test]
fn an_error_about_a_direct_conversation_is_left_to_it() {
    let mut datapath = serving(&[BACKEND_1]);
    datapath.to_backend(&datagram(), Verdict::FlowCreated, &[BACKEND_1]);
    let error = IcmpError::about(&datagram().to(BACKEND_1), ROUTER, Kind::PortUnreachable).bytes();
    let restored = IcmpError::about(&datagram(), ROUTER, Kind::PortUnreachable).bytes();
    assert_eq!(datapath.run(Hook::Egress, &error), Outcome::passed(restored.clone(), Verdict::ErrorRestored));
    datapath.untouched(&datagram().to(BACKEND_1));
    let answer = datagram_of(BACKEND_1).bytes();
    assert_eq!(datapath.run(Hook::Egress, &answer), Outcome::untouched(answer));
    assert_eq!(datapath.run(Hook::Egress, &error), Outcome::untouched(error.clone()));
    datapath.to_backend(&datagram(), Verdict::FlowContinued, &[BACKEND_1]);
    assert_eq!(datapath.run(Hook::Egress, &error), Outcome::passed(restored, Verdict::ErrorRestored));
}

#[test]
fn the_sum_that_receiving_hardware_made_stays_that_of_the_error() {
    if KernelVersion::current().unwrap() < KernelVersion::new(6, 18, 0) {
        eprintln!("not shown: before Linux 6.18 the kernel may not let a test give it such a sum");
        return;
    }
    let datapath = datapath();
    for (client, vip, backend, router) in [V4, V6] {
        for (from, from_then) in [(router, router), (backend.ip(), vip.ip())] {
            for quoted in [Packet::tcp(client, backend, ACK), Packet::udp(client, backend, b"odd")] {
                let make = |quoted: &Packet, from| IcmpError::about(quoted, from, Kind::TooBig(1400)).bytes();
                let got = run_with_received_sum(&datapath, Hook::Egress, &make(&quoted, from));
                assert_eq!(got.unwrap(), make(&quoted.to(vip), from_then), "{quoted:?}");
                let reply = Packet::udp(vip, client, b"answer");
                let got = run_with_received_sum(&datapath, Hook::Ingress, &make(&reply, router));
                assert_eq!(got.unwrap(), make(&reply.from(backend), router), "{reply:?}");
            }
        }
    }
}
