//! Past the host's stack (`--host-routing bpf`): a packet of a flow goes straight to the interface that the routes name, whose
//! egress hook it still crosses. What is decided about it is in lb-common's module of the same name.
//!
//! ```text
//!   ingress ─► request, translated ─┬─► route? ─► hop ─► neighbour ─► egress hook ─► wire
//!              reply of a flow ─────┘     └─ none, or a case for the stack ─► next program, then the stack
//! ```
//!
//! Whatever is not plain forwarding is the stack's: it has the ICMP errors, local sockets, and rules by mark.

use aya_ebpf::{
    bindings::{BPF_F_RECOMPUTE_CSUM, TC_ACT_REDIRECT},
    programs::TcContext,
};
use lb_common::{Verdict, route, service::proto};

use crate::{
    count::End,
    fib,
    headers::{ETHERNET, Ipv4, Ipv6, Tcp, Udp, len, load},
    packet::Packet,
    settings,
};

/// Where fields lie in the headers.
const V4_TIME_TO_LIVE: u32 = 8;
const V6_HOP_LIMIT: u32 = 7;

/// `skb->pkt_type` of a frame to the interface's own Ethernet address (`PACKET_HOST` in linux/if_packet.h).
const TO_THIS_HOST: u32 = 0;

/// Sends a packet on, where it ended at ingress as one of a flow, and gives the kernel's verdict. `None`: it is the stack's.
#[inline(always)]
pub(crate) fn onward(ctx: &TcContext, end: End) -> Option<i32> {
    let is_of_flow =
        matches!(end, Some(Verdict::FlowCreated | Verdict::FlowContinued | Verdict::ReplyRouted));
    if !settings::routes() || !is_of_flow {
        return None;
    }
    let action = redirect(ctx);
    (action == TC_ACT_REDIRECT).then_some(action)
}

/// A function of its own, for its room on the stack. Anything but `TC_ACT_REDIRECT`: the packet is as it was.
#[inline(never)]
fn redirect(ctx: &TcContext) -> i32 {
    Packet::last().ok().and_then(|packet| try_redirect(ctx, packet)).unwrap_or(0)
}

#[inline(always)]
fn try_redirect(ctx: &TcContext, packet: &Packet) -> Option<i32> {
    // SAFETY: the context is the one that the program got.
    let skb = unsafe { &*ctx.skb.skb };
    if packet.ip != ETHERNET || skb.vlan_present != 0 || skb.pkt_type != TO_THIS_HOST || skb.mark != 0 {
        // A VLAN has an interface of its own; a frame to another host may go to it over a bridge; and there may be rules for
        // the mark.
        return None;
    }
    let wire_len =
        route::wire_len(packet.end.wrapping_sub(packet.ip), headers_len(ctx, packet)?, skb.gso_size)?;
    if packet.is_v4() {
        let header: Ipv4 = load(ctx, packet.ip)?;
        let [high, low] = header.checksum;
        let hop = route::next_hop([header.time_to_live, header.proto, high, low])?;
        let way = fib::way_of_v4(ctx, packet, &header, wire_len)?;
        // The two changes balance each other in a sum of the whole packet.
        ctx.store((packet.ip + V4_TIME_TO_LIVE) as usize, &hop, 0).ok()?;
        Some(way.take())
    } else {
        let header: Ipv6 = load(ctx, packet.ip)?;
        let hop_limit = route::next_time_to_live(header.hop_limit)?;
        let way = fib::way_of_v6(ctx, packet, &header, wire_len)?;
        ctx.store((packet.ip + V6_HOP_LIMIT) as usize, &hop_limit, BPF_F_RECOMPUTE_CSUM.into()).ok()?;
        Some(way.take())
    }
}

/// Length of the IP and transport headers, as far as it counts for a packet that is to be cut up.
#[inline(always)]
fn headers_len(ctx: &TcContext, packet: &Packet) -> Option<u32> {
    let transport = if packet.key.proto == proto::TCP {
        let header: Tcp = load(ctx, packet.transport)?;
        u32::from(header.data_offset >> 4) * 4
    } else {
        len::<Udp>()
    };
    Some(packet.transport.wrapping_sub(packet.ip) + transport)
}
