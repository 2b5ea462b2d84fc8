//! What the agent tells the programs, and keeps for itself, in the one element of SETTINGS.

use crate::{Address, addr};

/// Value of SETTINGS, element 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Until this time (nanoseconds of `CLOCK_MONOTONIC`) a mid-flow TCP packet to a VIP that has no flow passes to
    /// the stack: it may belong to the proxy that readylb replaces. Set once, at the first attach.
    pub migration_until: u64,
    /// Backend ids below this one may be in use: the agent writes a reservation before it uses an id, so that an
    /// id is never given out twice, whenever the agent dies.
    pub next_backend_id: u32,
    /// The same for service ids.
    pub next_service_id: u32,
    /// The same for blocks.
    pub next_block: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    /// Every ClusterIP in SERVICES is in one of these, IPv4 or IPv6: a packet to another address is not looked up as one.
    /// Zeroed, they hold every address.
    pub cluster_ips: [Prefix; 2],
}

impl Settings {
    /// Whether an address may be a ClusterIP.
    #[inline(always)]
    pub const fn may_be_cluster_ip(&self, address: Address) -> bool {
        self.cluster_ips[!addr::is_v4(address) as usize].holds(address)
    }

    /// The same, with an address that is to become a ClusterIP.
    #[must_use]
    pub const fn with_cluster_ip(mut self, address: Address) -> Self {
        let prefix = &mut self.cluster_ips[!addr::is_v4(address) as usize];
        *prefix = prefix.widened(address);
        self
    }
}

/// Addresses that begin alike.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// One of them, or the unspecified address where there is none.
    pub address: Address,
    /// The bits in which they are the same.
    pub mask: Address,
}

impl Prefix {
    /// None.
    pub const NOTHING: Self = Self { address: [0; 16], mask: [0xff; 16] };

    /// Whether an address is one of them.
    #[inline(always)]
    pub const fn holds(&self, address: Address) -> bool {
        addr::is_same_under(self.mask, self.address, address)
    }

    /// The longest prefix that holds these and one more.
    #[must_use]
    pub const fn widened(self, address: Address) -> Self {
        if self.holds(address) {
            return self;
        }
        if addr::difference(self.address, Self::NOTHING.address)
            | addr::difference(self.mask, Self::NOTHING.mask)
            == 0
        {
            return Self { address, ..self };
        }
        let (own, other) = (u128::from_be_bytes(self.address), u128::from_be_bytes(address));
        // They differ, so there are fewer than 128 leading zeros.
        let differing = u128::MAX >> (own ^ other).leading_zeros();
        let mask = u128::from_be_bytes(self.mask) & !differing;
        Self { address: (own & mask).to_be_bytes(), mask: mask.to_be_bytes() }
    }
}

/// Bits of [`Settings::flags`].
pub mod flags {
    /// A frontend was removed while it may have had flows: a packet that matches no frontend is then looked up
    /// among the flows as well, until the flow collector has seen that none is left.
    pub const ORPHAN_FLOWS: u32 = 1 << 0;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::addr::from_v4;

    #[test]
    fn a_prefix_is_as_long_as_its_addresses_let_it_be() {
        let [first, near, far] = [[10, 96, 0, 1], [10, 96, 0, 6], [10, 111, 3, 4]].map(from_v4);
        let neighbours = Prefix::NOTHING.widened(first).widened(near);
        for (last_byte, want) in [(0, true), (7, true), (8, false), (255, false)] {
            assert_eq!(neighbours.holds(from_v4([10, 96, 0, last_byte])), want, "{last_byte}");
        }
        let all = neighbours.widened(far);
        assert!(all.holds(from_v4([10, 96, 255, 255])));
        assert!(!all.holds(from_v4([10, 112, 0, 1])) && !all.holds(from_v4([10, 95, 0, 1])));
        assert!(!Prefix::NOTHING.holds(first));
        assert!(
            Prefix::default().holds(first),
            "settings that nobody has written keep nothing from being looked up"
        );
    }

    proptest! {
        #[test]
        fn settings_hold_every_address_that_was_added_in_any_order(
            addresses in proptest::collection::vec(any::<[u8; 16]>(), 1..8),
            v4 in proptest::collection::vec(any::<[u8; 4]>(), 0..8),
        ) {
            let addresses: std::vec::Vec<_> = addresses.into_iter().chain(v4.into_iter().map(from_v4)).collect();
            let nothing = Settings { cluster_ips: [Prefix::NOTHING; 2], ..Settings::default() };
            let all = addresses.iter().fold(nothing, |all, address| all.with_cluster_ip(*address));
            prop_assert!(addresses.iter().all(|address| all.may_be_cluster_ip(*address)));
            let reversed = addresses.iter().rev().fold(nothing, |all, address| all.with_cluster_ip(*address));
            for (one, other) in all.cluster_ips.iter().zip(&reversed.cluster_ips) {
                prop_assert_eq!(one.mask, other.mask);
                prop_assert!(one.holds(other.address));
            }
        }
    }
}
