//! The steps of the reconciler. They are handed the time and never wait.

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod write;

use lb_common::{ServiceKey, settings::flags::ORPHAN_FLOWS};
use tokio::time::Instant;

use super::{
    FeedStatus, Status,
    queue::{Collection, Queue, Unit},
    writer::Writer,
};
use crate::{
    desired::{Desired, Identity, compile},
    ids::Ids,
    maps::{LbMaps, MapError, Op},
    model::Store,
    plan::Leftovers,
    render::Document,
    source::{Event, SourceEvent},
};

/// Units written in one step; then questions and new events get their turn.
const UNITS_A_STEP: usize = 256;

/// What the reconciler has to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who we are.
    pub identity: Identity,
    /// Number of feeds.
    pub feeds: usize,
}

/// From events to operations.
pub struct Engine {
    identity: Identity,
    store: Store,
    desired: Desired,
    ids: Ids,
    writer: Writer,
    queue: Queue,
    status: Status,
}

impl Engine {
    /// Takes over the maps as they are. From now on nobody else writes them, SETTINGS included.
    ///
    /// # Errors
    /// [`MapError`] if they cannot be read.
    pub fn start(maps: Box<dyn LbMaps>, config: Config) -> Result<Self, MapError> {
        let writer = Writer::adopt(maps)?;
        let ids = Ids::adopt(writer.record());
        let mut engine = Self {
            identity: config.identity,
            store: Store::new(config.feeds),
            desired: Desired::default(),
            ids,
            writer,
            queue: Queue::default(),
            status: Status::default(),
        };
        engine.tell();
        Ok(engine)
    }

    /// Takes in what a source says.
    pub fn handle(&mut self, event: SourceEvent) {
        self.log_failure(&event);
        self.store.handle(event);
    }

    /// Once, not at every try.
    fn log_failure(&self, SourceEvent { feed, event }: &SourceEvent) {
        let before = self.store.feeds().get(feed.0).and_then(|feed| feed.failing.as_deref());
        match event {
            Event::Failing(sentence) if before != Some(sentence) => tracing::warn!("{sentence}"),
            Event::Recovered => {
                if let Some(sentence) = before {
                    tracing::info!("over: {sentence}");
                }
            }
            _ => {}
        }
    }

    /// Does what is due.
    pub fn step(&mut self, now: Instant) {
        for collection in self.queue.expired(now) {
            self.collect(collection, now);
        }
        self.take_in_changes();
        if !self.status.complete && self.store.is_complete() {
            self.complete(now);
        }
        for _ in 0..UNITS_A_STEP {
            let Some(unit) = self.queue.pop() else { break };
            self.write(unit, now);
        }
        self.tell();
    }

    /// When the next step is due; `None` if only an event can make one so.
    pub fn next_step(&self, now: Instant) -> Option<Instant> {
        self.queue.next(now)
    }

    /// What there is to say about it.
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// The desired state of the whole.
    pub fn render(&self) -> Document {
        Document::new(&self.identity.node, &self.desired, &self.store)
    }

    /// Clears [`ORPHAN_FLOWS`], unless a frontend was removed since `removals` was read from the [`Status`]. Tells
    /// whether the flag is clear now.
    ///
    /// # Errors
    /// [`MapError`] if SETTINGS cannot be written.
    pub fn clear_orphan_flows(&mut self, removals: u64) -> Result<bool, MapError> {
        let mut settings = self.writer.record().settings();
        if removals == self.status.removals && settings.flags & ORPHAN_FLOWS != 0 {
            settings.flags &= !ORPHAN_FLOWS;
            self.writer.in_order(&[Op::PutSettings(settings)])?;
        }
        Ok(settings.flags & ORPHAN_FLOWS == 0)
    }

    /// Computes the touched Services anew, and finds what that changes.
    fn take_in_changes(&mut self) {
        for key in self.store.take_dirty() {
            let new = self
                .store
                .service(&key)
                .map(|service| compile(service, &self.store.slices_of(&key), &self.identity));
            let Some(touched) = self.desired.update(&key, new) else { continue };
            self.status.generation += 1;
            touched.into_iter().for_each(|frontend| self.touch(frontend));
            // Also when it has no frontend left: a failure of its own is then over.
            self.queue.push(Unit::Service(key));
        }
    }

    fn touch(&mut self, frontend: ServiceKey) {
        if let Some(winner) = self.desired.winner(&frontend) {
            self.queue.push(Unit::Service(winner.clone()));
        } else if self.status.complete {
            self.queue.push(Unit::Removal(frontend));
        }
    }

    /// Every first list is complete: what was held back can go.
    fn complete(&mut self, now: Instant) {
        self.status.complete = true;
        tracing::info!(services = self.desired.service_count(), "every source has completed its first list");
        for (key, _) in self.desired.services() {
            self.queue.push(Unit::Service(key.clone()));
        }
        let held: Vec<_> = self.writer.record().services().keys().copied().collect();
        held.into_iter().for_each(|frontend| self.touch(frontend));
        self.leave(Collection::of(Leftovers::unused(self.writer.record())), now);
    }

    fn tell(&mut self) {
        let status = &mut self.status;
        let feeds = self.store.feeds().iter();
        status.feeds =
            feeds.map(|feed| FeedStatus { synced: feed.synced, failing: feed.failing.clone() }).collect();
        if self.queue.is_settled() {
            status.applied = status.generation;
        }
        status.services = self.desired.service_count();
        (status.frontends, status.programmable) = self.desired.frontend_counts();
        status.programmed = self.writer.record().services().len();
        status.warnings = self.store.warning_count() + self.desired.warnings().count();
        status.operations = self.writer.operations();
    }
}
