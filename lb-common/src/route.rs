//! What a router does to a packet, decided for those that go past the host's stack.

use crate::checksum::fold;

/// The bytes of an IPv4 header from the time to live on: it, the protocol, and the checksum.
pub type Hop = [u8; 4];

/// These bytes behind a router, of one that decrements the time to live (RFC 1812, section 5.3.1) and updates the checksum
/// (RFC 1624). `None`: the time ends here, and the sender has to be told.
#[inline(always)]
pub const fn next_hop([time_to_live, proto, high, low]: Hop) -> Option<Hop> {
    let Some(time_to_live) = next_time_to_live(time_to_live) else { return None };
    // The word of the field and the protocol number is 0x0100 less, so its complement is as much more.
    let [high, low] = fold(u16::from_be_bytes([high, low]) as u32 + 0x0100).to_be_bytes();
    Some([time_to_live, proto, high, low])
}

/// The time to live, or hop limit (RFC 8200, section 3), behind a router. `None`: the time ends here.
#[inline(always)]
pub const fn next_time_to_live(time_to_live: u8) -> Option<u8> {
    if time_to_live <= 1 { None } else { Some(time_to_live - 1) }
}

/// How long the IP packet is that goes over the wire: of one that is to be cut into segments, each of them. `headers` is the
/// length of its IP and transport headers, and `segment` what each segment carries behind them, 0 for a packet that stays
/// whole. `None`: longer than any that IP has; so counts SCTP that is to be cut up, whose `segment` does not say how long
/// (`GSO_BY_FRAGS`).
#[inline(always)]
pub const fn wire_len(whole: u32, headers: u32, segment: u32) -> Option<u16> {
    let len = if segment == 0 { whole } else { headers.saturating_add(segment) };
    #[expect(clippy::cast_possible_truncation, reason = "compared before")]
    if len > u16::MAX as u32 { None } else { Some(len as u16) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::checksum;

    proptest! {
        #[test]
        fn a_hop_later_the_header_has_the_checksum_of_a_fresh_computation(mut header: [u8; 20]) {
            // A nonzero word: an all-zero header has two spellings of its sum, and none has version 0.
            header[0] = 0x45;
            header[10..12].fill(0);
            let sum = checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            let hop = next_hop([header[8], header[9], header[10], header[11]]);
            prop_assert_eq!(hop.is_none(), header[8] <= 1);
            if let Some(hop) = hop {
                header[8..12].copy_from_slice(&hop);
                header[10..12].fill(0);
                let fresh = checksum(&header).to_be_bytes();
                prop_assert_eq!([hop[2], hop[3]], fresh);
            }
        }
    }

    #[test]
    fn the_last_hop_is_none() {
        assert_eq!([0, 1, 2, 255].map(next_time_to_live), [None, None, Some(1), Some(254)]);
    }

    #[test]
    fn segments_are_what_has_to_fit() {
        for (name, whole, headers, segment, want) in [
            ("a packet", 1500, 40, 0, Some(1500)),
            ("a train of segments", 65_000, 52, 1448, Some(1500)),
            ("one longer than IP has, of short segments", 200_000, 72, 1428, Some(1500)),
            ("one longer than IP has, whole", 65_536, 40, 0, None),
            ("segments of unknown length", 3000, 32, 0xffff, None),
        ] {
            assert_eq!(wire_len(whole, headers, segment), want, "{name}");
        }
    }
}
