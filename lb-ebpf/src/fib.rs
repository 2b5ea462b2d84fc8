//! What the kernel's routes say.

use core::mem;

use aya_ebpf::{
    bindings::{BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup},
    helpers::generated,
    programs::TcContext,
};
use lb_common::addr::v4;

use crate::packet::Packet;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Whether packets to a packet's sender leave by the interface that it came in by. Never so on a port of a bridge, which
/// has no routes.
#[inline(always)]
pub(crate) fn leads_back(ctx: &TcContext, packet: &Packet) -> bool {
    let tuple = &packet.key.tuple;
    // SAFETY: integers and unions of integers, of which zero is a value.
    let mut lookup: bpf_fib_lookup = unsafe { mem::zeroed() };
    // SAFETY: the context is the one that the program got.
    let ifindex = unsafe { (*ctx.skb.skb).ifindex };
    lookup.ifindex = ifindex;
    if packet.is_v4() {
        lookup.family = AF_INET;
        lookup.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(v4(tuple.destination));
        lookup.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(v4(tuple.source));
    } else {
        lookup.family = AF_INET6;
        // SAFETY: of the same size, and every bit pattern is valid for both.
        unsafe {
            lookup.__bindgen_anon_3.ipv6_src = mem::transmute::<[u8; 16], [u32; 4]>(tuple.destination);
            lookup.__bindgen_anon_4.ipv6_dst = mem::transmute::<[u8; 16], [u32; 4]>(tuple.source);
        }
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "64 bytes")]
    let len = size_of::<bpf_fib_lookup>() as i32;
    // SAFETY: the context is the one that the program got; the helper reads and writes `len` bytes of a structure that
    // outlives the call.
    let found = unsafe { generated::bpf_fib_lookup(ctx.skb.skb.cast(), (&raw mut lookup).cast(), len, 0) };
    let found = u32::try_from(found)
        .is_ok_and(|found| found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH);
    found && lookup.ifindex == ifindex
}
