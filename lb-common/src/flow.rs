//! Flows: keys and values of FLOWS_NEW and FLOWS, and every decision about them.
//!
//! A flow has two entries, one a direction, and each direction's packets write what they have shown to their own
//! entry only, so no lock and no atomic operation is needed:
//!
//! ```text
//!   forward  key: client → VIP        value.translated: client → backend
//!   reply    key: backend → client    value.translated: VIP → client
//! ```
//!
//! Where an address of this node stands for the client ([`flags::SOURCE_NAT`]), there are two more, for the other end of
//! the same packets:
//!
//! ```text
//!   outward  key: client → backend    value.translated: node → backend      (forward packets, where they leave)
//!   return   key: backend → node      value.translated: backend → client    (replies, where they come in)
//! ```
//!
//! What a direction has shown ([`seen`]) is kept in its entry; the state of the connection ([`Phase`]) is computed
//! from both when somebody asks.

use crate::{Address, addr, backend::state, service::proto};

/// The two ends of a packet. Ports in host byte order.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Source address.
    pub source: Address,
    /// Destination address.
    pub destination: Address,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl Tuple {
    /// The tuple of a packet in the other direction.
    #[inline(always)]
    pub const fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// Whether a packet with these ends is one in the other direction.
    #[inline(always)]
    pub const fn is_reverse_of(&self, other: &Self) -> bool {
        let ports = (self.source_port ^ other.destination_port) | (self.destination_port ^ other.source_port);
        let addresses = addr::difference(self.source, other.destination)
            | addr::difference(self.destination, other.source);
        ports as u64 | addresses == 0
    }
}

/// Which way a packet goes in its flow. A number in keys, see [`FlowKey::direction`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the VIP.
    Forward = 0,
    /// From the backend to the client.
    Reply = 1,
    /// From the backend to the address of this node that stands for the client.
    Return = 2,
    /// From the client to the backend, before such an address stands for it.
    Outward = 3,
}

impl Direction {
    /// The other one.
    #[inline(always)]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reply,
            Self::Reply => Self::Forward,
            Self::Return => Self::Outward,
            Self::Outward => Self::Return,
        }
    }
}

/// Key of FLOWS_NEW and FLOWS: a packet as it arrives at the hook that translates it.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The packet's ends before translation.
    pub tuple: Tuple,
    /// IP protocol number.
    pub proto: u8,
    /// A [`Direction`] as a number. The same tuple can be a forward and a reply key: a backend that uses a VIP.
    pub direction: u8,
    /// Explicit padding, always zero.
    pub pad: u16,
}

impl FlowKey {
    /// The key of a packet.
    #[inline(always)]
    pub const fn new(tuple: Tuple, proto: u8, direction: Direction) -> Self {
        Self { tuple, proto, direction: direction as u8, pad: 0 }
    }

    /// The key of the flow's other entry, when this one is of `direction` and its packets become `translated`.
    #[inline(always)]
    pub const fn other(translated: &Tuple, proto: u8, direction: Direction) -> Self {
        Self::new(translated.reversed(), proto, direction.opposite())
    }
}

/// Value of FLOWS_NEW and FLOWS.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowValue {
    /// When the last packet of this direction was seen: nanoseconds of `CLOCK_MONOTONIC`, renewed at most every
    /// [`TOUCH_INTERVAL`]. Of a return entry: when it was made.
    pub last_seen: u64,
    /// The packet's ends after translation.
    pub translated: Tuple,
    /// The backend that the flow is bound to.
    pub backend_id: u32,
    /// The service port that it belongs to.
    pub service_id: u32,
    /// Bits of [`seen`]: what packets of this direction have shown. None of outward and return entries.
    pub seen: u8,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Explicit padding, always zero.
    pub pad: u16,
}

/// Bits of [`FlowValue::flags`].
pub mod flags {
    /// The client has since begun to talk to the backend directly, from the port that it used for the VIP. Replies
    /// then belong to that conversation and pass untouched, until a packet to the VIP [reclaims](super::reclaims)
    /// them.
    ///
    /// It is on both entries, so that a packet to the VIP sees it in its own. It is set on the reply entry first and
    /// cleared there last: however the two interleave, a set bit on the reply entry has one on the forward entry.
    pub const DIRECT: u8 = 1 << 0;

