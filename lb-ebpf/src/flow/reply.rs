//! Replies on their way to the client, and when they are not the VIP's.

use lb_common::{
    Direction, FlowKey,
    flow::{self, flags, seen},
};

use super::Entry;
use crate::{nat::Endpoint, packet::Packet};

/// The entry of the flow that a packet is a reply of.
#[inline(always)]
pub(crate) fn reply(packet: &Packet) -> Option<Entry> {
    let entry = Entry::find(&packet.key)?;
    let (entry_flags, entry_seen) = entry.read(|value| (value.flags, value.seen));
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

/// Leaves the replies of a flow to a packet's sender, when there is a flow whose replies would look like the packet's own.
#[inline(always)]
pub(crate) fn leave_replies_to(packet: &Packet) {
    let proto = packet.key.proto;
    let reply_key = FlowKey::new(packet.key.tuple.reversed(), proto, Direction::Reply);
    let Some(reply) = Entry::find(&reply_key) else { return };
    if reply.read(|value| value.flags & flags::DIRECT != 0) || is_reply(packet) {
        return;
    }
    reply.set_flags(flags::DIRECT);
    let forward_key = reply.read(|value| FlowKey::other(&value.translated, proto, Direction::Reply));
    if let Some(forward) = Entry::find(&forward_key).filter(|forward| forward.leads_to(&reply_key)) {
        forward.set_flags(flags::DIRECT);
    }
}

/// Whether a packet at ingress is a reply, whose source the egress will restore: two pods that use each other's VIPs from
/// their own service ports.
#[inline(always)]
fn is_reply(packet: &Packet) -> bool {
    let own_key = FlowKey::new(packet.key.tuple, packet.key.proto, Direction::Reply);
    Entry::find(&own_key).is_some_and(|own| own.read(|value| value.flags & flags::DIRECT == 0))
}
