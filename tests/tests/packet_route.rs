//! Which packets go past the host's stack (`--host-routing bpf`), and which are left to it: by the routes of a namespace,
//! whose loopback device a test run takes as the one that they came in by.

use std::net::SocketAddr;

use anyhow::Result;
use aya::util::KernelVersion;
use etherparse::EtherType;
use lb_common::Verdict;
use lb_tests::{
    addrs::*,
    netns::Namespace,
    packet::{ACK, Packet, SYN},
    prog::{Datapath, Hook, Outcome},
    received_sum::run_with_received_sum,
    seed::{tcp, udp},
};

const V4: (SocketAddr, SocketAddr, SocketAddr) = (CLIENT, VIP, BACKEND_2);
const V6: (SocketAddr, SocketAddr, SocketAddr) = (CLIENT_V6, VIP_V6, BACKEND_V6);

/// The Ethernet address of the loopback device.
const LOOPBACK: [u8; 6] = [0; 6];

/// A router to clients and backends, and what its link leads to.
fn router() -> Result<[Namespace; 2]> {
    let [router, other] = [Namespace::new("router")?, Namespace::new("other")?];
    router.join("eth0", &other, "eth0")?;
    router.sysctl("net.ipv4.ip_forward", "1")?;
    router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    router.ip("addr add 192.168.50.1/24 dev eth0")?;
    router.ip("addr add 2001:db8:ff::1/64 dev eth0 nodad")?;
    router.ip("route add 10.244.0.0/16 via 192.168.50.2")?;
    router.ip("route add 2001:db8::/32 via 2001:db8:ff::2")?;
    Ok([router, other])
}

fn serving() -> Datapath {
    let mut datapath = Datapath::load_past_the_stack();
    for (_, vip, backend) in [V4, V6] {
        datapath.serve(tcp(vip), &[backend]);
        datapath.serve(udp(vip), &[backend]);
    }
    datapath
}

fn to_loopback(packet: Packet) -> Packet {
    packet.to_ethernet(LOOPBACK)
}

#[test]
fn requests_and_replies_of_flows_go_past_the_stack_one_hop_further() {
    let [router, _other] = router().unwrap();
    let mut datapath = serving();
    router.run(|| {
        for (client, vip, backend) in [V4, V6] {
            let rows = [
                (Packet::tcp(client, vip, SYN), Packet::tcp(backend, client, SYN | ACK)),
                (Packet::udp(client, vip, b"ask"), Packet::udp(backend, client, b"answer")),
            ];
            for (request, reply) in rows.map(|(request, reply)| (to_loopback(request), to_loopback(reply))) {
                let foreign = reply.from(SocketAddr::new(backend.ip(), 1));
                for packet in [&reply, &foreign] {
                    let outcome = datapath.run(Hook::Ingress, &packet.bytes());
                    assert_eq!(outcome, Outcome::untouched(packet.bytes()), "no flow has it");
                }
                let outcome = datapath.run(Hook::Ingress, &request.bytes());
                let sent = request.to(backend).with_time_to_live(63).bytes();
                assert_eq!(outcome, Outcome::routed(sent, Verdict::FlowCreated));

                let outcome = datapath.run(Hook::Ingress, &reply.bytes());
                let sent = reply.clone().with_time_to_live(63);
                assert_eq!(outcome, Outcome::routed(sent.bytes(), Verdict::ReplyRouted));
                datapath.from_vip(&sent, vip);
                let outcome = datapath.run(Hook::Ingress, &foreign.bytes());
                assert_eq!(outcome, Outcome::untouched(foreign.bytes()), "it is of no flow");
            }
        }
    });
}

