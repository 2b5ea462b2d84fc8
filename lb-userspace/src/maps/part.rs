//! The maps read back part by part, by whoever has not the time for all of them at once.

use super::Op;
use crate::sys::Cursor;

/// One of the maps that the agent writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// BACKEND_STATE.
    States,
    /// BACKENDS.
    Backends,
    /// SERVICES.
    Services,
    /// SOURCE_RANGES.
    Ranges,
    /// SETTINGS.
    Settings,
}

impl Which {
    /// All of them, what others lead to first.
    pub const ALL: [Self; 5] = [Self::States, Self::Backends, Self::Services, Self::Ranges, Self::Settings];

    /// The one after it, and after the last the first.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::States => Self::Backends,
            Self::Backends => Self::Services,
            Self::Services => Self::Ranges,
            Self::Ranges => Self::Settings,
            Self::Settings => Self::States,
        }
    }
}

/// Entries of a map.
#[derive(Debug)]
pub struct Part {
    /// Each as the operation that makes it.
    pub entries: Vec<Op>,
    /// Where the next part begins; `None` at the end of the map.
    pub next: Option<Cursor>,
}

impl Part {
    /// The last part of a map.
    pub fn last(entries: impl Iterator<Item = Op>) -> Self {
        Self { entries: entries.collect(), next: None }
    }
}
