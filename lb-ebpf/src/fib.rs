//! What the kernel's routes say.

use core::{mem, ptr};

use aya_ebpf::{
    bindings::{
        BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup, bpf_redir_neigh,
        bpf_redir_neigh__bindgen_ty_1,
    },
    helpers::generated,
    programs::TcContext,
};
use lb_common::addr::v4;

use crate::{
    headers::{Ipv4, Ipv6, load},
    packet::Packet,
};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Traffic class and flow label, in the first word of an IPv6 header.
const FLOW_INFO: u32 = 0x0fff_ffff;

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
    find(ctx, &mut lookup) && lookup.ifindex == ifindex
}

/// Where a packet goes next, by the routes.
pub(crate) struct Way {
    ifindex: u32,
    neighbour: bpf_redir_neigh,
}

impl Way {
    /// Sends the packet that way. The kernel finds the neighbour's Ethernet address, if need be by asking. The result is a
    /// verdict for tc.
    #[inline(always)]
    pub(crate) fn take(mut self) -> i32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "20 bytes")]
        let len = size_of::<bpf_redir_neigh>() as i32;
        #[expect(clippy::cast_possible_truncation, reason = "the helper returns a verdict for tc")]
        // SAFETY: the helper reads `len` bytes of a structure that outlives the call.
        let action =
            unsafe { generated::bpf_redirect_neigh(self.ifindex, &raw mut self.neighbour, len, 0) as i32 };
        action
    }
}

/// The way of an IPv4 packet, which is `wire_len` bytes long on the wire, as the stack would forward it from here. `None`: it
/// would not, or not in one piece.
#[inline(always)]
pub(crate) fn way_of_v4(ctx: &TcContext, packet: &Packet, header: &Ipv4, wire_len: u16) -> Option<Way> {
    let mut lookup = request(ctx, packet, wire_len);
    lookup.family = AF_INET;
    lookup.__bindgen_anon_2.tos = header.traffic_class;
    lookup.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(header.source);
    lookup.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(header.destination);
    way(ctx, lookup)
}

/// The same of an IPv6 packet.
#[inline(always)]
pub(crate) fn way_of_v6(ctx: &TcContext, packet: &Packet, header: &Ipv6, wire_len: u16) -> Option<Way> {
    let mut lookup = request(ctx, packet, wire_len);
    lookup.family = AF_INET6;
    lookup.__bindgen_anon_2.flowinfo = u32::from_ne_bytes(header.version_and_class) & FLOW_INFO.to_be();
    // SAFETY: of the same size, and every bit pattern is valid for both.
    unsafe {
        lookup.__bindgen_anon_3.ipv6_src = mem::transmute::<[u8; 16], [u32; 4]>(header.source);
        lookup.__bindgen_anon_4.ipv6_dst = mem::transmute::<[u8; 16], [u32; 4]>(header.destination);
    }
    way(ctx, lookup)
}

/// What is common to both families.
#[inline(always)]
fn request(ctx: &TcContext, packet: &Packet, wire_len: u16) -> bpf_fib_lookup {
    // SAFETY: integers and unions of integers, of which zero is a value.
    let mut lookup: bpf_fib_lookup = unsafe { mem::zeroed() };
    // SAFETY: the context is the one that the program got.
    lookup.ifindex = unsafe { (*ctx.skb.skb).ifindex };
    lookup.l4_protocol = packet.key.proto;
    if let Some([source, destination]) = load::<[[u8; 2]; 2]>(ctx, packet.transport) {
        lookup.sport = u16::from_ne_bytes(source);
        lookup.dport = u16::from_ne_bytes(destination);
    }
    lookup.__bindgen_anon_1.tot_len = wire_len;
    lookup
}

#[inline(always)]
fn way(ctx: &TcContext, mut lookup: bpf_fib_lookup) -> Option<Way> {
    if !find(ctx, &mut lookup) {
        return None;
    }
    // The kernel has put the next hop in the place of the destination; it may be of the other family (RFC 5549).
    // SAFETY: every bit pattern is a value of the member.
    let neighbour = bpf_redir_neigh__bindgen_ty_1 { ipv6_nh: unsafe { lookup.__bindgen_anon_4.ipv6_dst } };
    Some(Way {
        ifindex: lookup.ifindex,
        neighbour: bpf_redir_neigh { nh_family: lookup.family.into(), __bindgen_anon_1: neighbour },
    })
}

/// Asks the kernel how it would forward a packet that came in by `lookup.ifindex`. Whether the answer is a way.
#[inline(always)]
fn find(ctx: &TcContext, lookup: &mut bpf_fib_lookup) -> bool {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "64 bytes")]
    let len = size_of::<bpf_fib_lookup>() as i32;
    // SAFETY: the context is the one that the program got; the helper reads and writes `len` bytes of a structure that
    // outlives the call.
    let found = unsafe { generated::bpf_fib_lookup(ctx.skb.skb.cast(), ptr::from_mut(lookup), len, 0) };
    u32::try_from(found)
        .is_ok_and(|found| found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH)
}
