//! Flows: keys and values of FLOWS_NEW and FLOWS, and every decision about them.
//!
//! A flow has two entries, one a direction, and each direction's packets write only their own entry, so no lock
//! and no atomic operation is needed:
//!
//! ```text
//!   forward  key: client → VIP       value.translated: source → backend     (source is the client, unless NATed)
//!   reply    key: backend → source   value.translated: VIP → client
//! ```
//!
//! What a direction has shown ([`seen`]) is kept in its entry; the state of the connection ([`Phase`]) is computed
//! from both when somebody asks.

use crate::{Address, backend::state, service::proto};

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
}

/// Which way a packet goes in its flow. A number in keys, see [`FlowKey::direction`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the VIP.
    Forward = 0,
    /// From the backend to the client.
    Reply = 1,
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
}

/// Value of FLOWS_NEW and FLOWS.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowValue {
    /// When the last packet of this direction was seen: nanoseconds of `CLOCK_MONOTONIC`, renewed at most every
    /// [`TOUCH_INTERVAL`].
    pub last_seen: u64,
    /// The packet's ends after translation.
    pub translated: Tuple,
    /// The backend that the flow is bound to.
    pub backend_id: u32,
    /// The service port that it belongs to.
    pub service_id: u32,
    /// Bits of [`seen`]: what packets of this direction have shown.
    pub seen: u8,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Explicit padding, always zero.
    pub pad: u16,
}

/// Bits of [`FlowValue::flags`].
pub mod flags {
    /// On a reply entry: the client has since sent to the backend directly, from the same port. Replies then belong
    /// to that conversation and pass untouched, until the next packet to the VIP clears the bit.
    pub const DIRECT: u8 = 1 << 0;
}

/// Bits of [`FlowValue::seen`].
pub mod seen {
    /// Any packet.
    pub const ANY: u8 = 1 << 0;
    /// TCP: a segment with FIN.
    pub const FIN: u8 = 1 << 1;
    /// TCP: a segment with RST, and none but SYNs since.
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

/// What a packet adds to what its direction has shown. `tcp_flags` is 0 for other protocols.
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
    proto_number != proto::TCP || (tcp_flags & tcp::ACK != 0 && tcp_flags & (tcp::SYN | tcp::RST) == 0)
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
#[inline(always)]
pub const fn idle_limit(proto_number: u8, phase: Phase) -> u64 {
    if proto_number == proto::TCP {
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

/// Whether a segment opens a connection.
#[inline(always)]
pub const fn opens(proto_number: u8, tcp_flags: u8) -> bool {
    proto_number == proto::TCP && tcp_flags & (tcp::SYN | tcp::ACK | tcp::RST) == tcp::SYN
}

/// Whether the state of the flow's backend decides about this packet: for mid-flow TCP it does not.
#[inline(always)]
pub const fn asks_for_backend(proto_number: u8, tcp_flags: u8) -> bool {
    proto_number != proto::TCP || opens(proto_number, tcp_flags)
}

/// Whether a forward packet stays with the backend of its flow; otherwise one is chosen afresh.
///
/// * Mid-flow TCP stays until the connection ends, also when the backend is draining or has gone.
/// * A SYN stays (it is a retransmission) unless the flow is dead or the backend takes no new connections.
/// * Other protocols stay with a backend that is listed and serving, also while it is terminating.
///
/// `backend` holds the flags of BACKEND_STATE, `None` without an entry; it is not looked at where
/// [`asks_for_backend`] is false. `idle` is in nanoseconds.
#[inline(always)]
pub const fn keeps_backend(
    proto_number: u8,
    tcp_flags: u8,
    phase: Phase,
    idle: u64,
    backend: Option<u32>,
) -> bool {
    if !asks_for_backend(proto_number, tcp_flags) {
        return true;
    }
    if is_dead(proto_number, phase, idle) {
        return false;
    }
    match backend {
        None => false,
        Some(flags) if proto_number == proto::TCP => flags & state::ACTIVE != 0,
        Some(flags) => flags & (state::ACTIVE | state::DRAINING) != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                match direction {
                    Direction::Forward => {
                        forward = step(forward, flags);
                        if answers(proto::TCP, flags, reply) {
                            forward |= seen::ANSWERED;
                        }
                    }
                    Direction::Reply => reply = step(reply, flags),
                }
                phase(forward, reply)
            })
            .collect()
    }

    #[test]
    fn a_connection_lives_through_its_phases() {
        use Direction::{Forward, Reply};
        use Phase::{Closed, Closing, Established, New};
        let rows: &[(&str, &[(Direction, u8)], &[Phase])] = &[
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
    fn who_keeps_its_backend() {
        use Phase::{Closed, Closing, Established, New};
        const ACTIVE: Option<u32> = Some(state::ACTIVE);
        const DRAINING: Option<u32> = Some(state::DRAINING);
        const GONE: Option<u32> = None;
        let rows: &[(&str, u8, u8, Phase, u64, Option<u32>, bool)] = &[
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
            ("a backend that is only local is in no set", proto::UDP, 0, New, 0, Some(state::LOCAL), false),
        ];
        for &(name, number, flags, phase, idle, backend, want) in rows {
            assert_eq!(keeps_backend(number, flags, phase, idle, backend), want, "{name}");
        }
    }

    #[test]
    fn a_reversed_tuple_reversed_is_the_tuple() {
        let tuple =
            Tuple { source: [1; 16], destination: [2; 16], source_port: 40_000, destination_port: 80 };
        assert_ne!(tuple.reversed(), tuple);
        assert_eq!(tuple.reversed().reversed(), tuple);
    }
}
