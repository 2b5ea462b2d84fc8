//! How a packet is known that a program has worked on already.

use aya_ebpf::programs::TcContext;

/// What has become of a packet, in the upper bits of its `tc_index`, so that it is known when another hook sees it: an
/// ingress (a bridge above the port, a VLAN device above the parent), or the egress. The field stays with the packet until it
/// is freed. The lower bits are left to others: GRED chooses a queue by four of them, Cilium marks with five.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is as it should leave: translated, or made by us.
    Done = 0x4c40,
    /// It is on its way to a backend, and its source is still to be an address of this node.
    SourceDue = 0x4c60,
    /// It is a reply that came to such an address, and has its client's now; its source is still to be the VIP.
    CalledBack = 0x4c80,
}

/// The bits that a [`Mark`] takes.
const MASK: u32 = 0xffe0;

/// The mark of a packet that was sent on to a backend.
#[inline(always)]
pub(crate) fn onward(has_source_nat: bool) -> Mark {
    if has_source_nat { Mark::SourceDue } else { Mark::Done }
}

/// Marks a packet.
#[inline(always)]
pub(crate) fn set(ctx: &TcContext, mark: Mark) {
    set_bits(ctx, mark as u32);
}

/// The mark of a packet.
#[inline(always)]
pub(crate) fn get(ctx: &TcContext) -> Option<Mark> {
    const DONE: u32 = Mark::Done as u32;
    const SOURCE_DUE: u32 = Mark::SourceDue as u32;
    const CALLED_BACK: u32 = Mark::CalledBack as u32;
    match bits(ctx) {
        DONE => Some(Mark::Done),
        SOURCE_DUE => Some(Mark::SourceDue),
        CALLED_BACK => Some(Mark::CalledBack),
        _ => None,
    }
}

/// The bits that a packet is marked with.
#[inline(always)]
pub(crate) fn bits(ctx: &TcContext) -> u32 {
    // SAFETY: the context is the one that the program got. Volatile: the verifier allows whole fields only.
    unsafe { (&raw const (*ctx.skb.skb).tc_index).read_volatile() & MASK }
}

/// Marks a packet as the one that had these bits.
#[inline(always)]
pub(crate) fn set_bits(ctx: &TcContext, bits: u32) {
    // SAFETY: as above.
    unsafe {
        let index = &raw mut (*ctx.skb.skb).tc_index;
        index.write_volatile((index.read_volatile() & !MASK) | bits);
    }
}