    /// An address and port of this node stands for the client, so that the backend's replies come here. Never together
    /// with [`DIRECT`]: the replies to the client itself are of direct conversations.
    pub const SOURCE_NAT: u8 = 1 << 1;
}

/// Bits of [`FlowValue::seen`].
pub mod seen {
    /// Any packet.
    pub const ANY: u8 = 1 << 0;
    /// TCP: a segment with FIN.
    pub const FIN: u8 = 1 << 1;
    /// TCP: a segment with RST and no other since; or, on a reply entry, the backend has
    /// [taken up a direct connection](super::takes_up_direct) in place of this one.
    pub const RST: u8 = 1 << 2;
    /// Forward entry only: a packet after the backend's first reply, which for TCP carries an ACK.
    pub const ANSWERED: u8 = 1 << 3;
}

/// Flags of the TCP header (RFC 9293, section 3.1) that matter here.
pub mod tcp {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// The acknowledgement field counts.
    pub const ACK: u8 = 0x10;
}

/// Seconds in the unit of [`FlowValue::last_seen`].
pub const SECOND: u64 = 1_000_000_000;

/// How often a flow's `last_seen` is renewed at most: a write on every packet would bounce its cache line.
pub const TOUCH_INTERVAL: u64 = SECOND;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client has not yet answered the backend's reply.
    New,
    /// Both have spoken, and neither has said that it is done.
    Established,
    /// One side has sent FIN.
    Closing,
    /// Both have, or one has sent RST.
    Closed,
}

/// Whether a protocol has connections. A packet of SCTP has the `tcp_flags` of a segment that says the same
/// ([`crate::sctp::as_tcp_flags`]).
#[inline(always)]
pub const fn has_connections(proto_number: u8) -> bool {
    matches!(proto_number, proto::TCP | proto::SCTP)
}

/// What a packet adds to what its direction has shown. `tcp_flags` is 0 for protocols without connections.
#[inline(always)]
pub const fn step(before: u8, tcp_flags: u8) -> u8 {
    if tcp_flags & tcp::RST != 0 {
        return before | seen::ANY | seen::RST;
    }
    if tcp_flags & tcp::SYN != 0 {
        // A new incarnation, or the retransmitted first segment of this one.
        return seen::ANY;
    }
    // A segment after an RST shows that the RST was not believed (RFC 9293, section 3.5.3: outside the window).
    let alive = (before & !seen::RST) | seen::ANY;
    if tcp_flags & tcp::FIN != 0 { alive | seen::FIN } else { alive }
}

/// Whether a forward packet answers the backend: with it the flow becomes [`Phase::Established`].
#[inline(always)]
pub const fn answers(proto_number: u8, tcp_flags: u8, reply_seen: u8) -> bool {
    if reply_seen & seen::ANY == 0 {
        return false;
    }
    !has_connections(proto_number) || (tcp_flags & tcp::ACK != 0 && tcp_flags & (tcp::SYN | tcp::RST) == 0)
}

/// The state of a connection whose directions have shown this.
#[inline(always)]
pub const fn phase(forward_seen: u8, reply_seen: u8) -> Phase {
    let either = forward_seen | reply_seen;
    if either & seen::RST != 0 || forward_seen & reply_seen & seen::FIN != 0 {
        Phase::Closed
    } else if either & seen::FIN != 0 {
        Phase::Closing
    } else if forward_seen & seen::ANSWERED != 0 {
        Phase::Established
    } else {
        Phase::New
    }
}

/// How long a flow may be silent before it counts as dead, in nanoseconds.
///
/// TCP: the values that kube-proxy sets for conntrack where it sets one (24 h established, 1 h half-closed), netfilter's
/// own for the rest (120 s in SYN-SENT; TIME-WAIT 120 s). UDP: netfilter's 30 s, and 120 s once it has been answered.
/// SCTP: netfilter's 210 s established, seven heartbeats of 30 s (RFC 9260, section 16). Its 3 s for an association that
/// begins or ends are shorter than the pauses between retransmissions, up to 60 s: those of TCP instead.
#[inline(always)]
pub const fn idle_limit(proto_number: u8, phase: Phase) -> u64 {
    if proto_number == proto::SCTP {
        match phase {
            Phase::Established => 210 * SECOND,
            Phase::New | Phase::Closing | Phase::Closed => 120 * SECOND,
        }
    } else if proto_number == proto::TCP {
        match phase {
            Phase::New => 120 * SECOND,
            Phase::Established => 24 * 3600 * SECOND,
            Phase::Closing => 3600 * SECOND,
            Phase::Closed => 120 * SECOND,
        }
    } else {
        match phase {
            Phase::New => 30 * SECOND,
            Phase::Established | Phase::Closing | Phase::Closed => 120 * SECOND,
        }
    }
}

