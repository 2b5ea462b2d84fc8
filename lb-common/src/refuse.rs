//! Refusal: what the sender of a packet is told when nobody takes it.
//!
//! TCP is told by RST, which a client believes at once. An ICMP error for a SYN counts only after the client's first
//! retransmission, about a second later, so ICMP is for the rest.

use crate::{
    Address,
    addr::{halves, is_v4, v4},
    flow::{SECOND, tcp},
};

/// Time to live (IPv4) and hop limit (IPv6) of every answer: the default that IANA recommends.
pub const TIME_TO_LIVE: u8 = 64;

/// The segment that refuses another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number; 0 where the flags have no ACK.
    pub acknowledgement: u32,
    /// Bits of [`tcp`].
    pub flags: u8,
}

/// What a closed port answers to a segment (RFC 9293, section 3.10.7.1). `payload_len` is in bytes. An RST has no answer.
#[inline(always)]
pub const fn reset(tcp_flags: u8, sequence: u32, acknowledgement: u32, payload_len: u32) -> Option<Reset> {
    if tcp_flags & tcp::RST != 0 {
        return None;
    }
    if tcp_flags & tcp::ACK != 0 {
        return Some(Reset { sequence: acknowledgement, acknowledgement: 0, flags: tcp::RST });
    }
    // SYN and FIN take a sequence number each, as a byte does (section 3.4).
    let syn = tcp_flags & tcp::SYN != 0;
    let fin = tcp_flags & tcp::FIN != 0;
    let after = sequence.wrapping_add(payload_len).wrapping_add(syn as u32).wrapping_add(fin as u32);
    Some(Reset { sequence: 0, acknowledgement: after, flags: tcp::RST | tcp::ACK })
}

/// Whether an address can be that of one host, so that an answer to it reaches nobody else (RFC 1122, section 3.2.2; RFC
/// 4443, section 2.4): not unspecified, loopback, multicast or broadcast. A subnet's broadcast address looks like any other
/// from here; the packet's Ethernet destination tells more.
#[inline(always)]
pub const fn is_one_host(address: Address) -> bool {
    if is_v4(address) {
        let [first, ..] = v4(address);
        return first != 0 && first != 127 && first < 224;
    }
    let (upper, lower) = halves(address);
    upper >> 56 != 0xff && !(upper == 0 && lower <= 1)
}

/// ICMP (RFC 792) and ICMPv6 (RFC 4443), as far as they matter here.
pub mod icmp {
    /// IP protocol number of ICMP.
    pub const V4: u8 = 1;
    /// IP protocol number of ICMPv6.
    pub const V6: u8 = 58;
    /// ICMP: the type of a request that asks for its like.
    pub const ECHO_REQUEST_V4: u8 = 8;
    /// ICMP: the answer to that.
    pub const ECHO_REPLY_V4: u8 = 0;
    /// ICMPv6: the type of a request that asks for its like.
    pub const ECHO_REQUEST_V6: u8 = 128;
    /// ICMPv6: the answer to that.
    pub const ECHO_REPLY_V6: u8 = 129;
    /// ICMP, type and code: nobody listens on that port.
    pub const PORT_UNREACHABLE_V4: [u8; 2] = [3, 3];
    /// ICMPv6, type and code: nobody listens on that port.
    pub const PORT_UNREACHABLE_V6: [u8; 2] = [1, 4];
    /// ICMP, type and code: nobody has that address.
    pub const HOST_UNREACHABLE_V4: [u8; 2] = [3, 1];
    /// ICMPv6, type and code: nobody has that address.
    pub const HOST_UNREACHABLE_V6: [u8; 2] = [1, 3];
}

/// ICMP errors that a CPU sends a second at most: Linux's own `icmp_msgs_per_sec`.
pub const ERRORS_PER_SECOND: u64 = 1000;

/// How many of them at once, after a while without any: Linux's own `icmp_msgs_burst`.
pub const ERRORS_AT_ONCE: u64 = 50;

