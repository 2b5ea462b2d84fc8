//! What nobody takes is refused, byte for byte: by RST, by ICMP port unreachable, or not at all.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aya::util::KernelVersion;
use etherparse::EtherType;
use lb_common::{Prefix, Settings, Verdict, addr::from_ip, service::flags};
use lb_tests::{
    addrs::*,
    packet::{ACK, Extension, FIN, Packet, RST, SYN},
    prog::{Datapath, Hook, Outcome},
    received_sum::run_with_received_sum,
    seed::{tcp, udp},
};

/// Frontends without a backend, TCP and UDP, IPv4 and IPv6.
fn empty() -> Datapath {
    let mut datapath = Datapath::load();
    for vip in [VIP, VIP_V6] {
        datapath.serve(tcp(vip), &[]);
        datapath.serve(udp(vip), &[]);
    }
    datapath
}

/// The same address with another port.
fn at_port(address: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.ip(), port)
}

const V4: (SocketAddr, SocketAddr) = (CLIENT, VIP);
const V6: (SocketAddr, SocketAddr) = (CLIENT_V6, VIP_V6);

#[test]
fn b25_the_refusal_of_the_worked_syn() {
    let mut datapath = empty();
    let syn = Packet::tcp(CLIENT, VIP, SYN).bytes();
    let outcome = datapath.run(Hook::Ingress, &syn);
    #[rustfmt::skip]
    let want = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00,
        0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0x24, 0x46, 10, 96, 0, 50, 10, 244, 1, 5,
        // From port 80 to port 40000; sequence 0, acknowledgement 1001; RST and ACK.
        0, 80, 0x9c, 0x40, 0, 0, 0, 0, 0, 0, 0x03, 0xe9, 0x50, 0x14, 0, 0, 0xf8, 0xcc, 0, 0,
    ];
    assert_eq!(outcome, Outcome::answered(want.to_vec(), Verdict::NoBackend));
}

#[test]
fn b25_every_protocol_and_encapsulation_is_refused_and_nothing_recorded() {
    type Shape = fn(Packet) -> Packet;
    let shapes: &[(&str, bool, Shape)] = &[
        ("plain", true, |packet| packet),
        ("802.1Q", true, |packet| packet.tagged(EtherType::VLAN_TAGGED_FRAME)),
        ("802.1ad and 802.1Q", true, |packet| {
            packet.tagged(EtherType::PROVIDER_BRIDGING).tagged(EtherType::VLAN_TAGGED_FRAME)
        }),
        ("IPv4 with an option", true, |packet| packet.with_ip_options(&[0x94, 4, 0, 0])),
        ("IPv4 with all options that there can be", true, |packet| packet.with_ip_options(&[1; 40])),
        ("IPv6 with hop-by-hop options", false, |packet| packet.with_extension(Extension::HopByHop)),
        ("IPv6 with four extension headers", false, |packet| {
            packet
                .with_extension(Extension::HopByHop)
                .with_extension(Extension::DestinationOptions)
                .with_extension(Extension::Routing(0))
                .fragment(0, false)
        }),
        ("the first fragment", true, |packet| packet.fragment(0, true)),
        ("a payload of odd length", true, |packet| packet.with_payload(b"an odd one!")),
        ("a payload longer than what is quoted", true, |packet| packet.with_payload(&[0xa5; 1400])),
    ];
    let mut datapath = empty();
    for (shape, v4_has_it, make) in shapes {
        for (client, vip) in [V4, V6] {
            if client.is_ipv4() && !v4_has_it {
                continue;
            }
            for packet in [
                Packet::tcp(client, vip, SYN),
                Packet::tcp(client, vip, SYN | FIN),
                Packet::udp(client, vip, b"query"),
                Packet::udp(client, vip, b""),
                Packet::udp(client, vip, b"query").with_checksum(0),
            ] {
                println!("{shape}");
                // There are more of them than ICMP errors at once.
                datapath.set_errors_due(0);
                datapath.refused(&make(packet), Verdict::NoBackend);
            }
        }
    }
    assert_eq!(datapath.flows(), []);
}

