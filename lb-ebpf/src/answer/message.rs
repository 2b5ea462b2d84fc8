//! Refusals: a TCP segment, or an ICMP error that quotes what it refuses.

use core::{hint::black_box, ptr};

use aya_ebpf::{helpers::generated::bpf_skb_load_bytes, programs::TcContext};
use lb_common::{
    Address,
    refuse::{self, Reset, icmp},
    service::proto,
};

use super::frame;
use crate::{
    headers::{Icmp, Tcp, len},
    maps::ANSWER,
    packet::Packet,
};

/// How much of a packet an ICMP error quotes, a multiple of 4. Together with the pseudo-header it is as much as
/// `bpf_csum_diff` takes at once, and the whole stays below the 576 bytes of RFC 1812, section 4.3.2.3. Of a shorter packet
/// the last bytes that do not fill a word are left out.
const QUOTE: u32 = 512 - PSEUDO_HEADER - len::<Icmp>();
/// Covers what is quoted beyond 8 bytes, in words of 4.
const QUOTE_MASK: u32 = 0x1fc;
/// Length of the pseudo-header.
const PSEUDO_HEADER: u32 = 40;

/// What an IP packet carries, behind the pseudo-header (RFC 8200, section 8.1) that its checksum covers.
///
/// That of IPv4 has the same sum: what an IPv4-mapped address has more, 0xffff, is a zero of the one's complement.
#[repr(C, align(8))]
pub(crate) struct Message {
    source: Address,
    destination: Address,
    len: u32,
    /// Behind three zero bytes.
    proto: u32,
    body: Body,
}

#[repr(C)]
union Body {
    tcp: Tcp,
    icmp: IcmpError,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct IcmpError {
    header: Icmp,
    /// Room for all that the mask lets through.
    quote: [u8; (QUOTE_MASK + 8) as usize],
}

impl Message {
    /// The message of this CPU, addressed as an answer to a packet.
    #[inline(always)]
    fn to(packet: &Packet, proto: u8, len: u32) -> Result<&'static mut Self, i64> {
        let message = ANSWER.get_ptr_mut(0).ok_or(-1)?;
        // SAFETY: the element is this CPU's, and only this function gives it out, once for a packet.
        let message = unsafe { &mut *message };
        message.source = packet.key.tuple.destination;
        message.destination = packet.key.tuple.source;
        message.len = len.to_be();
        message.proto = u32::from(proto).to_be();
        Ok(message)
    }

    /// IP protocol number.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the other bytes are zero")]
    pub(super) const fn proto(&self) -> u8 {
        u32::from_be(self.proto) as u8
    }

    /// Its first byte.
    #[inline(always)]
    pub(super) const fn bytes(&self) -> *const u8 {
        (&raw const self.body).cast()
    }
}

/// The numbers of the segment that refuses this one. `None`: it must not be answered, or cannot be read any more.
#[inline(always)]
pub(super) fn reset_for(ctx: &TcContext, packet: &Packet) -> Option<Reset> {
    let segment: Tcp = ctx.load(packet.transport as usize).ok()?;
    let payload = packet.transport + u32::from(segment.data_offset >> 4) * 4;
    refuse::reset(
        segment.flags,
        u32::from_be_bytes(segment.sequence),
        u32::from_be_bytes(segment.acknowledgement),
        packet.end.saturating_sub(payload),
    )
}

/// Replaces a TCP segment by the one that refuses it.
#[inline(always)]
pub(super) fn reset(ctx: &TcContext, packet: &Packet, reset: &Reset) -> Result<(), i64> {
    let message = Message::to(packet, proto::TCP, len::<Tcp>())?;
    let segment = Tcp {
        source_port: packet.key.tuple.destination_port.to_be_bytes(),
        destination_port: packet.key.tuple.source_port.to_be_bytes(),
        sequence: reset.sequence.to_be_bytes(),
        acknowledgement: reset.acknowledgement.to_be_bytes(),
        data_offset: 5 << 4,
        flags: reset.flags,
        window: [0; 2],
        checksum: [0; 2],
        urgent: [0; 2],
    };
    message.body.tcp = segment;
    let checksum = frame::checksum(ptr::from_mut(message), PSEUDO_HEADER + len::<Tcp>())?;
    message.body.tcp.checksum = checksum;
    frame::replace(ctx, packet, message, len::<Tcp>())
}

/// Replaces a packet by the ICMP error that says that nobody takes it: on that port, or for an echo request, at that
/// address.
#[inline(always)]
pub(super) fn unreachable(ctx: &TcContext, packet: &Packet) -> Result<(), i64> {
    let quoted = packet.end.saturating_sub(packet.ip);
    let quoted = if quoted > QUOTE { QUOTE } else { quoted };
    // There are more than 8 in every packet that was parsed. The verifier has to see that there are some and not too many,
    // whatever the compiler knows: it gets a mask, which cannot end up on another register than a comparison might.
    let quoted = (black_box(quoted.saturating_sub(8)) & QUOTE_MASK) + 8;
    let len = len::<Icmp>() + quoted;
    let (proto, type_and_code) = match (packet.is_v4(), packet.is_echo_request()) {
        (true, false) => (icmp::V4, icmp::PORT_UNREACHABLE_V4),
        (true, true) => (icmp::V4, icmp::HOST_UNREACHABLE_V4),
        (false, false) => (icmp::V6, icmp::PORT_UNREACHABLE_V6),
        (false, true) => (icmp::V6, icmp::HOST_UNREACHABLE_V6),
    };
    let message = Message::to(packet, proto, len)?;
    message.body.icmp.header = Icmp { type_and_code, checksum: [0; 2], rest: [0; 4] };
    // SAFETY: every bit pattern is a message. The verifier checks that the quotation has room for so much.
    let quote = unsafe { &raw mut message.body.icmp.quote };
    // SAFETY: the context is the one that the program got; the room is as above.
    let error = unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), packet.ip, quote.cast(), quoted) };
    if error != 0 {
        return Err(error);
    }
    let checksum = if packet.is_v4() {
        // The checksum of ICMP covers the message alone.
        frame::checksum(&raw mut message.body, len)?
    } else {
        frame::checksum(ptr::from_mut(message), PSEUDO_HEADER + len)?
    };
    message.body.icmp.header.checksum = checksum;
    frame::replace(ctx, packet, message, len)
}
