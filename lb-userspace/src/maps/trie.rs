//! SOURCE_RANGES, pinned: a trie of prefixes.

use std::path::Path;

use aya::maps::{
    Map, MapData, MapInfo,
    lpm_trie::{Key, LpmTrie},
};
use lb_common::{SourceKey, maps, source_range::prefix_len};

use super::{
    MapError, SourceRange,
    table::{into_io, kernel},
};

/// What an entry holds; that it is there is all that counts.
const ALLOWED: u32 = 1;

/// SOURCE_RANGES. It is read key by key: tries are read in batches from Linux 5.13 on only.
#[derive(Debug)]
pub struct SourceRangesMap {
    max_entries: u32,
    trie: LpmTrie<MapData, SourceKey, u32>,
}

impl SourceRangesMap {
    /// Opens the map that is pinned in `folder`.
    ///
    /// # Errors
    /// [`MapError::Kernel`] where it is not there, or is of another type or size.
    pub fn open(folder: &Path) -> Result<Self, MapError> {
        let opened = (|| {
            let path = folder.join(maps::SOURCE_RANGES);
            let max_entries = MapInfo::from_pin(&path)?.max_entries();
            let trie = LpmTrie::try_from(Map::from_map_data(MapData::from_pin(path)?)?)?;
            Ok(Self { max_entries, trie })
        })();
        opened.map_err(|error| kernel("open", maps::SOURCE_RANGES, error))
    }

    /// The size of the map in entries.
    pub const fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// Every entry. Nobody else may write meanwhile: where the key just read is removed, a walk begins anew.
    pub fn iter(&self) -> impl Iterator<Item = Result<SourceRange, MapError>> {
        self.trie.keys().map(|key| {
            let key = key.map_err(|error| kernel("read", maps::SOURCE_RANGES, error))?;
            let SourceKey { service_id, client } = key.data();
            Ok(SourceRange { service_id, client, bits: key.prefix_len().saturating_sub(prefix_len(0)) })
        })
    }

    /// Makes an entry.
    ///
    /// # Errors
    /// [`MapError::Full`] where there is no room for another one, else [`MapError::Kernel`].
    pub fn put(&mut self, range: &SourceRange) -> Result<(), MapError> {
        self.trie.insert(&key(range), ALLOWED, 0).map_err(|error| match into_io(error) {
            error if error.raw_os_error() == Some(libc::ENOSPC) => {
                MapError::Full { map: maps::SOURCE_RANGES, max_entries: self.max_entries }
            }
            cause => MapError::Kernel { action: "update", map: maps::SOURCE_RANGES, cause },
        })
    }

    /// Removes an entry, if it is there.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn remove(&mut self, range: &SourceRange) -> Result<(), MapError> {
        match self.trie.remove(&key(range)).map_err(into_io) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                Err(MapError::Kernel { action: "delete from", map: maps::SOURCE_RANGES, cause: error })
            }
            _ => Ok(()),
        }
    }
}

fn key(range: &SourceRange) -> Key<SourceKey> {
    Key::new(prefix_len(range.bits), range.key())
}
