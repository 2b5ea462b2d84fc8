//! Packets that are cut short, cut up, or not what they say: none is changed.

use std::net::SocketAddr;

use etherparse::EtherType;
use lb_common::Verdict;
use lb_tests::{
    addrs::*,
    packet::{ACK, ETHERNET_LEN, Extension, Packet, SYN},
    prog::{Datapath, Hook, Outcome},
    seed::{tcp, udp},
};

/// A datapath where every packet here would be translated if it were whole: to the VIPs at ingress, from the backends at
/// egress.
fn datapath() -> Datapath {
    let mut datapath = Datapath::load();
    for (client, vip, backend) in [(CLIENT, VIP, BACKEND_1), (CLIENT_V6, VIP_V6, BACKEND_V6)] {
        datapath.serve(tcp(vip), &[backend]);
        datapath.serve(udp(vip), &[backend]);
        datapath.to_backend(&Packet::tcp(client, vip, SYN), Verdict::FlowCreated, &[backend]);
        datapath.to_backend(&Packet::udp(client, vip, b"x"), Verdict::FlowCreated, &[backend]);
    }
    datapath
}

/// Both directions of one conversation: the hook that would translate, and the packet.
fn both_ways(
    (client, vip, backend): (SocketAddr, SocketAddr, SocketAddr),
    make: impl Fn(SocketAddr, SocketAddr) -> Packet,
) -> [(Hook, Packet); 2] {
    [(Hook::Ingress, make(client, vip)), (Hook::Egress, make(backend, client))]
}

const V4: (SocketAddr, SocketAddr, SocketAddr) = (CLIENT, VIP, BACKEND_1);
const V6: (SocketAddr, SocketAddr, SocketAddr) = (CLIENT_V6, VIP_V6, BACKEND_V6);

fn tcp_packet(source: SocketAddr, destination: SocketAddr) -> Packet {
    Packet::tcp(source, destination, ACK)
}

fn udp_packet(source: SocketAddr, destination: SocketAddr) -> Packet {
    Packet::udp(source, destination, b"")
}

#[test]
fn a_packet_cut_anywhere_in_its_headers_passes_unchanged() {
    let mut datapath = datapath();
    let extended = |packet: Packet| {
        packet.with_extension(Extension::HopByHop).with_extension(Extension::DestinationOptions)
    };
    let packets = [
        both_ways(V4, tcp_packet),
        both_ways(V4, udp_packet),
        both_ways(V6, tcp_packet),
        both_ways(V6, udp_packet),
        both_ways(V4, |a, b| tcp_packet(a, b).with_ip_options(&[1; 40])),
        both_ways(V6, |a, b| extended(udp_packet(a, b))),
    ];
    let flows = datapath.flows().len();
    for (hook, packet) in packets.into_iter().flatten() {
        // `BPF_PROG_TEST_RUN` itself refuses a frame whose type is IP and that has no whole IP header; behind a tag it
        // takes any length.
        for packet in [packet.clone().tagged(EtherType::VLAN_TAGGED_FRAME), packet] {
            let whole = packet.bytes();
            assert_ne!(datapath.run(hook, &whole).bytes, whole, "whole, it is translated");
            let first = if packet.is_tagged() { ETHERNET_LEN } else { ETHERNET_LEN + packet.ip_header_len() };
            for len in first..packet.headers_len() {
                let cut = whole[..len].to_vec();
                let outcome = datapath.run(hook, &cut);
                assert_eq!(outcome, Outcome::passed(cut, Verdict::Unparsable), "{len} bytes of {packet:?}");
            }
        }
    }
    assert_eq!(datapath.flows().len(), flows);
}

/// A whole packet with one byte changed. `at` counts from the first byte of the IP header.
fn with_byte(packet: &Packet, at: usize, value: u8) -> Vec<u8> {
    let mut bytes = packet.bytes();
    bytes[ETHERNET_LEN + at] = value;
    bytes
}

#[test]
fn headers_that_contradict_themselves_pass_unchanged() {
    let mut datapath = datapath();
    for (hook, segment) in both_ways(V4, tcp_packet) {
        let (_, datagram) = both_ways(V4, udp_packet)[hook as usize].clone();
        let rows = [
            ("version 6 in an IPv4 frame", with_byte(&segment, 0, 0x65)),
            ("an IPv4 header of 16 bytes", with_byte(&datagram, 0, 0x44)),
            ("an IPv4 header longer than the packet", with_byte(&segment, 0, 0x4f)),
            ("an IPv4 packet that ends inside TCP", with_byte(&segment, 3, 39)),
            ("an IPv4 packet that ends inside UDP", with_byte(&datagram, 3, 27)),
            ("a TCP header of 16 bytes", with_byte(&segment, 32, 0x40)),
        ];
        for (name, bytes) in rows {
            assert_eq!(datapath.run(hook, &bytes), Outcome::passed(bytes, Verdict::Unparsable), "{name}");
        }
    }
    for (hook, segment) in both_ways(V6, tcp_packet) {
        let rows = [
            ("version 4 in an IPv6 frame", with_byte(&segment, 0, 0x40)),
            ("an IPv6 packet that ends inside TCP", with_byte(&segment, 5, 19)),
        ];
        for (name, bytes) in rows {
            assert_eq!(datapath.run(hook, &bytes), Outcome::passed(bytes, Verdict::Unparsable), "{name}");
        }
    }
}

