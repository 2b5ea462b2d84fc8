//! The flow tables. What is decided about a flow is in lb-common's module of the same name.
//!
//! A flow begins in FLOWS_NEW and moves to FLOWS when its client has answered the backend; both are looked in, FLOWS
//! first.

mod create;
mod forward;
mod reply;
mod source_nat;

pub(crate) use create::create;
pub(crate) use forward::{Forward, Onward, forward, onward};
pub(crate) use reply::{is_reply, leave_replies_to, other_end, reply};
pub(crate) use source_nat::{called_back, stand_in};

use aya_ebpf::bindings::BPF_ANY;
use lb_common::{FlowKey, FlowValue, flow::flags};

use crate::maps::{EXISTS, FLOWS, FLOWS_NEW};

/// Which map holds an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    New,
    Settled,
}

/// An entry, and where it was found.
///
/// It is read and changed in place, a field at a time. The kernel reuses the element for another flow when it evicts the
/// entry or the agent removes it, so a write may in theory land in that flow's entry: it then shows a bit or a time that
/// is not its own, and ends earlier or later. But a lookup keeps an entry from being the next to be evicted, and the
/// agent removes dead flows only.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    value: *mut FlowValue,
    table: Table,
}

impl Entry {
    #[inline(always)]
    fn find(key: &FlowKey) -> Option<Self> {
        match FLOWS.get_ptr_mut(key) {
            Some(value) => Some(Self { value, table: Table::Settled }),
            None => FLOWS_NEW.get_ptr_mut(key).map(|value| Self { value, table: Table::New }),
        }
    }

    #[inline(always)]
    fn read<T>(&self, field: impl FnOnce(&FlowValue) -> T) -> T {
        // SAFETY: the kernel keeps the element's memory until the program ends, and the reference is gone before this
        // program writes to it.
        field(unsafe { &*self.value })
    }

    /// Notes what the direction has shown, and when if that is to be renewed. Nothing is written that was so before.
    #[inline(always)]
    fn note(&self, shown: u8, now: u64, renews: bool) {
        let changes = self.read(|value| value.seen != shown);
        // SAFETY: as in `read`; no reference is there.
        unsafe {
            if changes {
                (*self.value).seen = shown;
            }
            if renews {
                (*self.value).last_seen = now;
            }
        }
    }

    /// Notes whether replies go to a direct conversation.
    #[inline(always)]
    fn set_direct(&self, direct: bool) {
        let before = self.read(|value| value.flags);
        let after = if direct { before | flags::DIRECT } else { before & !flags::DIRECT };
        if after != before {
            // SAFETY: as in `read`; no reference is there.
            unsafe { (*self.value).flags = after };
        }
    }

    /// Whether this reply entry is the one of the flow with that forward key.
    #[inline(always)]
    fn belongs_to(&self, forward_key: &FlowKey) -> bool {
        self.read(|value| value.translated.is_reverse_of(&forward_key.tuple))
    }

    /// Whether this forward entry is the one of the flow with that reply key: the flow may have gone to another backend.
    #[inline(always)]
    fn leads_to(&self, reply_key: &FlowKey) -> bool {
        self.read(|value| value.translated.is_reverse_of(&reply_key.tuple))
    }

    /// Moves the entry to FLOWS, where it is not evicted. Tells whether it is there; when FLOWS is full, it stays where it
    /// is.
    #[inline(always)]
    fn settle(&self, key: &FlowKey) -> bool {
        if self.table == Table::New {
            if self.read(|value| FLOWS.insert(key, value, BPF_ANY.into())).is_err() {
                return false;
            }
            let _ = FLOWS_NEW.remove(key);
        }
        true
    }
}

/// Removes an entry, wherever it is.
#[inline(always)]
fn remove(key: &FlowKey) {
    let _ = FLOWS.remove(key);
    let _ = FLOWS_NEW.remove(key);
}
