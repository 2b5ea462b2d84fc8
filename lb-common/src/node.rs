//! What the programs know of the node that they run on: NODE, one element, and LINKS, the interfaces that matter.

use crate::{Address, Prefix, addr};

/// Value of NODE, element 0. Zeroed, the node has no address, and no client is known to be of the cluster by its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeValue {
    /// The node's own address of each family, IPv4 first, where an interface has none for the source NAT of what leaves
    /// by it. Zero: there is none.
    pub addresses: [Address; 2],
    /// Where the pods of the cluster are (`--cluster-cidr`). [`Prefix::NOTHING`] fills what is left. Zeroed, there is none
    /// either.
    pub cluster: [Prefix; CLUSTER_PREFIXES],
    /// Bits of [`flags`].
    pub flags: u64,
}

/// How many ranges `--cluster-cidr` can name.
pub const CLUSTER_PREFIXES: usize = 4;

impl NodeValue {
    /// Whether an address is one of the cluster's pods.
    #[inline(always)]
    pub const fn is_of_cluster(&self, address: Address) -> bool {
        self.flags & flags::HAS_CLUSTER != 0
            && (self.cluster[0].holds(address)
                || self.cluster[1].holds(address)
                || self.cluster[2].holds(address)
                || self.cluster[3].holds(address))
    }

    /// The address of a family, of the same one as `like`. `None`: there is none.
    #[inline(always)]
    pub const fn address(&self, like: Address) -> Option<Address> {
        known(self.addresses, like)
    }
}

/// Bits of [`NodeValue::flags`].
pub mod flags {
    /// [`NodeValue::cluster`](super::NodeValue::cluster) counts.
    pub const HAS_CLUSTER: u64 = 1 << 0;
    /// Clients outside the cluster may use ClusterIPs (`--external-clusterip`).
    pub const EXTERNAL_CLUSTER_IPS: u64 = 1 << 1;
}

/// What is known of an interface. Value of LINKS, by its index; one without an entry has no address, and what comes in by it
/// is of the cluster.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkValue {
    /// Its own address of each family, IPv4 first: what leaves by it with a source of this node has this one. Zero: there
    /// is none.
    pub addresses: [Address; 2],
    /// Bits of [`link_flags`].
    pub flags: u64,
}

impl LinkValue {
    /// The address of a family, of the same one as `like`. `None`: there is none.
    #[inline(always)]
    pub const fn address(&self, like: Address) -> Option<Address> {
        known(self.addresses, like)
    }
}

/// Bits of [`LinkValue::flags`].
pub mod link_flags {
    /// It leads out of the node: who comes in by it is outside the cluster, unless the address says otherwise
    /// ([`NodeValue::is_of_cluster`](super::NodeValue::is_of_cluster)).
    pub const OUTSIDE: u64 = 1 << 0;
}

#[inline(always)]
const fn known(addresses: [Address; 2], like: Address) -> Option<Address> {
    let address = addresses[!addr::is_v4(like) as usize];
    if addr::difference(address, [0; 16]) == 0 { None } else { Some(address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::from_v4;

    #[test]
    fn pods_are_known_by_the_ranges_of_the_cluster() {
        let pod = from_v4([10, 244, 7, 9]);
        let outside = from_v4([203, 0, 113, 9]);
        assert!(!NodeValue::default().is_of_cluster(pod), "nobody has said where the pods are");
        let mut cluster = [Prefix::NOTHING; CLUSTER_PREFIXES];
        let mut mask = [0xff; 16];
        mask[14..].fill(0);
        cluster[2] = Prefix { address: from_v4([10, 244, 0, 0]), mask };
        let node = NodeValue { cluster, flags: flags::HAS_CLUSTER, ..NodeValue::default() };
        assert!(node.is_of_cluster(pod) && !node.is_of_cluster(outside) && !node.is_of_cluster([0xfd; 16]));
    }

    #[test]
    fn an_address_is_of_the_family_that_is_asked_for() {
        let node = NodeValue { addresses: [from_v4([192, 168, 50, 11]), [0; 16]], ..NodeValue::default() };
        assert_eq!(node.address(from_v4([10, 244, 2, 22])), Some(from_v4([192, 168, 50, 11])));
        assert_eq!(node.address([0xfd; 16]), None);
    }
}
