//! A pinned array of one element.

use std::path::Path;

use aya::{
    Pod,
    maps::{Array, Map, MapData},
};
use lb_common::{NodeValue, Settings, maps};

use super::{MapError, table::kernel};

/// What is the one element of a map.
pub trait Single: Pod {
    /// Name of the map.
    const MAP: &'static str;
}

impl Single for Settings {
    const MAP: &'static str = maps::SETTINGS;
}

impl Single for NodeValue {
    const MAP: &'static str = maps::NODE;
}

/// A map of one element.
pub struct Element<V: Pod>(Array<MapData, V>);

/// SETTINGS.
pub type SettingsMap = Element<Settings>;

/// NODE.
pub type NodeMap = Element<NodeValue>;

impl<V: Single> Element<V> {
    /// Opens the map that is pinned in `folder`.
    ///
    /// # Errors
    /// [`MapError::Kernel`] where it is not there, or is of another type or size.
    pub fn open(folder: &Path) -> Result<Self, MapError> {
        let opened = MapData::from_pin(folder.join(V::MAP))
            .and_then(Map::from_map_data)
            .and_then(Array::<MapData, V>::try_from);
        opened.map(Self).map_err(|error| kernel("open", V::MAP, error))
    }

    /// The element; all zero until it is written for the first time.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn get(&self) -> Result<V, MapError> {
        self.0.get(&0, 0).map_err(|error| kernel("read", V::MAP, error))
    }

    /// Replaces the element.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn put(&mut self, value: &V) -> Result<(), MapError> {
        self.0.set(0, value, 0).map_err(|error| kernel("update", V::MAP, error))
    }
}
