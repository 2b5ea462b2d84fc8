//! The frame around an answer: it takes the place of the packet that it answers, between the same two Ethernet ends, with
//! the same VLAN tags.

use aya_ebpf::{
    bindings::{BPF_F_RECOMPUTE_CSUM, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC},
    helpers::generated::{bpf_csum_diff, bpf_skb_change_tail, bpf_skb_store_bytes},
    programs::TcContext,
};
use lb_common::{addr::v4, checksum::fold, refuse::TIME_TO_LIVE};

use super::message::Message;
use crate::{
    headers::{ETHERNET, Ipv4, Ipv6, len},
    packet::Packet,
};

/// `skb->pkt_type` of a frame to all or some hosts (`PACKET_BROADCAST`, `PACKET_MULTICAST` in linux/if_packet.h).
const TO_MANY: core::ops::RangeInclusive<u32> = 1..=2;
/// The same of a frame to an Ethernet address that is not the interface's (`PACKET_OTHERHOST`).
const TO_ANOTHER: u32 = 3;
/// "Don't fragment": such a packet needs no identification (RFC 6864).
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

/// Whether the frame was meant for one host alone.
#[inline(always)]
pub(super) fn is_to_one_host(ctx: &TcContext) -> bool {
    // SAFETY: the context is the one that the program got.
    !TO_MANY.contains(unsafe { &(*ctx.skb.skb).pkt_type })
}

/// Whether the frame was meant for another host than the one whose interface has seen it. On a port of a bridge it
/// usually is: for the bridge, or for a host behind another port. Elsewhere it is the business of that host, which may
/// know the packet's connection, and the interface only listens in.
#[inline(always)]
pub(super) fn is_to_another_host(ctx: &TcContext) -> bool {
    // SAFETY: as above.
    unsafe { (*ctx.skb.skb).pkt_type == TO_ANOTHER }
}

/// Exchanges the Ethernet addresses.
#[inline(always)]
pub(super) fn turn_round(ctx: &TcContext) -> Result<(), i64> {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5]: [u8; 12] = ctx.load(0)?;
    ctx.store(0, &[s0, s1, s2, s3, s4, s5, d0, d1, d2, d3, d4, d5], 0)
}

/// Puts a message of `len` bytes into the frame, from the packet's destination to its source, in place of the packet.
#[inline(always)]
pub(super) fn replace(ctx: &TcContext, packet: &Packet, message: &Message, len: u32) -> Result<(), i64> {
    let tuple = &packet.key.tuple;
    let header_len = if packet.is_v4() { self::len::<Ipv4>() } else { self::len::<Ipv6>() };
    resize(ctx, packet, packet.ip + header_len + len)?;
    turn_round(ctx)?;
    #[expect(clippy::cast_possible_truncation, reason = "a message is short")]
    let (payload_len, total_len) = ((len as u16).to_be_bytes(), ((header_len + len) as u16).to_be_bytes());
    let flags = u64::from(BPF_F_RECOMPUTE_CSUM);
    if packet.is_v4() {
        let mut header = Ipv4 {
            version_and_len: 0x45,
            traffic_class: 0,
            total_len,
            identification: [0; 2],
            flags_and_offset: DONT_FRAGMENT,
            time_to_live: TIME_TO_LIVE,
            proto: message.proto(),
            checksum: [0; 2],
            source: v4(tuple.destination),
            destination: v4(tuple.source),
        };
        header.checksum = checksum(&raw mut header, self::len::<Ipv4>())?;
        ctx.store(packet.ip as usize, &header, flags)?;
    } else {
        let header = Ipv6 {
            version_and_class: [0x60, 0, 0, 0],
            payload_len,
            next_header: message.proto(),
            hop_limit: TIME_TO_LIVE,
            source: tuple.destination,
            destination: tuple.source,
        };
        ctx.store(packet.ip as usize, &header, flags)?;
    }
    // SAFETY: the context is the one that the program got, and the message has room for more than `len` bytes, which the
    // verifier checks.
    let error = unsafe {
        bpf_skb_store_bytes(ctx.skb.skb.cast(), packet.ip + header_len, message.bytes().cast(), len, flags)
    };
    if error == 0 { Ok(()) } else { Err(error) }
}

/// Makes the frame `end` bytes long, and one whose checksums nobody is to fill in any more.
///
/// A packet from a virtual device may still want its TCP or UDP checksum filled in, at a place that the kernel has noted
/// (`CHECKSUM_PARTIAL`) and that would now be elsewhere. The kernel forgets it when all that is in front of the place is cut
/// away. It does not cut packets behind a tag that stands in the frame, so there such a packet is recognized, by not
/// becoming shorter than that place, and left unanswered; but tags of virtual devices do not stand in the frame.
#[inline(always)]
fn resize(ctx: &TcContext, packet: &Packet, end: u32) -> Result<(), i64> {
    if packet.ip > ETHERNET {
        change_tail(ctx, packet.transport)?;
        return change_tail(ctx, end);
    }
    // A multiple of 4, so that headers stay aligned.
    let cut = (packet.transport & !3) + 4;
    change_tail(ctx, end + cut)?;
    ctx.adjust_room(-cut.cast_signed(), BPF_ADJ_ROOM_MAC, 0)
}

#[inline(always)]
fn change_tail(ctx: &TcContext, len: u32) -> Result<(), i64> {
    // SAFETY: the context is the one that the program got.
    let error = unsafe { bpf_skb_change_tail(ctx.skb.skb, len, 0) };
    if error == 0 { Ok(()) } else { Err(error) }
}

/// The checksum of some bytes, a multiple of 4, as it stands in a header.
#[inline(always)]
pub(super) fn checksum<T>(bytes: *mut T, len: u32) -> Result<[u8; 2], i64> {
    // SAFETY: the verifier checks that so many bytes can be read; the helper writes to none.
    let sum = unsafe { bpf_csum_diff(core::ptr::null_mut(), 0, bytes.cast(), len, 0) };
    // A sum of words as they lie in memory is one of words in network order, whose bytes lie in memory likewise.
    u32::try_from(sum).map(|sum| (!fold(sum)).to_ne_bytes()).map_err(|_| sum)
}
