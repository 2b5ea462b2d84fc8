//! Cuts packets up, as a host or a router does whose next link has a smaller MTU.

use etherparse::{IpFragOffset, IpNumber, Ipv4Header};

use super::{Extension, Packet, SMALL};

/// Length of an IPv6 header, and of a fragment header.
const V6_LEN: usize = 40;
const FRAGMENT_LEN: usize = 8;

impl Packet {
    /// The packet as fragments whose IP packets are no longer than `mtu`. `id` is the identification, of which IPv4 has
    /// the lower half. In IPv6 the fragment header follows the hop-by-hop options, if those come first.
    pub fn fragments(&self, mtu: usize, id: u32) -> Vec<Vec<u8>> {
        let whole = self.bytes();
        let (outside, ip) = whole.split_at(self.ip_offset());
        let headers = match self.extensions.first() {
            Some(Extension::HopByHop) => V6_LEN + 8,
            _ => self.ip_header_len(),
        };
        let (headers, data) = ip.split_at(headers);
        let room = mtu - headers.len() - if self.source.is_ipv4() { 0 } else { FRAGMENT_LEN };
        let pieces = data.chunks(room / 8 * 8);
        let count = pieces.len();
        let fragment = |(index, piece): (usize, &[u8])| {
            let offset = u16::try_from(index * (room / 8)).expect(SMALL);
            let more = index + 1 < count;
            let headers = match self.source.is_ipv4() {
                true => v4(headers, piece.len(), offset, more, id),
                false => v6(headers, piece.len(), offset, more, id),
            };
            [outside, &headers, piece].concat()
        };
        pieces.enumerate().map(fragment).collect()
    }
}

fn v4(header: &[u8], len: usize, offset: u16, more: bool, id: u32) -> Vec<u8> {
    let (mut header, _) = Ipv4Header::from_slice(header).expect("it was made by the same crate");
    header.set_payload_len(len).expect(SMALL);
    header.fragment_offset = IpFragOffset::try_new(offset).expect("an offset is of 13 bits");
    header.more_fragments = more;
    header.dont_fragment = false;
    header.identification = u16::try_from(id & 0xffff).expect("16 bits");
    header.header_checksum = header.calc_header_checksum();
    header.to_bytes().to_vec()
}

fn v6(headers: &[u8], len: usize, offset: u16, more: bool, id: u32) -> Vec<u8> {
    let mut headers = headers.to_vec();
    let len = u16::try_from(headers.len() - V6_LEN + FRAGMENT_LEN + len).expect(SMALL);
    headers[4..6].copy_from_slice(&len.to_be_bytes());
    // The next header of the IPv6 header, or of the hop-by-hop options.
    let at = if headers.len() > V6_LEN { V6_LEN } else { 6 };
    let next = headers[at];
    headers[at] = IpNumber::IPV6_FRAGMENTATION_HEADER.0;
    let place = (offset << 3 | u16::from(more)).to_be_bytes();
    [headers, vec![next, 0], place.to_vec(), id.to_be_bytes().to_vec()].concat()
}
