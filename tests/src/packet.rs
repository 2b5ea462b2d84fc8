//! Builds packets. What a test expects comes from the same builder as what it sends, so a row of a table names the one
//! thing that is to change.

mod error;
mod fragments;
mod refusal;
mod sctp;

use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use etherparse::{
    EtherType, Ethernet2Header, IpAuthHeader, IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, Ipv6Header,
    Ipv6RawExtHeader, SingleVlanHeader, TcpHeader, TransportHeader, UdpHeader, VlanId,
};
pub use lb_common::flow::tcp::{ACK, FIN, RST, SYN};
use lb_common::service::proto;

pub use self::error::{IcmpError, Kind};

/// Length of an Ethernet header without tags.
pub const ETHERNET_LEN: usize = Ethernet2Header::LEN;

const SMALL: &str = "the packets of tests are short";

/// A frame that carries TCP, UDP, SCTP or an echo request over IPv4 or IPv6.
#[derive(Clone, Debug)]
pub struct Packet {
    source: SocketAddr,
    destination: SocketAddr,
    transport: Transport,
    payload: Vec<u8>,
    checksum: Option<u16>,
    tags: Vec<EtherType>,
    ip_options: Vec<u8>,
    extensions: Vec<Extension>,
    fragment: Option<Fragment>,
    time_to_live: u8,
    ethernet: [[u8; 6]; 2],
}

#[derive(Clone, Copy, Debug)]
enum Transport {
    Tcp { flags: u8, sequence: u32, acknowledgement: u32 },
    Udp,
    Sctp,
    Echo { is_request: bool, id: u16 },
}

/// A place in an IP packet that was cut up.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    offset: IpFragOffset,
    more: bool,
}

/// A header between the IP header and TCP or UDP.
#[derive(Clone, Copy, Debug)]
pub enum Extension {
    /// IPv6 hop-by-hop options, 8 bytes of padding.
    HopByHop,
    /// IPv6 destination options, 16 bytes of padding.
    DestinationOptions,
    /// IPv6 routing header with that many segments left.
    Routing(u8),
    /// Authentication header, IPv4 or IPv6.
    Authentication,
}

impl Packet {
    /// A TCP segment without payload; sequence 1000, acknowledgement 5001 where ACK is set.
    pub fn tcp(source: SocketAddr, destination: SocketAddr, flags: u8) -> Self {
        let acknowledgement = if flags & ACK != 0 { 5001 } else { 0 };
        Self::new(source, destination, Transport::Tcp { flags, sequence: 1000, acknowledgement })
    }

    /// A UDP datagram.
    pub fn udp(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Self {
        Self { payload: payload.to_vec(), ..Self::new(source, destination, Transport::Udp) }
    }

    /// An SCTP packet with these chunks, or none.
    pub fn sctp(source: SocketAddr, destination: SocketAddr, chunks: &[u8]) -> Self {
        Self { payload: chunks.to_vec(), ..Self::new(source, destination, Transport::Sctp) }
    }

    /// An ICMP or ICMPv6 echo request; the ports are left out.
    pub fn echo_request(source: SocketAddr, destination: SocketAddr, payload: &[u8]) -> Self {
        let transport = Transport::Echo { is_request: true, id: 0x77aa };
        Self { payload: payload.to_vec(), ..Self::new(source, destination, transport) }
    }

    fn new(source: SocketAddr, destination: SocketAddr, transport: Transport) -> Self {
        assert_eq!(source.is_ipv4(), destination.is_ipv4());
        Self {
            source,
            destination,
            transport,
            payload: Vec::new(),
            checksum: None,
            tags: Vec::new(),
            ip_options: Vec::new(),
            extensions: Vec::new(),
            fragment: None,
            time_to_live: 64,
            ethernet: [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]],
        }
    }

    /// Its source.
    pub fn source(&self) -> SocketAddr {
        self.source
    }

    /// Its protocol number, or 0 for an echo request.
    pub fn proto(&self) -> u8 {
        match self.transport {
            Transport::Tcp { .. } => proto::TCP,
            Transport::Udp => proto::UDP,
            Transport::Sctp => proto::SCTP,
            Transport::Echo { .. } => 0,
        }
    }

    /// The same packet with another source.
    pub fn from(&self, source: SocketAddr) -> Self {
        Self { source, ..self.clone() }
    }

    /// The same packet with another destination.
    pub fn to(&self, destination: SocketAddr) -> Self {
        Self { destination, ..self.clone() }
    }

    /// The same packet with the Ethernet addresses exchanged.
    fn turned_round(&self) -> Self {
        let [destination, source] = self.ethernet;
        Self { ethernet: [source, destination], ..self.clone() }
    }

    /// Sets the Ethernet destination.
    pub fn to_ethernet(mut self, destination: [u8; 6]) -> Self {
        self.ethernet[0] = destination;
        self
    }

