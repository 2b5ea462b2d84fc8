//! Reads the maps back, part by part and all the time, and finds what is not as it was written.
//!
//! The record says what each entry has to be at the moment at which it is read: the two cannot differ by a write of our own,
//! as both are in the hands of the same loop. What is missing shows at the end of a map: what was there all the time and was
//! not read.

use std::collections::HashSet;

use super::writer::Writer;
use crate::{
    maps::{EntryKey, MapError, Op, STEP, Which},
    sys::Cursor,
};

/// Where the reading stands.
pub(super) struct Audit {
    map: Which,
    from: Option<Cursor>,
    /// Keys of the map that were read, of those that it has to hold.
    seen: HashSet<EntryKey>,
}

/// What a part has shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// What makes the maps right again.
    pub(super) repairs: Vec<Op>,
    /// It was the last part of the last map.
    pub(super) ends_pass: bool,
}

impl Default for Audit {
    fn default() -> Self {
        Self { map: Which::ALL[0], from: None, seen: HashSet::new() }
    }
}

impl Audit {
    /// Whether the next part is the first of all.
    pub(super) fn begins_pass(&self) -> bool {
        self.map == Which::ALL[0] && self.from.is_none()
    }

    /// In how many parts the maps are read, about.
    pub(super) fn parts(writer: &Writer) -> usize {
        Which::ALL.map(|map| writer.record().len(map).div_ceil(STEP).max(1)).iter().sum()
    }

    /// Reads the next part.
    ///
    /// # Errors
    /// [`MapError`] where it cannot be read. The map is then read from its beginning again.
    pub(super) fn step(&mut self, writer: &mut Writer) -> Result<Finding, MapError> {
        if self.from.is_none() {
            writer.note();
            self.seen.clear();
        }
        let part = writer.read(self.map, self.from.take())?;
        self.from = part.next;
        let mut repairs = Vec::new();
        for entry in part.entries {
            let key = entry.key();
            let held = writer.record().held(&key);
            if held != Some(entry) {
                repairs.extend(held.or_else(|| key.delete()));
            }
            if held.is_some() {
                self.seen.insert(key);
            }
        }
        let ends_map = self.from.is_none();
        if ends_map {
            let noted = writer.take_noted();
            let missing = |key: &EntryKey| !self.seen.contains(key) && !noted.contains(key);
            let record = writer.record();
            repairs.extend(record.keys(self.map).filter(missing).filter_map(|key| record.held(&key)));
            self.map = self.map.next();
        }
        Ok(Finding { repairs, ends_pass: ends_map && self.begins_pass() })
    }
}
