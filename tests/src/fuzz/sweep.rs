//! Not at random: every length that a frame can be cut to, and every value of every byte of its headers but
//! addresses, of which it is every bit.

use std::ops::Range;

use anyhow::Result;
use etherparse::EtherType;
use lb_common::{Verdict, maps};

use super::{
    Difference, Tally,
    changes::Change,
    damage::make_runnable,
    host, on_two_threads,
    universe::{FAMILIES, may_be_cluster_ip},
    world::World,
};
use crate::{
    model::Arrival,
    packet::{ACK, Extension, IcmpError, Kind, Packet, SYN},
    prog::{Datapath, Hook},
};

/// Sends them all.
///
/// # Errors
/// The first difference, or that the rights are missing.
pub fn sweep() -> Result<Tally> {
    Tally::of_both(host()?.run(|| on_two_threads(sweep_family)))
}

fn sweep_family(family: usize) -> Result<Tally, Difference> {
    let mut datapath = Datapath::load_with(&[(maps::FLOWS_NEW, 65_536)]);
    let mut tally = Tally::default();
    for Shape { hook, bytes, headers_len, addresses, before } in shapes(family) {
        let cut = (14..bytes.len()).map(|len| bytes[..len].to_vec());
        let changed = (0..headers_len).flat_map(|at| {
            let bytes = &bytes;
            values(addresses.contains(&at), bytes[at]).map(move |value| {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                bytes
            })
        });
        datapath.forget_everything();
        let mut world = World::new("the sweep is the same every time".to_owned(), &mut datapath, 4096);
        beginning(family).into_iter().for_each(|change| world.change(change));
        let before = before.map(|packet| (hook, packet));
        for (hook, packet) in opening(family).into_iter().chain(before) {
            world.packet(arrival(hook, packet.bytes()))?;
        }
        for mut frame in [bytes.clone()].into_iter().chain(cut).chain(changed) {
            make_runnable(&mut frame);
            tally.add(&world.packet(arrival(hook, frame))?);
        }
        world.compare_memory()?;
    }
    Ok(tally)
}

/// Everybody is served, but nobody on the ports of name servers.
fn beginning(family: usize) -> Vec<Change> {
    let family = &FAMILIES[family];
    let mut changes = vec![Change::Settings { is_migrating: false, has_orphans: false }];
    for frontend in family.frontends {
        if may_be_cluster_ip(frontend) {
            changes.push(Change::Own(frontend.0.ip(), true));
        }
        let there = if frontend.0.port() == 53 { Vec::new() } else { vec![family.backends[0]] };
        changes.push(Change::Serve {
            frontend: *frontend,
            is_cluster_ip: may_be_cluster_ip(frontend),
            here: Vec::new(),
            there,
            draining: Vec::new(),
        });
    }
    changes
}

/// What becomes of a byte: everything, or in addresses, which are long, every bit of it once.
fn values(is_of_address: bool, byte: u8) -> impl Iterator<Item = u8> {
    let range = if is_of_address { 0..=7 } else { 0..=u8::MAX };
    range.map(move |value| if is_of_address { byte ^ 1 << value } else { value })
}

fn arrival(hook: Hook, frame: Vec<u8>) -> Arrival {
    Arrival { hook, frame, times: 1, is_forwarded: false }
}

/// The beginning of the conversations that the shapes are of.
fn opening(family: usize) -> [(Hook, Packet); 5] {
    let family = &FAMILIES[family];
    let (client, frontend, backend) = (family.clients[0], family.frontends[0].0, family.backends[0]);
    [
        (Hook::Ingress, Packet::udp(client, frontend, b"ask")),
        (Hook::Ingress, Packet::tcp(client, frontend, SYN)),
        (Hook::Egress, Packet::tcp(backend, client, SYN | ACK)),
        (Hook::Ingress, Packet::tcp(client, frontend, ACK)),
        (Hook::Ingress, Packet::sctp(client, frontend, &INIT)),
    ]
}

