//! How a program ends: the packet's reason is counted, and becomes the number that the kernel acts on.

use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC};
use lb_common::{Verdict, verdict::About};

use crate::maps::COUNTERS;

/// The end of a packet's path. `None`: it is nobody's and passes, uncounted.
pub(crate) type End = Option<Verdict>;

/// Counts the reason and gives the verdict for tc. Everything that goes on ends with `TC_ACT_UNSPEC`, which under TCX
/// and clsact alike means "next program".
#[inline(always)]
pub(crate) fn end(end: End) -> i32 {
    let Some(verdict) = end else { return TC_ACT_UNSPEC };
    if let Some(counter) = COUNTERS.get_ptr_mut(verdict as u32) {
        // SAFETY: the element is this CPU's, and nothing else runs on it in between.
        unsafe { *counter += 1 };
    }
    match verdict.about() {
        About::PacketDropped => TC_ACT_SHOT,
        About::PacketPassed | About::Endpoint | About::Object => TC_ACT_UNSPEC,
    }
}
