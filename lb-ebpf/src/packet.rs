//! From bytes to a [`Packet`]: Ethernet, VLAN tags, IPv4 or IPv6, TCP or UDP or an echo request.

use aya_ebpf::programs::TcContext;
use lb_common::{
    Direction, FlowKey, Tuple, Verdict,
    addr::{from_v4, is_v4},
    refuse::icmp,
    service::proto,
};

use crate::{
    count::End,
    headers::{ETHERNET, Icmp, Ipv4, Ipv6, Tcp, Udp, ethertype, extension, is_extension, is_tag, len, load},
    maps::PACKET,
};

/// VLAN tags in the bytes of a frame; one more may be in the kernel's metadata, which needs no parsing.
const MAX_TAGS: usize = 2;
/// IPv6 extension headers that are looked through. Legitimate chains have one or two.
const MAX_EXTENSIONS: usize = 6;

/// A TCP or UDP packet over IP, or an echo request, which has ports 0.
#[repr(C)]
pub(crate) struct Packet {
    /// The flow that it belongs to, if it has one.
    pub(crate) key: FlowKey,
    /// Where the IP header begins.
    pub(crate) ip: u32,
    /// Where the TCP, UDP or ICMP header begins.
    pub(crate) transport: u32,
    /// Where the IP packet ends.
    pub(crate) end: u32,
    /// TCP header flags; 0 for UDP.
    pub(crate) tcp_flags: u8,
    /// Bits of [`oddity`].
    oddities: u8,
    pad: [u8; 6],
}

/// What keeps a packet from being translated.
mod oddity {
    /// The first of several IP fragments.
    pub(super) const FIRST_FRAGMENT: u8 = 1 << 0;
    /// UDP over IPv6 without a checksum.
    pub(super) const UNCHECKED: u8 = 1 << 1;
}

const MALFORMED: End = Some(Verdict::Unparsable);
const NOT_OURS: End = None;

impl Packet {
    /// Parses a frame of an Ethernet device. The error is the end of the packet's path: it passes.
    ///
    /// The result is in a map and not on the stack, so that the verifier forgets which way led to it. It would check the
    /// rest of the program once for each way (IPv4 or IPv6, tagged or not, TCP or UDP, and so on), and come near its limit
    /// of a million instructions.
    #[inline(always)]
    pub(crate) fn parse(ctx: &TcContext, direction: Direction) -> Result<&'static Self, End> {
        let packet = PACKET.get_ptr_mut(0).ok_or(NOT_OURS)?;
        // SAFETY: the element is this CPU's; a program runs to its end before the next begins, and only this one
        // function writes to it.
        let packet = unsafe { &mut *packet };
        packet.read(ctx, direction)?;
        Ok(packet)
    }

    #[inline(always)]
    fn read(&mut self, ctx: &TcContext, direction: Direction) -> Result<(), End> {
        let (ethertype, ip) = ethernet(ctx)?;
        let tuple = &mut self.key.tuple;
        let payload = match ethertype {
            ethertype::IPV4 => ipv4(ctx, ip, tuple)?,
            ethertype::IPV6 => ipv6(ctx, ip, tuple)?,
            _ => return Err(NOT_OURS),
        };
        let is_v4 = ethertype == ethertype::IPV4;
        match payload.proto {
            proto::TCP | proto::UDP => {}
            icmp::V4 if is_v4 => {}
            icmp::V6 if !is_v4 => {}
            // Its integrity check covers the addresses, so what is inside cannot be translated.
            extension::AUTHENTICATION => return Err(MALFORMED),
            _ => return Err(NOT_OURS),
        }
        self.oddities = match payload.fragment {
            Fragment::Whole => 0,
            Fragment::First => oddity::FIRST_FRAGMENT,
            Fragment::Later => return Err(Some(Verdict::FragmentPassed)),
        };
        let (tcp_flags, checksum) = match payload.proto {
            proto::TCP | proto::UDP => transport(ctx, &payload, tuple)?,
            _ => echo_request(ctx, &payload, tuple)?,
        };
        if !is_v4 && payload.proto == proto::UDP && checksum == 0 {
            self.oddities |= oddity::UNCHECKED;
        }
        self.key.proto = payload.proto;
        self.key.direction = direction as u8;
        self.key.pad = 0;
        self.tcp_flags = tcp_flags;
        self.ip = ip;
        self.transport = payload.at;
        self.end = payload.end;
        Ok(())
    }

    /// Refuses what belongs to a VIP and cannot be translated.
    #[inline(always)]
    pub(crate) fn translatable(&self) -> Result<(), End> {
        if self.oddities & oddity::FIRST_FRAGMENT != 0 {
            return Err(Some(Verdict::FragmentUnsupported));
        }
        if self.oddities & oddity::UNCHECKED != 0 {
            return Err(Some(Verdict::UnknownChecksum));
        }
        Ok(())
    }

    /// Whether it is an echo request.
    #[inline(always)]
    pub(crate) fn is_echo_request(&self) -> bool {
        !matches!(self.key.proto, proto::TCP | proto::UDP)
    }

    /// Whether there is more of it in other fragments.
    #[inline(always)]
    pub(crate) fn is_fragment(&self) -> bool {
        self.oddities & oddity::FIRST_FRAGMENT != 0
    }

    /// Whether it is IPv4.
    #[inline(always)]
    pub(crate) fn is_v4(&self) -> bool {
        // Parsing has refused IPv6 with such addresses.
        is_v4(self.key.tuple.source)
    }
}

