//! Where the kernel begins: one narrow trait over the maps that the agent writes.

mod bpf;
mod element;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod op;
mod part;
mod read;
mod record;
mod table;
mod trie;

use std::collections::{BTreeSet, HashMap};

pub use bpf::BpfMaps;
pub use element::{Element, NodeMap, SettingsMap, Single};
use lb_common::{BackendState, BackendValue, ServiceKey, ServiceValue, Settings, SlotKey};
pub use op::{EntryKey, Op, SourceRange};
pub use part::{Part, Which};
pub use read::PinnedMaps;
pub use record::Record;
pub use table::{Entries, STEP, Step, Table};
pub use trie::SourceRangesMap;

use crate::sys::Cursor;

/// What the maps hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// SERVICES.
    pub services: HashMap<ServiceKey, ServiceValue>,
    /// BACKENDS.
    pub backends: HashMap<SlotKey, BackendValue>,
    /// BACKEND_STATE.
    pub states: HashMap<u32, BackendState>,
    /// SOURCE_RANGES.
    pub ranges: BTreeSet<SourceRange>,
    /// SETTINGS.
    pub settings: Settings,
}

/// The maps that the agent writes.
pub trait LbMaps: Send {
    /// Carries out one operation. Each is idempotent: done twice it is as if done once, and deleting what is not there
    /// is no error.
    ///
    /// # Errors
    /// [`MapError`], after which the map is as it was.
    fn apply(&mut self, op: &Op) -> Result<(), MapError>;

    /// Reads everything back.
    ///
    /// # Errors
    /// [`MapError`] where a map cannot be read.
    fn snapshot(&self) -> Result<Snapshot, MapError>;

    /// Reads a part of a map back: from `from` on, or from the beginning. An entry that is there from the first part to the
    /// last, whatever its value, is read once.
    ///
    /// # Errors
    /// [`MapError`] where the map cannot be read.
    fn read(&self, map: Which, from: Option<Cursor>) -> Result<Part, MapError>;
}

/// Why an operation on a map failed.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// No room for another entry (E2BIG from a hash map, ENOSPC from a trie).
    #[error(
        "map {map} is full: it has room for {max_entries} entries; a larger one takes `readylb cleanup` and a start with \
         --map-size {map}=N"
    )]
    Full {
        /// Name of the map.
        map: &'static str,
        /// Its size in entries.
        max_entries: u32,
    },
    /// Anything else that the kernel says.
    #[error("cannot {action} map {map}: {cause}")]
    Kernel {
        /// What was tried: `update`, `delete from`, `read`.
        action: &'static str,
        /// Name of the map.
        map: &'static str,
        /// What the kernel said.
        cause: std::io::Error,
    },
}
