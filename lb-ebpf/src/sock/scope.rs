//! Whose sockets are served here. A pod's are left to tc, at its interface.

use core::ptr;

use aya_ebpf::{EbpfContext, Global, helpers::generated::bpf_get_netns_cookie, programs::SockAddrContext};

/// Whether sockets of every network namespace are served. The loader sets it.
#[unsafe(no_mangle)]
static EVERY_NAMESPACE: Global<u32> = Global::new(0);

/// Otherwise, the cookie of the one whose are; 0 for the initial one. The loader sets it.
#[unsafe(no_mangle)]
static NAMESPACE: Global<u64> = Global::new(0);

/// Whether the socket is one that is served.
#[inline(always)]
pub(super) fn includes(ctx: &SockAddrContext) -> bool {
    if EVERY_NAMESPACE.load() != 0 {
        return true;
    }
    let served = match NAMESPACE.load() {
        // SAFETY: the helper takes no context for the initial namespace.
        0 => unsafe { bpf_get_netns_cookie(ptr::null_mut()) },
        cookie => cookie,
    };
    cookie(ctx) == served
}

/// The cookie of the network namespace that the socket is of.
#[inline(always)]
pub(super) fn cookie(ctx: &SockAddrContext) -> u64 {
    // SAFETY: the context is the one that the program got.
    unsafe { bpf_get_netns_cookie(ctx.as_ptr()) }
}
