//! Which backend of a set takes a new connection.

/// The slot for a random word: every slot of `0..count` is equally likely (to one part in 2³²/count), without a
/// division. With `count` 0 there is no slot to choose and the answer is 0; callers check first.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the product's upper half is below count, a u16")]
pub const fn slot(random: u32, count: u16) -> u16 {
    ((random as u64 * count as u64) >> 32) as u16
}

/// The slot to try after this one, so that `count` steps visit every slot of `0..count`.
#[inline(always)]
pub const fn next_slot(slot: u16, count: u16) -> u16 {
    if slot as u32 + 1 < count as u32 { slot + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_slot_is_always_inside_the_set(random: u32, count in 1u16..) {
            prop_assert!(slot(random, count) < count);
        }

        #[test]
        fn the_slots_after_one_another_are_a_ring(start: u16, count in 1u16..) {
            let start = start % count;
            let ring = std::iter::successors(Some(start), |&slot| Some(next_slot(slot, count)));
            let mut seen: std::vec::Vec<u16> = ring.take(usize::from(count)).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..count));
        }
    }

    #[test]
    fn every_slot_gets_an_equal_share_of_the_random_words() {
        for count in [1u16, 2, 3, 7, 100] {
            let mut hits = std::vec![0u32; usize::from(count)];
            let steps = 100_000u32;
            for i in 0..steps {
                hits[usize::from(slot(i * (u32::MAX / steps), count))] += 1;
            }
            let fair = steps / u32::from(count);
            for (slot, n) in hits.iter().enumerate() {
                assert!(n.abs_diff(fair) <= 2, "slot {slot} of {count}: {n}, fair is {fair}");
            }
        }
    }
}
