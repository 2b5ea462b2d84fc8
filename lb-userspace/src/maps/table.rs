//! A pinned hash map, opened with its types.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use aya::{
    Pod,
    maps::{HashMap, Map, MapData, MapError as AyaMapError, MapInfo},
};

use super::MapError;
use crate::{
    causes::with_causes,
    sys::{self, Cursor},
};

/// Entries of a step of a walk where nothing else is asked for.
pub const STEP: usize = 4096;

/// A pinned hash map of one key and one value type.
#[derive(Debug)]
pub struct Table<K, V> {
    name: &'static str,
    max_entries: u32,
    map: HashMap<MapData, K, V>,
    /// The same map: aya's typed maps do not lend their descriptor.
    fd: OwnedFd,
}

/// A part of a map, and where the walk goes on.
pub struct Step<K, V> {
    /// The entries.
    pub entries: Vec<(K, V)>,
    /// `None` at the end of the map.
    pub next: Option<Cursor>,
}

impl<K: Pod, V: Pod> Table<K, V> {
    /// Opens the map `name` that is pinned in `folder`.
    ///
    /// # Errors
    /// [`MapError::Kernel`] where it is not there, or is of another type or size.
    pub fn open(folder: &Path, name: &'static str) -> Result<Self, MapError> {
        let opened = (|| {
            let path = folder.join(name);
            let max_entries = MapInfo::from_pin(&path)?.max_entries();
            let data = MapData::from_pin(&path)?;
            let fd = data.fd().as_fd().try_clone_to_owned().map_err(AyaMapError::IoError)?;
            // Compares the sizes of key and value with those of the types.
            let map = HashMap::try_from(Map::from_map_data(data)?)?;
            Ok(Self { name, max_entries, map, fd })
        })();
        opened.map_err(|error| kernel("open", name, error))
    }

    /// The size of the map in entries.
    pub const fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn get(&self, key: &K) -> Result<Option<V>, MapError> {
        match self.map.get(key, 0) {
            Ok(value) => Ok(Some(value)),
            Err(AyaMapError::KeyNotFound) => Ok(None),
            Err(error) => Err(kernel("read", self.name, error)),
        }
    }

    /// Makes or replaces an entry.
    ///
    /// # Errors
    /// [`MapError::Full`] where there is no room for another one, else [`MapError::Kernel`].
    pub fn put(&mut self, key: &K, value: &V) -> Result<(), MapError> {
        self.map.insert(key, value, 0).map_err(|error| match into_io(error) {
            error if error.raw_os_error() == Some(libc::E2BIG) => {
                MapError::Full { map: self.name, max_entries: self.max_entries }
            }
            cause => MapError::Kernel { action: "update", map: self.name, cause },
        })
    }

    /// Removes an entry; whether it was there.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn remove(&mut self, key: &K) -> Result<bool, MapError> {
        match self.map.remove(key) {
            Ok(()) => Ok(true),
            Err(error) => match into_io(error) {
                error if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
                cause => Err(MapError::Kernel { action: "delete from", map: self.name, cause }),
            },
        }
    }

    /// Reads about `at_most` entries from `from` on, more where one hash bucket alone holds more. An entry that is there
    /// from beginning to end of a walk is read exactly once, whatever happens to others.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn step(&self, from: Option<Cursor>, at_most: usize) -> Result<Step<K, V>, MapError> {
        let mut room = at_most.max(1);
        loop {
            let mut keys = vec![MaybeUninit::<K>::uninit(); room];
            let mut values = vec![MaybeUninit::<V>::uninit(); room];
            // SAFETY: `open` has compared the sizes of K and V with those of the map, and both are Pod.
            match unsafe { sys::map_lookup_batch(self.fd.as_fd(), from, &mut keys, &mut values) } {
                Ok((count, next)) => {
                    let read = keys.iter().zip(&values).take(count);
                    // SAFETY: the kernel has written the first `count` of both, and any bytes are a K and a V (Pod).
                    let entries = read.map(|(k, v)| unsafe { (k.assume_init(), v.assume_init()) }).collect();
                    return Ok(Step { entries, next });
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => room *= 2,
                Err(cause) => return Err(MapError::Kernel { action: "read", map: self.name, cause }),
            }
        }
    }

    /// Every entry.
    pub fn iter(&self) -> Entries<'_, K, V> {
        Entries { table: self, step: Vec::new().into_iter(), from: None, ended: false }
    }

    /// How many entries there are.
    ///
    /// # Errors
    /// [`MapError::Kernel`].
    pub fn count(&self) -> Result<usize, MapError> {
        self.iter().try_fold(0, |count, entry| entry.map(|_| count + 1))
    }
}

/// A walk through a map, see [`Table::iter`].
pub struct Entries<'a, K, V> {
    table: &'a Table<K, V>,
    step: std::vec::IntoIter<(K, V)>,
    from: Option<Cursor>,
    ended: bool,
}

impl<K: Pod, V: Pod> Iterator for Entries<'_, K, V> {
    type Item = Result<(K, V), MapError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.step.next() {
                return Some(Ok(entry));
            }
            if self.ended {
                return None;
            }
            match self.table.step(self.from, STEP) {
                Ok(Step { entries, next }) => {
                    self.step = entries.into_iter();
                    self.from = next;
                    self.ended = next.is_none();
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// What the kernel said, as far as aya tells.
pub(super) fn into_io(error: AyaMapError) -> io::Error {
    match error {
        AyaMapError::SyscallError(error) => error.io_error,
        AyaMapError::IoError(error) => error,
        other => io::Error::other(with_causes(&other)),
    }
}

pub(super) fn kernel(action: &'static str, map: &'static str, error: AyaMapError) -> MapError {
    MapError::Kernel { action, map, cause: into_io(error) }
}
