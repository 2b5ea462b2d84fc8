//! Session affinity: key and value of AFFINITY, and whether a client goes back to the backend that it had.
//!
//! An entry is looked at when a new flow begins, and never trusted: a backend is taken again only while it is in the
//! set that the frontend uses at that moment. So nobody removes entries. What is stale is ignored, replaced by the
//! client's next flow, or displaced by other clients.

use crate::{Address, BackendSet, flow::SECOND};

/// A client of a service port. Key of AFFINITY.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AffinityKey {
    /// Address of the client.
    pub client: Address,
    /// The service port, as in [`crate::ServiceValue::service_id`]: its frontends share what is known of a client.
    pub service_id: u32,
}

/// The backend that a client had last. Value of AFFINITY.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AffinityValue {
    /// When a flow of the client was last bound to it: nanoseconds of `CLOCK_MONOTONIC`.
    pub last_used: u64,
    /// The backend.
    pub backend_id: u32,
    /// Its slot at that time. A hint: it is looked at first, and has moved if the set has changed.
    pub slot: u16,
    /// Explicit padding, always zero.
    pub pad: u16,
}

/// Steps that a run of 65,535 slots takes, each of which leaves the smaller half or the larger one.
const STEPS: usize = 16;

/// Whether a client still goes back to its backend: it was used `seconds` ago at most. `last_used` may be a little later
/// than `now`: the clocks of two CPUs differ.
#[inline(always)]
pub const fn is_fresh(now: u64, last_used: u64, seconds: u32) -> bool {
    now.saturating_sub(last_used) <= seconds as u64 * SECOND
}

/// The slot of a backend among those of a set that may be chosen, if it is there. `id_at` reads the backend id in a slot,
/// `None` where there is none.
#[inline(always)]
pub fn slot(
    set: BackendSet,
    backend_id: u32,
    hint: u16,
    mut id_at: impl FnMut(u16) -> Option<u32>,
) -> Option<u16> {
    if hint < set.count && id_at(hint) == Some(backend_id) {
        return Some(hint);
    }
    let (local, others) = (set.local as u32, (set.count as u32).saturating_sub(set.local as u32));
    let here = search(0, local, backend_id, &mut id_at);
    if here.is_some() { here } else { search(local, others, backend_id, &mut id_at) }
}

