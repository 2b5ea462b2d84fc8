//! The Internet checksum and its incremental update (RFC 1071, RFC 1624).
//!
//! Everything here works on 16-bit words **as they lie in the packet**, read with `from_be_bytes`; sums are
//! kept in a `u32` whose upper half holds the carries until [`fold`].

/// Adds the carries back until the sum fits 16 bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "after two rounds the upper half is zero")]
pub const fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    twice as u16
}

/// The sum of bytes as 16-bit words, an odd last byte padded with zero (RFC 1071, section 4.1).
pub fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(2);
    let mut total = 0u32;
    for word in &mut words {
        total += u32::from(u16::from_be_bytes([word[0], word[1]]));
        // Keeps the carries from overflowing, however long the input.
        total = (total & 0xffff) + (total >> 16);
    }
    if let [last] = words.remainder() {
        total += u32::from(u16::from_be_bytes([*last, 0]));
    }
    total
}

/// The checksum field for data whose checksum field counted as zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// The checksum field after some words of the data have changed: HC' = ~(~HC + ~m + m') (RFC 1624, equation 3).
///
/// `old` and `new` are the bytes that change, of equal and even length, at an even offset.
pub fn update(field: u16, old: &[u8], new: &[u8]) -> u16 {
    let removed = u32::from(!fold(sum(old)));
    let added = u32::from(fold(sum(new)));
    !fold(u32::from(!field) + removed + added)
}

/// The UDP checksum field after a change (RFC 768): 0 says that there is none and stays; a computed 0 is sent as
/// 0xffff.
pub fn update_udp(field: u16, old: &[u8], new: &[u8]) -> u16 {
    if field == 0 {
        return 0;
    }
    match update(field, old, new) {
        0 => 0xffff,
        updated => updated,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn b51_the_worked_vectors() {
        const V_PORT_80: [u8; 6] = [10, 96, 0, 50, 0, 80];
        const B2_PORT_8080: [u8; 6] = [10, 244, 2, 22, 0x1f, 0x90];
        const V_PORT_53: [u8; 6] = [10, 96, 0, 50, 0, 53];
        const B2_PORT_5353: [u8; 6] = [10, 244, 2, 22, 0x14, 0xe9];
        let (v, b2) = (&V_PORT_80[..4], &B2_PORT_8080[..4]);

        let ip = [
            ("SYN to V", 0x1212, v, b2, 0x0f9a),
            ("SYN-ACK from B2", 0x0f9a, b2, v, 0x1212),
            ("UDP query", 0x520e, v, b2, 0x4f96),
            ("SYN with an IP option", 0x7d09, v, b2, 0x7a91),
        ];
        for (name, before, old, new, after) in ip {
            assert_eq!(update(before, old, new), after, "{name}");
        }
        assert_eq!(update(0xfdee, &V_PORT_80, &B2_PORT_8080), 0xdc36, "TCP SYN");
        assert_eq!(update(0xc89d, &B2_PORT_8080, &V_PORT_80), 0xea55, "TCP SYN-ACK");
        assert_eq!(update_udp(0xfcea, &V_PORT_53, &B2_PORT_5353), 0xe5be, "UDP query");
        assert_eq!(update_udp(0x172c, &V_PORT_53, &B2_PORT_5353), 0xffff, "a computed 0 is sent as 0xffff");
        assert_eq!(update_udp(0, &V_PORT_53, &B2_PORT_5353), 0, "no checksum stays none");
    }

    proptest! {
        #[test]
        fn an_update_equals_a_fresh_computation(
            mut data in proptest::collection::vec(any::<u8>(), 4..200),
            at in 0usize..100,
            new in proptest::array::uniform2(any::<u8>()),
        ) {
            // A nonzero word outside the changed one: all-zero data has two spellings of its sum.
            data[0] = 1;
            let at = 2 + at * 2 % (data.len() / 2 * 2 - 2);
            let before = checksum(&data);
            let old = [data[at], data[at + 1]];
            data[at..at + 2].copy_from_slice(&new);
            prop_assert_eq!(update(before, &old, &new), checksum(&data));
        }
    }
}
