//! ICMP errors, with the packet that they quote.

use std::net::IpAddr;

use etherparse::{Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, TransportHeader};

use super::{
    Packet,
    refusal::{ip_header, message},
};

/// What an error says. Each is in both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody has the address.
    HostUnreachable,
    /// Nobody listens on the port.
    PortUnreachable,
    /// "Fragmentation needed" and "packet too big", with the MTU of the next link.
    TooBig(u16),
    /// The time to live, or hop limit, has run out.
    TimeExceeded,
    /// The header cannot be understood, at this byte.
    ParameterProblem(u8),
}

/// An ICMP error, to the source of the packet that it quotes.
#[derive(Clone, Debug)]
pub struct IcmpError {
    from: IpAddr,
    to: IpAddr,
    kind: Kind,
    quoted: Packet,
    len: usize,
}

impl IcmpError {
    /// An error about a packet, quoted as a whole.
    pub fn about(quoted: &Packet, from: IpAddr, kind: Kind) -> Self {
        let len = quoted.bytes().len();
        Self { from, to: quoted.source.ip(), kind, quoted: quoted.clone(), len }
    }

    /// Quotes no more than the IP header and so many bytes behind.
    pub fn quoting(self, len: usize) -> Self {
        Self { len, ..self }
    }

    /// Sends it to somebody else than the source of the quoted packet.
    pub fn to(self, to: IpAddr) -> Self {
        Self { to, ..self }
    }

    /// The frame, with the VLAN tags of the quoted packet, which are not quoted.
    pub fn bytes(&self) -> Vec<u8> {
        let packet = self.quoted.bytes().split_off(self.quoted.ip_offset());
        let quote = &packet[..packet.len().min(self.quoted.ip_header_len() + self.len)];
        let (number, header) = if self.from.is_ipv4() {
            (IpNumber::ICMP, TransportHeader::Icmpv4(Icmpv4Header::new(self.kind.v4())))
        } else {
            (IpNumber::IPV6_ICMP, TransportHeader::Icmpv6(Icmpv6Header::new(self.kind.v6())))
        };
        let message = message(self.from, self.to, header, quote);
        [self.quoted.outside_ip(), ip_header(self.from, self.to, number, message.len()), message].concat()
    }
}

impl Kind {
    fn v4(self) -> Icmpv4Type {
        let (type_u8, code_u8, bytes5to8) = match self {
            Self::HostUnreachable => (3, 1, [0; 4]),
            Self::PortUnreachable => (3, 3, [0; 4]),
            Self::TooBig(mtu) => (3, 4, {
                let [high, low] = mtu.to_be_bytes();
                [0, 0, high, low]
            }),
            Self::TimeExceeded => (11, 0, [0; 4]),
            Self::ParameterProblem(at) => (12, 0, [at, 0, 0, 0]),
        };
        Icmpv4Type::Unknown { type_u8, code_u8, bytes5to8 }
    }

    fn v6(self) -> Icmpv6Type {
        let (type_u8, code_u8, bytes5to8) = match self {
            Self::HostUnreachable => (1, 3, [0; 4]),
            Self::PortUnreachable => (1, 4, [0; 4]),
            Self::TooBig(mtu) => (2, 0, u32::from(mtu).to_be_bytes()),
            Self::TimeExceeded => (3, 0, [0; 4]),
            Self::ParameterProblem(at) => (4, 0, u32::from(at).to_be_bytes()),
        };
        Icmpv6Type::Unknown { type_u8, code_u8, bytes5to8 }
    }
}
