//! Sockets of clients on the node itself: key and value of SOCKETS, and what is decided about them.
//!
//! Such a client is served before there is a packet, so it needs no flow. Two things are remembered about its socket:
//!
//! ```text
//!   reply    cookie, backend ──► VIP        what getpeername(2) and recvfrom(2) are to say
//!   forward  cookie, VIP     ──► backend    where the next datagram of a UDP socket goes
//! ```

use crate::{Address, Direction, Verdict, backend::state};

/// A peer of a socket. Key of SOCKETS.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketKey {
    /// The kernel's number of the socket, which no other one gets while the machine runs.
    pub cookie: u64,
    /// Address of the peer: the VIP for [`Direction::Forward`], the backend for [`Direction::Reply`].
    pub address: Address,
    /// Port of the peer, host byte order.
    pub port: u16,
    /// [`Direction`] as a number.
    pub direction: u8,
    /// Explicit padding, always zero.
    pub pad: u8,
    /// Explicit padding, always zero.
    pub pad_to_word: u32,
}

impl SocketKey {
    /// The key of what a socket says to a peer, or hears from it.
    #[inline(always)]
    pub const fn new(cookie: u64, address: Address, port: u16, direction: Direction) -> Self {
        Self { cookie, address, port, direction: direction as u8, pad: 0, pad_to_word: 0 }
    }
}

/// Whom the peer stands for. Value of SOCKETS.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketValue {
    /// The other address: the backend for [`Direction::Forward`], the VIP for [`Direction::Reply`].
    pub address: Address,
    /// Its port, host byte order.
    pub port: u16,
    /// Explicit padding, always zero.
    pub pad: u16,
    /// Identity of the backend, for [`crate::BackendState`].
    pub backend_id: u32,
    /// Identity of the service port when the backend was chosen.
    pub service_id: u32,
    /// Explicit padding, always zero.
    pub pad_to_word: u32,
}

/// Whether the next datagram of a socket goes to the same backend: while that is listed and serving, also while it is
/// terminating, as for a flow of datagrams. `backend` holds the flags of BACKEND_STATE, 0 without an entry; `service_id` is
/// the frontend's now.
#[inline(always)]
pub const fn keeps_backend(chosen_for: u32, service_id: u32, backend: u32) -> bool {
    chosen_for == service_id && backend & (state::ACTIVE | state::DRAINING) != 0
}

/// What a call is told that gets no backend, where a packet would end with `packet`.
///
/// A frontend that drops says so without the wait: no SYN leaves, so nothing could ever time out, and a SYN to the VIP must
/// not leave the node. The caller gets the error in which the wait would have ended.
#[inline(always)]
pub const fn without_backend(packet: Verdict) -> Verdict {
    match packet {
        Verdict::NoBackend => Verdict::SocketRefused,
        Verdict::NoLocalBackend => Verdict::SocketTimedOut,
        other => other,
    }
}

/// What stands for the address of a client in AFFINITY, where that is asked for by its socket.
///
/// The source address of a call is not known before a backend is, and may then differ from one to the next. So all sockets of
/// a network namespace are one client, by the kernel's number of the namespace, which no other one gets while the machine
/// runs. Each family is a client of its own, as it is with addresses. No packet has such an address: of `::/8` no more is in
/// use than `::`, `::1` and what embeds an IPv4 address (RFC 4291).
#[inline(always)]
pub const fn client(namespace: u64, is_v4: bool) -> Address {
    let family: u64 = if is_v4 { 4 } else { 6 };
    // SAFETY: both are 16 bytes, and every bit pattern is an address.
    unsafe { core::mem::transmute([(family << 48).to_be(), namespace.to_be()]) }
}

/// The error number for a call that fails with this reason. The numbers are those of `asm-generic/errno.h`, which every
/// architecture has on which the agent runs.
#[inline(always)]
pub const fn errno(verdict: Verdict) -> i32 {
    const EAGAIN: i32 = 11;
    const ETIMEDOUT: i32 = 110;
    const ECONNREFUSED: i32 = 111;
    match verdict {
        Verdict::SocketTimedOut => ETIMEDOUT,
        Verdict::BackendSetUnsettled => EAGAIN,
        _ => ECONNREFUSED,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_datagram_stays_with_a_backend_that_serves_the_same_service_port() {
        for (name, chosen_for, service_id, backend, want) in [
            ("listed and ready", 7, 7, state::ACTIVE | state::LOCAL, true),
            ("terminating and serving", 7, 7, state::DRAINING, true),
            ("gone", 7, 7, 0, false),
            ("known, but no longer serving", 7, 7, state::LOCAL, false),
            ("the frontend is another Service's now", 7, 8, state::ACTIVE, false),
        ] {
            assert_eq!(keeps_backend(chosen_for, service_id, backend), want, "{name}");
        }
    }

    #[test]
    fn a_call_that_fails_says_why_in_the_kernels_words() {
        for (packet, verdict, error) in [
            (Verdict::NoBackend, Verdict::SocketRefused, ErrorKind::ConnectionRefused),
            (Verdict::NoLocalBackend, Verdict::SocketTimedOut, ErrorKind::TimedOut),
            (Verdict::BackendSetUnsettled, Verdict::BackendSetUnsettled, ErrorKind::WouldBlock),
        ] {
            assert_eq!(without_backend(packet), verdict);
            assert_eq!(Error::from_raw_os_error(errno(verdict)).kind(), error);
        }
    }

    #[test]
    fn a_namespace_is_one_client_in_each_family_and_no_address() {
        let clients = [client(1, true), client(1, false), client(u64::MAX, true), client(u64::MAX, false)];
        assert_eq!(client(1, true), [0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        for (i, a) in clients.iter().enumerate() {
            assert!(!crate::addr::is_v4(*a));
            assert!(clients[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn the_two_directions_of_one_peer_have_keys_of_their_own() {
        let key = |direction| SocketKey::new(1, [0; 16], 80, direction);
        assert_ne!(key(Direction::Forward), key(Direction::Reply));
    }
}