/// What an IP header says about what it carries.
struct Payload {
    proto: u8,
    fragment: Fragment,
    /// Where it begins and ends.
    at: u32,
    end: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    Whole,
    First,
    Later,
}

/// Steps over the Ethernet header and the VLAN tags: what the frame carries, and where that begins.
#[inline(always)]
fn ethernet(ctx: &TcContext) -> Result<(u16, u32), End> {
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
fn ipv4(ctx: &TcContext, ip: u32, tuple: &mut Tuple) -> Result<Payload, End> {
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
    Ok(Payload { proto: header.proto, fragment, at: ip + header_len, end: end(ctx, ip, total_len) })
}

#[inline(always)]
fn ipv6(ctx: &TcContext, ip: u32, tuple: &mut Tuple) -> Result<Payload, End> {
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
        at: ip + len::<Ipv6>(),
        end: end(ctx, ip, if payload_len == 0 { 0 } else { len::<Ipv6>() + payload_len }),
    };
    extensions(ctx, &mut payload)?;
    Ok(payload)
}

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

/// Reads the ports into the tuple; returns the TCP flags and the checksum field.
#[inline(always)]
fn transport(ctx: &TcContext, payload: &Payload, tuple: &mut Tuple) -> Result<(u8, u16), End> {
    let (source_port, destination_port, len, flags, checksum) = if payload.proto == proto::TCP {
        let header: Tcp = load(ctx, payload.at).ok_or(MALFORMED)?;
        if header.data_offset >> 4 < 5 {
            return Err(MALFORMED);
        }
        (header.source_port, header.destination_port, len::<Tcp>(), header.flags, header.checksum)
    } else {
        let header: Udp = load(ctx, payload.at).ok_or(MALFORMED)?;
        (header.source_port, header.destination_port, len::<Udp>(), 0, header.checksum)
    };
    if payload.at + len > payload.end {
        return Err(MALFORMED);
    }
    tuple.source_port = u16::from_be_bytes(source_port);
    tuple.destination_port = u16::from_be_bytes(destination_port);
    Ok((flags, u16::from_be_bytes(checksum)))
}

/// Takes nothing but an echo request, and writes ports of 0.
#[inline(always)]
fn echo_request(ctx: &TcContext, payload: &Payload, tuple: &mut Tuple) -> Result<(u8, u16), End> {
    let header: Icmp = load(ctx, payload.at).ok_or(NOT_OURS)?;
    let request = if payload.proto == icmp::V4 { icmp::ECHO_REQUEST_V4 } else { icmp::ECHO_REQUEST_V6 };
    if header.type_and_code != [request, 0] || payload.at + len::<Icmp>() > payload.end {
        return Err(NOT_OURS);
    }
    (tuple.source_port, tuple.destination_port) = (0, 0);
    Ok((0, 0))
}

/// Where the IP packet ends: not every byte of a frame belongs to it (short ones are padded). A length of 0 stands in
/// packets longer than the field can tell (RFC 2675, and what GRO makes of a long train of segments).
#[inline(always)]
fn end(ctx: &TcContext, ip: u32, len: u32) -> u32 {
    if len == 0 { ctx.len() } else { ip + len }
}
