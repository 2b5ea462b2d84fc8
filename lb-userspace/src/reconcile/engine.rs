//! The steps of the reconciler. They are handed the time and never wait.

#[cfg(test)]
mod audit_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod verify;
mod write;

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
};

use lb_common::{ServiceKey, service::scope, settings::flags::ORPHAN_FLOWS};
use tokio::time::Instant;

use super::{
    FeedStatus, NodeStatus, Status,
    audit::Audit,
    queue::{Collection, Queue, Unit},
    writer::Writer,
};
use crate::{
    desired::{HealthChecks, Identity, NodeView},
    ids::Ids,
    maps::{LbMaps, MapError, Op},
    model::ObjectKey,
    plan::Leftovers,
    source::{Event, Feed, SourceEvent},
    state::{Change, State},
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
    /// Those of them that are dispensable, see [`crate::model::Store::optional`].
    pub optional: Vec<Feed>,
    /// What an earlier agent has known this node by.
    pub remembered: Vec<IpAddr>,
}

/// From events to operations.
pub struct Engine {
    state: State,
    ids: Ids,
    writer: Writer,
    queue: Queue,
    /// Services with a frontend that waits until every first list is complete.
    held_back: HashSet<ObjectKey>,
    /// Of what [`Status::errors`] names: where a map could not be written.
    unwritten: BTreeSet<String>,
    audit: Audit,
    /// What was applied when the reading of all maps began that is under way; `None` once it can verify nothing.
    audited: Option<u64>,
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
            state: State::new(config.identity, config.feeds, &config.optional).remembering(config.remembered),
            ids,
            writer,
            queue: Queue::default(),
            held_back: HashSet::new(),
            unwritten: BTreeSet::new(),
            audit: Audit::default(),
            audited: None,
            status: Status::default(),
        };
        engine.tell();
        Ok(engine)
    }

    /// Takes in what a source says.
    pub fn handle(&mut self, event: SourceEvent) {
        self.log_failure(&event);
        self.state.handle(event);
    }

    /// Once, not at every try.
    fn log_failure(&self, SourceEvent { feed, event }: &SourceEvent) {
        let before = self.state.store().feeds().get(feed.0).and_then(|feed| feed.failing.as_deref());
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
        if !self.status.complete && self.state.store().is_complete() {
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

    /// What is asked at health-check node ports, if that may have changed since the last call.
    pub fn take_health_checks(&mut self) -> Option<HealthChecks> {
        self.state.take_health_checks()
    }

    /// Objects and desired state.
    pub const fn state(&self) -> &State {
        &self.state
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
        for Change { service, frontends } in self.state.refresh() {
            self.status.generation += 1;
            frontends.into_iter().for_each(|frontend| self.touch(frontend));
            // Also when it has no frontend left: a failure of its own is then over.
            self.queue.push(Unit::Service(service));
        }
    }

    fn touch(&mut self, frontend: ServiceKey) {
        if let Some(winner) = self.state.desired().winner(&frontend) {
            self.queue.push(Unit::Service(winner.clone()));
        } else if self.status.complete {
            self.queue.push(Unit::Removal(frontend));
        }
    }

    /// Every first list is complete: what was held back can go.
    fn complete(&mut self, now: Instant) {
        self.status.complete = true;
        tracing::info!(
            services = self.state.desired().service_count(),
            "every source has completed its first list"
        );
        std::mem::take(&mut self.held_back).into_iter().for_each(|key| self.queue.push(Unit::Service(key)));
        // What is apart for clients inside goes with its frontend, and is otherwise among the leftovers.
        let unwanted = |frontend: &&ServiceKey| {
            frontend.scope == scope::ANY && self.state.desired().winner(frontend).is_none()
        };
        let unwanted = self.writer.record().services().keys().filter(unwanted).copied();
        unwanted.for_each(|frontend| self.queue.push(Unit::Removal(frontend)));
        self.leave(Collection::of(Leftovers::unused(self.writer.record())), now);
    }

    fn tell(&mut self) {
        let status = &mut self.status;
        let feeds = self.state.store().feeds().iter();
        status.feeds =
            feeds.map(|feed| FeedStatus { synced: feed.synced, failing: feed.failing.clone() }).collect();
        if self.queue.is_settled() {
            status.applied = status.generation;
        }
        status.services = self.state.desired().service_count();
        (status.frontends, status.programmable) = self.state.desired().frontend_counts();
        status.programmed = self.writer.record().frontend_count();
        status.warnings = self.state.store().warning_count() + self.state.desired().warning_count();
        status.operations = self.writer.operations();
        status.write_failures = self.unwritten.len();
        let NodeView { own, nodeport_addresses, .. } = self.state.node();
        let interfaces = self.state.store().host().map(|host| &host.interfaces);
        let told = &mut status.node;
        if (&told.own, &told.nodeport_addresses, told.interfaces.as_ref())
            != (own, nodeport_addresses, interfaces)
        {
            *told = NodeStatus {
                own: own.clone(),
                nodeport_addresses: nodeport_addresses.clone(),
                interfaces: interfaces.cloned(),
            };
        }
    }
}
