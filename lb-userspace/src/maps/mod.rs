//! Where the kernel begins: one narrow trait over the maps that the agent writes.

mod bpf;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod op;
mod read;
mod record;
mod settings;
mod table;

use std::collections::HashMap;

pub use bpf::BpfMaps;

use lb_common::{BackendState, BackendValue, ServiceKey, ServiceValue, Settings, SlotKey};
pub use op::Op;
pub use read::PinnedMaps;
pub use record::Record;
pub use settings::SettingsMap;
pub use table::{Entries, Step, Table};

/// What the maps hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// SERVICES.
    pub services: HashMap<ServiceKey, ServiceValue>,
    /// BACKENDS.
    pub backends: HashMap<SlotKey, BackendValue>,
    /// BACKEND_STATE.
    pub states: HashMap<u32, BackendState>,
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
}

/// Why an operation on a map failed.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// No room for another entry (E2BIG from a hash map).
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
