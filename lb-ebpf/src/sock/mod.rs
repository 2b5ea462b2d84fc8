//! Clients on the node itself: their calls are translated, so that no packet has to be.
//!
//! connect(2) and sendto(2) get a backend in place of the VIP before the kernel chooses a route and a source address, which
//! are then those for the backend. Where the call asks who the peer is, it is told the VIP.

mod call;
mod choose;
mod scope;

pub(crate) use call::Family;

use aya_ebpf::{bindings::BPF_ANY, programs::SockAddrContext};
use call::Call;
use lb_common::{
    Direction, ServiceKey, SocketKey, SocketValue, Verdict,
    service::{flags, proto, scope as service_scope},
    sock,
};

use crate::{
    count,
    lookup::{self, Service},
    maps::SOCKETS,
    nat::Endpoint,
};

/// The call goes on.
const PROCEED: i32 = 1;

/// The call fails.
const FAIL: i32 = 0;

/// From a client to a VIP: the peer becomes a backend.
#[inline(always)]
pub(crate) fn connect(ctx: &SockAddrContext, family: Family) -> i32 {
    let Some(call) = Call::to_translate(ctx, family) else { return PROCEED };
    let end = to_backend(&call, false);
    if matches!(end, Err(None)) {
        forget(&call);
    }
    finish(&call, end)
}

/// The socket may have been connected to this very backend by way of a VIP, and is not any more.
#[inline(always)]
fn forget(call: &Call) {
    let key = call.key(&call.peer, Direction::Reply);
    // A removal locks, so it is only tried where there is something.
    if SOCKETS.get_ptr(&key).is_some() {
        let _ = SOCKETS.remove(&key);
    }
}

/// The same for a datagram that names its destination, which stays with the backend that its socket has.
#[inline(always)]
pub(crate) fn sendmsg(ctx: &SockAddrContext, family: Family) -> i32 {
    let Some(call) = Call::to_translate(ctx, family) else { return PROCEED };
    finish(&call, to_backend(&call, true))
}

/// From a backend to a client: the peer becomes the VIP again.
#[inline(always)]
pub(crate) fn name_peer(ctx: &SockAddrContext, family: Family) -> i32 {
    if let Some(call) = Call::to_translate(ctx, family) {
        let key = call.key(&call.peer, Direction::Reply);
        // SAFETY: copied at once; an entry that the kernel evicts in between is at worst another socket's VIP.
        if let Some(vip) = unsafe { SOCKETS.get(&key) } {
            call.set_peer(&Endpoint { address: vip.address, port: vip.port });
        }
    }
    PROCEED
}

#[inline(always)]
fn finish(call: &Call, end: Result<Verdict, Option<Verdict>>) -> i32 {
    match end {
        Ok(verdict) => {
            count::count(verdict);
            PROCEED
        }
        Err(None) => PROCEED,
        Err(Some(verdict)) => {
            count::count(verdict);
            call.fail_with(sock::errno(verdict));
            FAIL
        }
    }
}

/// Sets the peer to a backend. The error: why the call fails, or `None` where it is not to a VIP.
#[inline(always)]
fn to_backend(call: &Call, keep: bool) -> Result<Verdict, Option<Verdict>> {
    let Some(service) = frontend(call) else { return unserved(call) };
    if keep && let Some(kept) = kept(call, service.id) {
        remember_vip(call, &kept);
        call.set_peer(&Endpoint { address: kept.address, port: kept.port });
        return Ok(Verdict::SocketContinued);
    }
    let chosen = choose::backend(call, service)?;
    remember_vip(call, &chosen);
    if call.proto == proto::UDP {
        remember_backend(call, &chosen);
    }
    call.set_peer(&Endpoint { address: chosen.address, port: chosen.port });
    Ok(Verdict::SocketBound)
}

/// The frontend that a call is to, as clients inside the cluster see it: the node is one. Source ranges are for clients outside
/// of it.
#[inline(always)]
fn frontend(call: &Call) -> Option<Service> {
    let mut key = ServiceKey {
        address: call.peer.address,
        port: call.peer.port,
        proto: call.proto,
        scope: service_scope::ANY,
    };
    let service = Service::at(key)?;
    if service.flags & flags::INSIDE_APART == 0 {
        return Some(service);
    }
    key.scope = service_scope::INSIDE;
    // Where the agent is about to write or remove it, the other one is still right for clients anywhere.
    Some(Service::at(key).unwrap_or(service))
}

/// A call to what is no frontend: nobody's, so it passes, unless it is to a port that a ClusterIP does not have.
#[inline(always)]
fn unserved(call: &Call) -> Result<Verdict, Option<Verdict>> {
    Err(lookup::cluster_ip(&call.peer.address).map(|_| Verdict::SocketRefused))
}

/// The backend that the socket has for this VIP, if it may stay with it.
#[inline(always)]
fn kept(call: &Call, service_id: u32) -> Option<SocketValue> {
    // SAFETY: copied at once. The kernel could evict the entry and give it to another socket in between, which a lookup
    // makes unlikely: it keeps the entry from being the next to go.
    let kept = unsafe { SOCKETS.get(&call.key(&call.peer, Direction::Forward)) }.copied()?;
    let state = lookup::backend_state(kept.backend_id);
    sock::keeps_backend(kept.service_id, service_id, state).then_some(kept)
}

/// Remembers the backend of datagrams to the peer.
#[inline(always)]
fn remember_backend(call: &Call, backend: &SocketValue) {
    write(&call.key(&call.peer, Direction::Forward), backend);
}

/// Remembers that the peer is what a backend stands for.
#[inline(always)]
fn remember_vip(call: &Call, backend: &SocketValue) {
    let peer = Endpoint { address: backend.address, port: backend.port };
    let vip = SocketValue { address: call.peer.address, port: call.peer.port, ..*backend };
    write(&call.key(&peer, Direction::Reply), &vip);
}

/// Writes an entry of the socket, unless it is there. Without one (there is always room: another is evicted) the call goes to
/// its backend all the same.
#[inline(always)]
fn write(key: &SocketKey, value: &SocketValue) {
    // SAFETY: only compared.
    if unsafe { SOCKETS.get(key) }.is_none_or(|there| !choose::is_same(there, value)) {
        let _ = SOCKETS.insert(key, value, BPF_ANY.into());
    }
}

impl Call<'_> {
    #[inline(always)]
    fn key(&self, peer: &Endpoint, direction: Direction) -> SocketKey {
        SocketKey::new(self.cookie, peer.address, peer.port, direction)
    }
}
