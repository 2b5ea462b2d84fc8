//! From a packet to its frontend, and from the frontend to one of its backends.
//!
//! The agent never changes a set in place. It writes a new block of BACKENDS, then overwrites the one word in SERVICES
//! that names the block, and removes the old block later. The kernel, though, may reuse a removed hash element while a
//! program reads it, so a word or a backend just read may be another key's. A choice therefore counts only if SERVICES,
//! looked up again after it, still gives the same word: blocks are never named twice, so the word was this frontend's
//! all along, and its block was complete.

use core::ptr;

use aya_ebpf::{btf_maps::lpm_trie::Key, helpers::bpf_get_prandom_u32};
use lb_common::{
    Address, BackendSet, BackendValue, FlowKey, ServiceKey, SlotKey, SourceKey, Verdict, choice,
    service::flags, source_nat, source_range::prefix_len,
};

use crate::{
    maps::{BACKEND_STATE, BACKENDS, SERVICES, SOURCE_RANGES},
    settings,
};

/// A frontend, as one lookup has shown it.
pub(crate) struct Service {
    key: ServiceKey,
    set: BackendSet,
    /// Identity of the service port.
    pub(crate) id: u32,
    /// Bits of [`lb_common::service::flags`].
    pub(crate) flags: u32,
    /// How long a client stays with its backend, in seconds since it was last used; 0 without affinity.
    pub(crate) affinity_seconds: u32,
}

impl Service {
    /// The frontend that a packet is for, as traffic of this [`scope`] has it.
    #[inline(always)]
    pub(crate) fn of(packet: &FlowKey, scope: u8) -> Option<Self> {
        Self::at(ServiceKey {
            address: packet.tuple.destination,
            port: packet.tuple.destination_port,
            proto: packet.proto,
            scope,
        })
    }

    /// The frontend with this key.
    #[inline(always)]
    pub(crate) fn at(key: ServiceKey) -> Option<Self> {
        let Read { set, id, flags, affinity_seconds } = read(&key)?;
        Some(Self { key, set, id, flags, affinity_seconds })
    }

    /// Its set.
    #[inline(always)]
    pub(crate) fn set(&self) -> BackendSet {
        self.set
    }

    /// Whether clients inside the cluster have it in a [`scope`] of their own.
    #[inline(always)]
    pub(crate) fn is_apart_inside(&self) -> bool {
        self.flags & flags::INSIDE_APART != 0
    }

    /// Whether it is one of a ClusterIP.
    #[inline(always)]
    pub(crate) fn is_cluster_ip(&self) -> bool {
        self.flags & flags::CLUSTER_IP != 0
    }

    /// Whether a client may begin a conversation with it.
    #[inline(always)]
    pub(crate) fn admits(&self, client: &Address) -> Result<(), Verdict> {
        if self.flags & flags::SOURCE_RANGES == 0 {
            return Ok(());
        }
        let key = Key::new(prefix_len(128), SourceKey { service_id: self.id, client: *client });
        SOURCE_RANGES.get(&key).map(|_| ()).ok_or(Verdict::SourceNotAllowed)
    }

    /// Whether the replies of its backends on other nodes have to be called back to this one.
    #[inline(always)]
    pub(crate) fn calls_back(&self, is_outside: bool) -> bool {
        source_nat::calls_back(self.flags, is_outside)
    }

    /// Whether the backend in a slot is on another node.
    #[inline(always)]
    pub(crate) fn is_elsewhere(&self, slot: u16) -> bool {
        slot >= self.set.local
    }

    /// What becomes of a new conversation where there is nobody to have it.
    #[inline(always)]
    pub(crate) fn is_served(&self) -> Result<(), Verdict> {
        if self.set.count != 0 {
            Ok(())
        } else if self.flags & flags::DROP_WHEN_EMPTY != 0 {
            Err(Verdict::NoLocalBackend)
        } else {
            Err(Verdict::NoBackend)
        }
    }

    /// A slot of its set, each as likely as the next.
    #[inline(always)]
    pub(crate) fn any_slot(&self) -> Result<u16, Verdict> {
        self.is_served()?;
        // SAFETY: the helper has no precondition.
        Ok(choice::slot(unsafe { bpf_get_prandom_u32() }, self.set.count))
    }

    /// The slot to try when this one will not do.
    #[inline(always)]
    pub(crate) fn next_slot(&self, slot: u16) -> u16 {
        choice::next_slot(slot, self.set.count)
    }

    /// The backend in a slot. `None`: the set has changed meanwhile, and `self` is now what SERVICES holds.
    #[inline(always)]
    pub(crate) fn backend(&mut self, slot: u16) -> Option<BackendValue> {
        // SAFETY: copied at once; whether the copy is of this key is what the second look at SERVICES tells.
        let backend = unsafe { BACKENDS.get(&slot_key(self.set, slot)) }.copied();
        let read = read(&self.key)?;
        if read.set == self.set {
            return backend;
        }
        (self.set, self.id) = (read.set, read.id);
        (self.flags, self.affinity_seconds) = (read.flags, read.affinity_seconds);
        None
    }
}

/// The flags of the ClusterIP that an address is. `None`: it is none.
#[inline(always)]
pub(crate) fn cluster_ip(address: &Address) -> Option<u32> {
    if !settings::may_be_cluster_ip(address) {
        return None;
    }
    // SAFETY: one aligned word, read at once.
    unsafe { SERVICES.get(&ServiceKey::whole(*address)) }.map(|value| value.flags)
}

#[inline(always)]
fn slot_key(set: BackendSet, slot: u16) -> SlotKey {
    SlotKey { block: set.block, slot, pad: 0 }
}

/// The id of the backend in a slot of a set. Counts only once [`Service::backend`] has shown a backend of that set.
#[inline(always)]
pub(crate) fn backend_id(set: BackendSet, slot: u16) -> Option<u32> {
    // SAFETY: one aligned word, read at once.
    unsafe { BACKENDS.get(&slot_key(set, slot)) }.map(|backend| backend.backend_id)
}

/// What SERVICES holds for a frontend.
struct Read {
    set: BackendSet,
    id: u32,
    flags: u32,
    affinity_seconds: u32,
}

/// Reads what SERVICES holds for a frontend, its set as the one word that it is written as.
#[inline(always)]
fn read(key: &ServiceKey) -> Option<Read> {
    let value = SERVICES.get_ptr(key)?;
    // SAFETY: the kernel keeps the element's memory until the program ends, whatever key it is of by then. The word is
    // the first field and aligned (lb-common's layout assertions), and read volatile, so that the compiler neither
    // splits the read nor takes one for the other.
    unsafe {
        let set = BackendSet::from_word(ptr::read_volatile(value.cast()));
        Some(Read {
            set,
            id: (*value).service_id,
            flags: (*value).flags,
            affinity_seconds: (*value).affinity_seconds,
        })
    }
}

/// The state bits of a backend, none when it has gone.
#[inline(always)]
pub(crate) fn backend_state(id: u32) -> u32 {
    // SAFETY: one aligned word, read at once.
    unsafe { BACKEND_STATE.get(id) }.map_or(0, |state| state.flags)
}
