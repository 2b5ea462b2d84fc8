//! The maps are read back all the time, and what somebody else has changed is put right.

use tokio::time::{Duration, Instant};

use super::{super::audit::Audit, Engine};
use crate::maps::Op;

/// How long one reading of all the maps takes. What was changed by hand is found in the next reading, what was removed at
/// the end of its map in that, so both are right again within twice this.
const PASS: Duration = Duration::from_millis(2400);
/// What [`super::Status::errors`] calls the reading.
const READING: &str = "reading the maps back";
/// So many repairs of a part are logged, and the number of the others.
const LOGGED: usize = 3;

impl Engine {
    /// Reads the next part of the maps back and repairs what is not as it was written. Gives the time of the part after it.
    pub fn audit(&mut self, now: Instant) -> Instant {
        if self.audit.begins_pass() {
            self.audited = Some(self.status.applied);
        }
        match self.audit.step(&mut self.writer) {
            Ok(finding) => {
                self.repair(&finding.repairs);
                if finding.ends_pass
                    && let Some(applied) = self.audited.take()
                {
                    self.over(READING);
                    self.status.verified = applied;
                }
            }
            Err(error) => self.unread(error.to_string()),
        }
        now + PASS / u32::try_from(Audit::parts(&self.writer)).unwrap_or(u32::MAX)
    }

    fn repair(&mut self, repairs: &[Op]) {
        for (index, op) in repairs.iter().enumerate() {
            self.status.drift += 1;
            if index < LOGGED {
                tracing::warn!("map {}: somebody else has changed {:?}; put right", op.map(), op.key());
            }
            if let Err(error) = self.writer.in_order(&[*op]) {
                self.unread(error.to_string());
            } else if op.deletes() {
                self.queue.space_freed();
            }
        }
        if repairs.len() > LOGGED {
            tracing::warn!("{} other entries were changed as well; put right", repairs.len() - LOGGED);
        }
    }

    /// This reading verifies nothing; the error is over at the end of one that does.
    fn unread(&mut self, sentence: String) {
        self.audited = None;
        if self.status.errors.get(READING) != Some(&sentence) {
            tracing::warn!("{READING}: {sentence}");
        }
        self.status.errors.insert(READING.to_owned(), sentence);
        self.unwritten.insert(READING.to_owned());
    }
}
