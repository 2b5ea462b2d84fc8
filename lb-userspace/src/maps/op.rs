//! The operations on maps, which a plan is made of.

use lb_common::{
    Address, BackendState, BackendValue, ServiceKey, ServiceValue, Settings, SlotKey, SourceKey, maps,
};

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Makes or replaces a frontend; with one write it goes over to another block.
    PutService(ServiceKey, ServiceValue),
    /// Removes a frontend.
    DeleteService(ServiceKey),
    /// Makes or replaces a slot of a block.
    PutBackend(SlotKey, BackendValue),
    /// Removes a slot.
    DeleteBackend(SlotKey),
    /// Makes or replaces the state of a backend.
    PutState(u32, BackendState),
    /// Removes the state of a backend: it is gone.
    DeleteState(u32),
    /// Lets the clients of a range in.
    PutRange(SourceRange),
    /// No longer does.
    DeleteRange(SourceRange),
    /// Replaces the settings.
    PutSettings(Settings),
}

impl Op {
    /// What it is about.
    pub const fn key(&self) -> EntryKey {
        match *self {
            Self::PutService(key, _) | Self::DeleteService(key) => EntryKey::Service(key),
            Self::PutBackend(key, _) | Self::DeleteBackend(key) => EntryKey::Backend(key),
            Self::PutState(id, _) | Self::DeleteState(id) => EntryKey::State(id),
            Self::PutRange(range) | Self::DeleteRange(range) => EntryKey::Range(range),
            Self::PutSettings(_) => EntryKey::Settings,
        }
    }

    /// Whether it removes an entry.
    pub const fn deletes(&self) -> bool {
        matches!(
            self,
            Self::DeleteService(_) | Self::DeleteBackend(_) | Self::DeleteState(_) | Self::DeleteRange(_)
        )
    }

    /// Name of the map that is written.
    pub const fn map(&self) -> &'static str {
        match self {
            Self::PutService(..) | Self::DeleteService(_) => maps::SERVICES,
            Self::PutBackend(..) | Self::DeleteBackend(_) => maps::BACKENDS,
            Self::PutState(..) | Self::DeleteState(_) => maps::BACKEND_STATE,
            Self::PutRange(_) | Self::DeleteRange(_) => maps::SOURCE_RANGES,
            Self::PutSettings(_) => maps::SETTINGS,
        }
    }
}

/// An entry of one of the maps, whatever its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKey {
    /// Of SERVICES.
    Service(ServiceKey),
    /// Of BACKENDS.
    Backend(SlotKey),
    /// Of BACKEND_STATE.
    State(u32),
    /// Of SOURCE_RANGES.
    Range(SourceRange),
    /// The one of SETTINGS.
    Settings,
}

impl EntryKey {
    /// What removes it; nothing removes the settings.
    pub const fn delete(&self) -> Option<Op> {
        Some(match *self {
            Self::Service(key) => Op::DeleteService(key),
            Self::Backend(key) => Op::DeleteBackend(key),
            Self::State(id) => Op::DeleteState(id),
            Self::Range(range) => Op::DeleteRange(range),
            Self::Settings => return None,
        })
    }
}

/// An entry of SOURCE_RANGES: clients that may connect to a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceRange {
    /// The service port.
    pub service_id: u32,
    /// The first address of the range.
    pub client: Address,
    /// How many leading bits of the address, as maps have it, its clients have in common: 0 to 128.
    pub bits: u32,
}

impl SourceRange {
    /// What the trie compares.
    pub const fn key(&self) -> SourceKey {
        SourceKey { service_id: self.service_id, client: self.client }
    }
}
