//! SETTINGS, pinned.

use std::path::Path;

use aya::maps::{Array, Map, MapData};
use lb_common::{Settings, maps};

use super::{MapError, table::kernel};

/// SETTINGS: an array of one element.
pub struct SettingsMap(Array<MapData, Settings>);

impl SettingsMap {
    /// Opens the map that is pinned in `folder`.
    ///
    /// # Errors
    /// [`MapError::Kernel`] where it is not there, or is of another type or size.
    pub fn open(folder: &Path) -> Result<Self, MapError> {
        let opened = MapData::from_pin(folder.join(maps::SETTINGS))
            .and_then(Map::from_map_data)
            .and_then(Array::<MapData, Settings>::try_from);
        opened.map(Self).map_err(|error| kernel("open", maps::SETTINGS, error))
    }

    /// The settings; all zero until they are written for the first time.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn get(&self) -> Result<Settings, MapError> {
        self.0.get(&0, 0).map_err(|error| kernel("read", maps::SETTINGS, error))
    }

    /// Replaces the settings.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn put(&mut self, settings: &Settings) -> Result<(), MapError> {
        self.0.set(0, settings, 0).map_err(|error| kernel("update", maps::SETTINGS, error))
    }
}
