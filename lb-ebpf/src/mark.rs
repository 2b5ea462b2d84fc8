//! How a packet is known that a program has worked on already.

use aya_ebpf::programs::TcContext;

/// In the upper bits of `tc_index` of a packet that we have translated or made, so that it is known when another hook sees
/// it: an ingress (a bridge above the port, a VLAN device above the parent), or the egress, where it is no reply. The field
/// stays with the packet until it is freed. The lower bits are left to others: GRED chooses a queue by four of them,
/// Cilium marks with five.
const OURS: u32 = 0x4c40;

/// The bits that [`OURS`] takes.
const MASK: u32 = 0xffe0;

/// Marks a packet.
#[inline(always)]
pub(crate) fn set(ctx: &TcContext) {
    // SAFETY: the context is the one that the program got. Volatile: the verifier allows whole fields only.
    unsafe {
        let index = &raw mut (*ctx.skb.skb).tc_index;
        index.write_volatile((index.read_volatile() & !MASK) | OURS);
    }
}

/// Whether a packet is marked.
#[inline(always)]
pub(crate) fn is_set(ctx: &TcContext) -> bool {
    // SAFETY: as above.
    unsafe { (&raw const (*ctx.skb.skb).tc_index).read_volatile() & MASK == OURS }
}
