//! Packets on their way to a VIP, in the flow that they belong to.

use aya_ebpf::bindings::BPF_NOEXIST;
use lb_common::{
    Direction, FlowKey, FlowValue, Verdict,
    flow::{self, Phase, flags, seen},
};

use super::{EXISTS, Entry};
use crate::{lookup, maps::FLOWS_NEW, nat::Endpoint, packet::Packet};

/// What the flow tables say about a forward packet.
pub(crate) enum Forward {
    /// Its flow keeps its backend.
    Kept(Onward),
    /// Its flow needs another backend.
    Afresh,
    /// It has no flow.
    Absent,
}

/// How a forward packet goes on.
pub(crate) struct Onward {
    /// To where.
    pub(crate) backend: Endpoint,
    /// Whether its source is to be translated too, where it leaves.
    pub(crate) has_source_nat: bool,
}

/// Follows a forward packet in its flow. `service` is the identity of the frontend's service port, `None` when the
/// frontend has been removed. The error: without a reply entry of its own, the flow's replies would be taken for
/// another's.
#[inline(always)]
pub(crate) fn forward(packet: &Packet, service: Option<u32>, now: u64) -> Result<Forward, Verdict> {
    let Some(entry) = Entry::find(&packet.key) else { return Ok(Forward::Absent) };
    let (proto, tcp_flags) = (packet.key.proto, packet.tcp_flags);
    let (seen, flags) = entry.read(|value| (value.seen, value.flags));
    let renews = entry.read(|value| flow::renews(now, value.last_seen));
    let backend = if flow::begins(proto, tcp_flags) && service == Some(entry.read(|value| value.service_id)) {
        lookup::backend_state(entry.read(|value| value.backend_id))
    } else {
        0
    };
    if flow::needs_reply_entry(proto, tcp_flags, seen, flags, renews) {
        return with_reply_entry(packet, &entry, backend, renews, now);
    }
    // Its own entry shows that it is established, and not silent for longer than a touch interval.
    if !flow::keeps_backend(proto, tcp_flags, Phase::Established, 0, backend) {
        return Ok(Forward::Afresh);
    }
    entry.note(flow::step(seen, tcp_flags), now, renews);
    Ok(Forward::Kept(way(&entry)))
}

#[inline(always)]
fn with_reply_entry(
    packet: &Packet,
    entry: &Entry,
    backend: u32,
    renews: bool,
    now: u64,
) -> Result<Forward, Verdict> {
    let (proto, tcp_flags) = (packet.key.proto, packet.tcp_flags);
    let reply_key = entry.read(|value| FlowKey::other(&value.translated, proto, Direction::Forward));
    let found = Entry::find(&reply_key);
    let reply = found.filter(|found| found.belongs_to(&packet.key));
    let (reply_seen, reply_seen_at, reply_flags) = match reply {
        Some(reply) => reply.read(|value| (value.seen, value.last_seen, value.flags)),
        None => (0, 0, 0),
    };
    let seen = entry.read(|value| value.seen);
    let phase = flow::phase(seen, reply_seen);
    let idle = flow::idle(now, entry.read(|value| value.last_seen), reply_seen_at);
    if !flow::keeps_backend(proto, tcp_flags, phase, idle, backend) {
        return Ok(Forward::Afresh);
    }
    if reply_flags & flags::DIRECT != 0 && !flow::reclaims(proto, tcp_flags, phase) {
        // The backend now holds the direct connection, where this segment does not belong.
        return Ok(Forward::Absent);
    }
    if reply.is_none() {
        match found {
            None => restore(packet, entry, &reply_key, now)?,
            Some(_) if flow::begins(proto, tcp_flags) => return Ok(Forward::Afresh),
            Some(_) => return Err(Verdict::TupleInUse),
        }
    }
    let answered = flow::answers(proto, tcp_flags, reply_seen);
    let shown = flow::step(seen, tcp_flags) | if answered { seen::ANSWERED } else { 0 };
    entry.note(shown, now, renews);
    if let Some(reply) = reply {
        entry.set_direct(false);
        reply.set_direct(false);
        // The reply entry first, so that no flow is ever without one.
        if shown & seen::ANSWERED != 0 && reply.settle(&reply_key) {
            entry.settle(&packet.key);
        }
    }
    Ok(Forward::Kept(way(entry)))
}

/// Puts back a reply entry that the kernel has evicted.
#[inline(always)]
fn restore(packet: &Packet, entry: &Entry, reply_key: &FlowKey, now: u64) -> Result<(), Verdict> {
    let reply = FlowValue {
        last_seen: now,
        translated: packet.key.tuple.reversed(),
        backend_id: entry.read(|value| value.backend_id),
        service_id: entry.read(|value| value.service_id),
        seen: 0,
        flags: entry.read(|value| value.flags & flags::SOURCE_NAT),
        pad: 0,
    };
    FLOWS_NEW
        .insert(reply_key, &reply, BPF_NOEXIST.into())
        .map_err(|error| if error == EXISTS { Verdict::TupleInUse } else { Verdict::FlowTableFull })
}

/// How a packet goes on that has just been bound.
#[inline(always)]
pub(crate) fn onward(packet: &Packet) -> Option<Onward> {
    Entry::find(&packet.key).map(|entry| way(&entry))
}

/// How a forward entry sends its packets on.
#[inline(always)]
fn way(entry: &Entry) -> Onward {
    entry.read(|value| Onward {
        backend: Endpoint { address: value.translated.destination, port: value.translated.destination_port },
        has_source_nat: value.flags & flags::SOURCE_NAT != 0,
    })
}