/// The slot of a backend among `length` slots from `first` on, which are in the order of backend ids: a set of any size
/// takes a few steps.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "slots are below 65,536")]
fn search(
    mut first: u32,
    mut length: u32,
    backend_id: u32,
    id_at: &mut impl FnMut(u16) -> Option<u32>,
) -> Option<u16> {
    if length == 0 {
        return None;
    }
    for _ in 0..STEPS {
        if length == 1 {
            break;
        }
        let half = length / 2;
        let id = id_at((first + half) as u16)?;
        // All ones if the backend is before the middle. Not a branch: the verifier would follow either way of each step.
        let is_before = ((backend_id as i64 - id as i64) >> 63) as u32;
        first += half & !is_before;
        length -= half;
    }
    (id_at(first as u16)? == backend_id).then_some(first as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Backends by slot, of which the first ones are on this node.
    struct Set {
        ids: std::vec::Vec<u32>,
        local: u16,
        /// How many may be chosen; the rest drains.
        count: u16,
    }

    impl Set {
        fn of(local: &[u32], others: &[u32], draining: &[u32]) -> Self {
            let length = |ids: &[u32]| u16::try_from(ids.len()).unwrap();
            let local_count = length(local);
            Self {
                ids: [local, others, draining].concat(),
                local: local_count,
                count: local_count + length(others),
            }
        }

        /// Where a client goes back to, as the programs ask for it.
        fn slot(&self, entry: &AffinityValue, now: u64, seconds: u32) -> Option<u16> {
            let set = BackendSet { block: 1, count: self.count, local: self.local };
            let id_at = |slot| self.ids.get(usize::from(slot)).copied();
            let is_fresh = is_fresh(now, entry.last_used, seconds);
            is_fresh.then(|| slot(set, entry.backend_id, entry.slot, id_at)).flatten()
        }
    }

    fn entry(last_used: u64, backend_id: u32, slot: u16) -> AffinityValue {
        AffinityValue { last_used, backend_id, slot, pad: 0 }
    }

    #[test]
    fn a_client_goes_back_until_its_time_is_over_or_its_backend_is_not_in_the_set() {
        let used = 100 * SECOND;
        let set = || Set::of(&[21], &[11, 12], &[]);
        let rows = [
            ("at once", used, set(), 11, 1, Some(1)),
            ("after 9 s", used + 9 * SECOND, set(), 11, 1, Some(1)),
            ("at the limit", used + 10 * SECOND, set(), 11, 1, Some(1)),
            ("beyond", used + 10 * SECOND + 1, set(), 11, 1, None),
            ("on a CPU whose clock is behind", used - 1, set(), 11, 1, Some(1)),
            ("on this node", used, set(), 21, 0, Some(0)),
            ("it has another slot now", used, Set::of(&[], &[9, 10, 11, 12], &[]), 11, 1, Some(2)),
            ("it is the first of the others", used, set(), 11, 7, Some(1)),
            ("it is the last of all", used, set(), 12, 0, Some(2)),
            ("the set has shrunk to it", used, Set::of(&[], &[12], &[]), 12, 2, Some(0)),
            ("it has gone", used, Set::of(&[21], &[12], &[]), 11, 1, None),
            ("it drains, in the slot that it had", used, Set::of(&[], &[12], &[11]), 11, 1, None),
            ("it drains, in another", used, Set::of(&[], &[12, 13], &[11]), 11, 1, None),
            ("nothing is left", used, Set::of(&[], &[], &[11]), 11, 0, None),
            ("only backends of this node", used, Set::of(&[21, 22], &[], &[]), 22, 0, Some(1)),
        ];
        for (name, now, set, backend_id, hint, want) in rows {
            assert_eq!(set.slot(&entry(used, backend_id, hint), now, 10), want, "{name}");
        }
        let longest = entry(0, 11, 1);
        assert_eq!(set().slot(&longest, 86_400 * SECOND, 86_400), Some(1));
        assert_eq!(set().slot(&longest, 86_400 * SECOND + 1, 86_400), None);
    }

    #[test]
    fn a_set_that_is_removed_while_it_is_read_has_nobody() {
        let set = BackendSet { block: 1, count: 9, local: 3 };
        assert_eq!(slot(set, 11, 2, |_| None), None);
    }

    #[test]
    fn everybody_is_found_in_the_largest_sets() {
        for local in [0, 1, 32_767, 32_768, 65_534, 65_535] {
            let ids: std::vec::Vec<u32> = (1..=65_535).collect();
            let (here, others) = ids.split_at(local);
            // Ids of this node above the others', so that only the right run has them in order.
            let here: std::vec::Vec<_> = here.iter().map(|id| id + 100_000).collect();
            let set = Set::of(&here, others, &[]);
            for (slot, id) in (0..=u16::MAX).zip(&set.ids) {
                assert_eq!(set.slot(&entry(0, *id, slot ^ 1), 0, 10), Some(slot), "{local} {id}");
            }
            assert_eq!(set.slot(&entry(0, 99_999, 0), 0, 10), None);
            assert_eq!(set.slot(&entry(0, u32::MAX, 0), 0, 10), None);
        }
    }

    proptest! {
        #[test]
        fn who_is_found_is_whoever_is_in_the_set(
            ids in prop::collection::btree_set(0u32..60, 0..40),
            local in prop::collection::btree_set(0u32..60, 0..40),
            hint: u16,
        ) {
            let here: std::vec::Vec<_> = ids.intersection(&local).copied().collect();
            let others: std::vec::Vec<_> = ids.difference(&local).copied().collect();
            let set = Set::of(&here, &others, &[]);
            for id in 0..60 {
                let want = set.ids.iter().position(|it| *it == id);
                let found = set.slot(&entry(0, id, hint), 0, 10).map(usize::from);
                prop_assert_eq!(found, want);
            }
        }
    }
}