/// Whether nothing can be lost by ending the flow: it is closed, or has been silent for too long.
#[inline(always)]
pub const fn is_dead(proto_number: u8, phase: Phase, idle: u64) -> bool {
    matches!(phase, Phase::Closed) || idle > idle_limit(proto_number, phase)
}

/// How long a flow has been silent at `now`, when its directions were last seen at these times. The clocks of two CPUs
/// may differ a little, so `now` can be the smaller one.
#[inline(always)]
pub const fn idle(now: u64, forward_seen_at: u64, reply_seen_at: u64) -> u64 {
    let last = if forward_seen_at > reply_seen_at { forward_seen_at } else { reply_seen_at };
    now.saturating_sub(last)
}

/// Whether an entry's `last_seen` is to be renewed.
#[inline(always)]
pub const fn renews(now: u64, last_seen: u64) -> bool {
    now.saturating_sub(last_seen) >= TOUCH_INTERVAL
}

/// Whether a packet opens a connection.
#[inline(always)]
pub const fn opens(proto_number: u8, tcp_flags: u8) -> bool {
    has_connections(proto_number) && tcp_flags & (tcp::SYN | tcp::ACK | tcp::RST) == tcp::SYN
}

/// Whether a packet can be the first of a conversation: one that opens a connection, and any of a protocol that has none. Only such
/// a packet asks for the state of its flow's backend, is bound to a backend when it has no flow, or
/// [takes](flags::DIRECT) the replies of a flow to itself.
#[inline(always)]
pub const fn begins(proto_number: u8, tcp_flags: u8) -> bool {
    !has_connections(proto_number) || opens(proto_number, tcp_flags)
}

/// Whether a forward packet needs the reply entry, and not only its own: until the flow is established, when it may be
/// bound afresh, when replies go elsewhere, and as often as `last_seen` is renewed (a reply entry that the kernel has
/// evicted comes back then).
#[inline(always)]
pub const fn needs_reply_entry(
    proto_number: u8,
    tcp_flags: u8,
    forward_seen: u8,
    forward_flags: u8,
    renews: bool,
) -> bool {
    renews
        || forward_seen & seen::ANSWERED == 0
        || forward_flags & flags::DIRECT != 0
        || opens(proto_number, tcp_flags)
}

/// Whether a forward packet takes the replies back from a direct conversation. The last datagram sent decides.
/// For TCP the backend does, because it can hold only one of the two connections: while it has not taken up the
/// direct one, the flow is not [`Phase::Closed`], and a forged SYN has no lasting effect.
#[inline(always)]
pub const fn reclaims(proto_number: u8, tcp_flags: u8, phase: Phase) -> bool {
    begins(proto_number, tcp_flags) || !matches!(phase, Phase::Closed)
}

/// Whether a packet of a direct conversation shows that the backend has taken it up, and so holds no connection of the
/// flow with the same ends any more. A backend that still holds it answers a SYN with an ACK only (RFC 9293, section
/// 3.10.7.4).
#[inline(always)]
pub const fn takes_up_direct(proto_number: u8, tcp_flags: u8) -> bool {
    proto_number == proto::TCP && tcp_flags & (tcp::SYN | tcp::ACK) == tcp::SYN | tcp::ACK
}

/// Whether a reply belongs to the direct conversation, when its entry is marked [`flags::DIRECT`] and it does not
/// [take that up](takes_up_direct) itself. `reply_seen` is what the entry has shown.
///
/// A datagram does, and a packet of SCTP: to an INIT it is answered with an INIT ACK whether there is an association or not,
/// so that nothing shows when the backend has taken the direct one up, and as with datagrams the last packet sent decides. A
/// TCP segment does not before the backend has taken the direct connection up: until then the backend
/// holds the one to the VIP, and its client would answer a segment from the backend's own address with an RST, which the
/// backend believes. So a forged SYN would end the connection. An RST after the backend's FIN refuses the direct one.
#[inline(always)]
pub const fn is_of_direct(proto_number: u8, tcp_flags: u8, reply_seen: u8) -> bool {
    proto_number != proto::TCP
        || reply_seen & seen::RST != 0
        || (tcp_flags & tcp::RST != 0 && reply_seen & seen::FIN != 0)
}

