//! From an Ethernet or IP header to what it carries.

use aya_ebpf::programs::TcContext;
use lb_common::{
    Tuple, Verdict,
    addr::{from_v4, is_v4},
};

use crate::{
    count::End,
    headers::{ETHERNET, Ipv4, Ipv6, extension, is_extension, is_tag, len, load},
};

/// VLAN tags in the bytes of a frame; one more may be in the kernel's metadata, which needs no parsing.
const MAX_TAGS: u32 = 2;
/// IPv6 extension headers that are looked through. Legitimate chains have one or two.
const MAX_EXTENSIONS: u32 = 6;

/// A mask over how far into a frame TCP, UDP or ICMP begins: behind tags and an IP header, and extension headers of 2 KiB
/// each.
pub(crate) const FARTHEST: u32 = 0x3fff;
const _: () = assert!(ETHERNET + 4 * MAX_TAGS + 40 + 2048 * MAX_EXTENSIONS <= FARTHEST);

/// Malformed, or deeper than supported.
pub(crate) const MALFORMED: End = Some(Verdict::Unparsable);
/// Nothing that could be a frontend's.
pub(crate) const NOT_OURS: End = None;

/// What an IP header says about what it carries.
pub(crate) struct Payload {
    pub(crate) proto: u8,
    pub(crate) fragment: Fragment,
    /// Identification of the packet that a fragment is a part of, as it lies in the header.
    pub(crate) id: u32,
    /// Where it begins and ends.
    pub(crate) at: u32,
    pub(crate) end: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment {
    Whole,
    First,
    Later,
}

/// Steps over the Ethernet header and the VLAN tags: what the frame carries, and where that begins.
#[inline(always)]
pub(crate) fn ethernet(ctx: &TcContext) -> Result<(u16, u32), End> {
    let mut ethertype: [u8; 2] = load(ctx, 12).ok_or(MALFORMED)?;
    let mut at = ETHERNET;
    for _ in 0..MAX_TAGS {
        if !is_tag(ethertype) {
            break;
        }
        ethertype = load(ctx, at + 2).ok_or(MALFORMED)?;
        at += 4;
    }
    if is_tag(ethertype) { Err(MALFORMED) } else { Ok((u16::from_be_bytes(ethertype), at)) }
}

#[inline(always)]
pub(crate) fn ipv4(ctx: &TcContext, ip: u32, tuple: &mut Tuple) -> Result<Payload, End> {
    let header: Ipv4 = load(ctx, ip).ok_or(MALFORMED)?;
    let header_len = u32::from(header.version_and_len & 0x0f) * 4;
    if header.version_and_len >> 4 != 4 || header_len < len::<Ipv4>() {
        return Err(MALFORMED);
    }
    tuple.source = from_v4(header.source);
    tuple.destination = from_v4(header.destination);
    let flags_and_offset = u16::from_be_bytes(header.flags_and_offset);
    let fragment = match (flags_and_offset & 0x1fff, flags_and_offset & 0x2000 != 0) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    };
    let total_len = u16::from_be_bytes(header.total_len).into();
    let [high, low] = header.identification;
    let id = u32::from_ne_bytes([high, low, 0, 0]);
    Ok(Payload { proto: header.proto, fragment, id, at: ip + header_len, end: end(ctx, ip, total_len) })
}

#[inline(always)]
pub(crate) fn ipv6(ctx: &TcContext, ip: u32, tuple: &mut Tuple) -> Result<Payload, End> {
    let header: Ipv6 = load(ctx, ip).ok_or(MALFORMED)?;
    if header.version_and_class[0] >> 4 != 6 {
        return Err(MALFORMED);
    }
    tuple.source = header.source;
    tuple.destination = header.destination;
    // In the maps such an address is an IPv4 one.
    if is_v4(tuple.source) || is_v4(tuple.destination) {
        return Err(NOT_OURS);
    }
    let payload_len = u32::from(u16::from_be_bytes(header.payload_len));
    let mut payload = Payload {
        proto: header.next_header,
        fragment: Fragment::Whole,
        id: 0,
        at: ip + len::<Ipv6>(),
        end: end(ctx, ip, if payload_len == 0 { 0 } else { len::<Ipv6>() + payload_len }),
    };
    extensions(ctx, &mut payload)?;
    Ok(payload)
}

/// Offset and "more": a fragment header in which neither says anything is on a whole packet (RFC 6946).
const IS_FRAGMENT: u16 = 0xfff9;

/// Steps over the IPv6 extension headers (RFC 8200, section 4).
#[inline(always)]
fn extensions(ctx: &TcContext, payload: &mut Payload) -> Result<(), End> {
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(payload.proto) {
            return Ok(());
        }
        let [next_header, len, third, fourth]: [u8; 4] = load(ctx, payload.at).ok_or(MALFORMED)?;
        let mut len = (u32::from(len) + 1) * 8;
        match payload.proto {
            extension::FRAGMENT => {
                len = 8;
                let offset_and_more = u16::from_be_bytes([third, fourth]);
                if offset_and_more & IS_FRAGMENT != 0 {
                    // By the helper: fragments are few, and every other way is one more for the verifier.
                    payload.id = ctx.load(payload.at as usize + 4).map_err(|_| MALFORMED)?;
                }
                if offset_and_more & 0xfff8 != 0 {
                    // What follows is data, whatever it looks like.
                    payload.proto = next_header;
                    payload.fragment = Fragment::Later;
                    return Ok(());
                }
                // Without "more" it is an atomic fragment (RFC 6946): a whole packet.
                if offset_and_more & 1 != 0 {
                    payload.fragment = Fragment::First;
                }
            }
            // Segments left: the destination address is a waypoint, and the checksum covers the final one.
            extension::ROUTING if fourth != 0 => return Err(NOT_OURS),
            _ => {}
        }
        payload.proto = next_header;
        payload.at += len;
    }
    if is_extension(payload.proto) { Err(MALFORMED) } else { Ok(()) }
}

/// Where the IP packet ends: not every byte of a frame belongs to it (short ones are padded). A length of 0 stands in
/// packets longer than the field can tell (RFC 2675, and what GRO makes of a long train of segments).
#[inline(always)]
fn end(ctx: &TcContext, ip: u32, len: u32) -> u32 {
    if len == 0 { ctx.len() } else { ip + len }
}
