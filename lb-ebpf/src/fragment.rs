//! Fragments of IP packets: the later ones, which have no ports, go where the first one went. What is decided about them is in
//! lb-common's module of the same name.
//!
//! What becomes of a first fragment is noted after the fact: whatever was done to it, the address that it then has is
//! where the others belong. The checksum of TCP or UDP covers the whole packet and is in the first fragment, so of the later
//! ones nothing but the address changes, and in IPv4 the checksum of the IP header.

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_F_INVALIDATE_HASH, BPF_F_RECOMPUTE_CSUM},
    programs::TcContext,
};
use lb_common::{
    Address, FragmentKey, FragmentValue, Verdict,
    addr::{difference, from_v4},
    fragment::{flags, hook, is_fresh, without_first},
    verdict::About,
};

use crate::{
    count::End,
    headers::extension,
    lookup,
    maps::{FRAGMENTS, NOTE},
    mark,
    nat::{self, DESTINATION, Offsets, SOURCE},
    packet::Packet,
    settings,
};

/// Lets later fragments go the way of a packet, if that is the first one.
#[inline(always)]
pub(crate) fn lead(ctx: &TcContext, packet: &Packet, hook: u8, end: End) -> End {
    if packet.is_fragment() {
        note(ctx, hook, end);
    }
    end
}

/// An entry on its way into the map. In a map of its own, because who calls [`note`] leaves it hardly any stack.
#[repr(C)]
pub(crate) struct Note {
    key: FragmentKey,
    value: FragmentValue,
}

/// Notes how the first fragment that was parsed last ended.
#[inline(never)]
fn note(ctx: &TcContext, hook: u8, end: End) {
    let (Ok(packet), Some(note)) = (Packet::last(), NOTE.get_ptr_mut(0)) else { return };
    // SAFETY: the element is this CPU's, and only this function uses it.
    let note = unsafe { &mut *note };
    note.key = key(packet, hook);
    let Some(verdict) = end else {
        // The identification may be that of an earlier packet, which was translated.
        let _ = FRAGMENTS.remove(&note.key);
        return;
    };
    let Ok(address) = address(ctx, packet, hook) else { return };
    let flags = if verdict.about() == About::PacketPassed { 0 } else { flags::DROPPED };
    note.value = FragmentValue { first_seen: settings::now(), address, flags, mark: mark::bits(ctx) };
    let _ = FRAGMENTS.insert(&note.key, &note.value, BPF_ANY.into());
}

/// How the later fragment that was parsed last ends.
#[inline(never)]
pub(crate) fn follow(ctx: &TcContext, hook: u8) -> End {
    let packet = Packet::last().ok()?;
    // SAFETY: the kernel keeps the element's memory until the program ends. It may by then be of another packet, where this
    // one's fragment does no harm: what is put together from parts of two has a wrong checksum.
    let first = unsafe { FRAGMENTS.get(&key(packet, hook)) };
    let Some(first) = first.filter(|first| is_fresh(settings::now(), first.first_seen)) else {
        return alone(ctx, packet, hook);
    };
    if first.flags & flags::DROPPED != 0 {
        return Some(Verdict::FragmentOrphaned);
    }
    let (at, old) = side(packet, hook);
    let (new, mark) = (first.address, first.mark);
    mark::set_bits(ctx, mark);
    if difference(new, *old) == 0 {
        return Some(Verdict::FragmentPassed);
    }
    // The sum that receiving hardware made of the packet stays right: in IPv4 address and checksum balance each other, in IPv6 the
    // sum is moved by the address.
    let flags = u64::from(BPF_F_INVALIDATE_HASH);
    let v6_flags = flags | u64::from(BPF_F_RECOMPUTE_CSUM);
    if nat::set_address(ctx, packet, at, (old, &new), (flags, v6_flags)).is_err() {
        return Some(Verdict::RewriteFailed);
    }
    Some(Verdict::FragmentContinued)
}

/// How a later fragment ends whose first one nobody knows.
#[inline(always)]
fn alone(ctx: &TcContext, packet: &Packet, hook: u8) -> End {
    if hook != hook::INGRESS {
        return Some(without_first(false));
    }
    if mark::get(ctx).is_some() {
        // Another ingress has translated it.
        return None;
    }
    Some(without_first(lookup::cluster_ip(&packet.key.tuple.destination).is_some()))
}

#[inline(always)]
fn key(packet: &Packet, hook: u8) -> FragmentKey {
    let tuple = &packet.key.tuple;
    FragmentKey {
        source: tuple.source,
        destination: tuple.destination,
        id: packet.id,
        proto: if packet.is_v4() { packet.key.proto } else { extension::FRAGMENT },
        hook,
        pad: 0,
    }
}

/// Where the address is that a hook translates, and what it is in the packet as it came.
#[inline(always)]
fn side(packet: &Packet, hook: u8) -> (&'static Offsets, &Address) {
    let tuple = &packet.key.tuple;
    if hook == hook::INGRESS { (&DESTINATION, &tuple.destination) } else { (&SOURCE, &tuple.source) }
}

/// The address that the packet now has there.
#[inline(always)]
fn address(ctx: &TcContext, packet: &Packet, hook: u8) -> Result<Address, i64> {
    let (at, _) = side(packet, hook);
    if packet.is_v4() {
        ctx.load((packet.ip + at.v4_address) as usize).map(from_v4)
    } else {
        ctx.load((packet.ip + at.v6_address) as usize)
    }
}
