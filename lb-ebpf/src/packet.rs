//! From bytes to a [`Packet`]: Ethernet, VLAN tags, IPv4 or IPv6, TCP, UDP or SCTP, an echo request, an ICMP error, or a
//! later fragment.

use aya_ebpf::programs::TcContext;
use lb_common::{
    Direction, FlowKey, Tuple, Verdict,
    addr::is_v4,
    icmp::{QUOTED_PAYLOAD, is_error},
    refuse::icmp,
    service::proto,
};

use crate::{
    count::End,
    headers::{Icmp, Tcp, Udp, ethertype, extension, is_extension, len, load},
    ip::{self, Fragment, MALFORMED, NOT_OURS, Payload},
    maps::PACKET,
    sctp::{self, Sctp},
};

/// A TCP, UDP or SCTP packet over IP, or something else that has no ports: 0 then.
#[repr(C)]
pub(crate) struct Packet {
    /// The flow that it belongs to, if it has one.
    pub(crate) key: FlowKey,
    /// Where the IP header begins.
    pub(crate) ip: u32,
    /// Where the TCP, UDP, SCTP or ICMP header begins.
    pub(crate) transport: u32,
    /// Where the IP packet ends.
    pub(crate) end: u32,
    /// Of a fragment, the identification of its packet, as it lies in the header.
    pub(crate) id: u32,
    /// TCP header flags, those that say the same for SCTP; 0 for UDP.
    pub(crate) tcp_flags: u8,
    /// Bits of [`oddity`].
    oddities: u8,
    pad: [u8; 2],
}

/// What is odd about a packet.
mod oddity {
    /// The first of several IP fragments.
    pub(super) const FIRST_FRAGMENT: u8 = 1 << 0;
    /// UDP over IPv6 without a checksum.
    pub(super) const UNCHECKED: u8 = 1 << 1;
}

impl Packet {
    /// Parses a frame of an Ethernet device. The error is the end of the packet's path: it passes, unless it is a later
    /// fragment or an ICMP error. Those are only recognized here, and the verdict is what they are to end with if they
    /// belong to something: see [`crate::fragment::follow`] and [`crate::icmp::translate`].
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

