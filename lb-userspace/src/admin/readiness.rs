//! Whether the agent is ready: it knows what every required source has, none of them fails, and the maps can be written.

use std::fmt;

use super::status::{AgentStatus, SourceStatus};
use crate::reconcile::FeedStatus;

/// What keeps sources and maps from being well, one sentence each, which begins with the name of what it is about.
///
/// As text: `ok` where the agent is ready, then one line for each that is not well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Of the required sources, and of the maps.
    pub missing: Vec<String>,
    /// Of the other sources.
    pub dispensable: Vec<String>,
}

impl Readiness {
    /// Of an agent.
    pub fn of(agent: &AgentStatus) -> Self {
        Self::of_parts(agent.feeds(), agent.reconciler.write_failures)
    }

    /// Of these sources, each with its feed, and of so many changes that cannot be written.
    fn of_parts<'a>(
        feeds: impl Iterator<Item = (&'a SourceStatus, &'a FeedStatus)>,
        write_failures: usize,
    ) -> Self {
        let mut readiness = Self::default();
        for (source, feed) in feeds {
            let cause = match &feed.failing {
                Some(sentence) => sentence,
                None if feed.synced => continue,
                None => "the first list is not complete",
            };
            let of_kind = if source.required { &mut readiness.missing } else { &mut readiness.dispensable };
            of_kind.push(format!("{}: {cause}", source.name));
        }
        if write_failures > 0 {
            let sentence = format!("maps: {write_failures} changes cannot be written, see `readylb status`");
            readiness.missing.push(sentence);
        }
        readiness
    }

    /// Every required source has completed its first list, none of them fails now, and every change is in the maps.
    pub const fn is_ready(&self) -> bool {
        self.missing.is_empty()
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ready() {
            writeln!(f, "ok")?;
        }
        self.missing.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.dispensable.iter().try_for_each(|line| writeln!(f, "optional: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORBIDDEN: Option<&str> = Some("cannot list it: forbidden (403)");

    /// Of sources with these names: whether each is required and listed, and how it fails.
    fn readiness(rows: &[(&str, bool, bool, Option<&str>)]) -> Readiness {
        let source = |&(name, required, ..): &(&str, bool, bool, Option<&str>)| SourceStatus {
            name: name.into(),
            required,
            heard_seconds_ago: None,
        };
        let feed = |&(_, _, synced, failing): &(&str, bool, bool, Option<&str>)| FeedStatus {
            synced,
            failing: failing.map(Into::into),
        };
        let sources: Vec<_> = rows.iter().map(source).collect();
        let feeds: Vec<_> = rows.iter().map(feed).collect();
        Readiness::of_parts(sources.iter().zip(&feeds), 0)
    }

    #[test]
    fn b48_an_agent_that_cannot_write_its_maps_is_not_ready() {
        let well = Readiness::of_parts(std::iter::empty(), 0);
        assert_eq!((well.is_ready(), well.to_string()), (true, "ok\n".to_owned()));
        let failing = Readiness::of_parts(std::iter::empty(), 2);
        let sentence = "maps: 2 changes cannot be written, see `readylb status`\n";
        assert_eq!((failing.is_ready(), failing.to_string()), (false, sentence.to_owned()));
    }

    #[test]
    fn b69_ready_is_listed_and_well_and_the_optional_is_only_told() {
        let forbidden = "cannot list it: forbidden (403)";
        let unlisted = "the first list is not complete";
        for (rows, is_ready, want) in [
            (vec![("services", true, true, None), ("node a", false, true, None)], true, "ok\n".to_owned()),
            (
                vec![("services", true, true, None), ("slices", true, false, FORBIDDEN)],
                false,
                format!("slices: {forbidden}\n"),
            ),
            (vec![("slices", true, true, FORBIDDEN)], false, format!("slices: {forbidden}\n")),
            (
                vec![("services", true, false, None), ("slices", true, false, None)],
                false,
                format!("services: {unlisted}\nslices: {unlisted}\n"),
            ),
            (vec![("node a", false, false, FORBIDDEN)], true, format!("ok\noptional: node a: {forbidden}\n")),
            (
                vec![("services", true, false, None), ("node a", false, false, FORBIDDEN)],
                false,
                format!("services: {unlisted}\noptional: node a: {forbidden}\n"),
            ),
        ] {
            let readiness = readiness(&rows);
            assert_eq!((readiness.is_ready(), readiness.to_string()), (is_ready, want), "{rows:?}");
        }
    }
}
