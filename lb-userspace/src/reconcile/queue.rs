//! What is to be done, at once or at a time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    net::SocketAddr,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use lb_common::{ServiceKey, addr};
use tokio::time::{Duration, Instant};

use crate::{
    model::{ObjectKey, Protocol},
    plan::Leftovers,
};

/// Longest wait before another try (twice that with jitter).
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Wait before the second try.
const MIN_BACKOFF: Duration = Duration::from_millis(200);

/// What is written whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    /// The frontends of a Service.
    Service(ObjectKey),
    /// The removal of a frontend.
    Removal(ServiceKey),
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(key) => write!(f, "Service {key}"),
            Self::Removal(ServiceKey { address, port, proto, .. }) => {
                let socket = SocketAddr::new(addr::to_ip(address), *port);
                match Protocol::from_number(*proto) {
                    Some(protocol) => write!(f, "removal of frontend {socket}/{protocol}"),
                    None => write!(f, "removal of frontend {socket}, IP protocol {proto}"),
                }
            }
        }
    }
}

/// What is to be removed after a grace period.
#[derive(Debug)]
pub(super) struct Collection {
    /// Frontends that have gone over to something else.
    pub(super) frontends: Vec<ServiceKey>,
    /// What they may have left.
    pub(super) leftovers: Leftovers,
    /// There is more space afterwards than before the change.
    pub(super) frees: bool,
}

impl Collection {
    /// One that no frontend waits for.
    pub(super) const fn of(leftovers: Leftovers) -> Self {
        Self { frontends: Vec::new(), leftovers, frees: true }
    }
}

enum Timer {
    /// The unit is due again.
    Again(Unit),
    /// A grace period is over.
    Collect(Collection),
}

/// A unit that could not be written.
struct Failure {
    /// Space may help.
    full: bool,
    backoff: ExponentialBackoff,
    retry_at: Instant,
}

/// Units and timers.
#[derive(Default)]
pub(super) struct Queue {
    due: BTreeSet<Unit>,
    /// Units that wait for the end of a grace period.
    waiting: BTreeSet<Unit>,
    failing: BTreeMap<Unit, Failure>,
    timers: BTreeMap<Instant, Vec<Timer>>,
    /// Frontends in their grace period, and when it ends.
    settling: HashMap<ServiceKey, Instant>,
}

impl Queue {
    /// The unit is due now.
    pub(super) fn push(&mut self, unit: Unit) {
        self.due.insert(unit);
    }

    /// Takes a unit that is due.
    pub(super) fn pop(&mut self) -> Option<Unit> {
        self.due.pop_first()
    }

    /// When something is next due; `None` if nothing will be.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if self.due.is_empty() { self.timers.keys().next().copied() } else { Some(now) }
    }

    /// Whether every unit is written.
    pub(super) fn is_settled(&self) -> bool {
        self.due.is_empty() && self.waiting.is_empty() && self.failing.is_empty()
    }

    /// Takes the timers whose time has come, in order, and makes the units due that they are about.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Collection> {
        let later = self.timers.split_off(&(now + Duration::from_nanos(1)));
        let expired = std::mem::replace(&mut self.timers, later);
        let mut collections = Vec::new();
        for timer in expired.into_values().flatten() {
            match timer {
                Timer::Again(unit) => {
                    let is_retry = self.failing.get(&unit).is_some_and(|failure| failure.retry_at <= now);
                    if self.waiting.remove(&unit) || is_retry {
                        self.due.insert(unit);
                    }
                }
                Timer::Collect(collection) => {
                    for frontend in &collection.frontends {
                        if self.settling.get(frontend).is_some_and(|until| *until <= now) {
                            self.settling.remove(frontend);
                        }
                    }
                    collections.push(collection);
                }
            }
        }
        collections
    }

    /// When the grace period of one of these frontends ends, if one is in it.
    pub(super) fn settles_at(&self, frontends: impl Iterator<Item = ServiceKey>) -> Option<Instant> {
        frontends.filter_map(|frontend| self.settling.get(&frontend).copied()).max()
    }

    /// The unit has to wait until then. However often it changes until then, it is written once.
    pub(super) fn wait(&mut self, unit: Unit, until: Instant) {
        if self.waiting.insert(unit.clone()) {
            self.at(until, Timer::Again(unit));
        }
    }

    /// This is to be collected then, and until then its frontends are in their grace period.
    pub(super) fn collect(&mut self, at: Instant, collection: Collection) {
        self.settling.extend(collection.frontends.iter().map(|frontend| (*frontend, at)));
        self.at(at, Timer::Collect(collection));
    }

    /// The unit is written.
    pub(super) fn succeeded(&mut self, unit: &Unit) {
        if self.failing.remove(unit).is_some_and(|failure| failure.full) {
            self.space_freed();
        }
    }

    /// The unit could not be written; `full` if for want of space.
    pub(super) fn failed(&mut self, unit: Unit, full: bool, now: Instant) {
        let failure = self.failing.entry(unit.clone()).or_insert_with(|| Failure {
            full,
            backoff: ExponentialBuilder::default()
                .with_min_delay(MIN_BACKOFF)
                .with_max_delay(MAX_BACKOFF)
                .with_jitter()
                .without_max_times()
                .build(),
            retry_at: now,
        });
        failure.full = full;
        failure.retry_at = now + failure.backoff.next().unwrap_or(MAX_BACKOFF);
        let at = failure.retry_at;
        self.at(at, Timer::Again(unit));
    }

    /// Lets one of the units try again that failed for want of space. If it succeeds, the next one will, so that a
    /// little space does not start them all.
    pub(super) fn space_freed(&mut self) {
        let wants_space = self.failing.iter().find(|(_, failure)| failure.full);
        self.due.extend(wants_space.map(|(unit, _)| unit.clone()));
    }

    fn at(&mut self, at: Instant, timer: Timer) {
        self.timers.entry(at).or_default().push(timer);
    }
}
