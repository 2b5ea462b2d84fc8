//! How a flow begins: whether a packet may begin one, which backend it is bound to, and what becomes of it otherwise.
//!
//! Each step is a function of its own, so that they have room on the stack (512 bytes) one after the other.

use aya_ebpf::programs::TcContext;
use lb_common::{
    Verdict, addr,
    flow::begins,
    service::{flags, scope},
};

use crate::{
    affinity::Choice,
    count::End,
    flow::{self, Onward},
    lookup::{self, Service},
    mark, nat, node,
    packet::Packet,
    settings,
};

/// How many backends are tried for a new flow before it is refused.
const TRIES: usize = 4;

/// The packet that has just been parsed begins a flow, if it may. `replaces`: it has one that ends with that.
#[inline(always)]
pub(crate) fn begun(ctx: &TcContext, replaces: bool) -> End {
    let end = match admitted(ctx) {
        Admitted::Not(end) => end,
        Admitted::FromAnywhere => bound(ctx, scope::ANY, replaces),
        Admitted::FromInside => bound(ctx, scope::INSIDE, replaces),
    };
    if end == Some(Verdict::FlowCreated) { sent(ctx) } else { end }
}

/// Whether a packet may begin a flow.
enum Admitted {
    /// No, and this becomes of it.
    Not(End),
    /// Yes, with what the frontend has for everybody.
    FromAnywhere,
    /// Yes, with what it has for clients inside the cluster.
    FromInside,
}

#[inline(never)]
fn admitted(ctx: &TcContext) -> Admitted {
    admit(ctx).unwrap_or_else(Admitted::Not)
}

/// TCP in the middle of a connection begins nothing.
#[inline(always)]
fn admit(ctx: &TcContext) -> Result<Admitted, End> {
    let packet = Packet::last()?;
    let service = Service::of(&packet.key, scope::ANY).ok_or_else(|| to_no_frontend(ctx, packet))?;
    let is_midflow = !begins(packet.key.proto, packet.tcp_flags);
    if is_midflow && settings::migrating(settings::now()) {
        return Err(Some(Verdict::MidflowPassed));
    }
    let client = &packet.key.tuple.source;
    let is_outside = node::is_outside(ctx, client);
    if is_outside && service.is_cluster_ip() && !node::opens_cluster_ips() {
        return Err(Some(Verdict::OutsideClusterIP));
    }
    if is_midflow {
        return Err(Some(Verdict::MidflowUnknown));
    }
    service.admits(client)?;
    Ok(if is_outside || !service.is_apart_inside() { Admitted::FromAnywhere } else { Admitted::FromInside })
}

#[inline(never)]
fn bound(ctx: &TcContext, scope: u8, replaces: bool) -> End {
    bind(ctx, scope, replaces).map_or_else(|end| end, Some)
}

/// Binds a packet without a flow, or whose flow needs another backend (`replaces`): to the one that is chosen, and to the
/// ones after it while they have another flow of this client's address and port.
#[inline(always)]
fn bind(ctx: &TcContext, scope: u8, replaces: bool) -> Result<Verdict, End> {
    let (packet, now) = (Packet::last()?, settings::now());
    let mut service = Service::of(&packet.key, scope).ok_or(Some(Verdict::BackendSetUnsettled))?;
    service.is_served()?;
    packet.translatable()?;
    let client = &packet.key.tuple.source;
    let calls_back = service.calls_back(node::is_outside(ctx, client));
    let choice = Choice::make(client, &mut service, now)?;
    let (mut slot, mut backend) = (choice.slot, choice.backend);
    for _ in 0..TRIES {
        let is_own = addr::difference(backend.address, *client) == 0;
        let has_source_nat = is_own || (calls_back && service.is_elsewhere(slot));
        match flow::create(packet, &backend, service.id, has_source_nat, replaces, now) {
            Err(Verdict::TupleInUse) => {
                slot = service.next_slot(slot);
                backend = service.backend(slot).ok_or(Some(Verdict::BackendSetUnsettled))?;
            }
            done => {
                choice.went_to(client, &service, slot, &backend, now);
                return Ok(done.map(|()| Verdict::FlowCreated)?);
            }
        }
    }
    Err(Some(Verdict::TupleInUse))
}

/// Sends a packet that was just bound to the backend of its flow.
#[inline(never)]
fn sent(ctx: &TcContext) -> End {
    send(ctx).map_or_else(|end| end, Some)
}

#[inline(always)]
fn send(ctx: &TcContext) -> Result<Verdict, End> {
    let packet = Packet::last()?;
    let Onward { backend, has_source_nat } = flow::onward(packet).ok_or(Some(Verdict::FlowTableFull))?;
    nat::set_destination(ctx, packet, &backend)?;
    mark::set(ctx, mark::onward(has_source_nat));
    Ok(Verdict::FlowCreated)
}

/// How a packet ends that neither a frontend nor a flow claims: refused, or answered if it is an echo request, where its
/// destination is a ClusterIP and its sender may use it; otherwise it is nobody's.
#[inline(always)]
pub(crate) fn to_no_frontend(ctx: &TcContext, packet: &Packet) -> End {
    let cluster_ip = lookup::cluster_ip(&packet.key.tuple.destination)?;
    let is_midflow = !begins(packet.key.proto, packet.tcp_flags);
    Some(if is_midflow && settings::migrating(settings::now()) {
        Verdict::MidflowPassed
    } else if node::is_outside(ctx, &packet.key.tuple.source) && !node::opens_cluster_ips() {
        Verdict::OutsideClusterIP
    } else if packet.is_echo_request() {
        match cluster_ip & flags::USABLE != 0 {
            true if packet.is_fragment() => Verdict::FragmentUnsupported,
            true => Verdict::EchoAnswered,
            false => Verdict::NoBackend,
        }
    } else {
        Verdict::UnknownPort
    })
}