    /// Sets the time to live, or the hop limit.
    pub fn with_time_to_live(mut self, time_to_live: u8) -> Self {
        self.time_to_live = time_to_live;
        self
    }

    /// Sets what follows the TCP, UDP or SCTP header.
    pub fn with_payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Sets the sequence and acknowledgement numbers of a TCP segment.
    pub fn numbered(mut self, sequence: u32, acknowledgement: u32) -> Self {
        if let Transport::Tcp { flags, .. } = self.transport {
            self.transport = Transport::Tcp { flags, sequence, acknowledgement };
        }
        self
    }

    /// Sets the TCP or UDP checksum field, right or not; of SCTP's the lower half, with zeros above.
    pub fn with_checksum(mut self, field: u16) -> Self {
        self.checksum = Some(field);
        self
    }

    /// Adds a VLAN tag inside those that are there.
    pub fn tagged(mut self, ethertype: EtherType) -> Self {
        self.tags.push(ethertype);
        self
    }

    /// Sets the options of the IPv4 header, a multiple of 4 bytes.
    pub fn with_ip_options(mut self, options: &[u8]) -> Self {
        self.ip_options = options.to_vec();
        self
    }

    /// Adds a header after those that are there.
    pub fn with_extension(mut self, extension: Extension) -> Self {
        self.extensions.push(extension);
        self
    }