#[test]
fn padding_behind_a_packet_is_neither_counted_nor_quoted() {
    let mut datapath = empty();
    for packet in [Packet::tcp(CLIENT, VIP, SYN), Packet::udp(CLIENT, VIP, b"ask!")] {
        let padded = [packet.bytes(), vec![0xee; 6]].concat();
        let outcome = datapath.run(Hook::Ingress, &padded);
        assert_eq!(outcome, Outcome::answered(packet.refusal(), Verdict::NoBackend));
    }
}

/// Whoever made the sum, the answer has one of its own. (The sum of a packet that becomes longer or shorter is given up,
/// which this kind of run takes for a fault; so these keep their length. What virtual devices leave to be filled in later is
/// shown between namespaces.)
#[test]
fn the_sum_that_receiving_hardware_made_becomes_that_of_the_answer() {
    if KernelVersion::current().unwrap() < KernelVersion::new(6, 18, 0) {
        eprintln!("not shown: before Linux 6.18 the kernel may not let a test give it such a sum");
        return;
    }
    let mut datapath = empty();
    for (vip, usable) in [(VIP, true), (VIP_V6, true)] {
        datapath.own_address(vip.ip(), usable);
    }
    for (client, vip) in [V4, V6] {
        let transport = Packet::tcp(client, vip, SYN).headers_len() - 20;
        let cut = transport / 4 * 4 + 4;
        let syn = Packet::tcp(client, vip, SYN).with_payload(&vec![7; cut]);
        assert_eq!(run_with_received_sum(&datapath, Hook::Ingress, &syn.bytes()).unwrap(), {
            // The buffer is of the packet's length.
            let mut answer = syn.refusal();
            answer.resize(syn.bytes().len(), 0);
            answer
        });
        let echo = Packet::echo_request(client, vip, b"ping").with_time_to_live(13);
        assert_eq!(
            run_with_received_sum(&datapath, Hook::Ingress, &echo.bytes()).unwrap(),
            echo.echo_reply()
        );
    }
}

#[test]
fn mid_flow_tcp_without_a_flow_passes_in_the_migration_window_and_is_reset_after_it() {
    let mut datapath = Datapath::load();
    for (vip, backend) in [(VIP, BACKEND_1), (VIP_V6, BACKEND_V6)] {
        datapath.serve(tcp(vip), &[backend]);
    }
    for (client, vip) in [V4, V6] {
        for flags in [ACK, FIN | ACK, SYN | ACK, FIN, 0, RST, RST | ACK] {
            let packet = Packet::tcp(client, vip, flags).with_payload(b"data");
            datapath.set_settings(Settings { migration_until: u64::MAX, ..Settings::default() });
            let outcome = datapath.run(Hook::Ingress, &packet.bytes());
            assert_eq!(outcome, Outcome::passed(packet.bytes(), Verdict::MidflowPassed), "{packet:?}");
            datapath.set_settings(Settings { migration_until: 1, ..Settings::default() });
            if flags & RST == 0 {
                datapath.refused(&packet, Verdict::MidflowUnknown);
            } else {
                datapath.dropped(&packet, Verdict::Unanswerable);
            }
        }
    }
    assert_eq!(datapath.flows(), []);
}

#[test]
fn b25_after_the_first_ready_endpoint_the_next_connection_succeeds() {
    let mut datapath = empty();
    let (syn, query) = (Packet::tcp(CLIENT, VIP, SYN), Packet::udp(CLIENT_UDP, VIP, b"query"));
    datapath.refused(&syn, Verdict::NoBackend);
    datapath.refused(&query, Verdict::NoBackend);
    datapath.serve(tcp(VIP), &[BACKEND_1]);
    datapath.serve(udp(VIP), &[BACKEND_1]);
    datapath.to_backend(&syn, Verdict::FlowCreated, &[BACKEND_1]);
    datapath.to_backend(&query, Verdict::FlowCreated, &[BACKEND_1]);
}

