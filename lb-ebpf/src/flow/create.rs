//! New flows. Each needs a reply key of its own, or it would get another flow's replies.

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use lb_common::{
    BackendValue, Direction, FlowKey, FlowValue, Tuple, Verdict,
    flow::{self, flags},
};

use super::{EXISTS, Entry, Table, remove};
use crate::{
    maps::{FLOWS, FLOWS_NEW},
    packet::Packet,
};

/// Records a new flow from the packet's client to a backend, reply entry first. `has_source_nat`: the backend is not to see
/// the client. `replaces`: the packet has a flow, which ends with this. The error: another live flow has the reply key, or there is no room.
#[inline(always)]
pub(crate) fn create(
    packet: &Packet,
    backend: &BackendValue,
    service_id: u32,
    has_source_nat: bool,
    replaces: bool,
    now: u64,
) -> Result<(), Verdict> {
    let tuple = &packet.key.tuple;
    let reply = Tuple {
        source: backend.address,
        destination: tuple.source,
        source_port: backend.port,
        destination_port: tuple.source_port,
    };
    let reply_key = FlowKey::new(reply, packet.key.proto, Direction::Reply);
    let mut value = FlowValue {
        last_seen: now,
        translated: tuple.reversed(),
        backend_id: backend.backend_id,
        service_id,
        seen: 0,
        flags: if has_source_nat { flags::SOURCE_NAT } else { 0 },
        pad: 0,
    };
    claim(&packet.key, &reply_key, &value, now)?;
    if replaces {
        remove_reply_but(&packet.key, &reply_key);
    }
    value.translated = reply_key.tuple.reversed();
    value.seen = flow::step(0, packet.tcp_flags);
    if FLOWS_NEW.insert(&packet.key, &value, BPF_ANY.into()).is_err() {
        let _ = FLOWS_NEW.remove(&reply_key);
        return Err(Verdict::FlowTableFull);
    }
    if replaces {
        let _ = FLOWS.remove(&packet.key);
    }
    Ok(())
}

/// Inserts a reply entry, unless another live flow has its key.
#[inline(always)]
fn claim(forward_key: &FlowKey, reply_key: &FlowKey, value: &FlowValue, now: u64) -> Result<(), Verdict> {
    let inserted = match FLOWS_NEW.insert(reply_key, value, BPF_NOEXIST.into()) {
        Ok(()) => true,
        Err(EXISTS) => false,
        Err(_) => return Err(Verdict::FlowTableFull),
    };
    // FLOWS is looked in after the insertion: an entry on its way there is in both maps before it is in FLOWS only.
    let Some(other) = Entry::find(reply_key) else { return Ok(()) };
    if inserted && other.table == Table::New {
        return Ok(());
    }
    if !other.belongs_to(forward_key) && !has_ended(&other, reply_key, now) {
        if inserted {
            let _ = FLOWS_NEW.remove(reply_key);
        }
        return Err(Verdict::TupleInUse);
    }
    let _ = FLOWS.remove(reply_key);
    FLOWS_NEW.insert(reply_key, value, BPF_ANY.into()).map_err(|_| Verdict::FlowTableFull)
}

/// Whether the flow of a reply entry is over. If so, its forward entry is removed: no late packet of it may end up in
/// the flow that takes the key.
#[inline(always)]
pub(super) fn has_ended(reply: &Entry, reply_key: &FlowKey, now: u64) -> bool {
    let proto = reply_key.proto;
    let forward_key = reply.read(|value| FlowKey::other(&value.translated, proto, Direction::Reply));
    let Some(forward) = Entry::find(&forward_key).filter(|forward| forward.leads_to(reply_key)) else {
        return true;
    };
    let (reply_seen, reply_seen_at) = reply.read(|value| (value.seen, value.last_seen));
    let (seen, seen_at) = forward.read(|value| (value.seen, value.last_seen));
    let dead = flow::is_dead(proto, flow::phase(seen, reply_seen), flow::idle(now, seen_at, reply_seen_at));
    if dead {
        remove(&forward_key);
    }
    dead
}

/// Removes the reply entry of the flow with this forward key, unless that is the one to keep.
#[inline(always)]
fn remove_reply_but(forward_key: &FlowKey, keep: &FlowKey) {
    let Some(old) = Entry::find(forward_key).filter(|old| !old.leads_to(keep)) else { return };
    let reply_key = old.read(|value| FlowKey::other(&value.translated, keep.proto, Direction::Forward));
    if Entry::find(&reply_key).is_some_and(|reply| reply.belongs_to(forward_key)) {
        remove(&reply_key);
    }
}
