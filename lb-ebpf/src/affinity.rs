//! Which backend a new flow tries first: the one that its client had, where the Service asks for affinity, else any.
//!
//! What AFFINITY says is compared with the set that one lookup of the frontend has shown. It counts as every choice does:
//! only if that set still is the frontend's afterwards (see `lookup.rs`).

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use lb_common::{Address, AffinityKey, AffinityValue, BackendSet, BackendValue, Verdict, affinity};

use crate::{
    lookup::{self, Service},
    maps::{AFFINITY, EXISTS},
};

/// How often a backend is chosen, while the set changes or another CPU chooses for the same client.
const TRIES: usize = 4;

/// A backend, and what it is to its client.
pub(crate) struct Choice {
    /// Its slot.
    pub(crate) slot: u16,
    /// The backend.
    pub(crate) backend: BackendValue,
    /// Whether the client's record is of this very choice, so that it follows when another backend takes the flow. A
    /// client that had a backend keeps it: that one port of its is in use there says nothing about the next.
    is_new: bool,
}

/// The record of a client.
enum Record {
    /// It stays as it is.
    Settled,
    /// There was none.
    Absent,
    /// It has to give way.
    Outdated,
}

impl Choice {
    /// Chooses, and records what is chosen as the client's where the Service asks for that. The client is known by its
    /// address, or by what stands for that of a socket ([`lb_common::sock::client`]).
    ///
    /// Connections that a client opens all at once come together: a packet that finds a record made meanwhile on another
    /// CPU goes by that. Where a record gives way, the last of them stays.
    #[inline(always)]
    pub(crate) fn make(client: &Address, service: &mut Service, now: u64) -> Result<Self, Verdict> {
        for _ in 0..TRIES {
            let (slot, record) = prefer(client, service, now)?;
            let Some(backend) = service.backend(slot) else { continue };
            let flags = match record {
                Record::Settled => return Ok(Self { slot, backend, is_new: false }),
                Record::Absent => BPF_NOEXIST,
                Record::Outdated => BPF_ANY,
            };
            if put(client, service, slot, &backend, now, flags) {
                return Ok(Self { slot, backend, is_new: true });
            }
        }
        Err(Verdict::BackendSetUnsettled)
    }

    /// Lets the record of this choice follow to the backend that took the flow instead.
    #[inline(always)]
    pub(crate) fn went_to(
        &self,
        client: &Address,
        service: &Service,
        slot: u16,
        backend: &BackendValue,
        now: u64,
    ) {
        if self.is_new && backend.backend_id != self.backend.backend_id {
            put(client, service, slot, backend, now, BPF_ANY);
        }
    }
}

/// The slot of the backend that the client goes back to, whose record is renewed; else any slot.
#[inline(always)]
fn prefer(client: &Address, service: &Service, now: u64) -> Result<(u16, Record), Verdict> {
    let slot = service.any_slot()?;
    if service.affinity_seconds == 0 {
        return Ok((slot, Record::Settled));
    }
    let Some(held) = AFFINITY.get_ptr_mut(&key(client, service)) else { return Ok((slot, Record::Absent)) };
    // SAFETY: the kernel keeps the element's memory until the program ends. It may by then be another client's: what is
    // read leads to a backend of the set or to none, and what is written makes that record younger and its hint wrong.
    unsafe {
        if !affinity::is_fresh(now, (*held).last_used, service.affinity_seconds) {
            return Ok((slot, Record::Outdated));
        }
        let found = find_slot(service.set().to_word(), (*held).backend_id, (*held).slot);
        let Ok(slot) = u16::try_from(found) else { return Ok((slot, Record::Outdated)) };
        ((*held).last_used, (*held).slot) = (now, slot);
        Ok((slot, Record::Settled))
    }
}

/// [`affinity::slot`] of a set given as its word, -1 for none.
///
/// A function of its own, with external linkage and numbers only, is verified once (Linux 5.6) and not on every way that
/// leads to it: the verifier would follow every step of the search for each of them.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_slot(set: u64, backend_id: u32, hint: u16) -> i32 {
    let set = BackendSet::from_word(set);
    affinity::slot(set, backend_id, hint, |slot| lookup::backend_id(set, slot)).map_or(-1, i32::from)
}

/// Records a backend as the client's. `false`: there is a record, and `flags` do not let it go. Where there is no room, the
/// client has no affinity.
#[inline(always)]
fn put(client: &Address, service: &Service, slot: u16, backend: &BackendValue, now: u64, flags: u32) -> bool {
    let value = AffinityValue { last_used: now, backend_id: backend.backend_id, slot, pad: 0 };
    AFFINITY.insert(&key(client, service), &value, flags.into()) != Err(EXISTS)
}

#[inline(always)]
fn key(client: &Address, service: &Service) -> AffinityKey {
    AffinityKey { client: *client, service_id: service.id }
}
