//! The frontends: key and value of SERVICES.

use crate::Address;

/// A frontend: where clients connect to. Key of SERVICES.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// The VIP, or another address of the Service.
    pub address: Address,
    /// Port, host byte order; 0 for a [whole address](ServiceKey::whole).
    pub port: u16,
    /// IP protocol number (IANA): 6 TCP, 17 UDP, 132 SCTP; 0 for a [whole address](ServiceKey::whole).
    pub proto: u8,
    /// Which traffic this entry is for: [`scope`].
    pub scope: u8,
}

impl ServiceKey {
    /// The key of an address as a whole. A ClusterIP has such an entry beside its frontends: it stands for every port and
    /// protocol that they do not have. Its value is flags only, [`flags::CLUSTER_IP`] and perhaps [`flags::USABLE`].
    ///
    /// Neither the port nor the protocol can be a frontend's: no Service has port 0, and protocol 0 is an IPv6 option.
    #[inline(always)]
    pub const fn whole(address: Address) -> Self {
        Self { address, port: 0, proto: 0, scope: scope::ANY }
    }

    /// Whether it is the key of a whole address.
    #[inline(always)]
    pub const fn is_whole(&self) -> bool {
        self.port == 0 && self.proto == 0
    }
}

/// Values of [`ServiceKey::scope`].
pub mod scope {
    /// Traffic from anywhere: the only scope that most frontends need.
    pub const ANY: u8 = 0;
    /// Traffic from inside the cluster, its pods and this node, to a frontend with
    /// [`flags::INSIDE_APART`](super::flags::INSIDE_APART); that of [`ANY`] is then for clients outside.
    pub const INSIDE: u8 = 1;
}

/// The set of backends that a frontend uses now. It is read and replaced as one aligned 64-bit word, so that a
/// packet sees the set before a change or the one after it, and never the block of one with the count of the other.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendSet {
    /// Block of BACKENDS that holds the slots. A changed set is always written as a new block.
    pub block: u32,
    /// Slots `0..count` may be chosen. Zero: the frontend is known and has no usable endpoint.
    pub count: u16,
    /// Slots `0..local` are on this node (they come first).
    pub local: u16,
}

impl BackendSet {
    /// The set as the one word that SERVICES holds.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        // SAFETY: both are 8 bytes without padding (layout.rs), and every bit pattern is valid for both.
        unsafe { core::mem::transmute(self) }
    }

    /// The set in a word made by [`BackendSet::to_word`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        // SAFETY: as above.
        unsafe { core::mem::transmute(word) }
    }
}

/// What SERVICES holds for a frontend.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceValue {
    /// The backends in use.
    pub set: BackendSet,
    /// Identity of (Service, port name, protocol), for affinity and counters. Never reused within a schema.
    pub service_id: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    /// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`; zero without affinity.
    pub affinity_seconds: u32,
    /// Explicit padding, always zero.
    pub pad: u32,
}

/// Bits of [`ServiceValue::flags`].
pub mod flags {
    /// Without a usable endpoint packets are dropped; without this bit they are refused.
    pub const DROP_WHEN_EMPTY: u32 = 1 << 0;
    /// The address is a ClusterIP: all of its ports are this cluster's.
    pub const CLUSTER_IP: u32 = 1 << 1;
    /// Of a [whole address](super::ServiceKey::whole) only: one of its frontends has a usable endpoint.
    pub const USABLE: u32 = 1 << 2;
    /// Not a ClusterIP: clients may be anywhere, so the replies of a backend on another node have to be called back to this
    /// one by a source address of it.
    pub const EXTERNAL: u32 = 1 << 3;
    /// Clients inside the cluster have an entry of their own, of scope [`INSIDE`](super::scope::INSIDE): the traffic policy
    /// Local is not for them.
    pub const INSIDE_APART: u32 = 1 << 4;
    /// Only clients in one of the service port's SOURCE_RANGES may connect.
    pub const SOURCE_RANGES: u32 = 1 << 5;
}

/// Protocol numbers (IANA) as they stand in keys.
pub mod proto {
    /// RFC 9293.
    pub const TCP: u8 = 6;
    /// RFC 768.
    pub const UDP: u8 = 17;
    /// RFC 9260.
    pub const SCTP: u8 = 132;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_is_exactly_its_word(block: u32, count: u16, local: u16) {
            let set = BackendSet { block, count, local };
            prop_assert_eq!(BackendSet::from_word(set.to_word()), set);
        }
    }
}
