//! What user space tells the programs, and the clock.

use aya_ebpf::{
    Global,
    helpers::{bpf_ktime_get_ns, generated::bpf_ktime_get_coarse_ns},
};

use lb_common::Address;

use crate::maps::SETTINGS;

/// Whether the kernel has `bpf_ktime_get_coarse_ns` (5.11). The loader sets it; where it is 0, the verifier removes
/// the branch that calls the helper before it looks whether the kernel knows it.
#[unsafe(no_mangle)]
static COARSE_CLOCK: Global<u32> = Global::new(0);

/// Whether the kernel has `bpf_set_retval` for programs at connect(2) and sendmsg(2). The loader sets it, and the verifier
/// does as above.
#[unsafe(no_mangle)]
static SET_RETVAL: Global<u32> = Global::new(0);

/// Whether a program may say what a call fails with.
#[inline(always)]
pub(crate) fn can_set_retval() -> bool {
    SET_RETVAL.load() != 0
}

/// Whether packets of flows go past the host's stack (`--host-routing bpf`). The loader sets it where that is asked for, and
/// only where `bpf_fib_lookup` looks at the length of a packet (5.12).
#[unsafe(no_mangle)]
static HOST_ROUTING: Global<u32> = Global::new(0);

/// Whether packets of flows go past the host's stack.
#[inline(always)]
pub(crate) fn routes() -> bool {
    HOST_ROUTING.load() != 0
}

/// Nanoseconds of `CLOCK_MONOTONIC`, a tick late at most. Flows need no better, and the coarse clock costs a tenth.
#[inline(always)]
pub(crate) fn now() -> u64 {
    if COARSE_CLOCK.load() != 0 {
        // SAFETY: the helper has no precondition.
        unsafe { bpf_ktime_get_coarse_ns() }
    } else {
        // SAFETY: as above.
        unsafe { bpf_ktime_get_ns() }
    }
}

/// Whether mid-flow TCP that nobody here knows may still belong to the proxy that readylb replaces.
#[inline(always)]
pub(crate) fn migrating(now: u64) -> bool {
    SETTINGS.get(0).is_some_and(|settings| now < settings.migration_until)
}

/// Whether an address may be a ClusterIP. The answer spares nearly all packets that are nobody's a lookup.
#[inline(always)]
pub(crate) fn may_be_cluster_ip(address: &Address) -> bool {
    SETTINGS.get(0).is_some_and(|settings| settings.may_be_cluster_ip(*address))
}

/// Whether a frontend was removed that may have left flows.
#[inline(always)]
pub(crate) fn has_orphan_flows() -> bool {
    SETTINGS.get(0).is_some_and(|settings| settings.flags & lb_common::settings::flags::ORPHAN_FLOWS != 0)
}
