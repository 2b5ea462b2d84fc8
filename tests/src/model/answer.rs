//! What the sender of a packet gets in its place: an RST, an ICMP error, or the reply to its echo request.

use std::net::IpAddr;

use lb_common::Verdict;

use super::{
    End, Metadata, Model,
    parse::{Carries, ICMP, ICMP_V6, Packet, Segment, TCP},
    rewrite::{keep_sum, put},
    sums,
};

/// How much of a packet is quoted at most.
const QUOTE: usize = 464;

/// How many ICMP errors there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// So many at least. What happens after them depends on how quick they were, so more are to be allowed before.
    AtLeast(u32),
    /// There were too many.
    Exhausted,
}

impl Errors {
    /// So many may always be sent at once after a while without any.
    pub const BURST: Self = Self::AtLeast(50);
}

impl Default for Errors {
    fn default() -> Self {
        Self::BURST
    }
}

impl Model {
    /// Answers a packet, if that may be.
    pub(super) fn answer(
        &mut self,
        frame: &[u8],
        packet: &Packet,
        metadata: &Metadata,
        verdict: Verdict,
    ) -> End {
        if metadata.is_to_many || !is_one_host(packet.ends.from.ip()) {
            return End::Dropped(Verdict::Unanswerable);
        }
        if metadata.is_to_another && self.neighbours.contains(&packet.ends.from.ip()) {
            // The interface only listens in; it is the business of that host.
            return End::Untouched;
        }
        if verdict == Verdict::EchoAnswered {
            return End::Answered(verdict, echo_reply(frame, packet));
        }
        if let Carries::Segment(segment) = &packet.carries {
            if segment.says.rst {
                return End::Dropped(Verdict::Unanswerable);
            }
            return End::Answered(verdict, in_place_of(frame, packet, TCP, reset(packet, segment)));
        }
        match &mut self.errors {
            Errors::Exhausted | Errors::AtLeast(0) => return End::Dropped(Verdict::RefusalLimited),
            Errors::AtLeast(left) => *left -= 1,
        }
        let quoted = (packet.end - packet.ip).min(QUOTE) / 4 * 4;
        // It says that it is longer than it is, so there is not enough of it to be quoted.
        let Some(quote) = frame.get(packet.ip..packet.ip + quoted) else {
            return End::Dropped(Verdict::RewriteFailed);
        };
        let (proto, kind, code) = match (packet.is_v4(), packet.is_echo_request()) {
            (true, false) => (ICMP, 3, 3),
            (true, true) => (ICMP, 3, 1),
            (false, false) => (ICMP_V6, 1, 4),
            (false, true) => (ICMP_V6, 1, 3),
        };
        let message = [&[kind, code, 0, 0, 0, 0, 0, 0], quote].concat();
        End::Answered(verdict, in_place_of(frame, packet, proto, message))
    }
}

/// Whether an address can be that of one host.
fn is_one_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !matches!(address.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(address) => !(address.is_multicast() || address.is_unspecified() || address.is_loopback()),
    }
}

/// The segment with which a closed port answers (RFC 9293, section 3.10.7.1).
fn reset(packet: &Packet, segment: &Segment) -> Vec<u8> {
    let payload_len = packet.end.saturating_sub(packet.transport + segment.header_len);
    #[expect(clippy::cast_possible_truncation, reason = "a packet is short")]
    let counted = payload_len as u32 + u32::from(segment.says.syn) + u32::from(segment.says.fin);
    let (sequence, acknowledgement, flags) = match segment.says.ack {
        true => (segment.acknowledgement, 0, 0b0_0100),
        false => (0, segment.sequence.wrapping_add(counted), 0b1_0100),
    };
    let mut header = Vec::new();
    header.extend(packet.ends.to.port().to_be_bytes());
    header.extend(packet.ends.from.port().to_be_bytes());
    header.extend(u32::to_be_bytes(sequence));
    header.extend(u32::to_be_bytes(acknowledgement));
    header.extend([5 << 4, flags, 0, 0, 0, 0, 0, 0]);
    header
}

/// The frame with a message to its sender in place of its packet. The checksum of the message is filled in.
fn in_place_of(frame: &[u8], packet: &Packet, proto: u8, mut message: Vec<u8>) -> Vec<u8> {
    let (from, to) = (packet.ends.to.ip(), packet.ends.from.ip());
    let pseudo_header = if proto == ICMP { 0 } else { sums::pseudo_header(from, to, proto, message.len()) };
    let checksum = sums::field((sums::sum(&message) + pseudo_header) % 65_535).to_be_bytes();
    put(&mut message, if proto == TCP { 16 } else { 2 }, &checksum);

    #[expect(clippy::cast_possible_truncation, reason = "a message is short")]
    let len = |more: usize| ((message.len() + more) as u16).to_be_bytes();
    let mut header = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend([0x45, 0]);
            header.extend(len(20));
            header.extend([0, 0, 0x40, 0, 64, proto, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let checksum = sums::field(sums::sum(&header));
            put(&mut header, 10, &checksum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.extend([0x60, 0, 0, 0]);
            header.extend(len(0));
            header.extend([proto, 64]);
            header.extend(from.octets());
            header.extend(to.octets());
        }
        _ => unreachable!("both ends are of one family"),
    }
    [&turned_round(&frame[..packet.ip]), header.as_slice(), &message].concat()
}

/// The same packet on its way back.
fn echo_reply(frame: &[u8], packet: &Packet) -> Vec<u8> {
    let mut out = turned_round(frame);
    let end = packet.end.min(frame.len());
    let kind = if packet.is_v4() { 0 } else { 129 };
    put(&mut out, packet.transport, &[kind]);
    match (packet.ends.to.ip(), packet.ends.from.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            put(&mut out, packet.ip + 8, &[64]);
            put(&mut out, packet.ip + 12, &[from.octets(), to.octets()].concat());
            keep_sum(frame, &mut out, packet.ip + 10, packet.ip, packet.transport, (0, 0));
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            put(&mut out, packet.ip + 7, &[64]);
            put(&mut out, packet.ip + 8, &[from.octets(), to.octets()].concat());
        }
        _ => unreachable!("both ends are of one family"),
    }
    // The pseudo-header of ICMPv6 has the same sum whichever way round.
    keep_sum(frame, &mut out, packet.transport + 2, packet.transport, end, (0, 0));
    out
}

/// With the Ethernet addresses exchanged.
fn turned_round(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}
