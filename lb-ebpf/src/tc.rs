//! The two ways of a packet through tc, top to bottom as in the diagram in `main.rs`.

use aya_ebpf::{bindings::BPF_F_INGRESS, programs::TcContext};
use lb_common::{Direction, Verdict, flow::begins, service::flags};

use crate::{
    answer,
    count::{self, End},
    flow::{self, Forward},
    lookup::{self, Service},
    mark,
    nat::{self, Endpoint},
    packet::Packet,
    settings,
};

/// How many backends or sets are tried for a new flow before it is refused.
const TRIES: usize = 4;

/// From a client to a VIP: the destination becomes a backend.
#[inline(always)]
pub(crate) fn ingress(ctx: &TcContext) -> i32 {
    count::end(ctx, answer::make(ctx, forwarded(ctx)), 0)
}

/// From a backend to a client: the source becomes the VIP again.
#[inline(always)]
pub(crate) fn egress(ctx: &TcContext) -> i32 {
    count::end(ctx, answer::make(ctx, reply(ctx).map_or_else(|end| end, Some)), BPF_F_INGRESS.into())
}

/// A function of its own, as the making of an answer is: one after the other they have room on the stack (512 bytes),
/// one in the other they would not.
#[inline(never)]
fn forwarded(ctx: &TcContext) -> End {
    forward(ctx).map_or_else(|end| end, Some)
}

#[inline(always)]
fn forward(ctx: &TcContext) -> Result<Verdict, End> {
    let packet = Packet::parse(ctx, Direction::Forward)?;
    if packet.is_echo_request() {
        return Err(to_no_frontend(packet));
    }
    let service = Service::of(&packet.key);
    if service.is_none() {
        nobodys(ctx, packet)?;
    }
    let now = settings::now();
    let followed = flow::forward(packet, service.as_ref().map(|service| service.id), now)?;
    let (backend, verdict) = match followed {
        Forward::Kept(backend) => {
            packet.translatable()?;
            (backend, Verdict::FlowContinued)
        }
        Forward::Afresh | Forward::Absent => {
            let replaces = matches!(followed, Forward::Afresh);
            let service = service.ok_or_else(|| to_no_frontend(packet))?;
            (bind(packet, service, replaces, now)?, Verdict::FlowCreated)
        }
    };
    nat::set_destination(ctx, packet, &backend)?;
    mark::set(ctx);
    Ok(verdict)
}

/// A packet to no frontend passes, and if it begins a conversation with a backend itself, the replies are left to it. But
/// a ClusterIP is ours with every port; and when a frontend was removed, its TCP connections go on until they end.
#[inline(always)]
fn nobodys(ctx: &TcContext, packet: &Packet) -> Result<(), End> {
    let begins = begins(packet.key.proto, packet.tcp_flags);
    if !begins && settings::has_orphan_flows() {
        return Ok(());
    }
    let end = to_no_frontend(packet);
    if end.is_none() && begins && !mark::is_set(ctx) {
        flow::leave_replies_to(packet);
    }
    Err(end)
}

/// How a packet ends that neither a frontend nor a flow claims: refused, or answered if it is an echo request, where its
/// destination is a ClusterIP; otherwise it is nobody's.
#[inline(always)]
fn to_no_frontend(packet: &Packet) -> End {
    let cluster_ip = lookup::cluster_ip(&packet.key.tuple.destination)?;
    Some(if packet.is_echo_request() {
        match cluster_ip & flags::USABLE != 0 {
            true if packet.is_fragment() => Verdict::FragmentUnsupported,
            true => Verdict::EchoAnswered,
            false => Verdict::NoBackend,
        }
    } else if !begins(packet.key.proto, packet.tcp_flags) && settings::migrating(settings::now()) {
        Verdict::MidflowPassed
    } else {
        Verdict::UnknownPort
    })
}

/// Binds a packet without a flow, or whose flow needs another backend (`replaces`): to any of the set, and to the ones
/// after it while they have another flow of this client's address and port. TCP in the middle of a connection cannot be
/// bound.
#[inline(always)]
fn bind(packet: &Packet, mut service: Service, replaces: bool, now: u64) -> Result<Endpoint, End> {
    if !begins(packet.key.proto, packet.tcp_flags) {
        return Err(Some(if settings::migrating(now) {
            Verdict::MidflowPassed
        } else {
            Verdict::MidflowUnknown
        }));
    }
    service.is_served()?;
    packet.translatable()?;
    let mut failure = Verdict::BackendSetUnsettled;
    let mut slot = service.any_slot()?;
    for _ in 0..TRIES {
        let Some(backend) = service.backend(slot) else {
            failure = Verdict::BackendSetUnsettled;
            slot = service.any_slot()?;
            continue;
        };
        match flow::create(packet, &backend, service.id, replaces, now) {
            Err(Verdict::TupleInUse) => {
                failure = Verdict::TupleInUse;
                slot = service.next_slot(slot);
            }
            done => return Ok(done?),
        }
    }
    Err(Some(failure))
}

#[inline(always)]
fn reply(ctx: &TcContext) -> Result<Verdict, End> {
    if mark::is_set(ctx) {
        // A request. Two pods that use each other's VIPs from their own service ports look like each other's replies.
        return Err(None);
    }
    let packet = Packet::parse(ctx, Direction::Reply)?;
    if packet.is_echo_request() {
        return Err(from_node(ctx, packet));
    }
    let entry = flow::reply(packet).ok_or_else(|| from_node(ctx, packet))?;
    packet.translatable()?;
    let vip = entry.pass_reply(packet, settings::now());
    nat::set_source(ctx, packet, &vip)?;
    Ok(Verdict::ReplyRestored)
}

/// How a packet ends that is no reply. What the node itself sends to a VIP crosses no ingress, so what nobody takes is
/// refused here; what somebody would take passes.
#[inline(always)]
fn from_node(ctx: &TcContext, packet: &Packet) -> End {
    // SAFETY: the context is the one that the program got.
    if unsafe { (*ctx.skb.skb).ingress_ifindex } != 0 {
        return None;
    }
    if packet.is_echo_request() {
        return to_no_frontend(packet);
    }
    match Service::of(&packet.key) {
        Some(service) => service.is_served().err(),
        None => to_no_frontend(packet),
    }
}
