//! ICMP errors: which messages are, and what becomes of the checksums in the packet that one quotes.

use crate::{checksum::fold, refuse::icmp, service::proto};

/// How much of what an IP packet carries an ICMP error quotes at least, in bytes (RFC 792). The ports are in it.
pub const QUOTED_PAYLOAD: u32 = 8;

/// Whether a message is an error that quotes the packet that it is about, by its type. Redirects quote one too, but they are
/// for the next host only and not forwarded; source quench is obsolete (RFC 6633).
#[inline(always)]
pub const fn is_error(proto_number: u8, kind: u8) -> bool {
    match proto_number {
        // Destination unreachable, among them "fragmentation needed"; time exceeded; parameter problem.
        icmp::V4 => matches!(kind, 3 | 11 | 12),
        // Destination unreachable, packet too big, time exceeded, parameter problem.
        icmp::V6 => matches!(kind, 1..=4),
        _ => false,
    }
}

/// Where the checksum lies in a quoted header of this protocol, in bytes, and whether a field of 0 says that there is none.
/// `None`: the protocol has none that covers the addresses.
#[inline(always)]
pub const fn checksum_at(proto_number: u8) -> Option<(u32, bool)> {
    match proto_number {
        proto::TCP => Some((16, false)),
        proto::UDP => Some((6, true)),
        _ => None,
    }
}

/// A quoted checksum field after addresses and ports that it covers have changed, by these one's complement differences of
/// words in the byte order in which the field was read. `optional`: a field of 0 says that there is no checksum, stays, and
/// is never the result (RFC 768).
#[inline(always)]
pub const fn quoted_checksum(field: u16, addresses: u32, ports: u32, optional: bool) -> u16 {
    if optional && field == 0 {
        return 0;
    }
    let updated = !fold(!field as u32 + fold(addresses) as u32 + fold(ports) as u32);
    if optional && updated == 0 { 0xffff } else { updated }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::{sum, update, update_udp};

    #[test]
    fn only_errors_with_a_quotation_are_errors() {
        let v4 = (0..=255u8).filter(|kind| is_error(icmp::V4, *kind));
        assert_eq!(v4.collect::<std::vec::Vec<_>>(), [3, 11, 12]);
        let v6 = (0..=255u8).filter(|kind| is_error(icmp::V6, *kind));
        assert_eq!(v6.collect::<std::vec::Vec<_>>(), [1, 2, 3, 4]);
        assert!(!is_error(proto::TCP, 3));
    }

    proptest! {
        #[test]
        fn a_quoted_checksum_moves_by_the_difference_in_either_byte_order(
            field in 0..0xffffu16, old in any::<[u8; 18]>(), new in any::<[u8; 18]>(),
        ) {
            let difference = |range: std::ops::Range<usize>| {
                sum(&new[range.clone()]) + u32::from(!fold(sum(&old[range])))
            };
            let (addresses, ports) = (difference(0..16), difference(16..18));
            let swapped = |difference| u32::from(fold(difference).swap_bytes());
            for (want, optional) in [(update(field, &old, &new), false), (update_udp(field, &old, &new), true)] {
                prop_assert_eq!(quoted_checksum(field, addresses, ports, optional), want);
                let back = quoted_checksum(field.swap_bytes(), swapped(addresses), swapped(ports), optional);
                prop_assert_eq!(back.swap_bytes(), want);
            }
        }
    }
}
