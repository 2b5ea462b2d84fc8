//! Which backend a call gets.

use lb_common::{Direction, SocketValue, Verdict, addr::difference, service::proto, sock};

use super::call::Call;
use crate::{affinity::Choice, lookup::Service, maps::SOCKETS, nat::Endpoint, settings};

/// How many more backends are tried for a datagram.
const TRIES: usize = 3;

/// Chooses a backend as for a packet. A datagram whose socket hears another VIP from that backend tries the ones after it,
/// because a reply does not tell which VIP it is of; where each that was tried is such a one, the VIP that was asked last
/// names them all.
#[inline(always)]
pub(super) fn backend(call: &Call, mut service: Service) -> Result<SocketValue, Verdict> {
    let now = settings::now();
    let client = call.client();
    let choice = Choice::make(&client, &mut service, now).map_err(sock::without_backend)?;
    // Both are something from here to the end: the verifier refuses to see an option copied whose words are undefined while it
    // is none.
    let (mut slot, mut backend) = (choice.slot, choice.backend);
    if call.proto == proto::UDP {
        for _ in 0..TRIES {
            if !speaks_for_another(call, &Endpoint { address: backend.address, port: backend.port }) {
                break;
            }
            let next = service.next_slot(slot);
            // Where the set has changed, the one at hand was of it a moment ago.
            let Some(other) = service.backend(next) else { break };
            (slot, backend) = (next, other);
        }
        choice.went_to(&client, &service, slot, &backend, now);
    }
    Ok(SocketValue {
        address: backend.address,
        port: backend.port,
        pad: 0,
        backend_id: backend.backend_id,
        service_id: service.id,
        pad_to_word: 0,
    })
}

/// Whether the socket hears another VIP from this backend, and still sends there for it.
#[inline(always)]
fn speaks_for_another(call: &Call, backend: &Endpoint) -> bool {
    // SAFETY: copied at once, and only for a choice between two that are right.
    let Some(vip) = unsafe { SOCKETS.get(&call.key(backend, Direction::Reply)) }.copied() else {
        return false;
    };
    let vip = Endpoint { address: vip.address, port: vip.port };
    if is_at(&vip, &call.peer) {
        return false;
    }
    // SAFETY: as above.
    unsafe { SOCKETS.get(&call.key(&vip, Direction::Forward)) }
        .is_some_and(|there| is_at(&Endpoint { address: there.address, port: there.port }, backend))
}

#[inline(always)]
fn is_at(a: &Endpoint, b: &Endpoint) -> bool {
    difference(a.address, b.address) | u64::from(a.port ^ b.port) == 0
}

/// Whether two entries say the same.
#[inline(always)]
pub(super) fn is_same(a: &SocketValue, b: &SocketValue) -> bool {
    let ids = (a.backend_id ^ b.backend_id) | (a.service_id ^ b.service_id);
    difference(a.address, b.address) | u64::from(a.port ^ b.port) | u64::from(ids) == 0
}
