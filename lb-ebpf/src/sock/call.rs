//! A call that names a peer, as the kernel shows it to a program (`struct bpf_sock_addr`).

use aya_ebpf::{
    EbpfContext,
    bindings::bpf_sock_addr,
    helpers::generated::{bpf_get_socket_cookie, bpf_set_retval},
    programs::SockAddrContext,
};
use lb_common::{
    Address,
    addr::{from_v4, is_v4, v4},
    service::proto,
    sock,
};

use super::scope;
use crate::{nat::Endpoint, settings};

/// The family of a peer's address as the call gives it. An IPv4-mapped one is of IPv6 here, and in a map what it is there
/// anyway: IPv4.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// A call of a client that is served, and what its program changes of it.
pub(super) struct Call<'a> {
    ctx: &'a SockAddrContext,
    family: Family,
    /// [`proto::TCP`] or [`proto::UDP`].
    pub(super) proto: u8,
    /// The socket's.
    pub(super) cookie: u64,
    /// The peer, when the call was made.
    pub(super) peer: Endpoint,
}

impl<'a> Call<'a> {
    /// The call, if it is one of TCP or UDP from a client that is served by its socket.
    #[inline(always)]
    pub(super) fn to_translate(ctx: &'a SockAddrContext, family: Family) -> Option<Self> {
        // SAFETY: the context is the one that the program got. Volatile here and below: the verifier allows whole fields
        // only.
        let proto = match unsafe { (&raw const (*ctx.sock_addr).protocol).read_volatile() } {
            6 => proto::TCP,
            17 => proto::UDP,
            _ => return None,
        };
        if !scope::includes(ctx) {
            return None;
        }
        // SAFETY: as above.
        let cookie = unsafe { bpf_get_socket_cookie(ctx.as_ptr()) };
        Some(Self { ctx, family, proto, cookie, peer: peer(ctx.sock_addr, family) })
    }

    /// What stands for the client where a Service asks for affinity.
    #[inline(always)]
    pub(super) fn client(&self) -> Address {
        sock::client(scope::cookie(self.ctx), is_v4(self.peer.address))
    }

    /// Sets the peer, which is of the same family in the map's form.
    #[inline(always)]
    pub(super) fn set_peer(&self, to: &Endpoint) {
        let call = self.ctx.sock_addr;
        // SAFETY: as above.
        unsafe {
            match self.family {
                Family::V4 => {
                    (&raw mut (*call).user_ip4).write_volatile(u32::from_ne_bytes(v4(to.address)));
                }
                Family::V6 => {
                    let words: [u32; 4] = core::mem::transmute(to.address);
                    let field = (&raw mut (*call).user_ip6).cast::<u32>();
                    field.write_volatile(words[0]);
                    field.add(1).write_volatile(words[1]);
                    field.add(2).write_volatile(words[2]);
                    field.add(3).write_volatile(words[3]);
                }
            }
            (&raw mut (*call).user_port).write_volatile(to.port.to_be().into());
        }
    }

    /// Says what the call fails with, where the kernel lets a program say it; it is EPERM otherwise.
    #[inline(always)]
    pub(super) fn fail_with(&self, errno: i32) {
        if settings::can_set_retval() {
            // SAFETY: the helper has no precondition.
            unsafe { bpf_set_retval(-errno) };
        }
    }
}

#[inline(always)]
fn peer(call: *const bpf_sock_addr, family: Family) -> Endpoint {
    // SAFETY: as above.
    unsafe {
        let address: Address = match family {
            Family::V4 => from_v4((&raw const (*call).user_ip4).read_volatile().to_ne_bytes()),
            Family::V6 => {
                let field = (&raw const (*call).user_ip6).cast::<u32>();
                core::mem::transmute::<[u32; 4], Address>([
                    field.read_volatile(),
                    field.add(1).read_volatile(),
                    field.add(2).read_volatile(),
                    field.add(3).read_volatile(),
                ])
            }
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the port is in the lower half, in network order"
        )]
        let port = (&raw const (*call).user_port).read_volatile() as u16;
        Endpoint { address, port: u16::from_be(port) }
    }
}
