//! Fragments of IP packets. Only the first one has the ports; the later ones of its packet go where it went.

use crate::{Address, Verdict, flow::SECOND};

/// Key of FRAGMENTS: the packet that a fragment is a part of, as it arrives at the hook.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FragmentKey {
    /// Source address before translation.
    pub source: Address,
    /// Destination address before translation.
    pub destination: Address,
    /// Identification of the packet, as it lies in the header, in IPv4 in the first two bytes.
    pub id: u32,
    /// IP protocol number; of IPv6 that of the fragment header: the number in it may differ among the fragments of one packet
    /// (RFC 8200, section 4.5).
    pub proto: u8,
    /// One of [`hook`]. A bridge or a router shows the same packet at both.
    pub hook: u8,
    /// Explicit padding, always zero.
    pub pad: u16,
}

/// Value of FRAGMENTS: what became of the first fragment.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentValue {
    /// When it was seen: nanoseconds of `CLOCK_MONOTONIC`.
    pub first_seen: u64,
    /// What its destination became at ingress, or its source at egress; the same as before where it passed.
    pub address: Address,
    /// Bits of [`flags`].
    pub flags: u32,
    /// The bits of its `tc_index` that the programs have marked it with, so that the others are known at the next hook too.
    pub mark: u32,
}

/// Which hook a fragment was seen at.
pub mod hook {
    /// Ingress, where destinations are translated.
    pub const INGRESS: u8 = 0;
    /// Egress, where sources are.
    pub const EGRESS: u8 = 1;
}

/// Bits of [`FragmentValue::flags`].
pub mod flags {
    /// It went no further: it was dropped, or refused.
    pub const DROPPED: u32 = 1 << 0;
}

/// How long later fragments follow a first one, in nanoseconds: as long as Linux waits for the rest of a packet
/// (`net.ipv4.ipfrag_time`; IPv6 waits 60 s, but RFC 8200 lets a packet that takes longer than this be given up as well).
pub const TIMEOUT: u64 = 30 * SECOND;

/// Whether later fragments still follow a first one. The clocks of two CPUs may differ a little, so `now` can be the
/// smaller one.
#[inline(always)]
pub const fn is_fresh(now: u64, first_seen: u64) -> bool {
    now.saturating_sub(first_seen) <= TIMEOUT
}

/// What becomes of a later fragment of which no first one is known. Nobody but us can translate it to a ClusterIP; of other
/// addresses it cannot be told without its ports whether it is ours.
#[inline(always)]
pub const fn without_first(to_cluster_ip: bool) -> Verdict {
    if to_cluster_ip { Verdict::FragmentOrphaned } else { Verdict::FragmentPassed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b49_later_fragments_follow_for_as_long_as_the_kernel_waits_for_them() {
        const SEEN: u64 = 7 * SECOND;
        for (now, want) in
            [(SEEN - 1, true), (SEEN, true), (SEEN + TIMEOUT, true), (SEEN + TIMEOUT + 1, false)]
        {
            assert_eq!(is_fresh(now, SEEN), want, "{now}");
        }
    }
}
