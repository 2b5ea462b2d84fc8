//! Rewrites one end of a packet.
//!
//! The checksum updates go through the kernel's helpers, because only they know what the field holds: a sum that the
//! sender completed, one that hardware will complete (`CHECKSUM_PARTIAL`: only the pseudo-header counts), and beside
//! either the sum that the receiving hardware made of the whole packet (`CHECKSUM_COMPLETE`).

use core::ptr;

use aya_ebpf::{
    bindings::{BPF_F_INVALIDATE_HASH, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM},
    helpers::generated::{bpf_csum_diff, bpf_csum_update},
    programs::TcContext,
};
use lb_common::{Address, Verdict, addr::v4, service::proto};

use crate::{count::End, packet::Packet, sctp};

/// An address and port, the latter in host byte order. Aligned, so that it is copied by words.
#[repr(C, align(4))]
#[derive(Clone, Copy)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) port: u16,
}

/// Where the fields of one end lie in the headers.
pub(crate) struct Offsets {
    pub(crate) v4_address: u32,
    pub(crate) v6_address: u32,
    pub(crate) port: u32,
}

pub(crate) const SOURCE: Offsets = Offsets { v4_address: 12, v6_address: 8, port: 0 };
pub(crate) const DESTINATION: Offsets = Offsets { v4_address: 16, v6_address: 24, port: 2 };
pub(crate) const V4_CHECKSUM: u32 = 10;
const TCP_CHECKSUM: u32 = 16;
const UDP_CHECKSUM: u32 = 6;

/// Which end of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// Sets the packet's destination.
#[inline(always)]
pub(crate) fn set_destination(ctx: &TcContext, packet: &Packet, new: &Endpoint) -> Result<(), End> {
    rewrite(ctx, packet, Side::Destination, new)
}

/// Sets the packet's source.
#[inline(always)]
pub(crate) fn set_source(ctx: &TcContext, packet: &Packet, new: &Endpoint) -> Result<(), End> {
    rewrite(ctx, packet, Side::Source, new)
}

/// A step that fails ends the packet: half a rewrite must not travel.
#[inline(always)]
fn rewrite(ctx: &TcContext, packet: &Packet, side: Side, new: &Endpoint) -> Result<(), End> {
    let tuple = &packet.key.tuple;
    let (at, address, port) = match side {
        Side::Source => (&SOURCE, &tuple.source, tuple.source_port),
        Side::Destination => (&DESTINATION, &tuple.destination, tuple.destination_port),
    };
    let done = if packet.key.proto != proto::SCTP {
        try_rewrite(ctx, packet, at, address, port, new)
    } else if packet.is_fragment() {
        // How far the port is from the end of the whole packet cannot be told from its first fragment.
        return Err(Some(Verdict::FragmentUnsupported));
    } else {
        sctp::rewrite(ctx, packet, at, address, port, new)
    };
    done.map_err(|_| Some(Verdict::RewriteFailed))
}

#[inline(always)]
fn try_rewrite(
    ctx: &TcContext,
    packet: &Packet,
    at: &Offsets,
    old_address: &Address,
    old_port: u16,
    new: &Endpoint,
) -> Result<(), i64> {
    // UDP: a field of 0 says that there is no checksum and stays; a sum of 0 is written as 0xffff (RFC 768).
    let (checksum, flags) = match packet.key.proto {
        proto::TCP => (packet.transport + TCP_CHECKSUM, 0),
        _ => (packet.transport + UDP_CHECKSUM, u64::from(BPF_F_MARK_MANGLED_0)),
    };
    let pseudo_header = flags | u64::from(BPF_F_PSEUDO_HDR);

    if packet.is_v4() {
        let (old, new) = (v4(*old_address), v4(new.address));
        let (from, to) = (u32::from_ne_bytes(old).into(), u32::from_ne_bytes(new).into());
        ctx.l4_csum_replace(checksum as usize, from, to, pseudo_header | 4)?;
        ctx.l3_csum_replace((packet.ip + V4_CHECKSUM) as usize, from, to, 4)?;
        ctx.store((packet.ip + at.v4_address) as usize, &new, 0)?;
    } else {
        let difference = difference(old_address, &new.address)?;
        ctx.l4_csum_replace(checksum as usize, 0, difference.into(), pseudo_header)?;
        ctx.store((packet.ip + at.v6_address) as usize, &new.address, 0)?;
        recount(ctx, difference);
    }

    let (from, to) = (u16::from_ne_bytes(old_port.to_be_bytes()), u16::from_ne_bytes(new.port.to_be_bytes()));
    ctx.l4_csum_replace(checksum as usize, from.into(), to.into(), flags | 2)?;
    // The hash of the flow that the packet had before would now name another one. In a sum of the whole packet, the port and
    // the field balance each other, unless there is none.
    let recount = if packet.key.proto == proto::UDP && ctx.load::<[u8; 2]>(checksum as usize)? == [0; 2] {
        BPF_F_RECOMPUTE_CSUM
    } else {
        0
    };
    ctx.store((packet.transport + at.port) as usize, &to, u64::from(BPF_F_INVALIDATE_HASH | recount))
}

/// Sets an address in an IP header, of the packet or of one that it quotes, from the first to the second, and in IPv4 the
/// checksum of the header. `flags` are those of the store (bpf-helpers(7), `bpf_skb_store_bytes`), in IPv4 and in IPv6.
#[inline(always)]
pub(crate) fn set_address(
    ctx: &TcContext,
    packet: &Packet,
    at: &Offsets,
    (old, new): (&Address, &Address),
    (v4_flags, v6_flags): (u64, u64),
) -> Result<(), i64> {
    if packet.is_v4() {
        let (old, new) = (v4(*old), v4(*new));
        let (from, to) = (u32::from_ne_bytes(old).into(), u32::from_ne_bytes(new).into());
        ctx.l3_csum_replace((packet.ip + V4_CHECKSUM) as usize, from, to, 4)?;
        ctx.store((packet.ip + at.v4_address) as usize, &new, v4_flags)
    } else {
        ctx.store((packet.ip + at.v6_address) as usize, new, v6_flags)
    }
}

/// The one's complement difference of two addresses. That of IPv4 ones is the same in the form of the maps.
#[inline(always)]
pub(crate) fn difference(old: &Address, new: &Address) -> Result<u32, i64> {
    #[expect(clippy::cast_possible_truncation, reason = "an address is short")]
    const LEN: u32 = size_of::<Address>() as u32;
    let (old, new) = (ptr::from_ref(old).cast_mut(), ptr::from_ref(new).cast_mut());
    // SAFETY: both point to LEN readable bytes; the helper writes to neither.
    let sum = unsafe { bpf_csum_diff(old.cast(), LEN, new.cast(), LEN, 0) };
    u32::try_from(sum).map_err(|_| sum)
}

/// Corrects the sum that the receiving hardware made of the whole packet. `bpf_l4_csum_replace` takes a changed address
/// to be balanced by an IPv4 header checksum and moves that sum; in IPv6 the address and the changed checksum field
/// balance each other, so the move has to be undone. (The flag `BPF_F_IPV6` does the same from 6.16 on; older kernels
/// refuse it.)
#[inline(always)]
pub(crate) fn recount(ctx: &TcContext, difference: u32) {
    // SAFETY: the context is the one that the program got. The error says that there is no such sum.
    unsafe { bpf_csum_update(ctx.skb.skb, difference) };
}