    /// Makes it a fragment, its place counted in units of 8 bytes. In IPv6 the fragment header is the last one before
    /// TCP or UDP. A later fragment keeps the TCP or UDP header, as data that looks like one.
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        let offset = IpFragOffset::try_new(offset).expect("an offset is of 13 bits");
        self.fragment = Some(Fragment { offset, more });
        self
    }

    /// Whether it has a VLAN tag.
    pub fn is_tagged(&self) -> bool {
        !self.tags.is_empty()
    }

    /// How long the IP header is, with IPv4 options and without IPv6 extension headers.
    pub fn ip_header_len(&self) -> usize {
        if self.source.is_ipv4() { Ipv4Header::MIN_LEN + self.ip_options.len() } else { Ipv6Header::LEN }
    }

    /// How long the IPv6 extension headers are.
    pub fn extensions_len(&self) -> usize {
        self.extension_bytes().1.len()
    }

    /// Where the IP addresses are in the frame.
    pub fn addresses(&self) -> Range<usize> {
        let ip = ETHERNET_LEN + 4 * self.tags.len();
        if self.source.is_ipv4() { ip + 12..ip + 20 } else { ip + 8..ip + 40 }
    }

    /// How long the headers are, from the first byte of the frame to the last of TCP or UDP.
    pub fn headers_len(&self) -> usize {
        self.bytes().len() - self.payload.len()
    }

    /// The frame.
    pub fn bytes(&self) -> Vec<u8> {
        let mut transport = self.transport_header();
        let (number, extensions) = self.extension_bytes();
        let header_len = transport.as_ref().map_or(sctp::HEADER_LEN, TransportHeader::header_len);
        let len = u16::try_from(extensions.len() + header_len + self.payload.len()).expect(SMALL);
        let (ethertype, ip) = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header =
                    Ipv4Header::new(0, self.time_to_live, number, source.octets(), destination.octets())
                        .expect(SMALL);
                header.identification = 0x1234;
                header.dont_fragment =
                    matches!(self.transport, Transport::Tcp { .. }) && self.fragment.is_none();
                header.options =
                    Ipv4Options::try_from(self.ip_options.as_slice()).expect("a multiple of 4 bytes");
                if let Some(fragment) = self.fragment {
                    header.fragment_offset = fragment.offset;
                    header.more_fragments = fragment.more;
                }
                header.set_payload_len(len.into()).expect(SMALL);
                header.header_checksum = header.calc_header_checksum();
                if let Some(transport) = &mut transport {
                    transport.update_checksum_ipv4(&header, &self.payload).expect(SMALL);
                }
                (EtherType::IPV4, header.to_bytes().to_vec())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header {
                    payload_length: len,
                    next_header: number,
                    hop_limit: self.time_to_live,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                };
                if let Some(transport) = &mut transport {
                    transport.update_checksum_ipv6(&header, &self.payload).expect(SMALL);
                }
                (EtherType::IPV6, header.to_bytes().to_vec())
            }
            _ => unreachable!("both ends are of one family"),
        };
        let transport = transport.map_or_else(|| self.sctp_header(), |header| self.transport_bytes(header));
        [self.ethernet_bytes(ethertype), ip, extensions, transport, self.payload.clone()].concat()
    }

    /// The Ethernet header and the tags.
    fn ethernet_bytes(&self, carried: EtherType) -> Vec<u8> {
        let mut types = self.tags.iter().copied().chain([carried]);
        let header = Ethernet2Header {
            source: self.ethernet[1],
            destination: self.ethernet[0],
            ether_type: types.next().expect("there is one"),
        };
        let mut bytes = header.to_bytes().to_vec();
        for (ether_type, id) in types.zip(100..) {
            let vlan_id = VlanId::try_new(id).expect("an id is of 12 bits");
            bytes.extend(SingleVlanHeader { vlan_id, ether_type, ..SingleVlanHeader::default() }.to_bytes());
        }
        bytes
    }

    /// The number of the first extension header, or of TCP or UDP when there is none, and the bytes of all.
    fn extension_bytes(&self) -> (IpNumber, Vec<u8>) {
        let mut next = match self.transport {
            Transport::Tcp { .. } => IpNumber::TCP,
            Transport::Udp => IpNumber::UDP,
            Transport::Sctp => IpNumber::SCTP,
            Transport::Echo { .. } if self.source.is_ipv4() => IpNumber::ICMP,
            Transport::Echo { .. } => IpNumber::IPV6_ICMP,
        };
        let mut bytes = Vec::new();
        if let (Some(Fragment { offset, more }), true) = (self.fragment, self.source.is_ipv6()) {
            // By hand: etherparse 0.19 places offset and flag otherwise than RFC 8200, section 4.5.
            let [high, low] = (offset.value() << 3 | u16::from(more)).to_be_bytes();
            bytes = vec![next.0, 0, high, low, 0, 0, 0x12, 0x34];
            next = IpNumber::IPV6_FRAGMENTATION_HEADER;
        }
        for extension in self.extensions.iter().rev() {
            let (number, header) = extension.bytes(next);
            bytes.splice(0..0, header);
            next = number;
        }
        (next, bytes)
    }

    /// The header of TCP, UDP or ICMP, without its checksum; `None` for SCTP, which etherparse does not know.
    fn transport_header(&self) -> Option<TransportHeader> {
        let (source_port, destination_port) = (self.source.port(), self.destination.port());
        Some(match self.transport {
            Transport::Tcp { flags, sequence, acknowledgement } => {
                let mut header = TcpHeader::new(source_port, destination_port, sequence, 64_240);
                header.acknowledgment_number = acknowledgement;
                (header.fin, header.syn) = (flags & FIN != 0, flags & SYN != 0);
                (header.rst, header.ack) = (flags & RST != 0, flags & ACK != 0);
                TransportHeader::Tcp(header)
            }
            Transport::Udp => {
                let length = u16::try_from(UdpHeader::LEN + self.payload.len()).expect(SMALL);
                TransportHeader::Udp(UdpHeader { source_port, destination_port, length, checksum: 0 })
            }
            Transport::Echo { is_request, id } => refusal::echo_header(self.source.is_ipv4(), is_request, id),
            Transport::Sctp => return None,
        })
    }

    /// The bytes of the TCP or UDP header, with the checksum that was asked for, if any was.
    fn transport_bytes(&self, header: TransportHeader) -> Vec<u8> {
        match header {
            TransportHeader::Tcp(mut header) => {
                header.checksum = self.checksum.unwrap_or(header.checksum);
                header.to_bytes().to_vec()
            }
            TransportHeader::Udp(mut header) => {
                header.checksum = self.checksum.unwrap_or(header.checksum);
                header.to_bytes().to_vec()
            }
            TransportHeader::Icmpv4(header) => header.to_bytes().to_vec(),
            TransportHeader::Icmpv6(header) => header.to_bytes().to_vec(),
        }
    }
}

impl Extension {
    /// Its own number, and its bytes when `next` follows.
    fn bytes(self, next: IpNumber) -> (IpNumber, Vec<u8>) {
        // The option PadN (RFC 8200, section 4.2) over what an option header of 8 or 16 bytes leaves.
        const PAD_6: [u8; 6] = [1, 4, 0, 0, 0, 0];
        const PAD_14: [u8; 14] = [1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (number, body): (IpNumber, &[u8]) = match self {
            Self::HopByHop => (IpNumber::IPV6_HEADER_HOP_BY_HOP, &PAD_6),
            Self::DestinationOptions => (IpNumber::IPV6_DESTINATION_OPTIONS, &PAD_14),
            Self::Routing(left) => (IpNumber::IPV6_ROUTE_HEADER, &[4, left, 0, 0, 0, 0]),
            Self::Authentication => {
                let header = IpAuthHeader::new(next, 1, 1, &[0; 12]).expect("a multiple of 4 bytes");
                return (IpNumber::AUTHENTICATION_HEADER, header.to_bytes().to_vec());
            }
        };
        let header = Ipv6RawExtHeader::new_raw(next, body).expect("a valid length");
        (number, header.to_bytes().to_vec())
    }
}