#[test]
fn without_a_local_endpoint_packets_are_dropped_in_silence() {
    let mut datapath = empty();
    for (client, vip) in [V4, V6] {
        datapath.drop_when_empty(tcp(vip));
        datapath.drop_when_empty(udp(vip));
        datapath.dropped(&Packet::tcp(client, vip, SYN), Verdict::NoLocalBackend);
        datapath.dropped(&Packet::udp(client, vip, b"x"), Verdict::NoLocalBackend);
    }
}

#[test]
fn b25_nothing_is_said_to_resets_fragments_and_crowds() {
    let mut datapath = empty();
    datapath.set_settings(Settings { migration_until: 1, ..Settings::default() });
    let v4 = |a, b, c, d| SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), 40_000);
    let v6 = |first| SocketAddr::new(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 1).into(), 40_000);
    let rows = [
        ("an RST", Packet::tcp(CLIENT, VIP, RST)),
        ("from a multicast address", Packet::udp(v4(224, 0, 0, 9), VIP, b"x")),
        ("from the broadcast address", Packet::tcp(v4(255, 255, 255, 255), VIP, SYN)),
        ("from nowhere", Packet::tcp(v4(0, 0, 0, 0), VIP, SYN)),
        ("from a loopback address", Packet::udp(v4(127, 0, 0, 1), VIP, b"x")),
        ("from an IPv6 multicast address", Packet::udp(v6(0xff02), VIP_V6, b"x")),
        ("from the IPv6 loopback address", Packet::tcp(v6(0), VIP_V6, SYN)),
        ("to every host on the link", Packet::tcp(CLIENT, VIP, SYN).to_ethernet([0xff; 6])),
        ("to some hosts on the link", Packet::udp(CLIENT, VIP, b"x").to_ethernet([1, 0, 0x5e, 0, 0, 9])),
    ];
    for (name, packet) in rows {
        println!("{name}");
        datapath.dropped(&packet, Verdict::Unanswerable);
    }
    for packet in [Packet::udp(CLIENT, VIP, b"x"), Packet::tcp(CLIENT_V6, VIP_V6, SYN)] {
        let later = packet.fragment(185, false).bytes();
        let outcome = datapath.run(Hook::Ingress, &later);
        assert_eq!(outcome, Outcome::passed(later, Verdict::FragmentPassed));
    }
}

#[test]
fn icmp_errors_are_bounded_and_resets_are_not() {
    let mut datapath = empty();
    // Later than any burst allows.
    datapath.set_errors_due(u64::MAX / 2);
    for (client, vip) in [V4, V6] {
        datapath.dropped(&Packet::udp(client, vip, b"x"), Verdict::RefusalLimited);
        datapath.refused(&Packet::tcp(client, vip, SYN), Verdict::NoBackend);
    }
    datapath.set_errors_due(0);
    for (client, vip) in [V4, V6] {
        datapath.refused(&Packet::udp(client, vip, b"x"), Verdict::NoBackend);
    }
}

/// A ClusterIP with TCP port 80, which has a backend, and nothing else.
fn one_port() -> Datapath {
    let mut datapath = Datapath::load();
    for (vip, backend) in [(VIP, BACKEND_1), (VIP_V6, BACKEND_V6)] {
        datapath.serve(tcp(vip), &[backend]);
        datapath.own_address(vip.ip(), true);
    }
    datapath
}

