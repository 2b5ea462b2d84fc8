//! SCTP through the tc programs: ports and addresses change, and the checksum is that of the whole packet.

use std::net::SocketAddr;

use aya::util::KernelVersion;
use etherparse::EtherType;
use lb_common::{Verdict, backend::state, sctp::chunk};
use lb_tests::{
    addrs::*,
    packet::{Extension, Packet},
    prog::{Datapath, Hook, Outcome},
    received_sum::run_with_received_sum,
    seed::sctp,
};

const V4: (SocketAddr, SocketAddr, SocketAddr) = (CLIENT, VIP, BACKEND_2);
const V6: (SocketAddr, SocketAddr, SocketAddr) = (CLIENT_V6, VIP_V6, BACKEND_V6);

const DATA: u8 = 0;
const COOKIE_ECHO: u8 = 10;

/// A chunk of 20 bytes.
fn a_chunk(kind: u8) -> [u8; 20] {
    [kind, 0, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
}

fn to_vip((client, vip, _): (SocketAddr, SocketAddr, SocketAddr), kind: u8) -> Packet {
    Packet::sctp(client, vip, &a_chunk(kind))
}

fn to_client((client, _, backend): (SocketAddr, SocketAddr, SocketAddr), kind: u8) -> Packet {
    Packet::sctp(backend, client, &a_chunk(kind))
}

fn serving() -> Datapath {
    let mut datapath = Datapath::load();
    for (_, vip, backend) in [V4, V6] {
        datapath.serve(sctp(vip), &[backend]);
    }
    datapath
}

#[test]
fn both_directions_of_every_encapsulation_and_length() {
    type Shape = fn(Packet) -> Packet;
    let shapes: &[(&str, bool, Shape)] = &[
        ("plain", true, |packet| packet),
        ("802.1Q", true, |packet| packet.tagged(EtherType::VLAN_TAGGED_FRAME)),
        ("802.1ad and 802.1Q", true, |packet| {
            packet.tagged(EtherType::PROVIDER_BRIDGING).tagged(EtherType::VLAN_TAGGED_FRAME)
        }),
        ("IPv4 with an option", true, |packet| packet.with_ip_options(&[0x94, 4, 0, 0])),
        ("IPv6 with four extension headers", false, |packet| {
            packet
                .with_extension(Extension::HopByHop)
                .with_extension(Extension::DestinationOptions)
                .with_extension(Extension::Routing(0))
                .fragment(0, false)
        }),
        ("a checksum that is not filled in yet", true, |packet| packet.with_checksum(0)),
    ];
    let mut datapath = serving();
    let mut ports = 1..;
    for (shape, v4_has_it, make) in shapes {
        for (client, vip, backend) in [V4, V6] {
            if client.is_ipv4() && !v4_has_it {
                continue;
            }
            let way = (SocketAddr::new(client.ip(), ports.next().unwrap()), vip, backend);
            println!("{shape}");
            datapath.to_backend(&make(to_vip(way, chunk::INIT)), Verdict::FlowCreated, &[backend]);
            datapath.from_vip(&make(to_client(way, chunk::INIT_ACK)), vip);
            // A header alone is 12 bytes; 1,480 fill an Ethernet frame behind an IPv4 header.
            for len in [0, 4, 13, 1468] {
                let chunks = vec![0x5a; len];
                let request = make(to_vip(way, COOKIE_ECHO)).with_payload(&chunks);
                datapath.to_backend(&request, Verdict::FlowContinued, &[backend]);
                datapath.from_vip(&make(to_client(way, DATA)).with_payload(&chunks), vip);
            }
        }
    }
}

#[test]
fn a_wrong_checksum_is_not_made_right() {
    let mut datapath = serving();
    let mut bytes = to_vip(V4, chunk::INIT).bytes();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let mut want = to_vip(V4, chunk::INIT).to(BACKEND_2).bytes();
    want[last] ^= 1;
    assert_eq!(datapath.run(Hook::Ingress, &bytes), Outcome::passed(want, Verdict::FlowCreated));
}

#[test]
fn padding_behind_the_packet_is_not_under_the_checksum() {
    let mut datapath = serving();
    let init = Packet::sctp(CLIENT, VIP, &[chunk::INIT, 0, 0, 4]);
    let padding = [0xee; 10];
    let outcome = datapath.run(Hook::Ingress, &[init.bytes().as_slice(), &padding].concat());
    let want = [init.to(BACKEND_2).bytes().as_slice(), &padding].concat();
    assert_eq!(outcome, Outcome::passed(want, Verdict::FlowCreated));
}

#[test]
fn the_sum_that_receiving_hardware_made_stays_that_of_the_packet() {
    if KernelVersion::current().unwrap() < KernelVersion::new(6, 18, 0) {
        eprintln!("not shown: before Linux 6.18 the kernel may not let a test give it such a sum");
        return;
    }
    let datapath = serving();
    for (client, vip, backend) in [V4, V6] {
        let way = (client, vip, backend);
        let rows = [
            (Hook::Ingress, to_vip(way, chunk::INIT), to_vip(way, chunk::INIT).to(backend)),
            (Hook::Egress, to_client(way, chunk::INIT_ACK), to_client(way, chunk::INIT_ACK).from(vip)),
        ];
        for (hook, before, after) in rows {
            for zero in [false, true] {
                let [before, after] = [&before, &after].map(|packet| match zero {
                    true => packet.clone().with_checksum(0).bytes(),
                    false => packet.bytes(),
                });
                match run_with_received_sum(&datapath, hook, &before) {
                    Ok(bytes) => assert_eq!(bytes, after, "{client} {hook:?}"),
                    Err(error) => panic!("{client} {hook:?}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_fragment_is_dropped_and_counted() {
    let mut datapath = serving();
    for way in [V4, V6] {
        datapath.dropped(&to_vip(way, chunk::INIT).fragment(0, true), Verdict::FragmentUnsupported);
    }
    assert_eq!(datapath.flows(), []);
}

#[test]
fn an_association_begins_with_an_init_and_stays_with_its_backend_until_it_ends() {
    let mut datapath = serving();
    for way in [V4, V6] {
        let (_, vip, backend) = way;
        let other = SocketAddr::new(backend.ip(), 9);
        datapath.refused(&to_vip(way, DATA), Verdict::MidflowUnknown);
        datapath.to_backend(&to_vip(way, chunk::INIT), Verdict::FlowCreated, &[backend]);
        datapath.from_vip(&to_client(way, chunk::INIT_ACK), vip);
        datapath.to_backend(&to_vip(way, COOKIE_ECHO), Verdict::FlowContinued, &[backend]);

        datapath.serve(sctp(vip), &[other]);
        datapath.set_state(sctp(vip), backend, Some(state::DRAINING));
        datapath.to_backend(&to_vip(way, DATA), Verdict::FlowContinued, &[backend]);
        datapath.retire(sctp(vip), backend);
        datapath.to_backend(&to_vip(way, DATA), Verdict::FlowContinued, &[backend]);

        datapath.to_backend(&to_vip(way, chunk::ABORT), Verdict::FlowContinued, &[backend]);
        datapath.to_backend(&to_vip(way, chunk::INIT), Verdict::FlowCreated, &[other]);
    }
}

#[test]
fn what_nobody_takes_is_refused_by_icmp() {
    let mut datapath = Datapath::load();
    for way in [V4, V6] {
        let (client, vip, _) = way;
        datapath.serve(sctp(vip), &[]);
        datapath.refused(&to_vip(way, chunk::INIT), Verdict::NoBackend);
        datapath.refused(&Packet::sctp(client, vip, &[]), Verdict::MidflowUnknown);
        datapath.own_address(vip.ip(), false);
        let other_port = SocketAddr::new(vip.ip(), 81);
        datapath.refused(&Packet::sctp(client, other_port, &a_chunk(chunk::INIT)), Verdict::UnknownPort);
    }
}

#[test]
fn tcp_and_sctp_on_one_address_and_port_are_two_frontends() {
    let mut datapath = serving();
    datapath.untouched(&Packet::tcp(CLIENT, VIP, lb_tests::packet::SYN));
    datapath.to_backend(&to_vip(V4, chunk::INIT), Verdict::FlowCreated, &[BACKEND_2]);
}
