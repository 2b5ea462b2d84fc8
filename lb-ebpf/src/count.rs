//! How a program ends: the packet's reason is counted, and becomes the number that the kernel acts on.

use core::arch::asm;

use aya_ebpf::{
    bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::generated::bpf_redirect,
    programs::TcContext,
};
use lb_common::{Verdict, verdict::About};

use crate::maps::COUNTERS;

/// The end of a packet's path. `None`: it is nobody's and passes, uncounted.
pub(crate) type End = Option<Verdict>;

/// Counts the reason and gives the verdict for tc. Everything that goes on ends with `TC_ACT_UNSPEC`, which under TCX
/// and clsact alike means "next program". An answer goes back to where the packet came from: `way_back` is 0 for out of
/// the interface, `BPF_F_INGRESS` for into the stack.
#[inline(always)]
pub(crate) fn end(ctx: &TcContext, end: End, way_back: u64) -> i32 {
    note(end);
    let Some(verdict) = end else { return TC_ACT_UNSPEC };
    match verdict.about() {
        About::PacketDropped => TC_ACT_SHOT,
        #[expect(clippy::cast_possible_truncation, reason = "the helper returns a verdict for tc")]
        // SAFETY: the context is the one that the program got; the helper has no precondition.
        About::PacketAnswered => unsafe { bpf_redirect((*ctx.skb.skb).ifindex, way_back) as i32 },
        About::PacketPassed | About::Endpoint | About::Object => TC_ACT_UNSPEC,
    }
}

/// Counts the reason.
#[inline(always)]
pub(crate) fn note(end: End) {
    let Some(verdict) = end else { return };
    if let Some(counter) = COUNTERS.get_ptr_mut(verdict as u32) {
        // SAFETY: the element is this CPU's, and nothing else runs on it in between.
        unsafe { *counter += 1 };
    }
}

/// Counts the reason from a program that runs for a process, which another process of the same CPU can interrupt.
#[inline(always)]
pub(crate) fn count(verdict: Verdict) {
    if let Some(counter) = COUNTERS.get_ptr_mut(verdict as u32) {
        // `core` has no atomic addition for a target without compare-and-swap, which BPF has since Linux 5.12 only.
        // SAFETY: the element is this CPU's and aligned, and the instruction does nothing but add.
        unsafe {
            asm!("lock *(u64 *)({counter} + 0) += {one}", counter = in(reg) counter, one = in(reg) 1_u64);
        }
    }
}
