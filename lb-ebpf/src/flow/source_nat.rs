//! Flows whose client the backend must not see, or its replies would not come back through this node: at egress the packet
//! gets an address and port of this node as its source, and a reply to that gets the client as its destination at
//! ingress. Two entries, beside the two that every flow has, say which port.
//!
//! The outward entry is what decides: whoever inserts it first has chosen, and everybody goes by it. The return entry is
//! there before it, so no packet leaves whose reply would be lost. Both are read only; just the outward one has its time
//! renewed.

use aya_ebpf::{bindings::BPF_NOEXIST, helpers::bpf_get_prandom_u32, programs::TcContext};
use lb_common::{
    Direction, FlowKey, FlowValue, Tuple, Verdict,
    addr::{from_halves, halves},
    flow::{self, flags},
    source_nat,
};

use super::{EXISTS, Entry, Table, create::has_ended, remove};
use crate::{count::End, maps::FLOWS_NEW, nat::Endpoint, node, packet::Packet, settings};

/// The client that a packet is for which came to an address of this node.
#[inline(always)]
pub(crate) fn called_back(packet: &Packet) -> Option<Endpoint> {
    let entry = Entry::find(&FlowKey::new(packet.key.tuple, packet.key.proto, Direction::Return))?;
    Some(entry.read(|value| Endpoint {
        address: value.translated.destination,
        port: value.translated.destination_port,
    }))
}

/// The address and port of this node that stand for a packet's client, chosen if they have not been. The error: it is of no
/// flow after all, as when a tunnel has wrapped up a packet that is; or none can stand for it.
#[inline(always)]
pub(crate) fn stand_in(ctx: &TcContext, packet: &Packet, now: u64) -> Result<Endpoint, End> {
    if let Some(entry) = Entry::find(&packet.key) {
        let source = entry.source();
        let (seen, last_seen) = entry.read(|value| (value.seen, value.last_seen));
        entry.note(seen, now, flow::renews(now, last_seen));
        if entry.table == Table::Settled || keep_return(now) == KEPT {
            return Ok(source);
        }
    }
    let reply_key = FlowKey::new(packet.key.tuple.reversed(), packet.key.proto, Direction::Reply);
    let reply = Entry::find(&reply_key).filter(Entry::has_source_nat).ok_or(None)?;
    let ids = reply.read(|value| u64::from(value.backend_id) << 32 | u64::from(value.service_id));
    let address = node::address_at(ctx, &packet.key.tuple.source).ok_or(Some(Verdict::NoSourceAddress))?;
    let (high, low) = halves(address);
    let port = take_any_port(high, low, ids)?;
    agree_on(high, low, port, ids);
    // It may be what another CPU has chosen.
    Ok(Entry::find(&packet.key).map(|entry| entry.source()).ok_or(Verdict::FlowTableFull)?)
}

/// A value of either entry. What is seen of the flow is on the other two. `ids`: of the backend and its service port.
#[inline(always)]
fn entry(translated: Tuple, ids: u64, now: u64) -> FlowValue {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    let (backend_id, service_id) = ((ids >> 32) as u32, ids as u32);
    FlowValue {
        last_seen: now,
        translated,
        backend_id,
        service_id,
        seen: 0,
        flags: flags::SOURCE_NAT,
        pad: 0,
    }
}

/// A port at which nobody else waits for replies of the packet's backend, at the address with these [`halves`].
#[inline(always)]
fn take_any_port(high: u64, low: u64, ids: u64) -> Result<u16, Verdict> {
    // SAFETY: the helper has no precondition.
    let random = unsafe { bpf_get_prandom_u32() };
    for attempt in 0..source_nat::TRIES {
        let port = source_nat::port(random, attempt);
        let mut taken = take_port(high, low, port, ids);
        if taken == IN_USE && source_nat::takes_ended(attempt) && release_port(high, low, port) == RELEASED {
            taken = take_port(high, low, port, ids);
        }
        match taken {
            TAKEN => return Ok(port),
            IN_USE => {}
            _ => return Err(Verdict::FlowTableFull),
        }
    }
    Err(Verdict::SnatExhausted)
}

// Functions of their own, with external linkage and numbers only, so that the verifier follows them once (Linux 5.6), and
// has room for them one after the other on the stack. They work on the packet that was parsed last.

/// The key of that packet.
#[inline(always)]
fn outward_key() -> Option<&'static FlowKey> {
    Packet::last().ok().map(|packet| &packet.key)
}

