//! Replies on their way to the client, and when they are not the VIP's.

use lb_common::{
    Direction, FlowKey,
    flow::{self, flags, seen},
};

use super::Entry;
use crate::{nat::Endpoint, packet::Packet};

/// The entry of the flow that a packet is a reply of. `called_back`: it came to an address of this node, which no packet of
/// a direct conversation does. So with source NAT there is nothing to tell apart.
#[inline(always)]
pub(crate) fn reply(packet: &Packet, called_back: bool) -> Option<Entry> {
    let entry = Entry::find(&packet.key)?;
    let (entry_flags, entry_seen) = entry.read(|value| (value.flags, value.seen));
    if entry_flags & flags::SOURCE_NAT != 0 {
        return called_back.then_some(entry);
    }
    if entry_flags & flags::DIRECT == 0 {
        return Some(entry);
    }
    if flow::takes_up_direct(packet.key.proto, packet.tcp_flags) {
        entry.note(entry_seen | seen::RST, 0, false);
        return None;
    }
    (!flow::is_of_direct(packet.key.proto, packet.tcp_flags, entry_seen)).then_some(entry)
}

impl Entry {
    /// Notes that a packet is a reply of this entry's flow, and gives the VIP that its source becomes.
    #[inline(always)]
    pub(crate) fn pass_reply(&self, packet: &Packet, now: u64) -> Endpoint {
        let (seen, last_seen) = self.read(|value| (value.seen, value.last_seen));
        self.note(flow::step(seen, packet.tcp_flags), now, flow::renews(now, last_seen));
        self.read(|value| Endpoint { address: value.translated.source, port: value.translated.source_port })
    }
}

/// The end of a packet that an entry changes.
pub(crate) struct OtherEnd {
    /// What it becomes.
    pub(crate) end: Endpoint,
    /// Whether an address of this node stands for the client.
    pub(crate) has_source_nat: bool,
}

/// What an entry sets in its packets: the destination at ingress, the source at egress. `None`: there is no such entry, or the
/// client has since gone over to the backend itself.
#[inline(always)]
pub(crate) fn other_end(key: &FlowKey) -> Option<OtherEnd> {
    let entry = Entry::find(key)?;
    let (entry_flags, entry_seen) = entry.read(|value| (value.flags, value.seen));
    let is_reply = key.direction == Direction::Reply as u8;
    if is_reply && entry_flags & flags::DIRECT != 0 && flow::is_of_direct(key.proto, 0, entry_seen) {
        return None;
    }
    let is_egress = is_reply || key.direction == Direction::Outward as u8;
    let end = entry.read(|value| {
        let ends = &value.translated;
        match is_egress {
            true => Endpoint { address: ends.source, port: ends.source_port },
            false => Endpoint { address: ends.destination, port: ends.destination_port },
        }
    });
    Some(OtherEnd { end, has_source_nat: entry_flags & flags::SOURCE_NAT != 0 })
}

/// Leaves the replies of a flow to a packet's sender, when there is a flow whose replies would look like the packet's own.
#[inline(always)]
pub(crate) fn leave_replies_to(packet: &Packet) {
    let proto = packet.key.proto;
    let reply_key = FlowKey::new(packet.key.tuple.reversed(), proto, Direction::Reply);
    let Some(reply) = Entry::find(&reply_key) else { return };
    if reply.read(|value| value.flags & (flags::DIRECT | flags::SOURCE_NAT) != 0) || is_reply(packet) {
        return;
    }
    reply.set_direct(true);
    let forward_key = reply.read(|value| FlowKey::other(&value.translated, proto, Direction::Reply));
    if let Some(forward) = Entry::find(&forward_key).filter(|forward| forward.leads_to(&reply_key)) {
        forward.set_direct(true);
    }
}

/// Whether a packet at ingress is a reply, whose source the egress will restore: two pods that use each other's VIPs from
/// their own service ports.
#[inline(always)]
pub(crate) fn is_reply(packet: &Packet) -> bool {
    let own_key = FlowKey::new(packet.key.tuple, packet.key.proto, Direction::Reply);
    Entry::find(&own_key).is_some_and(|own| own.read(|value| value.flags & flags::DIRECT == 0))
}
