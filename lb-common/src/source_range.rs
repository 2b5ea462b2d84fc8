//! Who may connect to a load-balancer address: the keys of SOURCE_RANGES.

use crate::Address;

/// What SOURCE_RANGES, a trie, compares, bit by bit from the start: a client of a service port. A key with a prefix length
/// of [`prefix_len`] stands for every client of a range.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey {
    /// The service port.
    pub service_id: u32,
    /// The client.
    pub client: Address,
}

/// How many leading bits of a [`SourceKey`] a range has: all of the service id, and `bits` of the address, which counts in
/// the address as maps have it (96 more than the prefix length of an IPv4 range).
pub const fn prefix_len(bits: u32) -> u32 {
    32 + bits
}
