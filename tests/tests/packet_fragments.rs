//! Packets that were cut up: every fragment goes where the first one goes, or none goes on.

use std::net::SocketAddr;

use aya::util::KernelVersion;
use etherparse::EtherType;
use lb_common::{Settings, Verdict, flow::SECOND, fragment::TIMEOUT};
use lb_tests::{
    addrs::*,
    packet::{ACK, Extension, Packet, SYN},
    prog::{Datapath, Hook, Outcome},
    received_sum::run_with_received_sum,
    seed::{tcp, udp},
};

type Ends = (SocketAddr, SocketAddr, SocketAddr);

const V4: Ends = (CLIENT_UDP, VIP_DNS, BACKEND_2_DNS);
const V6: Ends = (CLIENT_V6, VIP_V6, BACKEND_V6);
const ID: u32 = 0x5a5a_1234;

/// A datapath with a frontend in each family, of TCP and UDP, on ClusterIPs.
fn datapath() -> Datapath {
    let mut datapath = Datapath::load();
    for (_, vip, backend) in [V4, V6] {
        datapath.serve(tcp(vip), &[backend]);
        datapath.serve(udp(vip), &[backend]);
        datapath.own_address(vip.ip(), true);
    }
    datapath
}

fn large(from: SocketAddr, to: SocketAddr, len: u16) -> Packet {
    let payload: Vec<u8> = (0..len).map(|at| at.to_be_bytes()[1]).collect();
    Packet::udp(from, to, &payload)
}

/// Sends fragments, each of which has to come out as the one of `translated`, the first counted as `verdict`.
fn all_pass(
    datapath: &mut Datapath,
    hook: Hook,
    packet: &Packet,
    translated: &Packet,
    mtu: usize,
    verdict: Verdict,
) {
    let verdicts = [verdict].into_iter().chain(std::iter::repeat(Verdict::FragmentContinued));
    let fragments = packet.fragments(mtu, ID).into_iter().zip(translated.fragments(mtu, ID));
    for ((before, after), verdict) in fragments.zip(verdicts) {
        assert_eq!(datapath.run(hook, &before), Outcome::passed(after, verdict), "{packet:?}");
    }
}

#[test]
fn b49_every_fragment_goes_to_the_backend_and_comes_from_the_vip() {
    let mut datapath = datapath();
    let mut ports = 1..;
    // 1473 to 1476 bytes: the last fragment has less than a UDP header.
    for (len, mtu) in [(3000, 1500), (3000, 1280), (1473, 1450), (1474, 1450), (1475, 1450), (1476, 1450)] {
        for (client, vip, backend) in [V4, V6] {
            let client = SocketAddr::new(client.ip(), ports.next().unwrap());
            for make in [
                (|packet| packet) as fn(Packet) -> Packet,
                |packet| packet.tagged(EtherType::VLAN_TAGGED_FRAME),
                |packet| packet.with_extension(Extension::HopByHop),
                |packet| packet.with_extension(Extension::DestinationOptions),
            ] {
                let request = make(large(client, vip, len));
                if client.is_ipv4() && request.extensions_len() > 0 {
                    continue;
                }
                let count = request.fragments(mtu, ID).len();
                assert!(count == if len == 3000 { 3 } else { 2 }, "{count} fragments");
                let first =
                    match datapath.flows().iter().any(|(_, key, _)| key.tuple.source_port == client.port()) {
                        true => Verdict::FlowContinued,
                        false => Verdict::FlowCreated,
                    };
                all_pass(&mut datapath, Hook::Ingress, &request, &request.to(backend), mtu, first);
                let reply = make(large(backend, client, len));
                all_pass(&mut datapath, Hook::Egress, &reply, &reply.from(vip), mtu, Verdict::ReplyRestored);
            }
        }
    }
}

#[test]
fn b49_fragments_of_tcp_follow_too() {
    let mut datapath = datapath();
    for (client, vip, backend) in [V4, V6] {
        datapath.to_backend(&Packet::tcp(client, vip, SYN), Verdict::FlowCreated, &[backend]);
        let data = Packet::tcp(client, vip, ACK).with_payload(&[7; 2000]);
        all_pass(&mut datapath, Hook::Ingress, &data, &data.to(backend), 1280, Verdict::FlowContinued);
    }
}

