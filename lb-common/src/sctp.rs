//! SCTP (RFC 9260): its checksum after a port has changed, and what a packet says about its association.
//!
//! The checksum is CRC-32C over the whole packet, ports included and no address. It is linear: packets of one length that
//! differ in some bits have checksums that differ by what those bits alone would give, whatever the rest is. So the rest need
//! not be read.

use crate::flow::tcp;

/// The polynomial of CRC-32C without its highest term, bits reversed: the highest bit of a word is the coefficient of
/// x⁰.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x⁸ in that order: one zero byte.
const ONE_BYTE: u32 = 1 << 23;

/// Bits of the length of a packet.
const LENGTH_BITS: usize = 17;

/// Element n is x to the power of 8·2ⁿ: that many zero bytes.
const ZERO_BYTES: [u32; LENGTH_BITS] = {
    let mut powers = [ONE_BYTE; LENGTH_BITS];
    let mut n = 1;
    while n < LENGTH_BITS {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// The product of two polynomials, modulo that of CRC-32C. No branches: the verifier would follow either way of each step.
#[inline(always)]
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & 0u32.wrapping_sub((a >> bit) & 1);
        b = (b >> 1) ^ (POLYNOMIAL & 0u32.wrapping_sub(b & 1));
    }
    product
}

/// What to add (exclusive or) to the checksum of a packet of `len` bytes, common header included, whose first four bytes,
/// the ports, have changed by `difference` (exclusive or). Both are words as they lie in the packet, read with
/// `from_le_bytes`, which is the order of the checksum (RFC 9260, appendix A). A length beyond an IP packet's counts without
/// its upper bits.
#[inline(always)]
pub const fn checksum_difference(difference: u32, len: u32) -> u32 {
    let mut shifted = difference;
    let mut n = 0;
    while n < LENGTH_BITS {
        // As a mask for the same reason.
        let mask = 0u32.wrapping_sub((len >> n) & 1);
        shifted = (multiply(shifted, ZERO_BYTES[n]) & mask) | (shifted & !mask);
        n += 1;
    }
    shifted
}

/// Types of the first chunk of a packet (RFC 9260, section 3.2) that matter here.
pub mod chunk {
    /// Asks for an association.
    pub const INIT: u8 = 1;
    /// The answer to that.
    pub const INIT_ACK: u8 = 2;
    /// Ends the association at once.
    pub const ABORT: u8 = 6;
    /// No more data from the sender.
    pub const SHUTDOWN: u8 = 7;
    /// The answer to that: no more from this side either.
    pub const SHUTDOWN_ACK: u8 = 8;
    /// The last packet of an association.
    pub const SHUTDOWN_COMPLETE: u8 = 14;
}

/// What a packet says about its association, in the flags of the TCP segment that says the same about a connection. `None`: a
/// packet without a chunk, which says no more than one in the middle of an association.
///
/// The chunks that matter come first in their packet, and all but ABORT and SHUTDOWN alone.
#[inline(always)]
pub const fn as_tcp_flags(first_chunk: Option<u8>) -> u8 {
    match first_chunk {
        Some(chunk::INIT) => tcp::SYN,
        Some(chunk::INIT_ACK) => tcp::SYN | tcp::ACK,
        Some(chunk::ABORT | chunk::SHUTDOWN_COMPLETE) => tcp::RST,
        Some(chunk::SHUTDOWN | chunk::SHUTDOWN_ACK) => tcp::FIN | tcp::ACK,
        _ => tcp::ACK,
    }
}

#[cfg(test)]
mod tests {
    use crc::{CRC_32_ISCSI, Crc};
    use proptest::prelude::*;

    use super::*;

    const PLAIN: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

    /// The checksum of the packet after its ports have changed: by the whole of it, and by the difference.
    fn both_ways(packet: &[u8], ports: [u8; 4]) -> (u32, u32) {
        let old = <[u8; 4]>::try_from(&packet[..4]).unwrap();
        let changed = [&ports, &packet[4..]].concat();
        let difference = u32::from_le_bytes(old) ^ u32::from_le_bytes(ports);
        let len = u32::try_from(packet.len()).unwrap();
        (PLAIN.checksum(&changed), PLAIN.checksum(packet) ^ checksum_difference(difference, len))
    }

    #[test]
    fn the_reference_is_crc_32c() {
        assert_eq!(PLAIN.checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn packets_of_every_length_up_to_the_longest() {
        for len in (12..1600).chain([9000, 65_515, 65_535, 131_071]) {
            let packet: std::vec::Vec<u8> = (0..len).map(|n: usize| n.to_le_bytes()[0] ^ 0x5a).collect();
            let (whole, updated) = both_ways(&packet, [0x1f, 0x90, 0xff, 0x00]);
            assert_eq!(whole, updated, "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn an_update_equals_a_fresh_computation(
            packet in proptest::collection::vec(any::<u8>(), 12..2000),
            ports: [u8; 4],
        ) {
            let (whole, updated) = both_ways(&packet, ports);
            prop_assert_eq!(whole, updated);
        }
    }

    #[test]
    fn nothing_changes_where_nothing_has_changed() {
        assert_eq!(checksum_difference(0, 1480), 0);
    }
}
