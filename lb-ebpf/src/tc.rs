//! The two ways of a packet through tc, top to bottom as in the diagram in `main.rs`.

use aya_ebpf::{bindings::BPF_F_INGRESS, programs::TcContext};
use lb_common::{
    Direction, Verdict,
    flow::begins,
    fragment::hook,
    service::{flags, scope},
    source_nat,
};

use crate::{
    answer,
    begin::{begun, to_no_frontend},
    count::{self, End},
    flow::{self, Forward, Onward},
    fragment, icmp,
    lookup::Service,
    mark::{self, Mark},
    nat::{self, Endpoint},
    packet::Packet,
    route, settings,
};

/// From a client to a VIP: the destination becomes a backend.
#[inline(always)]
pub(crate) fn ingress(ctx: &TcContext) -> i32 {
    let end = match Packet::parse(ctx, Direction::Forward) {
        Ok(packet) => fragment::lead(ctx, packet, hook::INGRESS, arrived(ctx)),
        Err(end) => end,
    };
    let end = answer::make(ctx, odd(ctx, hook::INGRESS, end));
    match route::onward(ctx, end) {
        Some(action) => {
            count::note(end);
            action
        }
        None => count::end(ctx, end.filter(|verdict| *verdict != Verdict::ReplyRouted), 0),
    }
}

/// From a backend to a client: the source becomes the VIP again. From a client to a backend, where replies would not come
/// back here: it becomes an address of this node.
#[inline(always)]
pub(crate) fn egress(ctx: &TcContext) -> i32 {
    let end = odd(ctx, hook::EGRESS, leaving(ctx));
    count::end(ctx, answer::make(ctx, end), BPF_F_INGRESS.into())
}

/// What parsing has only recognized comes to its end here, for the sake of the stack as with [`followed`].
#[inline(always)]
fn odd(ctx: &TcContext, hook: u8, end: End) -> End {
    match end {
        Some(Verdict::FragmentContinued) => fragment::follow(ctx, hook),
        Some(verdict @ (Verdict::ErrorForwarded | Verdict::ErrorRestored)) => icmp::translate(ctx, verdict),
        end => end,
    }
}

#[inline(always)]
fn arrived(ctx: &TcContext) -> End {
    match followed(ctx) {
        Followed::To(end) => end,
        Followed::Nowhere => begun(ctx, false),
        Followed::Elsewhere => begun(ctx, true),
    }
}

/// What a packet's flow has made of it.
enum Followed {
    /// This.
    To(End),
    /// Nothing: it has no flow.
    Nowhere,
    /// Nothing: its flow needs another backend.
    Elsewhere,
}

/// A function of its own, as the ones below and the making of an answer are: one after the other they have room on the
/// stack (512 bytes), one in the other they would not.
#[inline(never)]
fn followed(ctx: &TcContext) -> Followed {
    follow(ctx).unwrap_or_else(Followed::To)
}

#[inline(always)]
fn follow(ctx: &TcContext) -> Result<Followed, End> {
    let packet = Packet::last()?;
    if packet.is_echo_request() {
        return Err(to_no_frontend(ctx, packet));
    }
    let (destination, mark, verdict) = match called_back(packet) {
        Some(client) => (client, Mark::CalledBack, Verdict::SourceNat),
        None => {
            let service = Service::of(&packet.key, scope::ANY);
            if service.is_none() {
                nobodys(ctx, packet)?;
            }
            match flow::forward(packet, service.map(|service| service.id), settings::now())? {
                Forward::Kept(Onward { backend, has_source_nat }) => {
                    (backend, mark::onward(has_source_nat), Verdict::FlowContinued)
                }
                Forward::Absent => return Ok(Followed::Nowhere),
                Forward::Afresh => return Ok(Followed::Elsewhere),
            }
        }
    };
    packet.translatable()?;
    nat::set_destination(ctx, packet, &destination)?;
    mark::set(ctx, mark);
    Ok(Followed::To(Some(verdict)))
}