#[test]
fn b49_ahead_of_the_first_one_a_fragment_to_a_cluster_ip_is_dropped() {
    let mut datapath = datapath();
    for (client, vip, backend) in [V4, V6] {
        let request = large(client, vip, 3000);
        let [first, middle, last] = &request.fragments(1400, ID)[..] else { panic!("three") };
        let [first_then, middle_then, last_then] = &request.to(backend).fragments(1400, ID)[..] else {
            panic!("three")
        };
        let dropped = Outcome::dropped(last.clone(), Verdict::FragmentOrphaned);
        assert_eq!(datapath.run(Hook::Ingress, last), dropped);
        let created = Outcome::passed(first_then.clone(), Verdict::FlowCreated);
        assert_eq!(datapath.run(Hook::Ingress, first), created);
        // From here on in any order.
        for (before, after) in [(last, last_then), (middle, middle_then)] {
            let want = Outcome::passed(after.clone(), Verdict::FragmentContinued);
            assert_eq!(datapath.run(Hook::Ingress, before), want);
        }
    }
}

#[test]
fn b49_elsewhere_a_fragment_without_its_first_one_passes_whatever_its_data_look_like() {
    let mut datapath = Datapath::load();
    for (client, vip, backend) in [V4, V6] {
        // Not a ClusterIP: ours with this port only.
        datapath.serve(udp(vip), &[backend]);
        datapath.to_backend(&Packet::udp(client, vip, b"x"), Verdict::FlowCreated, &[backend]);
        for (hook, packet) in [
            (Hook::Ingress, Packet::udp(client, vip, b"x")),
            (Hook::Egress, Packet::udp(backend, client, b"x")),
        ] {
            // Its data is a UDP header with the ports of the flow.
            let later = packet.fragment(185, false).bytes();
            assert_eq!(datapath.run(hook, &later), Outcome::passed(later, Verdict::FragmentPassed));
        }
    }
}

#[test]
fn fragments_follow_for_30_seconds() {
    let mut datapath = datapath();
    for (client, vip, backend) in [V4, V6] {
        let request = large(client, vip, 2000);
        let fragments = request.fragments(1400, ID);
        all_pass(&mut datapath, Hook::Ingress, &request, &request.to(backend), 1400, Verdict::FlowCreated);
        datapath.age_fragments(TIMEOUT - 5 * SECOND);
        let later =
            Outcome::passed(request.to(backend).fragments(1400, ID).remove(1), Verdict::FragmentContinued);
        assert_eq!(datapath.run(Hook::Ingress, &fragments[1]), later);
        datapath.age_fragments(6 * SECOND);
        let dropped = Outcome::dropped(fragments[1].clone(), Verdict::FragmentOrphaned);
        assert_eq!(datapath.run(Hook::Ingress, &fragments[1]), dropped);
    }
}

#[test]
fn b49_fragments_stay_together_when_the_backend_changes_between_them() {
    let mut datapath = datapath();
    let request = large(CLIENT_UDP, VIP_DNS, 2000);
    let fragments = request.fragments(1400, ID);
    let sent = |backend| request.to(backend).fragments(1400, ID);
    let outcome = datapath.run(Hook::Ingress, &fragments[0]);
    assert_eq!(outcome, Outcome::passed(sent(BACKEND_2_DNS).remove(0), Verdict::FlowCreated));
    datapath.serve(udp(VIP_DNS), &[BACKEND_1_DNS]);
    datapath.set_state(udp(VIP_DNS), BACKEND_2_DNS, None);
    let outcome = datapath.run(Hook::Ingress, &fragments[1]);
    assert_eq!(outcome, Outcome::passed(sent(BACKEND_2_DNS).remove(1), Verdict::FragmentContinued));
    // The next packet has the same identification.
    for (n, verdict) in [(0, Verdict::FlowCreated), (1, Verdict::FragmentContinued)] {
        let outcome = datapath.run(Hook::Ingress, &fragments[n]);
        assert_eq!(outcome, Outcome::passed(sent(BACKEND_1_DNS).remove(n), verdict));
    }
}

#[test]
fn a_packet_of_nobodys_with_the_identification_of_another_is_left_alone() {
    let mut datapath = datapath();
    for (client, vip, backend) in [V4, V6] {
        datapath.to_backend(&Packet::udp(client, vip, b"x"), Verdict::FlowCreated, &[backend]);
        let reply = large(backend, client, 2000);
        all_pass(&mut datapath, Hook::Egress, &reply, &reply.from(vip), 1400, Verdict::ReplyRestored);
        let own = large(SocketAddr::new(backend.ip(), 9), client, 2000).fragments(1400, ID);
        assert_eq!(datapath.run(Hook::Egress, &own[0]), Outcome::untouched(own[0].clone()));
        assert_eq!(
            datapath.run(Hook::Egress, &own[1]),
            Outcome::passed(own[1].clone(), Verdict::FragmentPassed)
        );
        // Another identification, or protocol, or hook, is another packet.
        let request = large(client, vip, 2000);
        all_pass(&mut datapath, Hook::Ingress, &request, &request.to(backend), 1400, Verdict::FlowContinued);
        let other = request.fragments(1400, ID + 1).remove(1);
        let orphaned = Outcome::dropped(other.clone(), Verdict::FragmentOrphaned);
        assert_eq!(datapath.run(Hook::Ingress, &other), orphaned);
        let other = request.fragments(1400, ID).remove(1);
        let passed = Outcome::passed(other.clone(), Verdict::FragmentPassed);
        assert_eq!(datapath.run(Hook::Egress, &other), passed);
    }
}