/// Whether a forward packet stays with the backend of its flow; otherwise one is chosen afresh.
///
/// * Mid-flow TCP and SCTP stay until the connection ends, also when the backend is draining or has gone.
/// * A SYN or INIT stays (it is a retransmission) unless the flow is dead or the backend takes no new connections.
/// * Other protocols stay with a backend that is listed and serving, also while it is terminating.
///
/// `backend` holds the flags of BACKEND_STATE, 0 without an entry or when the frontend now belongs to another Service;
/// it is not looked at where [`begins`] is false. `idle` is in nanoseconds.
#[inline(always)]
pub const fn keeps_backend(proto_number: u8, tcp_flags: u8, phase: Phase, idle: u64, backend: u32) -> bool {
    if !begins(proto_number, tcp_flags) {
        return true;
    }
    if is_dead(proto_number, phase, idle) {
        return false;
    }
    let good = if has_connections(proto_number) { state::ACTIVE } else { state::ACTIVE | state::DRAINING };
    backend & good != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sctp::{as_tcp_flags, chunk};

    const SYN: u8 = tcp::SYN;
    const ACK: u8 = tcp::ACK;
    const SYN_ACK: u8 = tcp::SYN | tcp::ACK;
    const FIN_ACK: u8 = tcp::FIN | tcp::ACK;
    const RST: u8 = tcp::RST;

    /// Runs segments through both entries as the programs do, and tells the phase after each.
    fn phases(segments: &[(Direction, u8)]) -> std::vec::Vec<Phase> {
        let (mut forward, mut reply) = (0u8, 0u8);
        segments
            .iter()
            .map(|&(direction, flags)| {
                if direction == Direction::Forward {
                    forward = step(forward, flags);
                    if answers(proto::TCP, flags, reply) {
                        forward |= seen::ANSWERED;
                    }
                } else {
                    reply = step(reply, flags);
                }
                phase(forward, reply)
            })
            .collect()
    }

    #[test]
    fn a_connection_lives_through_its_phases() {
        use Direction::{Forward, Reply};
        use Phase::{Closed, Closing, Established, New};
        type Row = (&'static str, &'static [(Direction, u8)], &'static [Phase]);
        let rows: &[Row] = &[
            (
                "handshake, data, both close",
                &[
                    (Forward, SYN),
                    (Reply, SYN_ACK),
                    (Forward, ACK),
                    (Forward, FIN_ACK),
                    (Reply, ACK),
                    (Reply, FIN_ACK),
                ],
                &[New, New, Established, Closing, Closing, Closed],
            ),
            ("the backend refuses", &[(Forward, SYN), (Reply, RST | ACK)], &[New, Closed]),
            (
                "a flood of ACKs that no reply preceded establishes nothing",
                &[(Forward, SYN), (Forward, ACK), (Forward, ACK)],
                &[New, New, New],
            ),
            (
                "an RST that was not believed: data goes on",
                &[(Forward, SYN), (Reply, SYN_ACK), (Forward, ACK), (Forward, RST), (Forward, ACK)],
                &[New, New, Established, Closed, Established],
            ),
        ];
        for (name, segments, want) in rows {
            assert_eq!(&phases(segments), want, "{name}");
        }
    }

    #[test]
    fn an_association_lives_through_its_phases() {
        use Direction::{Forward, Reply};
        use Phase::{Closed, Closing, Established, New};
        const COOKIE_ECHO: u8 = 10;
        const COOKIE_ACK: u8 = 11;
        const DATA: u8 = 0;
        let rows: &[(Direction, u8, Phase)] = &[
            (Forward, chunk::INIT, New),
            (Reply, chunk::INIT_ACK, New),
            (Forward, COOKIE_ECHO, Established),
            (Reply, COOKIE_ACK, Established),
            (Forward, DATA, Established),
            (Reply, chunk::SHUTDOWN, Closing),
            (Forward, chunk::SHUTDOWN_ACK, Closed),
            (Reply, chunk::SHUTDOWN_COMPLETE, Closed),
            (Forward, chunk::INIT, Closed),
        ];
        let packets: std::vec::Vec<_> =
            rows.iter().map(|&(direction, chunk, _)| (direction, as_tcp_flags(Some(chunk)))).collect();
        let want: std::vec::Vec<_> = rows.iter().map(|&(.., phase)| phase).collect();
        assert_eq!(phases(&packets), want);
        assert_eq!(
            phases(&[(Forward, as_tcp_flags(None)), (Reply, as_tcp_flags(Some(chunk::ABORT)))]),
            [New, Closed]
        );
    }

    #[test]
    fn who_keeps_its_backend() {
        use Phase::{Closed, Closing, Established, New};
        const ACTIVE: u32 = state::ACTIVE;
        const DRAINING: u32 = state::DRAINING;
        const GONE: u32 = 0;
        type Row = (&'static str, u8, u8, Phase, u64, u32, bool);
        let rows: &[Row] = &[
            ("data, backend active", proto::TCP, ACK, Established, 0, ACTIVE, true),
            ("data, backend draining", proto::TCP, ACK, Established, 0, DRAINING, true),
            ("data, backend gone", proto::TCP, ACK, Established, 0, GONE, true),
            ("FIN of a closed connection, backend gone", proto::TCP, FIN_ACK, Closed, 0, GONE, true),
            ("SYN again, backend active", proto::TCP, SYN, New, 0, ACTIVE, true),
            ("SYN again, backend draining", proto::TCP, SYN, New, 0, DRAINING, false),
            ("SYN again, backend gone", proto::TCP, SYN, New, 0, GONE, false),
            (
                "SYN on a live flow: the backend will challenge it",
                proto::TCP,
                SYN,
                Established,
                0,
                ACTIVE,
                true,
            ),
            ("SYN on a closed flow", proto::TCP, SYN, Closed, 0, ACTIVE, false),
            ("SYN on a half-closed flow", proto::TCP, SYN, Closing, 0, ACTIVE, true),
            ("SYN on a flow silent for 121 s", proto::TCP, SYN, New, 121 * SECOND, ACTIVE, false),
            ("datagram, backend active", proto::UDP, 0, Established, 0, ACTIVE, true),
            ("datagram, backend draining", proto::UDP, 0, Established, 0, DRAINING, true),
            ("datagram, backend gone", proto::UDP, 0, Established, 0, GONE, false),
            ("datagram after 31 s without an answer", proto::UDP, 0, New, 31 * SECOND, ACTIVE, false),
            ("datagram after 119 s", proto::UDP, 0, Established, 119 * SECOND, ACTIVE, true),
            ("SCTP data, backend gone", proto::SCTP, ACK, Established, 0, GONE, true),
            ("SCTP data after 211 s, backend gone", proto::SCTP, ACK, Established, 211 * SECOND, GONE, true),
            ("INIT, backend active", proto::SCTP, SYN, New, 0, ACTIVE, true),
            ("INIT, backend draining", proto::SCTP, SYN, New, 0, DRAINING, false),
            ("INIT after 210 s", proto::SCTP, SYN, Established, 210 * SECOND, ACTIVE, true),
            ("INIT after 211 s", proto::SCTP, SYN, Established, 211 * SECOND, ACTIVE, false),
            ("INIT on a closed flow", proto::SCTP, SYN, Closed, 0, ACTIVE, false),
            ("a backend that is only local is in no set", proto::UDP, 0, New, 0, state::LOCAL, false),
        ];
        for &(name, number, flags, phase, idle, backend, want) in rows {
            assert_eq!(keeps_backend(number, flags, phase, idle, backend), want, "{name}");
        }
    }

    #[test]
    fn who_takes_the_replies_back_from_a_direct_conversation() {
        use Phase::{Closed, Established};
        let rows: &[(&str, u8, u8, Phase, bool)] = &[
            ("a datagram to the VIP", proto::UDP, 0, Established, true),
            ("a SYN to the VIP", proto::TCP, SYN, Closed, true),
            ("SCTP data of a live association", proto::SCTP, ACK, Established, true),
            ("data of a live connection", proto::TCP, ACK, Established, true),
            ("a late segment of a closed connection", proto::TCP, FIN_ACK, Closed, false),
        ];
        for &(name, number, flags, phase, want) in rows {
            assert_eq!(reclaims(number, flags, phase), want, "{name}");
        }
        assert!(takes_up_direct(proto::TCP, SYN_ACK));
        let rows: &[(&str, u8, u8, u8, bool)] = &[
            ("a datagram", proto::UDP, 0, seen::ANY, true),
            ("an INIT ACK", proto::SCTP, SYN_ACK, seen::ANY, true),
            ("a challenge ACK", proto::TCP, ACK, seen::ANY, false),
            ("data of the connection to the VIP", proto::TCP, ACK, seen::ANY | seen::FIN, false),
            ("data after the direct one was taken up", proto::TCP, ACK, seen::ANY | seen::RST, true),
            ("the direct one is refused", proto::TCP, RST | ACK, seen::ANY | seen::FIN, true),
        ];
        for &(name, number, tcp_flags, reply_seen, want) in rows {
            assert_eq!(is_of_direct(number, tcp_flags, reply_seen), want, "{name}");
        }
        assert!(!takes_up_direct(proto::TCP, ACK), "a challenge ACK");
        assert!(!takes_up_direct(proto::UDP, 0));
    }

    #[test]
    fn an_established_flow_is_translated_from_its_own_entry() {
        const SEEN: u8 = seen::ANY | seen::ANSWERED;
        let rows: &[(&str, u8, u8, u8, u8, bool, bool)] = &[
            ("data", proto::TCP, ACK, SEEN, 0, false, false),
            ("a datagram", proto::UDP, 0, SEEN, 0, false, false),
            ("data, not answered before", proto::TCP, ACK, seen::ANY, 0, false, true),
            ("data after a direct SYN", proto::TCP, ACK, SEEN, flags::DIRECT, false, true),
            ("data a second later", proto::TCP, ACK, SEEN, 0, true, true),
            ("a SYN", proto::TCP, SYN, SEEN, 0, false, true),
        ];
        for &(name, number, tcp_flags, seen, flags, renews, want) in rows {
            assert_eq!(needs_reply_entry(number, tcp_flags, seen, flags, renews), want, "{name}");
        }
    }

    #[test]
    fn silence_counts_from_the_later_direction_and_never_below_zero() {
        assert_eq!(idle(100, 10, 70), 30);
        assert_eq!(idle(100, 70, 10), 30);
        assert_eq!(idle(100, 101, 10), 0, "the clock of another CPU is ahead");
        assert!(renews(TOUCH_INTERVAL, 0) && !renews(TOUCH_INTERVAL, 1) && !renews(0, 1));
    }

    #[test]
    fn each_entry_leads_to_the_other() {
        let client_to_vip =
            Tuple { source: [1; 16], destination: [2; 16], source_port: 40_000, destination_port: 80 };
        let client_to_backend = Tuple { destination: [3; 16], destination_port: 8080, ..client_to_vip };
        let reply = FlowKey::other(&client_to_backend, proto::TCP, Direction::Forward);
        assert_eq!(reply, FlowKey::new(client_to_backend.reversed(), proto::TCP, Direction::Reply));
        let forward = FlowKey::other(&client_to_vip.reversed(), proto::TCP, Direction::Reply);
        assert_eq!(forward, FlowKey::new(client_to_vip, proto::TCP, Direction::Forward));

        let node_to_backend = Tuple { source: [4; 16], source_port: 61_000, ..client_to_backend };
        let back = FlowKey::other(&node_to_backend, proto::TCP, Direction::Outward);
        assert_eq!(back, FlowKey::new(node_to_backend.reversed(), proto::TCP, Direction::Return));
        let out = FlowKey::other(&client_to_backend.reversed(), proto::TCP, Direction::Return);
        assert_eq!(out, FlowKey::new(client_to_backend, proto::TCP, Direction::Outward));
    }

    #[test]
    fn a_reversed_tuple_reversed_is_the_tuple() {
        let tuple =
            Tuple { source: [1; 16], destination: [2; 16], source_port: 40_000, destination_port: 80 };
        assert_ne!(tuple.reversed(), tuple);
        assert!(tuple.reversed().is_reverse_of(&tuple));
        for other in [
            Tuple { source: [3; 16], ..tuple },
            Tuple { destination: [3; 16], ..tuple },
            Tuple { source_port: 1, ..tuple },
            Tuple { destination_port: 1, ..tuple },
        ] {
            assert!(!other.reversed().is_reverse_of(&tuple), "{other:?}");
        }
        assert_eq!(tuple.reversed().reversed(), tuple);
    }
}