#[test]
fn b26_an_unknown_port_or_protocol_of_a_cluster_ip_is_refused() {
    let mut datapath = one_port();
    for (client, vip) in [V4, V6] {
        let other_port = at_port(vip, 81);
        datapath.refused(&Packet::tcp(client, other_port, SYN), Verdict::UnknownPort);
        datapath.refused(&Packet::udp(client, vip, b"x"), Verdict::UnknownPort);
        datapath.refused(&Packet::tcp(client, other_port, ACK), Verdict::UnknownPort);
        datapath.dropped(&Packet::tcp(client, other_port, RST), Verdict::Unanswerable);
    }
    datapath.untouched(&Packet::tcp(CLIENT, STRANGER, SYN));
    datapath.untouched(&Packet::udp(CLIENT, STRANGER, b"x"));
    datapath.untouched(&Packet::echo_request(CLIENT, STRANGER, b"x"));
    assert_eq!(datapath.flows(), []);
    datapath.to_backend(&Packet::tcp(CLIENT, VIP, SYN), Verdict::FlowCreated, &[BACKEND_1]);

    let packet = Packet::tcp(CLIENT, at_port(VIP, 81), ACK);
    datapath.set_settings(Settings { migration_until: u64::MAX, ..Settings::default() });
    let outcome = datapath.run(Hook::Ingress, &packet.bytes());
    assert_eq!(outcome, Outcome::passed(packet.bytes(), Verdict::MidflowPassed));
}

#[test]
fn b26_an_external_address_is_ours_with_its_ports_only() {
    let mut datapath = Datapath::load();
    datapath.serve(tcp(VIP), &[]);
    datapath.untouched(&Packet::tcp(CLIENT, at_port(VIP, 81), SYN));
    datapath.untouched(&Packet::udp(CLIENT, VIP, b"x"));
    datapath.untouched(&Packet::echo_request(CLIENT, VIP, b"x"));
}

#[test]
fn b26_a_cluster_ip_with_a_usable_endpoint_answers_pings() {
    type Shape = fn(Packet) -> Packet;
    let shapes: &[(&str, bool, Shape)] = &[
        ("plain", true, |packet| packet),
        ("802.1Q", true, |packet| packet.tagged(EtherType::VLAN_TAGGED_FRAME)),
        ("another time to live", true, |packet| packet.with_time_to_live(3)),
        ("IPv4 with an option", true, |packet| packet.with_ip_options(&[1; 8])),
        ("IPv6 with hop-by-hop options", false, |packet| packet.with_extension(Extension::HopByHop)),
        ("without a payload", true, |packet| packet.with_payload(b"")),
        ("1400 bytes", true, |packet| packet.with_payload(&[0x5a; 1400])),
    ];
    let mut datapath = one_port();
    datapath.set_errors_due(u64::MAX / 2);
    for (name, v4_has_it, make) in shapes {
        for (client, vip) in [V4, V6] {
            if client.is_ipv4() && !v4_has_it {
                continue;
            }
            println!("{name}");
            let echo = make(Packet::echo_request(client, vip, b"some thirteen"));
            let outcome = datapath.run(Hook::Ingress, &echo.bytes());
            assert_eq!(outcome, Outcome::answered(echo.echo_reply(), Verdict::EchoAnswered));
            let first = echo.fragment(0, true);
            datapath.dropped(&first, Verdict::FragmentUnsupported);
        }
    }
    let crowd = Packet::echo_request(CLIENT, VIP, b"x").to_ethernet([0xff; 6]);
    datapath.dropped(&crowd, Verdict::Unanswerable);
}

#[test]
fn b26_a_ping_of_a_cluster_ip_without_a_usable_endpoint_says_that_nobody_is_there() {
    let mut datapath = Datapath::load();
    for (client, vip) in [V4, V6] {
        datapath.own_address(vip.ip(), false);
        datapath.refused(&Packet::echo_request(client, vip, b"ping"), Verdict::NoBackend);
    }
}

