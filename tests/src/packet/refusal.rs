//! What the sender of a packet is to get back, made by etherparse from the packet's description and not from its bytes.

use std::net::IpAddr;

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber, Ipv4Header, Ipv6Header,
    TcpHeader, TransportHeader, icmpv4, icmpv6,
};

use super::{ACK, ETHERNET_LEN, FIN, Packet, RST, SMALL, SYN, Transport};

/// How many bytes of a packet are quoted at most: what a checksum can be computed over at once is 512 bytes, less the 40 of
/// the pseudo-header and the 8 of ICMP.
const QUOTE_LEN: usize = 512 - 40 - 8;

impl Packet {
    /// The refusal of this packet.
    pub fn refusal(&self) -> Vec<u8> {
        let (source, destination) = (self.destination.ip(), self.source.ip());
        let (number, message) = match self.transport {
            Transport::Tcp { flags, sequence, acknowledgement } => {
                let (from, to) = (self.destination.port(), self.source.port());
                let mut header = TcpHeader::new(from, to, 0, 0);
                header.rst = true;
                if flags & ACK == 0 {
                    let counted = [SYN, FIN].into_iter().filter(|flag| flags & flag != 0).count();
                    let len = u32::try_from(self.payload.len() + counted).expect(SMALL);
                    header.ack = true;
                    header.acknowledgment_number = sequence.wrapping_add(len);
                } else {
                    header.sequence_number = acknowledgement;
                }
                assert_eq!(flags & RST, 0, "an RST has no refusal");
                (IpNumber::TCP, message(source, destination, TransportHeader::Tcp(header), &[]))
            }
            Transport::Udp | Transport::Sctp => {
                self.unreachable(icmpv4::DestUnreachableHeader::Port, icmpv6::DestUnreachableCode::Port)
            }
            Transport::Echo { .. } => {
                self.unreachable(icmpv4::DestUnreachableHeader::Host, icmpv6::DestUnreachableCode::Address)
            }
        };
        let ip = ip_header(source, destination, number, message.len());
        [self.turned_round().outside_ip(), ip, message].concat()
    }

    /// The reply to this echo request.
    pub fn echo_reply(&self) -> Vec<u8> {
        let Transport::Echo { id, .. } = self.transport else { panic!("not an echo request: {self:?}") };
        let (source, destination) = (self.destination, self.source);
        let transport = Transport::Echo { is_request: false, id };
        Self { source, destination, transport, time_to_live: 64, ..self.turned_round() }.bytes()
    }

    /// The frame up to the IP header.
    pub(super) fn outside_ip(&self) -> Vec<u8> {
        self.bytes()[..self.ip_offset()].to_vec()
    }

    pub(super) fn ip_offset(&self) -> usize {
        ETHERNET_LEN + 4 * self.tags.len()
    }

    /// An ICMP error that quotes this packet.
    fn unreachable(
        &self,
        v4: icmpv4::DestUnreachableHeader,
        v6: icmpv6::DestUnreachableCode,
    ) -> (IpNumber, Vec<u8>) {
        let packet = self.bytes().split_off(self.ip_offset());
        let quote = &packet[..(packet.len() / 4 * 4).min(QUOTE_LEN)];
        let (source, destination) = (self.destination.ip(), self.source.ip());
        match self.source.is_ipv4() {
            true => {
                let header = Icmpv4Header::new(Icmpv4Type::DestinationUnreachable(v4));
                (IpNumber::ICMP, message(source, destination, TransportHeader::Icmpv4(header), quote))
            }
            false => {
                let header = Icmpv6Header::new(Icmpv6Type::DestinationUnreachable(v6));
                (IpNumber::IPV6_ICMP, message(source, destination, TransportHeader::Icmpv6(header), quote))
            }
        }
    }
}

/// An IP header in front of so many bytes.
pub(super) fn ip_header(source: IpAddr, destination: IpAddr, number: IpNumber, len: usize) -> Vec<u8> {
    let len = u16::try_from(len).expect(SMALL);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header =
                Ipv4Header::new(len, 64, number, source.octets(), destination.octets()).expect(SMALL);
            header.dont_fragment = true;
            header.header_checksum = header.calc_header_checksum();
            header.to_bytes().to_vec()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6Header {
                payload_length: len,
                next_header: number,
                hop_limit: 64,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            header.to_bytes().to_vec()
        }
        _ => unreachable!("both ends are of one family"),
    }
}

/// A header and what follows, between these two, with the checksum.
pub(super) fn message(
    source: IpAddr,
    destination: IpAddr,
    mut header: TransportHeader,
    payload: &[u8],
) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4Header::new(0, 64, IpNumber::TCP, source.octets(), destination.octets());
            header.update_checksum_ipv4(&ip.expect(SMALL), payload).expect(SMALL);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let ip = Ipv6Header { source, destination, ..Ipv6Header::default() };
            header.update_checksum_ipv6(&ip, payload).expect(SMALL);
        }
        _ => unreachable!("both ends are of one family"),
    }
    let mut bytes = Vec::new();
    header.write(&mut bytes).expect("memory can be written to");
    [bytes, payload.to_vec()].concat()
}

/// The header of an echo request or reply.
pub(super) fn echo_header(is_v4: bool, is_request: bool, id: u16) -> TransportHeader {
    let echo = IcmpEchoHeader { id, seq: 7 };
    match (is_v4, is_request) {
        (true, true) => TransportHeader::Icmpv4(Icmpv4Header::new(Icmpv4Type::EchoRequest(echo))),
        (true, false) => TransportHeader::Icmpv4(Icmpv4Header::new(Icmpv4Type::EchoReply(echo))),
        (false, true) => TransportHeader::Icmpv6(Icmpv6Header::new(Icmpv6Type::EchoRequest(echo))),
        (false, false) => TransportHeader::Icmpv6(Icmpv6Header::new(Icmpv6Type::EchoReply(echo))),
    }
}