/// On its way through the node a reply is at an ingress first, where it is nobody's, and so it stays there.
#[test]
fn the_hooks_know_nothing_of_each_other() {
    let mut datapath = datapath();
    for (client, vip, backend) in [V4, V6] {
        datapath.to_backend(&Packet::udp(client, vip, b"x"), Verdict::FlowCreated, &[backend]);
        let reply = large(backend, client, 2000);
        for (n, fragment) in reply.fragments(1400, ID).into_iter().enumerate() {
            let (at_ingress, at_egress) = match n {
                0 => (Outcome::untouched(fragment.clone()), Verdict::ReplyRestored),
                _ => (Outcome::passed(fragment.clone(), Verdict::FragmentPassed), Verdict::FragmentContinued),
            };
            assert_eq!(datapath.run(Hook::Ingress, &fragment), at_ingress);
            let restored = reply.from(vip).fragments(1400, ID).remove(n);
            assert_eq!(datapath.run(Hook::Egress, &fragment), Outcome::passed(restored, at_egress));
        }
    }
}

#[test]
fn b25_later_fragments_of_what_was_refused_or_dropped_go_no_further() {
    let mut datapath = datapath();
    for (client, vip, _) in [V4, V6] {
        datapath.serve(udp(vip), &[]);
        let request = large(client, vip, 1400);
        let first = request.clone().fragment(0, true);
        datapath.refused(&first, Verdict::NoBackend);
        // A later one of the same packet: the builder gives every fragment the same identification.
        let later = request.fragment(100, false).bytes();
        assert_eq!(datapath.run(Hook::Ingress, &later), Outcome::dropped(later, Verdict::FragmentOrphaned));
    }
    // IPv6 forbids UDP without a checksum.
    let (client, vip, backend) = V6;
    datapath.serve(udp(vip), &[backend]);
    let unchecked = large(client, vip, 2000).with_checksum(0).fragments(1400, ID);
    let verdicts = [Verdict::UnknownChecksum, Verdict::FragmentOrphaned];
    for (fragment, verdict) in unchecked.into_iter().zip(verdicts) {
        assert_eq!(datapath.run(Hook::Ingress, &fragment), Outcome::dropped(fragment, verdict));
    }
}

#[test]
fn fragments_of_a_connection_of_the_proxy_before_pass_together() {
    let mut datapath = datapath();
    datapath.set_settings(Settings { migration_until: u64::MAX, ..Settings::default() });
    for (client, vip, _) in [V4, V6] {
        let fragments = Packet::tcp(client, vip, ACK).with_payload(&[7; 2000]).fragments(1400, ID);
        for (fragment, verdict) in
            fragments.into_iter().zip([Verdict::MidflowPassed, Verdict::FragmentPassed])
        {
            assert_eq!(datapath.run(Hook::Ingress, &fragment), Outcome::passed(fragment, verdict));
        }
    }
}

#[test]
fn b52_fragments_that_meet_a_hook_twice_are_translated_once() {
    let mut datapath = datapath();
    for (client, vip, backend) in [V4, V6] {
        let request = large(client, vip, 2000);
        let verdicts = [Verdict::FlowCreated, Verdict::FragmentContinued];
        let fragments = request.fragments(1400, ID).into_iter().zip(request.to(backend).fragments(1400, ID));
        for ((before, after), verdict) in fragments.zip(verdicts) {
            let outcome = datapath.run_repeatedly(Hook::Ingress, &before, 2);
            assert_eq!(outcome, Outcome::passed(after, verdict));
        }
    }
}

#[test]
fn the_sum_that_receiving_hardware_made_stays_that_of_the_fragment() {
    if KernelVersion::current().unwrap() < KernelVersion::new(6, 18, 0) {
        eprintln!("not shown: before Linux 6.18 the kernel may not let a test give it such a sum");
        return;
    }
    let datapath = datapath();
    for (client, vip, backend) in [V4, V6] {
        let (request, reply) = (large(client, vip, 2000), large(backend, client, 2000));
        for (hook, before, after) in
            [(Hook::Ingress, &request, request.to(backend)), (Hook::Egress, &reply, reply.from(vip))]
        {
            for (before, after) in before.fragments(1400, ID).iter().zip(after.fragments(1400, ID)) {
                assert_eq!(run_with_received_sum(&datapath, hook, before).unwrap(), after);
            }
        }
    }
}
