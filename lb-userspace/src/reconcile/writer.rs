//! The maps together with the record of what they hold.

use std::collections::HashSet;

use crate::{
    maps::{EntryKey, LbMaps, MapError, Op, Part, Record, Which},
    sys::Cursor,
};

/// How often an operation is tried before it counts as failed, unless the map is full. EBUSY and EINTR are over in a
/// moment, and a Service of thousands of endpoints needs as many writes to succeed.
const ATTEMPTS: usize = 3;

/// Writes to the maps and keeps the record.
pub(super) struct Writer {
    maps: Box<dyn LbMaps>,
    record: Record,
    operations: u64,
    /// What was written since somebody wanted to know.
    noted: Option<HashSet<EntryKey>>,
}

/// Operations that did not all succeed.
#[derive(Debug)]
pub(super) struct Failed {
    /// The one that failed, and why.
    pub(super) error: MapError,
    /// Nothing is left of the others, and no packet can have met them.
    pub(super) without_trace: bool,
}

impl Writer {
    /// Reads back what the maps hold.
    pub(super) fn adopt(maps: Box<dyn LbMaps>) -> Result<Self, MapError> {
        let record = Record::adopt(maps.snapshot()?);
        Ok(Self { maps, record, operations: 0, noted: None })
    }

    pub(super) const fn record(&self) -> &Record {
        &self.record
    }

    /// Operations carried out so far.
    pub(super) const fn operations(&self) -> u64 {
        self.operations
    }

    /// Reads a part of a map back.
    pub(super) fn read(&self, map: Which, from: Option<Cursor>) -> Result<Part, MapError> {
        self.maps.read(map, from)
    }

    /// Begins to note what is written.
    pub(super) fn note(&mut self) {
        self.noted = Some(HashSet::new());
    }

    /// What was written since [`Self::note`]. No more is noted.
    pub(super) fn take_noted(&mut self) -> HashSet<EntryKey> {
        self.noted.take().unwrap_or_default()
    }

    /// Carries out operations up to the first that fails.
    pub(super) fn in_order(&mut self, ops: &[Op]) -> Result<(), MapError> {
        ops.iter().try_for_each(|op| self.one(op))
    }

    /// Carries out all of the operations; if one fails, takes back those before it, in reverse.
    ///
    /// Once a frontend has led to new slots, packets may be reading them: they stay for the grace period, and only the
    /// frontends go back. If taking back fails too, what is in the maps is still whole, frontend by frontend.
    pub(super) fn all_or_nothing(&mut self, ops: &[Op]) -> Result<(), Failed> {
        let mut undo = Vec::with_capacity(ops.len());
        let mut was_published = false;
        for op in ops {
            let inverse = self.record.inverse(op);
            if let Err(error) = self.one(op) {
                if was_published {
                    undo.retain(|op| !matches!(op, Op::DeleteBackend(_) | Op::DeleteState(_)));
                }
                undo.reverse();
                let is_undone = self.in_order(&undo).is_ok();
                return Err(Failed { error, without_trace: is_undone && !was_published });
            }
            undo.extend(inverse);
            was_published |= matches!(op, Op::PutService(..));
        }
        Ok(())
    }

    fn one(&mut self, op: &Op) -> Result<(), MapError> {
        let mut tries = 1;
        while let Err(error) = self.maps.apply(op) {
            if tries == ATTEMPTS || matches!(error, MapError::Full { .. }) {
                return Err(error);
            }
            tries += 1;
        }
        self.record.apply(op);
        self.operations += 1;
        if let Some(noted) = &mut self.noted {
            noted.insert(op.key());
        }
        Ok(())
    }
}
