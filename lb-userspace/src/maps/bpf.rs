//! The maps in the kernel.

use std::path::Path;

use lb_common::{BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey, maps};

use super::{LbMaps, MapError, Op, Part, STEP, SettingsMap, Snapshot, SourceRangesMap, Step, Table, Which};
use crate::sys::Cursor;

/// [`LbMaps`] over pinned maps.
pub struct BpfMaps {
    services: Table<ServiceKey, ServiceValue>,
    backends: Table<SlotKey, BackendValue>,
    states: Table<u32, BackendState>,
    ranges: SourceRangesMap,
    settings: SettingsMap,
}

impl BpfMaps {
    /// Opens the maps that are pinned in `folder` ([`crate::datapath::Datapath::folder`]).
    ///
    /// # Errors
    /// [`MapError::Kernel`] where one is not there, or is not of this schema.
    pub fn open(folder: &Path) -> Result<Self, MapError> {
        Ok(Self {
            services: Table::open(folder, maps::SERVICES)?,
            backends: Table::open(folder, maps::BACKENDS)?,
            states: Table::open(folder, maps::BACKEND_STATE)?,
            ranges: SourceRangesMap::open(folder)?,
            settings: SettingsMap::open(folder)?,
        })
    }
}

impl LbMaps for BpfMaps {
    fn apply(&mut self, op: &Op) -> Result<(), MapError> {
        match op {
            Op::PutService(key, value) => self.services.put(key, value),
            Op::DeleteService(key) => self.services.remove(key).map(drop),
            Op::PutBackend(key, value) => self.backends.put(key, value),
            Op::DeleteBackend(key) => self.backends.remove(key).map(drop),
            Op::PutState(id, state) => self.states.put(id, state),
            Op::DeleteState(id) => self.states.remove(id).map(drop),
            Op::PutRange(range) => self.ranges.put(range),
            Op::DeleteRange(range) => self.ranges.remove(range),
            Op::PutSettings(settings) => self.settings.put(settings),
        }
    }

    fn snapshot(&self) -> Result<Snapshot, MapError> {
        Ok(Snapshot {
            services: self.services.iter().collect::<Result<_, _>>()?,
            backends: self.backends.iter().collect::<Result<_, _>>()?,
            states: self.states.iter().collect::<Result<_, _>>()?,
            ranges: self.ranges.iter().collect::<Result<_, _>>()?,
            settings: self.settings.get()?,
        })
    }

    fn read(&self, map: Which, from: Option<Cursor>) -> Result<Part, MapError> {
        let ranges = || self.ranges.iter().map(|range| range.map(Op::PutRange)).collect::<Result<_, _>>();
        Ok(match map {
            Which::States => part(self.states.step(from, STEP)?, Op::PutState),
            Which::Backends => part(self.backends.step(from, STEP)?, Op::PutBackend),
            Which::Services => part(self.services.step(from, STEP)?, Op::PutService),
            Which::Ranges => Part { entries: ranges()?, next: None },
            Which::Settings => Part { entries: vec![Op::PutSettings(self.settings.get()?)], next: None },
        })
    }
}

fn part<K, V>(step: Step<K, V>, made_by: fn(K, V) -> Op) -> Part {
    Part {
        entries: step.entries.into_iter().map(|(key, value)| made_by(key, value)).collect(),
        next: step.next,
    }
}
