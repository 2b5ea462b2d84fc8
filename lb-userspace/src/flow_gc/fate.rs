//! Whether a flow has ended: pure.

use lb_common::{
    FlowKey, FlowValue, flow,
    flow::{Direction, Phase, SECOND},
};

/// How long a closed connection stays while the table is crowded, in nanoseconds: past the usual retransmissions of its
/// last segment. Otherwise it stays as long as TIME-WAIT lasts ([`flow::idle_limit`]).
const CROWDED_LINGER: u64 = 10 * SECOND;

/// An entry that was used within this time ends no flow, whatever its other entry says, in nanoseconds.
pub(super) const SHORTEST_LIMIT: u64 = CROWDED_LINGER;

/// Why a flow was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides have said that they are done, or one has reset it.
    Closed,
    /// The client did not go on after the backend's answer, or there was none.
    Unanswered,
    /// Silent for too long.
    Idle,
}

/// The key of the entry in the other direction, for an entry with this key and value.
pub(super) fn partner_key(key: &FlowKey, value: &FlowValue) -> FlowKey {
    FlowKey::other(&value.translated, key.proto, direction(key))
}

/// The direction of an entry. Those that no program writes count as replies.
fn direction(key: &FlowKey) -> Direction {
    [Direction::Forward, Direction::Return, Direction::Outward]
        .into_iter()
        .find(|direction| *direction as u8 == key.direction)
        .unwrap_or(Direction::Reply)
}

/// Whether the entry is of packets to the VIP.
pub(super) fn is_forward(key: &FlowKey) -> bool {
    direction(key) == Direction::Forward
}

/// What an entry says of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is one of the two that every flow has.
    Own,
    /// It is an outward entry. The flow that it belongs to has its reply entry here.
    Outward(FlowKey),
    /// It is a return entry, which its outward one answers for.
    Return,
}

/// The role of an entry.
pub(super) fn role(key: &FlowKey) -> Role {
    match direction(key) {
        Direction::Forward | Direction::Reply => Role::Own,
        Direction::Outward => Role::Outward(FlowKey::new(key.tuple.reversed(), key.proto, Direction::Reply)),
        Direction::Return => Role::Return,
    }
}

/// The key of the outward entry of a flow, for either entry of its own, when it has one.
pub(super) fn outward_key(key: &FlowKey, value: &FlowValue) -> Option<FlowKey> {
    let tuple = if is_forward(key) { value.translated } else { key.tuple.reversed() };
    has_source_nat(value).then_some(FlowKey::new(tuple, key.proto, Direction::Outward))
}

/// Whether an entry is of a flow with source NAT.
pub(super) fn has_source_nat(value: &FlowValue) -> bool {
    value.flags & flow::flags::SOURCE_NAT != 0
}

/// Whether `partner`, found at [`partner_key`], is of the same flow: the client's port may since have been bound to
/// another backend, and then the forward entry no longer leads to this one.
pub(super) fn are_partners(key: &FlowKey, partner: &FlowValue) -> bool {
    partner.translated.is_reverse_of(&key.tuple)
}

/// Whether the flow with these entries has ended at `now` (nanoseconds of `CLOCK_MONOTONIC`), and how. One of them may be
/// missing.
///
/// A closed connection is kept for a while, unlike in [`flow::is_dead`], which speaks of a client that opens a new one:
/// the last acknowledgement still has to get through, and a repeated FIN.
pub(super) fn end(
    proto: u8,
    forward: Option<&FlowValue>,
    reply: Option<&FlowValue>,
    now: u64,
    crowded: bool,
) -> Option<End> {
    let seen = |entry: Option<&FlowValue>| entry.map_or(0, |entry| entry.seen);
    let seen_at = |entry: Option<&FlowValue>| entry.map_or(0, |entry| entry.last_seen);
    let phase = flow::phase(seen(forward), seen(reply));
    let idle = flow::idle(now, seen_at(forward), seen_at(reply));
    let limit = match phase {
        Phase::Closed if crowded => CROWDED_LINGER,
        phase => flow::idle_limit(proto, phase),
    };
    (idle > limit).then_some(match phase {
        Phase::New => End::Unanswered,
        Phase::Established | Phase::Closing => End::Idle,
        Phase::Closed => End::Closed,
    })
}

#[cfg(test)]
mod tests {
    use lb_common::{Tuple, addr::from_v4, flow::seen, service::proto};

    use super::*;

    const CLIENT: (lb_common::Address, u16) = (from_v4([10, 244, 1, 5]), 40_000);
    const VIP: (lb_common::Address, u16) = (from_v4([10, 96, 0, 50]), 80);
    const NODE: (lb_common::Address, u16) = (from_v4([192, 168, 50, 11]), 61_000);
    const BACKEND_1: (lb_common::Address, u16) = (from_v4([10, 244, 1, 21]), 8080);
    const BACKEND_2: (lb_common::Address, u16) = (from_v4([10, 244, 2, 22]), 8080);

    fn tuple(source: (lb_common::Address, u16), destination: (lb_common::Address, u16)) -> Tuple {
        Tuple {
            source: source.0,
            source_port: source.1,
            destination: destination.0,
            destination_port: destination.1,
        }
    }

    fn entry(translated: Tuple, seen: u8, last_seen: u64) -> FlowValue {
        FlowValue { last_seen, translated, backend_id: 1, service_id: 1, seen, flags: 0, pad: 0 }
    }