    /// The packet that was parsed last.
    #[inline(always)]
    pub(crate) fn last() -> Result<&'static Self, End> {
        let packet = PACKET.get_ptr(0).ok_or(NOT_OURS)?;
        // SAFETY: the element is this CPU's, and nothing writes to it after parsing.
        Ok(unsafe { &*packet })
    }

    /// A function of its own, so that what it needs of the stack is free again afterwards.
    #[inline(never)]
    fn read(&mut self, ctx: &TcContext, direction: Direction) -> Result<(), End> {
        let (ethertype, ip) = ip::ethernet(ctx)?;
        let tuple = &mut self.key.tuple;
        let payload = match ethertype {
            ethertype::IPV4 => ip::ipv4(ctx, ip, tuple)?,
            ethertype::IPV6 => ip::ipv6(ctx, ip, tuple)?,
            _ => return Err(NOT_OURS),
        };
        let is_v4 = ethertype == ethertype::IPV4;
        match payload.proto {
            proto::TCP | proto::UDP | proto::SCTP => {}
            icmp::V4 if is_v4 => {}
            icmp::V6 if !is_v4 => {}
            // Its integrity check covers the addresses, so what is inside cannot be translated.
            extension::AUTHENTICATION => return Err(Some(Verdict::AuthenticatedPassed)),
            // An extension header behind the fragment header is in the first fragment only.
            number if !is_v4 && is_extension(number) => {}
            _ => return Err(NOT_OURS),
        }
        self.key.proto = payload.proto;
        self.key.direction = direction as u8;
        self.key.pad = 0;
        self.ip = ip;
        self.transport = payload.at;
        self.end = payload.end;
        self.oddities = match payload.fragment {
            Fragment::Whole => 0,
            Fragment::First => {
                self.id = payload.id;
                oddity::FIRST_FRAGMENT
            }
            Fragment::Later => {
                self.id = payload.id;
                return Err(Some(Verdict::FragmentContinued));
            }
        };
        // Read back, so that the verifier forgets how far it is at least: that of Linux 5.10 follows also the way on which the
        // comparison with what is read directly has said the contrary, and finds no packet there. How far it is at most
        // it has to know still.
        // SAFETY: a field of our own.
        let at = unsafe { (&raw const self.transport).read_volatile() } & ip::FARTHEST;
        let payload = Payload { at, ..payload };
        let (tcp_flags, checksum) = match payload.proto {
            proto::TCP | proto::UDP | proto::SCTP => transport(ctx, &payload, tuple)?,
            _ => echo_request(ctx, &payload, tuple, direction)?,
        };
        if !is_v4 && payload.proto == proto::UDP && checksum == 0 {
            self.oddities |= oddity::UNCHECKED;
        }
        self.tcp_flags = tcp_flags;
        Ok(())
    }

    /// The packet that an ICMP error quotes, as far as the ports, which need not be followed by more of it. `None`: the
    /// packet has none, or is quoted too shortly.
    #[inline(always)]
    pub(crate) fn quoted(ctx: &TcContext, error: &Self) -> Option<&'static Self> {
        let quoted = PACKET.get_ptr_mut(1)?;
        // SAFETY: as in `parse`; this is the other element.
        let quoted = unsafe { &mut *quoted };
        let ip = error.transport + len::<Icmp>();
        let tuple = &mut quoted.key.tuple;
        let payload = if error.is_v4() { ip::ipv4(ctx, ip, tuple) } else { ip::ipv6(ctx, ip, tuple) }.ok()?;
        if payload.fragment == Fragment::Later || payload.at + QUOTED_PAYLOAD > error.end {
            return None;
        }
        // All that has to be there, or the packet ends earlier than it says.
        let [source_port, destination_port, ..]: [[u8; 2]; QUOTED_PAYLOAD as usize / 2] =
            load(ctx, payload.at)?;
        tuple.source_port = u16::from_be_bytes(source_port);
        tuple.destination_port = u16::from_be_bytes(destination_port);
        quoted.key.proto = payload.proto;
        quoted.key.pad = 0;
        quoted.ip = ip;
        quoted.transport = payload.at;
        quoted.end = error.end;
        Some(quoted)
    }

    /// Refuses what belongs to a VIP and cannot be translated.
    #[inline(always)]
    pub(crate) fn translatable(&self) -> Result<(), End> {
        // Its checksum depends on how far the packet goes on behind the ports, which a fragment does not say.
        if self.is_fragment() && self.key.proto == proto::SCTP {
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
        !matches!(self.key.proto, proto::TCP | proto::UDP | proto::SCTP)
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

/// Reads the ports into the tuple; returns the TCP flags and the checksum field, 0 for SCTP.
#[inline(always)]
fn transport(ctx: &TcContext, payload: &Payload, tuple: &mut Tuple) -> Result<(u8, u16), End> {
    let (source_port, destination_port, len, flags, checksum) = if payload.proto == proto::TCP {
        let header: Tcp = load(ctx, payload.at).ok_or(MALFORMED)?;
        if header.data_offset >> 4 < 5 {
            return Err(MALFORMED);
        }
        (header.source_port, header.destination_port, len::<Tcp>(), header.flags, header.checksum)
    } else if payload.proto == proto::SCTP {
        let header: Sctp = load(ctx, payload.at).ok_or(MALFORMED)?;
        let flags = sctp::flags(ctx, payload.at, payload.end);
        (header.source_port, header.destination_port, len::<Sctp>(), flags, [0; 2])
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

/// Takes nothing but an echo request, and writes ports of 0. An error is recognized.
#[inline(always)]
fn echo_request(
    ctx: &TcContext,
    payload: &Payload,
    tuple: &mut Tuple,
    direction: Direction,
) -> Result<(u8, u16), End> {
    let header: Icmp = load(ctx, payload.at).ok_or(NOT_OURS)?;
    if payload.at + len::<Icmp>() > payload.end {
        return Err(NOT_OURS);
    }
    let request = if payload.proto == icmp::V4 { icmp::ECHO_REQUEST_V4 } else { icmp::ECHO_REQUEST_V6 };
    let [kind, _] = header.type_and_code;
    if header.type_and_code == [request, 0] {
        (tuple.source_port, tuple.destination_port) = (0, 0);
        Ok((0, 0))
    } else if is_error(payload.proto, kind) && payload.fragment == Fragment::Whole {
        let is_forward = matches!(direction, Direction::Forward);
        Err(Some(if is_forward { Verdict::ErrorForwarded } else { Verdict::ErrorRestored }))
    } else {
        Err(NOT_OURS)
    }
}