/// Takes one ICMP error from what a CPU may send. `due` is when the last one would be due if they went out evenly, in
/// nanoseconds of `CLOCK_MONOTONIC`; so is the answer, for the next time. `None`: this one is too many.
#[inline(always)]
pub const fn spend(due: u64, now: u64) -> Option<u64> {
    const INTERVAL: u64 = SECOND / ERRORS_PER_SECOND;
    let from = if due > now { due } else { now };
    if from - now > (ERRORS_AT_ONCE - 1) * INTERVAL { None } else { Some(from + INTERVAL) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::addr::from_ip;

    #[test]
    fn every_segment_gets_the_reset_that_rfc_9293_gives_it() {
        const SYN: u8 = tcp::SYN;
        const FIN: u8 = tcp::FIN;
        const ACK: u8 = tcp::ACK;
        let with_ack = |acknowledgement| Reset { sequence: 0, acknowledgement, flags: tcp::RST | ACK };
        let with_sequence = |sequence| Reset { sequence, acknowledgement: 0, flags: tcp::RST };
        let rows: &[(&str, u8, u32, u32, u32, Option<Reset>)] = &[
            ("SYN", SYN, 1000, 0, 0, Some(with_ack(1001))),
            ("SYN with data", SYN, 1000, 0, 100, Some(with_ack(1101))),
            ("SYN and FIN", SYN | FIN, 1000, 0, 0, Some(with_ack(1002))),
            ("the last sequence number", SYN, u32::MAX, 0, 0, Some(with_ack(0))),
            ("no flag at all", 0, 1000, 0, 7, Some(with_ack(1007))),
            ("data", ACK, 1000, 5001, 100, Some(with_sequence(5001))),
            ("SYN-ACK", SYN | ACK, 1000, 5001, 0, Some(with_sequence(5001))),
            ("FIN", FIN | ACK, 1000, 5001, 0, Some(with_sequence(5001))),
            ("RST", tcp::RST, 1000, 0, 0, None),
            ("RST with ACK", tcp::RST | ACK, 1000, 5001, 0, None),
        ];
        for &(name, flags, sequence, acknowledgement, len, want) in rows {
            assert_eq!(reset(flags, sequence, acknowledgement, len), want, "{name}");
        }
    }

    #[test]
    fn an_answer_goes_to_one_host_only() {
        for (address, want) in [
            ("10.244.1.5", true),
            ("223.255.255.254", true),
            ("0.0.0.0", false),
            ("127.0.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2001:db8:1::5", true),
            ("fe80::5", true),
            ("::1:0", true),
            ("::", false),
            ("::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_one_host(from_ip(address.parse().unwrap())), want, "{address}");
        }
    }

    #[test]
    fn a_burst_is_followed_by_one_error_an_interval() {
        const NOW: u64 = 7 * SECOND;
        let mut due = 0;
        for _ in 0..ERRORS_AT_ONCE {
            due = spend(due, NOW).unwrap();
        }
        assert_eq!(spend(due, NOW), None);
        assert_eq!(spend(due, NOW + SECOND / ERRORS_PER_SECOND - 1), None);
        assert!(spend(due, NOW + SECOND / ERRORS_PER_SECOND).is_some());
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_has_more_errors_than_burst_and_rate(
            steps in proptest::collection::vec(0u64..3_000_000, 1..400),
        ) {
            let (mut due, mut now, mut sent) = (0, SECOND, std::vec::Vec::new());
            for step in steps {
                now += step;
                if let Some(next) = spend(due, now) {
                    due = next;
                    sent.push(now);
                }
            }
            for (i, first) in sent.iter().enumerate() {
                for (n, last) in (1u64..).zip(&sent[i..]) {
                    let allowed = ERRORS_AT_ONCE + (last - first) * ERRORS_PER_SECOND / SECOND;
                    prop_assert!(n <= allowed, "{n} errors in {} ns", last - first);
                }
            }
        }
    }
}