/// The key of replies to this address and port of the node.
#[inline(always)]
fn return_key(outward_key: &FlowKey, high: u64, low: u64, port: u16) -> FlowKey {
    let backend = outward_key.tuple.reversed();
    let tuple = Tuple { destination: from_halves(high, low), destination_port: port, ..backend };
    FlowKey::new(tuple, outward_key.proto, Direction::Return)
}

const TAKEN: i32 = 0;
const IN_USE: i32 = 1;
const NO_ROOM: i32 = 2;

/// Inserts a return entry, unless there is one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_port(high: u64, low: u64, port: u16, ids: u64) -> i32 {
    let Some(packet) = outward_key() else { return NO_ROOM };
    let return_key = return_key(packet, high, low, port);
    let value = entry(packet.tuple.reversed(), ids, settings::now());
    match FLOWS_NEW.insert(&return_key, &value, BPF_NOEXIST.into()) {
        Ok(()) => {}
        Err(EXISTS) => return IN_USE,
        Err(_) => return NO_ROOM,
    }
    // FLOWS is looked in after the insertion, as for reply entries.
    if Entry::find(&return_key).is_some_and(|found| found.table == Table::New) {
        return TAKEN;
    }
    let _ = FLOWS_NEW.remove(&return_key);
    IN_USE
}

const RELEASED: i32 = 1;

/// Removes a return entry whose flow is over, and before it what would have packets leave with that source.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn release_port(high: u64, low: u64, port: u16) -> i32 {
    let Some(packet) = outward_key() else { return 0 };
    let return_key = return_key(packet, high, low, port);
    let Some(entry) = Entry::find(&return_key) else { return RELEASED };
    let reply_key = entry.read(|value| FlowKey::new(value.translated, packet.proto, Direction::Reply));
    let reply = Entry::find(&reply_key).filter(Entry::has_source_nat);
    if reply.is_some_and(|reply| !has_ended(&reply, &reply_key, settings::now())) {
        return 0;
    }
    let outward_key = FlowKey::other(&reply_key.tuple, packet.proto, Direction::Return);
    if Entry::find(&outward_key).is_some_and(|outward| outward.leads_to(&return_key)) {
        remove(&outward_key);
    }
    remove(&return_key);
    RELEASED
}

/// Inserts the outward entry that goes with a return entry, unless another CPU has inserted one: then the return entry is
/// removed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn agree_on(high: u64, low: u64, port: u16, ids: u64) -> i32 {
    let Some(packet) = outward_key() else { return 0 };
    let return_key = return_key(packet, high, low, port);
    let value = entry(return_key.tuple.reversed(), ids, settings::now());
    let _ = FLOWS_NEW.insert(packet, &value, BPF_NOEXIST.into());
    if !Entry::find(packet).is_some_and(|found| found.leads_to(&return_key)) {
        let _ = FLOWS_NEW.remove(&return_key);
    }
    0
}

const KEPT: i32 = 0;
const LOST: i32 = 1;

/// Sees to the return entry of an outward entry that is in FLOWS_NEW: puts it back when the kernel has evicted it, and moves
/// both to FLOWS once their flow is there. [`LOST`]: another flow has the port, so the outward entry is removed.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn keep_return(now: u64) -> i32 {
    let Some(packet) = outward_key() else { return LOST };
    let Some(outward) = Entry::find(packet) else { return LOST };
    let return_key =
        outward.read(|value| FlowKey::other(&value.translated, packet.proto, Direction::Outward));
    let Some(found) = Entry::find(&return_key) else {
        let ids = outward.read(|value| u64::from(value.backend_id) << 32 | u64::from(value.service_id));
        let value = entry(packet.tuple.reversed(), ids, now);
        if FLOWS_NEW.insert(&return_key, &value, BPF_NOEXIST.into()).is_ok() {
            return KEPT;
        }
        remove(packet);
        return LOST;
    };
    if !found.leads_to(packet) {
        remove(packet);
        return LOST;
    }
    let reply_key = FlowKey::new(packet.tuple.reversed(), packet.proto, Direction::Reply);
    // The return entry first, so that no outward one is ever without it.
    if Entry::find(&reply_key).is_some_and(|reply| reply.table == Table::Settled) && found.settle(&return_key)
    {
        outward.settle(packet);
    }
    KEPT
}

impl Entry {
    /// Whether its flow is one with source NAT.
    #[inline(always)]
    pub(super) fn has_source_nat(&self) -> bool {
        self.read(|value| value.flags & flags::SOURCE_NAT != 0)
    }

    /// The source that it gives a packet.
    #[inline(always)]
    fn source(&self) -> Endpoint {
        self.read(|value| Endpoint { address: value.translated.source, port: value.translated.source_port })
    }
}
