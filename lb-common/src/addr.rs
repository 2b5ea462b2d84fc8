//! Addresses as they stand in map keys and values.

/// An IP address in network byte order; IPv4 as `::ffff:a.b.c.d` (RFC 4291, section 2.5.5.2).
///
/// A plain array rather than a newtype, because `bpftool` prints the field of a newtype as `__0`.
pub type Address = [u8; 16];

/// The first half of every IPv4-mapped address, and what stands above the IPv4 address in the second.
const V4_MAPPED: (u64, u64) = (0, 0xffff);

/// The halves of an address as numbers. Compiled for BPF, work on single bytes takes an instruction a byte, and
/// `u128` an alignment that the target does not have.
#[inline(always)]
pub const fn halves(address: Address) -> (u64, u64) {
    // SAFETY: of the same size, and every bit pattern is valid for both.
    let [first, second]: [u64; 2] = unsafe { core::mem::transmute(address) };
    (u64::from_be(first), u64::from_be(second))
}

/// The address with these [`halves`].
#[inline(always)]
pub const fn from_halves(first: u64, second: u64) -> Address {
    // SAFETY: as above.
    unsafe { core::mem::transmute([first.to_be(), second.to_be()]) }
}

/// The map form of an IPv4 address given in network byte order.
#[inline(always)]
pub const fn from_v4(v4: [u8; 4]) -> Address {
    from_halves(V4_MAPPED.0, V4_MAPPED.1 << 32 | u32::from_be_bytes(v4) as u64)
}

/// Whether the address is the map form of an IPv4 address.
///
/// Real IPv6 packets with such an address must be left alone: they would be taken for IPv4 ones.
#[inline(always)]
pub const fn is_v4(address: Address) -> bool {
    let (first, second) = halves(address);
    first == V4_MAPPED.0 && second >> 32 == V4_MAPPED.1
}

/// The IPv4 address inside, in network byte order. Meaningless where [`is_v4`] is false.
#[inline(always)]
pub const fn v4(address: Address) -> [u8; 4] {
    [address[12], address[13], address[14], address[15]]
}

/// Whether two addresses are the same in the bits that are set in a mask.
#[inline(always)]
pub const fn is_same_under(mask: Address, a: Address, b: Address) -> bool {
    let (mask, a, b) = (halves(mask), halves(a), halves(b));
    ((a.0 ^ b.0) & mask.0) | ((a.1 ^ b.1) & mask.1) == 0
}

/// Zero exactly when two addresses are the same. A number, so that several comparisons make one branch: the verifier
/// follows every branch of a program.
#[inline(always)]
pub const fn difference(a: Address, b: Address) -> u64 {
    let (a, b) = (halves(a), halves(b));
    (a.0 ^ b.0) | (a.1 ^ b.1)
}

/// The map form of an address.
#[cfg(any(test, feature = "user"))]
pub fn from_ip(ip: core::net::IpAddr) -> Address {
    match ip {
        core::net::IpAddr::V4(ip) => from_v4(ip.octets()),
        core::net::IpAddr::V6(ip) => ip.octets(),
    }
}

/// The address that a map form stands for: IPv4 for the mapped prefix, else IPv6.
#[cfg(any(test, feature = "user"))]
pub fn to_ip(address: &Address) -> core::net::IpAddr {
    core::net::IpAddr::from(*address).to_canonical()
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn an_address_survives_the_round_trip_and_keeps_its_family() {
        for (ip, v4_expected) in [
            (IpAddr::V4(Ipv4Addr::new(10, 96, 0, 50)), true),
            (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xf0, 0, 0, 0, 0, 0x50)), false),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), false),
        ] {
            let address = from_ip(ip);
            assert_eq!(to_ip(&address), ip);
            assert_eq!(is_v4(address), v4_expected, "{ip}");
            assert_eq!(difference(address, address), 0);
            let (first, second) = halves(address);
            assert_eq!(from_halves(first, second), address);
            assert_ne!(difference(address, from_v4([10, 96, 0, 51])), 0);
        }
        assert_eq!(from_v4([10, 96, 0, 50]), *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x60\0\x32");
        assert_eq!(v4(from_v4([10, 96, 0, 50])), [10, 96, 0, 50]);
    }
}
