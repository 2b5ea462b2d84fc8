//! The operations on maps, which a plan is made of.

use lb_common::{BackendState, BackendValue, ServiceKey, ServiceValue, Settings, SlotKey, maps};

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
    /// Replaces the settings.
    PutSettings(Settings),
}

impl Op {
    /// Name of the map that is written.
    pub const fn map(&self) -> &'static str {
        match self {
            Self::PutService(..) | Self::DeleteService(_) => maps::SERVICES,
            Self::PutBackend(..) | Self::DeleteBackend(_) => maps::BACKENDS,
            Self::PutState(..) | Self::DeleteState(_) => maps::BACKEND_STATE,
            Self::PutSettings(_) => maps::SETTINGS,
        }
    }
}
