//! What a frame is: Ethernet, up to two VLAN tags, IPv4 with options or IPv6 with up to six extension headers, and TCP,
//! UDP, SCTP, an echo request or an ICMP error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::flows::Ends;
use super::{fragments::Parent, says::Says};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;
pub(super) const ICMP: u8 = 1;
pub(super) const ICMP_V6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

const MAX_TAGS: usize = 2;
const MAX_EXTENSIONS: usize = 6;

/// What a frame has turned out to be.
#[derive(Clone, Debug)]
pub enum Reading {
    /// Nothing that a frontend could have.
    Foreign,
    /// Broken, cut short, or deeper than is looked.
    Malformed,
    /// Under an authentication header.
    Authenticated,
    /// A fragment without the header of what the packet carries.
    LaterFragment(LaterFragment),
    /// An ICMP error, which quotes a packet.
    IcmpError(IcmpError),
    /// A packet.
    Packet(Box<Packet>),
}

/// A fragment that is not the first one of its packet.
#[derive(Clone, Debug)]
pub struct LaterFragment {
    /// What it is a part of.
    pub parent: Parent,
    /// Where the IP header begins.
    pub ip: usize,
}

/// An ICMP error. Places are counted from the beginning of the frame.
#[derive(Clone, Debug)]
pub struct IcmpError {
    /// Who reports it.
    pub from: IpAddr,
    /// Who is told.
    pub to: IpAddr,
    /// Where the IP header begins.
    pub ip: usize,
    /// Where the ICMP header begins.
    pub message: usize,
    /// Where the IP packet ends, as it says.
    pub end: usize,
}

/// A packet that a frontend could have. Places are counted from the beginning of the frame.
#[derive(Clone, Debug)]
pub struct Packet {
    /// From where to where. An echo request has the ports 0.
    pub ends: Ends,
    /// What it carries.
    pub carries: Carries,
    /// Where the IP header begins.
    pub ip: usize,
    /// Where the TCP, UDP, SCTP or ICMP header begins.
    pub transport: usize,
    /// Where the IP packet ends, as it says; that may be behind the end of the frame.
    pub end: usize,
    /// Where more of it is in other fragments: what they have in common with it.
    pub parent: Option<Parent>,
}

/// What an IP packet carries.
#[derive(Clone, Debug)]
pub enum Carries {
    /// TCP.
    Segment(Segment),
    /// UDP with this checksum field.
    Datagram(u16),
    /// SCTP.
    Chunks(Says),
    /// ICMP or ICMPv6.
    EchoRequest,
}

/// The TCP header.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields of RFC 9293, section 3.1")]
pub struct Segment {
    pub sequence: u32,
    pub acknowledgement: u32,
    pub header_len: usize,
    pub says: Says,
}

impl Packet {
    /// Whether it can be the first of a conversation.
    pub fn begins(&self) -> bool {
        self.says().is_none_or(Says::opens)
    }

    /// What it says about its connection, if its protocol has any.
    pub fn says(&self) -> Option<Says> {
        match &self.carries {
            Carries::Segment(segment) => Some(segment.says),
            Carries::Chunks(says) => Some(*says),
            Carries::Datagram(_) | Carries::EchoRequest => None,
        }
    }

    pub(super) fn is_echo_request(&self) -> bool {
        matches!(self.carries, Carries::EchoRequest)
    }

    pub(super) fn is_v4(&self) -> bool {
        self.ends.from.is_ipv4()
    }

    /// Whether it is UDP over IPv6 without a checksum.
    pub(super) fn is_unchecked(&self) -> bool {
        !self.is_v4() && matches!(self.carries, Carries::Datagram(0))
    }
}

/// Reads a frame.
pub fn read(frame: &[u8]) -> Reading {
    packet(frame).map_or_else(|reading| reading, |packet| Reading::Packet(Box::new(packet)))
}

/// What an IP header says about what follows.
pub(super) struct Carried {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) proto: u8,
    pub(super) at: usize,
    pub(super) end: usize,
    /// Of a fragment.
    id: Option<u32>,
    pub(super) is_later_fragment: bool,
}

impl Carried {
    fn parent(&self) -> Option<Parent> {
        // The next header may differ among the fragments of an IPv6 packet.
        let proto = self.from.is_ipv4().then_some(self.proto);
        Some(Parent { from: self.from, to: self.to, id: self.id?, proto })
    }
}

fn packet(frame: &[u8]) -> Result<Packet, Reading> {
    let mut ethertype = take::<2>(frame, 12)?;
    let mut ip = 14;
    let mut tags = 0;
    while matches!(ethertype, [0x81, 0x00] | [0x88, 0xa8]) {
        if tags == MAX_TAGS {
            return Err(Reading::Malformed);
        }
        ethertype = take::<2>(frame, ip + 2)?;
        ip += 4;
        tags += 1;
    }
    let carried = match ethertype {
        [0x08, 0x00] => ipv4(frame, ip)?,
        [0x86, 0xdd] => ipv6(frame, ip)?,
        _ => return Err(Reading::Foreign),
    };
    let is_icmp = match (carried.proto, carried.from.is_ipv4()) {
        (TCP | UDP | SCTP, _) => false,
        (ICMP, true) | (ICMP_V6, false) => true,
        (AUTHENTICATION, _) => return Err(Reading::Authenticated),
        // Of a later fragment: those of the packet are in the first one.
        (HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS, false) => false,
        _ => return Err(Reading::Foreign),
    };
    let parent = carried.parent();
    if let Some(parent) = parent.filter(|_| carried.is_later_fragment) {
        return Err(Reading::LaterFragment(LaterFragment { parent, ip }));
    }
    let (ports, carries) =
        if is_icmp { ((0, 0), icmp(frame, ip, &carried)?) } else { transport(frame, &carried)? };
    let from = SocketAddr::new(carried.from, ports.0);
    let to = SocketAddr::new(carried.to, ports.1);
    Ok(Packet {
        ends: Ends { from, to, proto: carried.proto },
        carries,
        ip,
        transport: carried.at,
        end: carried.end,
        parent,
    })
}