#[test]
fn what_is_not_plain_forwarding_is_left_to_the_stack_translated_and_otherwise_as_it_came() {
    let [router, _other] = router().unwrap();
    let mut datapath = serving();
    let mut ports = 1..;
    let mut next = |datapath: &mut Datapath, make: &dyn Fn(Packet) -> Packet, routed: bool, why: &str| {
        for (client, vip, backend) in [V4, V6] {
            let client = SocketAddr::new(client.ip(), ports.next().unwrap());
            let packet = make(to_loopback(Packet::udp(client, vip, b"ask")));
            let outcome = router.run(|| datapath.run(Hook::Ingress, &packet.bytes()));
            let translated = packet.to(backend);
            let want = match routed {
                true => Outcome::routed(translated.with_time_to_live(63).bytes(), Verdict::FlowCreated),
                false => Outcome::passed(translated.bytes(), Verdict::FlowCreated),
            };
            assert_eq!(outcome, want, "{why}");
        }
    };
    let payload = |ip_len: usize| {
        move |packet: Packet| {
            let headers = packet.ip_header_len() + 8;
            packet.with_payload(&vec![7; ip_len - headers])
        }
    };
    next(&mut datapath, &|packet| packet.with_time_to_live(1), false, "its time ends here");
    next(&mut datapath, &|packet| packet.tagged(EtherType::VLAN_TAGGED_FRAME), false, "a VLAN");
    next(&mut datapath, &|packet| packet.to_ethernet([2, 0, 0, 0, 0, 9]), false, "to another host");

    router.ip("link set eth0 mtu 1400").unwrap();
    next(&mut datapath, &payload(1400), true, "as long as the interface takes");
    next(&mut datapath, &payload(1401), false, "longer than the interface takes");
    router.ip("link set eth0 mtu 1500").unwrap();
    next(&mut datapath, &payload(1401), true, "as long as the interface takes now");
    router.ip("route change 10.244.0.0/16 via 192.168.50.2 mtu lock 1300").unwrap();
    router.ip("route change 2001:db8::/32 via 2001:db8:ff::2 mtu lock 1300").unwrap();
    next(&mut datapath, &payload(1300), true, "as long as the route takes");
    next(&mut datapath, &payload(1301), false, "longer than the route takes");

    router.ip("route change blackhole 10.244.0.0/16").unwrap();
    router.ip("route del 2001:db8::/32").unwrap();
    next(&mut datapath, &|packet| packet, false, "no way there");
    router.ip("addr add 10.244.2.22/32 dev lo").unwrap();
    router.ip("addr add 2001:db8:2::22/128 dev lo nodad").unwrap();
    next(&mut datapath, &|packet| packet, false, "an address of this host");
}

#[test]
fn nothing_goes_past_the_stack_where_forwarding_is_off_or_nobody_asked_for_it() {
    let [router, _other] = router().unwrap();
    let packet = to_loopback(Packet::tcp(CLIENT, VIP, SYN));
    let want = Outcome::passed(packet.to(BACKEND_2).bytes(), Verdict::FlowCreated);
    let mut by_default = Datapath::load();
    by_default.serve(tcp(VIP), &[BACKEND_2]);
    assert_eq!(router.run(|| by_default.run(Hook::Ingress, &packet.bytes())), want);

    router.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let mut datapath = serving();
    assert_eq!(router.run(|| datapath.run(Hook::Ingress, &packet.bytes())), want);
}

#[test]
fn the_sum_that_receiving_hardware_made_stays_that_of_the_packet() {
    if KernelVersion::current().unwrap() < KernelVersion::new(6, 18, 0) {
        eprintln!("not shown: before Linux 6.18 the kernel may not let a test give it such a sum");
        return;
    }
    let [router, _other] = router().unwrap();
    let datapath = serving();
    for (client, vip, backend) in [V4, V6] {
        let packet = to_loopback(Packet::udp(client, vip, b"ask"));
        match router.run(|| run_with_received_sum(&datapath, Hook::Ingress, &packet.bytes())) {
            Ok(bytes) => assert_eq!(bytes, packet.to(backend).with_time_to_live(63).bytes()),
            Err(error) => panic!("{packet:?}: {error}"),
        }
    }
}