#[test]
fn padding_behind_a_packet_is_not_part_of_it() {
    let mut datapath = datapath();
    let segment = Packet::tcp(CLIENT, VIP, ACK);
    let padded = |packet: &Packet| [packet.bytes(), vec![0; 6]].concat();
    assert_eq!(
        datapath.run(Hook::Ingress, &padded(&segment)),
        Outcome::passed(padded(&segment.to(BACKEND_1)), Verdict::FlowContinued)
    );
}

#[test]
fn b52_b53_what_lies_deeper_than_supported_passes_unchanged_and_is_counted() {
    let mut datapath = datapath();
    let tags = |packet: Packet, count| {
        (0..count).fold(packet, |packet, _| packet.tagged(EtherType::PROVIDER_BRIDGING))
    };
    let options = |packet: Packet, count| {
        (0..count).fold(packet, |packet, _| packet.with_extension(Extension::DestinationOptions))
    };
    for (hook, packet) in both_ways(V6, tcp_packet) {
        for (name, packet) in
            [("2 tags", tags(packet.clone(), 2)), ("6 extensions", options(packet.clone(), 6))]
        {
            assert_ne!(datapath.run(hook, &packet.bytes()).bytes, packet.bytes(), "{name}: translated");
        }
        for (name, packet) in [
            ("3 tags", tags(packet.clone(), 3)),
            ("7 extensions", options(packet.clone(), 7)),
            ("9 extensions", options(packet.clone(), 9)),
        ] {
            let bytes = packet.bytes();
            assert_eq!(datapath.run(hook, &bytes), Outcome::passed(bytes, Verdict::Unparsable), "{name}");
        }
    }
}

/// With another address in it the packet would not be the one that was signed.
#[test]
fn b53_an_authenticated_packet_passes_unchanged_and_is_counted() {
    let mut datapath = datapath();
    let packets = [
        both_ways(V4, tcp_packet),
        both_ways(V4, udp_packet),
        both_ways(V6, tcp_packet),
        both_ways(V6, |a, b| udp_packet(a, b).with_extension(Extension::HopByHop)),
    ];
    for (hook, packet) in packets.into_iter().flatten() {
        let bytes = packet.with_extension(Extension::Authentication).bytes();
        assert_eq!(datapath.run(hook, &bytes), Outcome::passed(bytes, Verdict::AuthenticatedPassed));
    }
}

#[test]
fn what_is_not_tcp_or_udp_over_ip_passes_uncounted() {
    let mut datapath = datapath();
    for (hook, packet) in both_ways(V4, tcp_packet) {
        let mut arp = packet.bytes();
        arp[ETHERNET_LEN - 2..ETHERNET_LEN].copy_from_slice(&[0x08, 0x06]);
        let rows = [
            ("ARP", arp),
            ("ICMP", with_byte(&packet, 9, 1)),
            ("DCCP", with_byte(&packet, 9, 33)),
            ("ESP", with_byte(&packet, 9, 50)),
        ];
        for (name, bytes) in rows {
            assert_eq!(datapath.run(hook, &bytes), Outcome::untouched(bytes), "{name}");
        }
    }
    for (hook, packet) in both_ways(V6, tcp_packet) {
        for (name, next_header) in [("ICMPv6", 58), ("ESP", 50), ("nothing", 59)] {
            let bytes = with_byte(&packet, 6, next_header);
            assert_eq!(datapath.run(hook, &bytes), Outcome::untouched(bytes), "{name}");
        }
    }
}

#[test]
fn b49_what_a_later_fragment_carries_is_never_read_as_headers() {
    let mut datapath = datapath();
    let packets = [
        both_ways(V4, tcp_packet),
        both_ways(V4, udp_packet),
        both_ways(V6, tcp_packet),
        both_ways(V6, |a, b| udp_packet(a, b).with_extension(Extension::HopByHop)),
    ];
    for (hook, packet) in packets.into_iter().flatten() {
        for (offset, more) in [(1, true), (185, true), (185, false), (0x1fff, false)] {
            let later = packet.clone().fragment(offset, more).bytes();
            assert_eq!(
                datapath.run(hook, &later),
                Outcome::passed(later, Verdict::FragmentPassed),
                "at {offset}"
            );
        }
    }

    let cases = [
        Packet::udp(CLIENT, STRANGER, b"x").fragment(0, true),
        Packet::tcp(CLIENT_V6, BACKEND_V6, ACK).fragment(0, true),
    ];
    for packet in &cases {
        datapath.untouched(packet);
    }
}