pub(super) fn ipv4(frame: &[u8], ip: usize) -> Result<Carried, Reading> {
    let header = take::<20>(frame, ip)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < 20 {
        return Err(Reading::Malformed);
    }
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let more = header[6] & 0x20 != 0;
    let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    Ok(Carried {
        from: Ipv4Addr::new(header[12], header[13], header[14], header[15]).into(),
        to: Ipv4Addr::new(header[16], header[17], header[18], header[19]).into(),
        proto: header[9],
        at: ip + header_len,
        // 0 stands in packets longer than the field can tell.
        end: if total_len == 0 { frame.len() } else { ip + total_len },
        id: (offset != 0 || more).then_some(u16::from_be_bytes([header[4], header[5]]).into()),
        is_later_fragment: offset != 0,
    })
}

pub(super) fn ipv6(frame: &[u8], ip: usize) -> Result<Carried, Reading> {
    let header = take::<40>(frame, ip)?;
    if header[0] >> 4 != 6 {
        return Err(Reading::Malformed);
    }
    let (from, to) =
        (Ipv6Addr::from(take::<16>(frame, ip + 8)?), Ipv6Addr::from(take::<16>(frame, ip + 24)?));
    if from.to_ipv4_mapped().is_some() || to.to_ipv4_mapped().is_some() {
        return Err(Reading::Foreign);
    }
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut carried = Carried {
        from: from.into(),
        to: to.into(),
        proto: header[6],
        at: ip + 40,
        end: if payload_len == 0 { frame.len() } else { ip + 40 + payload_len },
        id: None,
        is_later_fragment: false,
    };
    let mut extensions = 0;
    while matches!(carried.proto, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
        if extensions == MAX_EXTENSIONS {
            return Err(Reading::Malformed);
        }
        let [next, len, third, fourth] = take::<4>(frame, carried.at)?;
        let mut header_len = 8 + 8 * usize::from(len);
        match carried.proto {
            FRAGMENT => {
                header_len = 8;
                let offset = u16::from_be_bytes([third, fourth]) >> 3;
                // With neither it is a whole packet (RFC 6946).
                if offset != 0 || fourth & 1 == 1 {
                    carried.id = Some(u32::from_be_bytes(take(frame, carried.at + 4)?));
                }
                if offset != 0 {
                    return Ok(Carried { proto: next, is_later_fragment: true, ..carried });
                }
            }
            // On its way over another router: the destination is not the last one.
            ROUTING if fourth != 0 => return Err(Reading::Foreign),
            _ => {}
        }
        (carried.proto, carried.at) = (next, carried.at + header_len);
        extensions += 1;
    }
    Ok(carried)
}

fn transport(frame: &[u8], carried: &Carried) -> Result<((u16, u16), Carries), Reading> {
    let at = carried.at;
    let port = |offset| take::<2>(frame, at + offset).map(u16::from_be_bytes);
    let carries = if carried.proto == TCP {
        let header = take::<20>(frame, at)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < 20 || at + 20 > carried.end {
            return Err(Reading::Malformed);
        }
        let flag = |bit: u8| header[13] >> bit & 1 == 1;
        Carries::Segment(Segment {
            sequence: u32::from_be_bytes(take(frame, at + 4)?),
            acknowledgement: u32::from_be_bytes(take(frame, at + 8)?),
            header_len,
            says: Says { fin: flag(0), syn: flag(1), rst: flag(2), ack: flag(4) },
        })
    } else if carried.proto == SCTP {
        take::<12>(frame, at)?;
        if at + 12 > carried.end {
            return Err(Reading::Malformed);
        }
        let first = take::<4>(frame, at + 12).ok().filter(|_| at + 16 <= carried.end);
        Carries::Chunks(Says::of_chunk(first.map(|[kind, ..]| kind)))
    } else {
        let header = take::<8>(frame, at)?;
        if at + 8 > carried.end {
            return Err(Reading::Malformed);
        }
        Carries::Datagram(u16::from_be_bytes([header[6], header[7]]))
    };
    Ok(((port(0)?, port(2)?), carries))
}

/// An echo request, or as what else to read it: an error about a packet. Everything else of ICMP, whole or not, is left
/// alone.
fn icmp(frame: &[u8], ip: usize, carried: &Carried) -> Result<Carries, Reading> {
    let [kind, code, ..] = take::<8>(frame, carried.at).map_err(|_| Reading::Foreign)?;
    if carried.at + 8 > carried.end {
        return Err(Reading::Foreign);
    }
    let (request, errors): (u8, &[u8]) =
        if carried.proto == ICMP { (8, &[3, 11, 12]) } else { (128, &[1, 2, 3, 4]) };
    if [kind, code] == [request, 0] {
        return Ok(Carries::EchoRequest);
    }
    if !errors.contains(&kind) || carried.id.is_some() {
        return Err(Reading::Foreign);
    }
    let Carried { from, to, at, end, .. } = *carried;
    Err(Reading::IcmpError(IcmpError { from, to, ip, message: at, end }))
}

/// The bytes at a place. The error: the frame is too short.
pub(super) fn take<const N: usize>(frame: &[u8], at: usize) -> Result<[u8; N], Reading> {
    frame.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).ok_or(Reading::Malformed)
}
