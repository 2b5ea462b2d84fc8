//! From a packet to its frontend, and from the frontend to one of its backends.
//!
//! The agent never changes a set in place. It writes a new block of BACKENDS, then overwrites the one word in SERVICES
//! that names the block, and removes the old block later. The kernel, though, may reuse a removed hash element while a
//! program reads it, so a word or a backend just read may be another key's. A choice therefore counts only if SERVICES,
//! looked up again after it, still gives the same word: blocks are never named twice, so the word was this frontend's
//! all along, and its block was complete.

use core::ptr;

use aya_ebpf::helpers::bpf_get_prandom_u32;
use lb_common::{
    Address, BackendSet, BackendValue, FlowKey, ServiceKey, SlotKey, Verdict, choice,
    service::{flags, scope},
};

use crate::{
    maps::{BACKEND_STATE, BACKENDS, SERVICES},
    settings,
};

/// A frontend, as one lookup has shown it.
pub(crate) struct Service {
    key: ServiceKey,
    set: BackendSet,
    /// Identity of the service port.
    pub(crate) id: u32,
    flags: u32,
}

impl Service {
    /// The frontend that a packet is for.
    #[inline(always)]
    pub(crate) fn of(packet: &FlowKey) -> Option<Self> {
        let key = ServiceKey {
            address: packet.tuple.destination,
            port: packet.tuple.destination_port,
            proto: packet.proto,
            scope: scope::ANY,
        };
        let (set, id, flags) = read(&key)?;
        Some(Self { key, set, id, flags })
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
        let chosen = SlotKey { block: self.set.block, slot, pad: 0 };
        // SAFETY: copied at once; whether the copy is of this key is what the second look at SERVICES tells.
        let backend = unsafe { BACKENDS.get(&chosen) }.copied();
        let (set, id, flags) = read(&self.key)?;
        if set == self.set {
            return backend;
        }
        (self.set, self.id, self.flags) = (set, id, flags);
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

/// Reads what SERVICES holds for a frontend: its set, as the one word that it is written as, its id and its flags.
#[inline(always)]
fn read(key: &ServiceKey) -> Option<(BackendSet, u32, u32)> {
    let value = SERVICES.get_ptr(key)?;
    // SAFETY: the kernel keeps the element's memory until the program ends, whatever key it is of by then. The word is
    // the first field and aligned (lb-common's layout assertions), and read volatile, so that the compiler neither
    // splits the read nor takes one for the other.
    unsafe {
        let set = BackendSet::from_word(ptr::read_volatile(value.cast()));
        Some((set, (*value).service_id, (*value).flags))
    }
}

/// The state bits of a backend, none when it has gone.
#[inline(always)]
pub(crate) fn backend_state(id: u32) -> u32 {
    // SAFETY: one aligned word, read at once.
    unsafe { BACKEND_STATE.get(id) }.map_or(0, |state| state.flags)
}
