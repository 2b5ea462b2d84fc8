//! A packet with one end replaced, its checksums made anew.

use std::net::{IpAddr, SocketAddr};

use super::{
    parse::{Carries, Packet},
    sums::{self, kept},
};

/// The frame with another destination.
pub(super) fn destination(frame: &[u8], packet: &Packet, new: SocketAddr) -> Vec<u8> {
    replaced(frame, packet, (packet.ends.from, new), (16, 24), 2)
}

/// The frame with another source.
pub(super) fn source(frame: &[u8], packet: &Packet, new: SocketAddr) -> Vec<u8> {
    replaced(frame, packet, (new, packet.ends.to), (12, 8), 0)
}

/// `ends` are the new ones, the one that changed at these offsets in the IPv4 and IPv6 header and in that of TCP, UDP or SCTP.
fn replaced(
    frame: &[u8],
    packet: &Packet,
    ends: (SocketAddr, SocketAddr),
    (v4, v6): (usize, usize),
    port: usize,
) -> Vec<u8> {
    let mut out = frame.to_vec();
    let new = if port == 0 { ends.0 } else { ends.1 };
    match new.ip() {
        IpAddr::V4(address) => {
            put(&mut out, packet.ip + v4, &address.octets());
            keep_sum(frame, &mut out, packet.ip + 10, packet.ip, packet.transport, (0, 0));
        }
        IpAddr::V6(address) => put(&mut out, packet.ip + v6, &address.octets()),
    }
    put(&mut out, packet.transport + port, &new.port().to_be_bytes());

    let end = packet.end.min(frame.len());
    let pseudo_header = |from: SocketAddr, to: SocketAddr| {
        sums::pseudo_header(from.ip(), to.ip(), packet.ends.proto, end - packet.transport)
    };
    let sums = (pseudo_header(packet.ends.from, packet.ends.to), pseudo_header(ends.0, ends.1));
    match packet.carries {
        Carries::Segment(_) => keep_sum(frame, &mut out, packet.transport + 16, packet.transport, end, sums),
        // There is none.
        Carries::Datagram(0) => {}
        Carries::Datagram(_) => {
            let field = packet.transport + 6;
            keep_sum(frame, &mut out, field, packet.transport, end, sums);
            // A sum of 0 is sent as 0xffff (RFC 768).
            if out[field..field + 2] == [0, 0] {
                put(&mut out, field, &[0xff, 0xff]);
            }
        }
        // Left to whoever is to fill it in, or not wanted.
        Carries::Chunks(_) if frame[packet.transport + 8..packet.transport + 12] == [0; 4] => {}
        Carries::Chunks(_) => keep_crc(frame, &mut out, packet),
        Carries::EchoRequest => {}
    }
    out
}

/// The frame with another destination or source address in its IP header, and nothing else.
pub(super) fn address(frame: &[u8], ip: usize, new: IpAddr, is_destination: bool) -> Vec<u8> {
    let mut out = frame.to_vec();
    match new {
        IpAddr::V4(address) => {
            put(&mut out, ip + if is_destination { 16 } else { 12 }, &address.octets());
            keep_sum(frame, &mut out, ip + 10, ip, ip + 20, (0, 0));
        }
        IpAddr::V6(address) => put(&mut out, ip + if is_destination { 24 } else { 8 }, &address.octets()),
    }
    out
}

/// Makes the checksum at `field` that of the changed bytes from `start` to `end`, to whose sums these ones are added, before
/// and after. One that was wrong stays so: whoever receives the packet has to see that it was damaged.
pub(super) fn keep_sum(
    frame: &[u8],
    out: &mut [u8],
    field: usize,
    start: usize,
    end: usize,
    (before, after): (u64, u64),
) {
    let without = |bytes: &[u8]| sums::sum(&bytes[start..field]) + sums::sum(&bytes[field + 2..end]);
    let old = u16::from_be_bytes([frame[field], frame[field + 1]]);
    let new = kept(old, (without(frame) + before) % 65_535, (without(out) + after) % 65_535);
    put(out, field, &new.to_be_bytes());
}

/// Makes the checksum of SCTP that of the changed packet; one that was wrong stays so. It does not cover the addresses, but
/// all of the packet, and what the frame does not have of it counts as unchanged.
fn keep_crc(frame: &[u8], out: &mut [u8], packet: &Packet) {
    let field = packet.transport + 8..packet.transport + 12;
    let whole = |bytes: &[u8]| {
        let mut whole = bytes[packet.transport..packet.end.min(bytes.len())].to_vec();
        whole.resize(packet.end - packet.transport, 0);
        whole[8..12].fill(0);
        sums::crc(&whole)
    };
    let kept: Vec<u8> = (whole(frame).iter().zip(whole(out)).zip(&frame[field.clone()]))
        .map(|((before, after), old)| before ^ after ^ old)
        .collect();
    out[field].copy_from_slice(&kept);
}

pub(super) fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..at + new.len()].copy_from_slice(new);
}