/// The client of a reply that came to an address of this node. It is looked up before the frontends: one of them may have
/// the port, but no packet of a backend's port is from one of its clients.
#[inline(always)]
fn called_back(packet: &Packet) -> Option<Endpoint> {
    if source_nat::is_port(packet.key.tuple.destination_port) { flow::called_back(packet) } else { None }
}

/// A packet to no frontend passes, and if it begins a conversation with a backend itself, the replies are left to it. But
/// a ClusterIP is ours with every port; and when a frontend was removed, its TCP connections go on until they end.
#[inline(always)]
fn nobodys(ctx: &TcContext, packet: &Packet) -> Result<(), End> {
    let begins = begins(packet.key.proto, packet.tcp_flags);
    if !begins && settings::has_orphan_flows() {
        return Ok(());
    }
    if settings::routes() && flow::is_reply(packet) {
        return Err(Some(Verdict::ReplyRouted));
    }
    let end = to_no_frontend(ctx, packet);
    if end.is_none() && begins && mark::get(ctx).is_none() {
        flow::leave_replies_to(packet);
    }
    Err(end)
}

#[inline(always)]
fn leaving(ctx: &TcContext) -> End {
    match mark::get(ctx) {
        // A request. Two pods that use each other's VIPs from their own service ports look like each other's replies.
        Some(Mark::Done) => None,
        Some(Mark::SourceDue) => hidden(ctx),
        mark => replied(ctx, mark.is_some()),
    }
}

#[inline(never)]
fn hidden(ctx: &TcContext) -> End {
    hide(ctx).map_or_else(|end| end, Some)
}

#[inline(always)]
fn hide(ctx: &TcContext) -> Result<Verdict, End> {
    let packet = Packet::parse(ctx, Direction::Outward)?;
    if packet.is_echo_request() {
        return Err(None);
    }
    let end = stand_in(ctx, packet).map_or_else(|end| end, Some);
    fragment::lead(ctx, packet, hook::EGRESS, end).ok_or(None)
}

#[inline(always)]
fn stand_in(ctx: &TcContext, packet: &Packet) -> Result<Verdict, End> {
    let source = flow::stand_in(ctx, packet, settings::now())?;
    nat::set_source(ctx, packet, &source)?;
    mark::set(ctx, Mark::Done);
    Ok(Verdict::SourceNat)
}

#[inline(never)]
fn replied(ctx: &TcContext, called_back: bool) -> End {
    reply(ctx, called_back).map_or_else(|end| end, Some)
}

#[inline(always)]
fn reply(ctx: &TcContext, called_back: bool) -> Result<Verdict, End> {
    let packet = Packet::parse(ctx, Direction::Reply)?;
    let end = restored(ctx, packet, called_back).map_or_else(|end| end, Some);
    fragment::lead(ctx, packet, hook::EGRESS, end).ok_or(None)
}

#[inline(always)]
fn restored(ctx: &TcContext, packet: &Packet, called_back: bool) -> Result<Verdict, End> {
    if packet.is_echo_request() {
        return Err(from_node(ctx, packet));
    }
    let entry = flow::reply(packet, called_back).ok_or_else(|| from_node(ctx, packet))?;
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
        return to_no_frontend(ctx, packet);
    }
    let Some(service) = Service::of(&packet.key, scope::ANY) else { return to_no_frontend(ctx, packet) };
    if service.is_apart_inside() {
        return Service::of(&packet.key, scope::INSIDE).and_then(|service| service.is_served().err());
    }
    service.is_served().err().or_else(|| untranslated(&service))
}

/// How a packet from this node ends that somebody would have taken at its socket.
#[inline(always)]
fn untranslated(service: &Service) -> End {
    if service.flags & flags::CLUSTER_IP == 0 {
        return None;
    }
    // The connections of the proxy before this one have their backend as destination by now, so there are none to spare.
    Some(Verdict::NodeUntranslated)
}
