//! The reply to an echo request: the same packet on its way back.

use aya_ebpf::{bindings::BPF_F_RECOMPUTE_CSUM, programs::TcContext};
use lb_common::{
    addr::v4,
    refuse::{TIME_TO_LIVE, icmp},
};

use super::frame;
use crate::{nat::V4_CHECKSUM, packet::Packet};

/// Where fields lie in the headers.
const V4_TIME_TO_LIVE: u32 = 8;
const V4_ADDRESSES: u32 = 12;
const V6_HOP_LIMIT: u32 = 7;
const V6_ADDRESSES: u32 = 8;
const ICMP_CHECKSUM: u32 = 2;

/// Makes an echo request its reply. Exchanged addresses leave every sum as it is.
#[inline(always)]
pub(super) fn reply(ctx: &TcContext, packet: &Packet) -> Result<(), i64> {
    let tuple = &packet.key.tuple;
    if packet.is_v4() {
        let at = (packet.ip + V4_TIME_TO_LIVE) as usize;
        // The field and the protocol number make one word.
        let [old, proto]: [u8; 2] = ctx.load(at)?;
        let (from, to) = (u16::from_ne_bytes([old, proto]), u16::from_ne_bytes([TIME_TO_LIVE, proto]));
        ctx.l3_csum_replace((packet.ip + V4_CHECKSUM) as usize, from.into(), to.into(), 2)?;
        ctx.store(at, &TIME_TO_LIVE, 0)?;
        let addresses = [v4(tuple.destination), v4(tuple.source)];
        ctx.store((packet.ip + V4_ADDRESSES) as usize, &addresses, 0)?;
        change_type(ctx, packet, icmp::ECHO_REQUEST_V4, icmp::ECHO_REPLY_V4)?;
    } else {
        ctx.store((packet.ip + V6_HOP_LIMIT) as usize, &TIME_TO_LIVE, BPF_F_RECOMPUTE_CSUM.into())?;
        let addresses = [tuple.destination, tuple.source];
        ctx.store((packet.ip + V6_ADDRESSES) as usize, &addresses, 0)?;
        change_type(ctx, packet, icmp::ECHO_REQUEST_V6, icmp::ECHO_REPLY_V6)?;
    }
    frame::turn_round(ctx)
}

/// Changes the type of the message, whose code is 0.
#[inline(always)]
fn change_type(ctx: &TcContext, packet: &Packet, from: u8, to: u8) -> Result<(), i64> {
    let (from, to_word) = (u16::from_ne_bytes([from, 0]), u16::from_ne_bytes([to, 0]));
    let checksum = (packet.transport + ICMP_CHECKSUM) as usize;
    ctx.l4_csum_replace(checksum, from.into(), to_word.into(), 2)?;
    ctx.store(packet.transport as usize, &to, 0)
}
