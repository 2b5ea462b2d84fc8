//! One probe of one container: when it runs, and what its results amount to.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use super::check::{Answer, Outcome, ProberError, Target};
use crate::model::{Probe, ProbeKind};

/// Results that are remembered, for questions.
const REMEMBERED: usize = 10;

/// A worker, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// One run that is over.
#[derive(Clone, Debug)]
pub struct Run {
    /// When it ended.
    pub at: Instant,
    /// How long it took.
    pub took: Duration,
    /// [`Outcome::Unknown`] where the prober erred; such a run does not count.
    pub outcome: Outcome,
    /// What went with it.
    pub message: String,
}

/// The state of a probe. As in the kubelet, it ticks once a period from its own start, and a tick at which it may not
/// run is lost.
#[derive(Debug)]
pub struct Worker {
    /// Whose it is.
    pub id: WorkerId,
    /// How it is configured.
    pub probe: Probe,
    /// Whom it asks, or why nobody can be asked; one sentence.
    pub target: Arc<Result<Target, String>>,
    /// The first tick.
    anchor: Instant,
    /// What holds now.
    result: Outcome,
    /// Since when.
    pub changed: Instant,
    /// The outcome of the last runs, and how many of them were so.
    last: Outcome,
    count: u32,
    /// A run has begun then and has not ended.
    running: Option<Instant>,
    /// A run was asked for besides the ticks.
    triggered: Option<Instant>,
    /// None has begun since the container is a new one.
    fresh: bool,
    /// When the last run began: the tick of that moment is used up.
    began: Option<Instant>,
    /// No run before the container is a new one.
    pub on_hold: bool,
    /// The last runs, the oldest first.
    pub runs: VecDeque<Run>,
    /// When it is due, as the manager's queue has it.
    pub queued: Option<Instant>,
}

impl Worker {
    /// A worker that ticks first at `anchor`.
    pub fn new(
        id: WorkerId,
        probe: Probe,
        target: Arc<Result<Target, String>>,
        anchor: Instant,
        now: Instant,
    ) -> Self {
        let result = initial(probe.kind);
        Self {
            id,
            probe,
            target,
            anchor,
            result,
            changed: now,
            last: Outcome::Unknown,
            count: 0,
            running: None,
            triggered: None,
            fresh: true,
            began: None,
            on_hold: false,
            runs: VecDeque::new(),
            queued: None,
        }
    }

    /// The result that holds now.
    pub const fn result(&self) -> Outcome {
        self.result
    }

    /// Time between two runs (`periodSeconds`).
    pub const fn period(&self) -> Duration {
        Duration::from_secs(self.probe.period_seconds as u64)
    }

    /// The container is a new one.
    pub fn reset(&mut self, now: Instant) {
        self.set(initial(self.probe.kind), now);
        (self.last, self.count) = (Outcome::Unknown, 0);
        self.on_hold = false;
        (self.fresh, self.triggered) = (true, None);
    }

    /// Asks for a run at once, if the container's delay is over and none was or is under way in it. Otherwise the ticks
    /// will do.
    pub fn trigger(&mut self, started: Instant, now: Instant) {
        if self.fresh && self.running.is_none() && !self.on_hold && now >= started + self.delay() {
            self.triggered = Some(now);
        }
    }

    /// When the next run is due, where the container has run since `started`. `None` while one is under way.
    pub fn next(&self, started: Instant) -> Option<Instant> {
        if self.on_hold || self.running.is_some() {
            return None;
        }
        // A tick during a run waits for its end; there is never more than one waiting.
        let from = self.began.map_or(self.anchor, |began| self.tick_after(began));
        let tick = self.tick_from(from.max(started + self.delay()));
        Some(self.triggered.map_or(tick, |triggered| triggered.min(tick)))
    }

    const fn delay(&self) -> Duration {
        Duration::from_secs(self.probe.initial_delay_seconds as u64)
    }

    /// The first tick at or after a moment.
    fn tick_from(&self, moment: Instant) -> Instant {
        let late = moment.saturating_duration_since(self.anchor);
        let period = self.period();
        let ticks = u32::try_from(late.as_nanos().div_ceil(period.as_nanos())).unwrap_or(u32::MAX);
        self.anchor + period * ticks
    }

    fn tick_after(&self, moment: Instant) -> Instant {
        let tick = self.tick_from(moment);
        if tick > moment { tick } else { tick + self.period() }
    }

    /// A run begins.
    pub const fn begin(&mut self, now: Instant) {
        (self.running, self.began) = (Some(now), Some(now));
        (self.triggered, self.fresh) = (None, false);
    }

    /// Whether a run is under way.
    pub const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// A run has ended. Tells whether that changed the result, or said it anew.
    pub fn end(&mut self, answer: Result<Answer, ProberError>, now: Instant) -> Option<Outcome> {
        let began = self.running.take().unwrap_or(now);
        let (outcome, message) = match answer {
            Ok(Answer { success: true, message }) => (Outcome::Success, message),
            Ok(Answer { success: false, message }) => (Outcome::Failure, message),
            Err(ProberError(message)) => (Outcome::Unknown, message),
        };
        if self.runs.len() == REMEMBERED {
            self.runs.pop_front();
        }
        self.runs.push_back(Run { at: now, took: now.saturating_duration_since(began), outcome, message });
        let threshold = match outcome {
            Outcome::Success => self.probe.success_threshold,
            Outcome::Failure => self.probe.failure_threshold,
            // Thrown away: neither result goes on, and the count stays.
            Outcome::Unknown => return None,
        };
        self.count = if self.last == outcome { self.count.saturating_add(1) } else { 1 };
        self.last = outcome;
        if self.count < threshold {
            return None;
        }
        self.set(outcome, now);
        Some(outcome)
    }

    /// Says a result that no run had.
    pub fn set(&mut self, outcome: Outcome, now: Instant) {
        if self.result != outcome {
            (self.result, self.changed) = (outcome, now);
        }
    }

    /// Waits for a new container, and counts from nothing then.
    pub const fn hold(&mut self) {
        (self.on_hold, self.count) = (true, 0);
    }

    /// Outcome of the last runs, and how many in a row.
    pub const fn count(&self) -> (Outcome, u32) {
        (self.last, self.count)
    }

    /// How many more successes in a row make the result a success.
    pub const fn needed(&self) -> u32 {
        match (self.result, self.last) {
            (Outcome::Success, _) => 0,
            (_, Outcome::Success) => self.probe.success_threshold.saturating_sub(self.count),
            _ => self.probe.success_threshold,
        }
    }
}

/// What holds before the first result.
const fn initial(kind: ProbeKind) -> Outcome {
    match kind {
        ProbeKind::Startup => Outcome::Unknown,
        ProbeKind::Readiness => Outcome::Failure,
        ProbeKind::Liveness => Outcome::Success,
    }
}
