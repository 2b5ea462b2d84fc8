//! Who is outside the cluster, and which addresses of this node stand for them.

use aya_ebpf::programs::TcContext;
use lb_common::{
    Address,
    node::{flags, link_flags},
};

use crate::maps::{LINKS, NODE};

/// Whether a packet's sender is outside the cluster: the packet came in by an interface that leads out, and no pod has such
/// an address. What the node itself sends came in by none.
#[inline(always)]
pub(crate) fn is_outside(ctx: &TcContext, sender: &Address) -> bool {
    // SAFETY: the context is the one that the program got.
    let index = unsafe { (*ctx.skb.skb).ingress_ifindex };
    // SAFETY: one aligned word, read at once.
    unsafe { LINKS.get(&index) }.is_some_and(|link| link.flags & link_flags::OUTSIDE != 0)
        && !NODE.get(0).is_some_and(|node| node.is_of_cluster(*sender))
}

/// Whether clients outside the cluster may use ClusterIPs.
#[inline(always)]
pub(crate) fn opens_cluster_ips() -> bool {
    NODE.get(0).is_some_and(|node| node.flags & flags::EXTERNAL_CLUSTER_IPS != 0)
}

/// The address of this node that a packet leaves with whose own source would not bring the replies back here: the one of
/// the interface that it leaves by, or else of the node. `None`: neither has one of this family.
#[inline(always)]
pub(crate) fn address_at(ctx: &TcContext, like: &Address) -> Option<Address> {
    // SAFETY: the context is the one that the program got.
    let index = unsafe { (*ctx.skb.skb).ifindex };
    // SAFETY: the kernel keeps the element's memory until the program ends. If the agent removes the interface just then,
    // the address may be another interface's, which is this node's as well.
    let of_link = unsafe { LINKS.get(&index) }.and_then(|link| link.address(*like));
    of_link.or_else(|| NODE.get(0).and_then(|node| node.address(*like)))
}
