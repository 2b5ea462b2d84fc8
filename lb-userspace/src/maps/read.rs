//! What the maps hold, read from their pins: works whether an agent runs or not.

use std::{collections::BTreeMap, path::Path};

use aya::maps::{Map, MapData, PerCpuArray};
use lb_common::{
    AffinityKey, AffinityValue, BackendState, BackendValue, FlowKey, FlowValue, ServiceKey, ServiceValue,
    SlotKey, SocketKey, SocketValue, Verdict, maps,
};

use super::{MapError, SettingsMap, SourceRangesMap, Table, table::kernel};

/// The pinned maps of a datapath, for reading.
pub struct PinnedMaps {
    /// SERVICES.
    pub services: Table<ServiceKey, ServiceValue>,
    /// BACKENDS.
    pub backends: Table<SlotKey, BackendValue>,
    /// BACKEND_STATE.
    pub states: Table<u32, BackendState>,
    /// FLOWS_NEW.
    pub flows_new: Table<FlowKey, FlowValue>,
    /// FLOWS.
    pub flows: Table<FlowKey, FlowValue>,
    /// AFFINITY.
    pub affinity: Table<AffinityKey, AffinityValue>,
    /// SOCKETS.
    pub sockets: Table<SocketKey, SocketValue>,
    /// SOURCE_RANGES.
    pub ranges: SourceRangesMap,
    /// SETTINGS.
    pub settings: SettingsMap,
    counters: PerCpuArray<MapData, u64>,
}

impl PinnedMaps {
    /// Opens the maps that are pinned in `folder` ([`crate::datapath::schema_folder`]).
    ///
    /// # Errors
    /// [`MapError::Kernel`] where one is not there, or is not of this schema.
    pub fn open(folder: &Path) -> Result<Self, MapError> {
        let counters = MapData::from_pin(folder.join(maps::COUNTERS))
            .and_then(Map::from_map_data)
            .and_then(PerCpuArray::<MapData, u64>::try_from)
            .map_err(|error| kernel("open", maps::COUNTERS, error))?;
        Ok(Self {
            services: Table::open(folder, maps::SERVICES)?,
            backends: Table::open(folder, maps::BACKENDS)?,
            states: Table::open(folder, maps::BACKEND_STATE)?,
            flows_new: Table::open(folder, maps::FLOWS_NEW)?,
            flows: Table::open(folder, maps::FLOWS)?,
            affinity: Table::open(folder, maps::AFFINITY)?,
            sockets: Table::open(folder, maps::SOCKETS)?,
            ranges: SourceRangesMap::open(folder)?,
            settings: SettingsMap::open(folder)?,
            counters,
        })
    }

    /// Packets by what became of them, summed over the CPUs; every packet verdict of the table is there, also with zero.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn counters(&self) -> Result<BTreeMap<Verdict, u64>, MapError> {
        let counted = Verdict::ALL.iter().filter(|verdict| (**verdict as usize) < maps::COUNTERS_SIZE);
        counted.map(|&verdict| Ok((verdict, self.counter(verdict)?))).collect()
    }

    fn counter(&self, verdict: Verdict) -> Result<u64, MapError> {
        let per_cpu = self.counters.get(&(verdict as u32), 0);
        Ok(per_cpu.map_err(|error| kernel("read", maps::COUNTERS, error))?.iter().sum())
    }
}