#[test]
fn what_is_no_echo_request_is_not_answered() {
    let mut datapath = one_port();
    for (client, vip) in [V4, V6] {
        // From here on the types are those of replies and errors, which are left to whoever they are for.
        let reply = Packet::echo_request(vip, client, b"ping").echo_reply();
        for hook in [Hook::Ingress, Hook::Egress] {
            assert_eq!(datapath.run(hook, &reply), Outcome::untouched(reply.clone()));
        }
    }
    let mut error = Packet::udp(VIP, CLIENT, b"x").refusal();
    for hook in [Hook::Ingress, Hook::Egress] {
        assert_eq!(datapath.run(hook, &error), Outcome::untouched(error.clone()), "an ICMP error to a VIP");
    }
    error.truncate(38);
    assert_eq!(datapath.run(Hook::Ingress, &error), Outcome::untouched(error), "cut short");
}

#[test]
fn addresses_outside_the_prefixes_are_not_looked_up() {
    let mut datapath = one_port();
    let nothing = Settings { cluster_ips: [Prefix::NOTHING; 2], ..Settings::default() };
    let of = |settings: Settings, vip: IpAddr| settings.with_cluster_ip(from_ip(vip));
    datapath.set_settings(nothing);
    for (client, vip) in [V4, V6] {
        datapath.untouched(&Packet::tcp(client, at_port(vip, 81), SYN));
    }
    datapath.set_settings(of(of(nothing, VIP.ip()), VIP_V6.ip()));
    for (client, vip) in [V4, V6] {
        datapath.refused(&Packet::tcp(client, at_port(vip, 81), SYN), Verdict::UnknownPort);
    }
    datapath.set_settings(of(of(nothing, OTHER_VIP.ip()), VIP_V6.ip()));
    datapath.untouched(&Packet::tcp(CLIENT, at_port(VIP, 81), SYN));
    datapath.refused(&Packet::tcp(CLIENT_V6, at_port(VIP_V6, 81), SYN), Verdict::UnknownPort);
}

/// What the node itself sends crosses no ingress, so it is refused when it leaves; its answer goes into the stack.
#[test]
fn what_the_node_sends_to_a_vip_is_refused_when_it_leaves() {
    let mut datapath = one_port();
    datapath.serve(tcp(at_port(VIP, 8000)), &[]);
    datapath.serve(tcp(at_port(VIP, 8001)), &[]);
    datapath.drop_when_empty(tcp(at_port(VIP, 8001)));
    let syn = Packet::tcp(CLIENT, VIP, SYN);
    let rows = [
        (at_port(VIP, 8000), Outcome::answered as fn(_, _) -> _, Verdict::NoBackend),
        (at_port(VIP, 81), Outcome::answered, Verdict::UnknownPort),
    ];
    for (destination, outcome, verdict) in rows {
        let packet = syn.to(destination);
        assert_eq!(datapath.run(Hook::Egress, &packet.bytes()), outcome(packet.refusal(), verdict));
    }
    let packet = syn.to(at_port(VIP, 8001)).bytes();
    assert_eq!(
        datapath.run(Hook::Egress, &packet),
        Outcome::dropped(packet.clone(), Verdict::NoLocalBackend)
    );
    let ping = Packet::echo_request(CLIENT_V6, VIP_V6, b"ping");
    assert_eq!(
        datapath.run(Hook::Egress, &ping.bytes()),
        Outcome::answered(ping.echo_reply(), Verdict::EchoAnswered)
    );
    // One with an endpoint is not the node's to forward either: its clients are served at their sockets' calls.
    datapath.add_flags(tcp(VIP), flags::CLUSTER_IP);
    for packet in [&syn, &Packet::tcp(CLIENT, VIP, ACK)] {
        let want = Outcome::answered(packet.refusal(), Verdict::NodeUntranslated);
        assert_eq!(datapath.run(Hook::Egress, &packet.bytes()), want);
    }
    // An address that is no ClusterIP is somebody else's too.
    datapath.serve(tcp(OTHER_VIP), &[BACKEND_1]);
    for packet in [Packet::tcp(CLIENT, OTHER_VIP, SYN), Packet::tcp(CLIENT, STRANGER, SYN)] {
        let bytes = packet.bytes();
        assert_eq!(datapath.run(Hook::Egress, &bytes), Outcome::untouched(bytes));
    }
}