    #[test]
    fn a_flow_ends_when_it_has_been_silent_for_its_phase() {
        const ANY: u8 = seen::ANY;
        const ANSWERED: u8 = seen::ANY | seen::ANSWERED;
        const FIN: u8 = seen::ANY | seen::FIN;
        const DONE: u8 = ANSWERED | seen::FIN;
        const RST: u8 = seen::ANY | seen::RST;
        const DAY: u64 = 24 * 3600;
        type Row = (&'static str, u8, Option<u8>, Option<u8>, u64, bool, Option<End>);
        let rows: &[Row] = &[
            ("SYN, 120 s ago", proto::TCP, Some(ANY), Some(0), 120, false, None),
            ("SYN, 121 s ago", proto::TCP, Some(ANY), Some(0), 121, false, Some(End::Unanswered)),
            ("established for a day", proto::TCP, Some(ANSWERED), Some(ANY), DAY, false, None),
            (
                "established, a day of silence",
                proto::TCP,
                Some(ANSWERED),
                Some(ANY),
                DAY + 1,
                false,
                Some(End::Idle),
            ),
            ("half closed", proto::TCP, Some(DONE), Some(ANY), 3600, false, None),
            (
                "half closed, an hour of silence",
                proto::TCP,
                Some(DONE),
                Some(ANY),
                3601,
                false,
                Some(End::Idle),
            ),
            ("closed a moment ago", proto::TCP, Some(DONE), Some(FIN), 1, false, None),
            ("closed, TIME-WAIT over", proto::TCP, Some(DONE), Some(FIN), 121, false, Some(End::Closed)),
            ("closed, crowded, 10 s", proto::TCP, Some(DONE), Some(FIN), 10, true, None),
            ("closed, crowded, 11 s", proto::TCP, Some(DONE), Some(FIN), 11, true, Some(End::Closed)),
            ("established, crowded", proto::TCP, Some(ANSWERED), Some(ANY), 3600, true, None),
            ("reset by the backend", proto::TCP, Some(ANSWERED), Some(RST), 121, false, Some(End::Closed)),
            ("a datagram, no answer", proto::UDP, Some(ANY), Some(0), 31, false, Some(End::Unanswered)),
            ("a conversation of datagrams", proto::UDP, Some(ANSWERED), Some(ANY), 120, false, None),
            ("one that ended", proto::UDP, Some(ANSWERED), Some(ANY), 121, false, Some(End::Idle)),
            ("the reply entry was evicted", proto::TCP, Some(ANSWERED), None, 3600, false, None),
            ("the forward entry was evicted", proto::TCP, None, Some(ANY), 121, false, Some(End::Unanswered)),
        ];
        const BOOT: u64 = 5 * SECOND;
        for &(name, number, forward, reply, seconds, crowded, want) in rows {
            let forward = forward.map(|seen| entry(tuple(CLIENT, BACKEND_1), seen, BOOT));
            let reply = reply.map(|seen| entry(tuple(VIP, CLIENT), seen, BOOT));
            let now = BOOT + seconds * SECOND;
            assert_eq!(end(number, forward.as_ref(), reply.as_ref(), now, crowded), want, "{name}");
        }
    }

    #[test]
    fn the_later_of_both_directions_keeps_a_flow() {
        let now = 1000 * SECOND;
        let old = entry(tuple(CLIENT, BACKEND_1), seen::ANY, SECOND);
        let recent = entry(tuple(VIP, CLIENT), seen::ANY, now);
        assert_eq!(end(proto::UDP, Some(&old), Some(&recent), now, false), None);
        assert_eq!(end(proto::UDP, Some(&recent), Some(&old), now, false), None);
        assert!(end(proto::UDP, Some(&old), None, now, false).is_some());
    }

    #[test]
    fn the_entries_of_a_flow_find_each_other_and_no_others() {
        let forward_key = FlowKey::new(tuple(CLIENT, VIP), proto::TCP, Direction::Forward);
        let forward = entry(tuple(CLIENT, BACKEND_1), seen::ANY, 0);
        let reply_key = FlowKey::new(tuple(BACKEND_1, CLIENT), proto::TCP, Direction::Reply);
        let reply = entry(tuple(VIP, CLIENT), seen::ANY, 0);
        assert_eq!(partner_key(&forward_key, &forward), reply_key);
        assert_eq!(partner_key(&reply_key, &reply), forward_key);
        assert!(are_partners(&forward_key, &reply) && are_partners(&reply_key, &forward));

        let out_key = FlowKey::new(tuple(CLIENT, BACKEND_1), proto::TCP, Direction::Outward);
        let outward = entry(tuple(NODE, BACKEND_1), 0, 0);
        let return_key = FlowKey::new(tuple(BACKEND_1, NODE), proto::TCP, Direction::Return);
        let back = entry(tuple(BACKEND_1, CLIENT), 0, 0);
        assert_eq!(partner_key(&out_key, &outward), return_key);
        assert_eq!(partner_key(&return_key, &back), out_key);
        assert!(are_partners(&out_key, &back) && are_partners(&return_key, &outward));
        assert_eq!(role(&out_key), Role::Outward(reply_key));
        assert_eq!([&forward_key, &reply_key, &return_key].map(role), [Role::Own, Role::Own, Role::Return]);
        for (key, mut value) in [(&forward_key, forward), (&reply_key, reply)] {
            assert_eq!(outward_key(key, &value), None, "a flow without source NAT");
            value.flags = flow::flags::SOURCE_NAT;
            assert_eq!(outward_key(key, &value), Some(out_key));
        }

        let rebound = entry(tuple(CLIENT, BACKEND_2), seen::ANY, 0);
        assert!(!are_partners(&reply_key, &rebound), "the client's port is bound to another backend now");
    }
}
