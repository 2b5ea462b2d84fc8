//! The two ways of a packet through tc, top to bottom as in the diagram in `main.rs`.

use aya_ebpf::programs::TcContext;
use lb_common::{Direction, Verdict, flow::begins};

use crate::{
    count::{self, End},
    flow::{self, Forward},
    lookup::Service,
    nat::{self, Endpoint},
    packet::Packet,
    settings,
};

/// How many backends or sets are tried for a new flow before it is refused.
const TRIES: usize = 4;

/// In the upper bits of `tc_index` of a translated packet, so that it is known when another hook sees it: an ingress (a
/// bridge above the port, a VLAN device above the parent), or the egress, where it is no reply. The field stays with the
/// packet until it is freed. The lower bits are left to others: GRED chooses a queue by four of them, Cilium marks with
/// five.
const TRANSLATED: u32 = 0x4c40;

/// The bits that [`TRANSLATED`] takes.
const TRANSLATED_MASK: u32 = 0xffe0;

/// From a client to a VIP: the destination becomes a backend.
#[inline(always)]
pub(crate) fn ingress(ctx: &TcContext) -> i32 {
    count::end(forward(ctx).map_or_else(|end| end, Some))
}

/// From a backend to a client: the source becomes the VIP again.
#[inline(always)]
pub(crate) fn egress(ctx: &TcContext) -> i32 {
    count::end(reply(ctx).map_or_else(|end| end, Some))
}

#[inline(always)]
fn forward(ctx: &TcContext) -> Result<Verdict, End> {
    let packet = Packet::parse(ctx, Direction::Forward)?;
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
            (bind(packet, service.ok_or(None)?, replaces, now)?, Verdict::FlowCreated)
        }
    };
    nat::set_destination(ctx, packet, &backend)?;
    mark_translated(ctx);
    Ok(verdict)
}

/// A packet to no frontend passes, and if it begins a conversation with a backend itself, the replies are left to it.
/// But when a frontend was removed, its TCP connections go on until they end.
#[inline(always)]
fn nobodys(ctx: &TcContext, packet: &Packet) -> Result<(), End> {
    if begins(packet.key.proto, packet.tcp_flags) {
        if !is_translated(ctx) {
            flow::leave_replies_to(packet);
        }
        return Err(None);
    }
    if settings::has_orphan_flows() { Ok(()) } else { Err(None) }
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
    if is_translated(ctx) {
        // A request. Two pods that use each other's VIPs from their own service ports look like each other's replies.
        return Err(None);
    }
    let packet = Packet::parse(ctx, Direction::Reply)?;
    let entry = flow::reply(packet).ok_or(None)?;
    packet.translatable()?;
    let vip = entry.pass_reply(packet, settings::now());
    nat::set_source(ctx, packet, &vip)?;
    Ok(Verdict::ReplyRestored)
}

#[inline(always)]
fn mark_translated(ctx: &TcContext) {
    // SAFETY: the context is the one that the program got. Volatile: the verifier allows whole fields only.
    unsafe {
        let index = &raw mut (*ctx.skb.skb).tc_index;
        index.write_volatile((index.read_volatile() & !TRANSLATED_MASK) | TRANSLATED);
    }
}

#[inline(always)]
fn is_translated(ctx: &TcContext) -> bool {
    // SAFETY: as above.
    unsafe { (&raw const (*ctx.skb.skb).tc_index).read_volatile() & TRANSLATED_MASK == TRANSLATED }
}