/// The chunk that begins an association, as far as it matters.
const INIT: [u8; 8] = [1, 0, 0, 8, 0, 0, 0, 1];

/// What is swept, and where.
struct Shape {
    hook: Hook,
    bytes: Vec<u8>,
    headers_len: usize,
    addresses: Range<usize>,
    /// What has come before it there.
    before: Option<Packet>,
}

impl Shape {
    fn of(hook: Hook, packet: &Packet) -> Self {
        let (headers_len, addresses) = (packet.headers_len(), packet.addresses());
        Self { hook, bytes: packet.bytes(), headers_len, addresses, before: None }
    }
}

/// One packet of every kind, at the hook where something becomes of it, in every encapsulation; and errors about them.
fn shapes(family: usize) -> Vec<Shape> {
    let family = &FAMILIES[family];
    let (client, frontend, backend) = (family.clients[0], family.frontends[0].0, family.backends[0]);
    let unserved = family.frontends[2].0;
    let kinds = [
        (Hook::Ingress, Packet::tcp(client, frontend, SYN)),
        (Hook::Ingress, Packet::tcp(client, frontend, ACK).with_payload(b"GET")),
        (Hook::Egress, Packet::tcp(backend, client, SYN | ACK)),
        (Hook::Ingress, Packet::udp(client, frontend, b"ask")),
        (Hook::Egress, Packet::udp(backend, client, b"answer")),
        (Hook::Ingress, Packet::udp(client, unserved, b"ask")),
        (Hook::Ingress, Packet::tcp(client, unserved, SYN)),
        (Hook::Ingress, Packet::echo_request(client, frontend, b"ping")),
        (Hook::Ingress, Packet::sctp(client, frontend, &INIT)),
    ];
    let is_v4 = client.is_ipv4();
    let encapsulated = |hook: Hook, packet: Packet| {
        let tagged = packet.clone().tagged(EtherType::VLAN_TAGGED_FRAME);
        let extended = match is_v4 {
            true => packet.clone().with_ip_options(&[1; 12]),
            false => packet
                .clone()
                .with_extension(Extension::HopByHop)
                .with_extension(Extension::Routing(0))
                .fragment(0, false),
        };
        let first = packet.clone().fragment(0, true);
        let later = packet.clone().fragment(185, false);
        let alone = [&packet, &tagged.tagged(EtherType::PROVIDER_BRIDGING), &extended, &first, &later]
            .map(|packet| Shape::of(hook, packet));
        let following = Shape { before: Some(first), ..Shape::of(hook, &later) };
        alone.into_iter().chain([following]).collect::<Vec<_>>()
    };
    let errors = [
        (Hook::Ingress, Packet::tcp(frontend, client, ACK), client),
        (Hook::Ingress, Packet::udp(frontend, client, b"answer"), client),
        (Hook::Egress, Packet::tcp(client, backend, ACK), backend),
        (Hook::Egress, Packet::sctp(client, backend, &INIT), backend),
    ];
    let errors = errors.map(|(hook, quoted, from)| {
        let bytes = IcmpError::about(&quoted, from.ip(), Kind::TooBig(1400)).bytes();
        Shape { hook, headers_len: bytes.len(), bytes, addresses: quoted.addresses(), before: None }
    });
    kinds.into_iter().flat_map(|(hook, packet)| encapsulated(hook, packet)).chain(errors).collect()
}

/// What a sweep has to meet, or it was none.
pub const SWEPT: [Verdict; 16] = [
    Verdict::FlowCreated,
    Verdict::FlowContinued,
    Verdict::ReplyRestored,
    Verdict::MidflowUnknown,
    Verdict::Unparsable,
    Verdict::FragmentPassed,
    Verdict::FragmentUnsupported,
    Verdict::FragmentContinued,
    Verdict::FragmentOrphaned,
    Verdict::AuthenticatedPassed,
    Verdict::ErrorForwarded,
    Verdict::ErrorRestored,
    Verdict::NoBackend,
    Verdict::UnknownPort,
    Verdict::EchoAnswered,
    Verdict::Unanswerable,
];
