//! The Internet checksum (RFC 1071) over whole packets, as a number modulo 65535, and that of SCTP.

use std::net::{IpAddr, SocketAddr};

use crc::{CRC_32_ISCSI, Crc};

/// The numbers that one's complement sums are taken modulo.
const MODULUS: u64 = 65_535;

/// The sum of bytes as 16-bit words, an odd last byte padded with zero.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    words.sum::<u64>() % MODULUS
}

/// The sum of the pseudo-header (RFC 9293, section 3.1; RFC 8200, section 8.1).
pub(super) fn pseudo_header(from: IpAddr, to: IpAddr, proto: u8, len: usize) -> u64 {
    (address(from) + address(to) + u64::from(proto) + len as u64 % MODULUS) % MODULUS
}

fn address(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    }
}

/// The sum of an address and a port.
pub(super) fn end(end: SocketAddr) -> u64 {
    (address(end.ip()) + u64::from(end.port())) % MODULUS
}

/// The checksum field of data with this sum, in which the field counts as zero.
pub(super) fn field(sum: u64) -> u16 {
    kept(0, 0, sum)
}

/// The checksum field of data whose sum, without the field, was `before` and is `now`: right if `old` was, and wrong by the
/// same amount if that was wrong.
pub(super) fn kept(old: u16, before: u64, now: u64) -> u16 {
    ((u64::from(old) + before + MODULUS - now) % MODULUS) as u16
}

/// The checksum of SCTP (RFC 9260, appendix A) over these bytes, as it lies in the packet.
pub(super) fn crc(bytes: &[u8]) -> [u8; 4] {
    const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
    CRC.checksum(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_header() {
        // The IPv4 header of the SYN of case b51, its field zero.
        let header = [0x45, 0, 0, 40, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 244, 1, 5, 10, 96, 0, 50];
        assert_eq!(field(sum(&header)), 0x1212);
        assert_eq!(kept(0x1212 + 7, sum(&header), sum(&header[..16]) + sum(&[10, 244, 2, 22])), 0x0f9a + 7);
        assert_eq!(sum(&[1, 2, 3]), 0x0102 + 0x0300);
    }
}
