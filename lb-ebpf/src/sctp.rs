//! SCTP (RFC 9260): what its packets say, and the rewrite of one end of them. What is decided about them is in lb-common's
//! module of the same name.
//!
//! No helper of the kernel knows the checksum, and the sender's kernel leaves a field of zero where hardware or the last
//! device is to fill it in (`CHECKSUM_PARTIAL` with `csum_not_inet`): such a one stays. So does that of a sender that has
//! agreed with the receiver to send none (RFC 9653).

use aya_ebpf::{
    bindings::{BPF_F_INVALIDATE_HASH, BPF_F_RECOMPUTE_CSUM},
    programs::TcContext,
};
use lb_common::{Address, sctp};

use crate::{
    headers::len,
    nat::{self, Endpoint, Offsets},
    packet::Packet,
};

/// The common header.
#[repr(C, align(2))]
pub(crate) struct Sctp {
    pub(crate) source_port: [u8; 2],
    pub(crate) destination_port: [u8; 2],
    verification_tag: [u8; 4],
    checksum: [u8; 4],
}

/// Where the checksum lies in it.
const CHECKSUM: u32 = 8;

/// What the packet that begins and ends there says, in TCP's flags.
#[inline(always)]
pub(crate) fn flags(ctx: &TcContext, at: u32, end: u32) -> u8 {
    let first = at + len::<Sctp>();
    // Type, flags and length. By the helper: fewer ways for the verifier to follow.
    let header = if first + 4 <= end { ctx.load::<[u8; 4]>(first as usize).ok() } else { None };
    sctp::as_tcp_flags(header.map(|[kind, ..]| kind))
}

/// Rewrites one end of a whole packet. Every store is taken into the sum that receiving hardware has made, if there is one,
/// except that of an IPv4 address, which the header's own checksum balances.
#[inline(always)]
pub(crate) fn rewrite(
    ctx: &TcContext,
    packet: &Packet,
    at: &Offsets,
    old_address: &Address,
    old_port: u16,
    new: &Endpoint,
) -> Result<(), i64> {
    let recompute = u64::from(BPF_F_RECOMPUTE_CSUM);
    nat::set_address(ctx, packet, at, (old_address, &new.address), (0, recompute))?;
    let checksum_at = (packet.transport + CHECKSUM) as usize;
    let before: [u8; 4] = ctx.load(checksum_at)?;
    if before != [0; 4] {
        let [high, low] = (old_port ^ new.port).to_be_bytes();
        let ports = if at.port == 0 { [high, low, 0, 0] } else { [0, 0, high, low] };
        let difference =
            sctp_checksum_difference(u32::from_le_bytes(ports), packet.end.wrapping_sub(packet.transport));
        ctx.store(checksum_at, &(u32::from_le_bytes(before) ^ difference).to_le_bytes(), recompute)?;
    }
    let flags = recompute | u64::from(BPF_F_INVALIDATE_HASH);
    ctx.store((packet.transport + at.port) as usize, &new.port.to_be_bytes(), flags)
}

/// [`sctp::checksum_difference`].
///
/// A function of its own, with external linkage and numbers only, is verified once (Linux 5.6) and not on every way that
/// leads to it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sctp_checksum_difference(ports: u32, len: u32) -> u32 {
    sctp::checksum_difference(ports, len)
}
