//! Units and leftovers: plan, write, and what to do when that fails.

use lb_common::{ServiceKey, service::scope};
use tokio::time::{Duration, Instant};

use super::{
    super::{
        queue::{Collection, Unit},
        writer::Failed,
    },
    Engine,
};
use crate::{
    desired::Frontend,
    maps::{MapError, Op},
    plan::{self, Leftovers, Plan, PlanError},
};

/// How long what has been replaced stays for packets that are still reading it.
pub(super) const GRACE: Duration = Duration::from_millis(100);
/// Wait before leftovers that could not be removed are tried again.
const COLLECT_AGAIN: Duration = Duration::from_secs(1);
/// What [`super::Status::errors`] calls the removal of leftovers.
pub(super) const COLLECTION: &str = "removal of what is no longer used";

impl Engine {
    pub(super) fn write(&mut self, unit: Unit, now: Instant) {
        let before = self.ids.next();
        let mut plan = match self.plan(&unit, now) {
            Ok(Some(plan)) => plan,
            Ok(None) => return,
            Err(error) => {
                self.unwritten.remove(&unit.to_string());
                return self.failed(unit, &error, false, now);
            }
        };
        self.note_held_back(&unit, plan.held_back);
        match self.writer.all_or_nothing(&plan.now) {
            Ok(()) => {
                if self.over(&unit.to_string()) {
                    tracing::info!("{unit}: written at last");
                }
                self.queue.succeeded(&unit);
                if matches!(unit, Unit::Removal(_)) && !plan.now.is_empty() {
                    self.status.removals += 1;
                    self.queue.space_freed();
                }
                self.leave(
                    Collection { frontends: switched(&plan.now), ..Collection::of(plan.leftovers) },
                    now,
                );
            }
            Err(Failed { error, without_trace }) => {
                plan.leftovers.add_failed(&plan.now);
                if without_trace {
                    // At once, whatever else has to wait: the same numbers are given out again.
                    plan.leftovers.forget_ids(self.writer.record(), &mut self.ids);
                    self.ids.take_back(before);
                }
                self.leave(Collection { frees: false, ..Collection::of(plan.leftovers) }, now);
                let is_full = matches!(error, MapError::Full { .. });
                self.unwritten.insert(unit.to_string());
                self.failed(unit, &error, is_full, now);
            }
        }
    }

    /// The plan for a unit; `None` if it has to wait.
    ///
    /// A frontend that has just gone over to another block waits for the end of the grace period before it does so
    /// again: a flood of changes becomes one, and there are never more than two blocks of a set that is in the maps.
    fn plan(&mut self, unit: &Unit, now: Instant) -> Result<Option<Plan>, PlanError> {
        let record = self.writer.record();
        match unit {
            Unit::Service(key) => {
                let frontends = self.state.desired().service(key).map(|service| service.frontends.iter());
                let in_the_maps = |frontend: &ServiceKey| record.services().contains_key(frontend);
                let frontends = frontends.into_iter().flatten().map(Frontend::key).filter(in_the_maps);
                if let Some(until) = self.queue.settles_at(frontends).filter(|until| *until > now) {
                    self.queue.wait(unit.clone(), until);
                    return Ok(None);
                }
                plan::service(key, self.state.desired(), record, &mut self.ids, self.status.complete)
                    .map(Some)
            }
            // It may have been claimed again since.
            Unit::Removal(frontend) if self.state.desired().winner(frontend).is_some() => {
                Ok(Some(Plan::default()))
            }
            Unit::Removal(frontend) => Ok(Some(plan::removal(frontend, record))),
        }
    }

    fn note_held_back(&mut self, unit: &Unit, held_back: bool) {
        match unit {
            Unit::Service(key) if held_back => {
                self.held_back.insert(key.clone());
            }
            Unit::Service(key) => {
                self.held_back.remove(key);
            }
            Unit::Removal(_) => {}
        }
    }

    /// An error is over; whether there was one.
    pub(super) fn over(&mut self, name: &str) -> bool {
        self.unwritten.remove(name);
        self.status.errors.remove(name).is_some()
    }

    fn failed(&mut self, unit: Unit, error: &dyn std::error::Error, is_full: bool, now: Instant) {
        let sentence = error.to_string();
        // Once, not at every try.
        if self.status.errors.get(&unit.to_string()) != Some(&sentence) {
            tracing::warn!("{unit}: {sentence}");
            self.status.errors.insert(unit.to_string(), sentence);
        }
        self.queue.failed(unit, is_full, now);
    }

    /// Retires leftovers now and collects them after the grace period; if there are none, their ids are free at once.
    pub(super) fn leave(&mut self, collection: Collection, now: Instant) {
        let retired = collection.leftovers.retire(self.writer.record());
        if let Err(error) = self.writer.in_order(&retired) {
            // The collection tries again, and reports it if that fails too.
            tracing::debug!("backends that have gone: {error}");
        }
        let leftovers = collection.leftovers.only_unused(self.writer.record());
        let collection = Collection { leftovers, ..collection };
        if collection.leftovers.collect(self.writer.record()).is_empty() {
            collection.leftovers.forget_ids(self.writer.record(), &mut self.ids);
        } else {
            self.queue.collect(now + GRACE, collection);
        }
    }

    pub(super) fn collect(&mut self, collection: Collection, now: Instant) {
        let ops = collection.leftovers.collect(self.writer.record());
        let left = collection.leftovers.left_by_insides(self.writer.record());
        match self.writer.in_order(&ops) {
            Ok(()) => {
                self.over(COLLECTION);
                collection.leftovers.forget_ids(self.writer.record(), &mut self.ids);
                if collection.frees && !ops.is_empty() {
                    self.queue.space_freed();
                }
            }
            Err(error) => {
                self.status.errors.insert(COLLECTION.to_owned(), error.to_string());
                self.unwritten.insert(COLLECTION.to_owned());
                self.queue.collect(now + COLLECT_AGAIN, Collection { frontends: Vec::new(), ..collection });
            }
        }
        if left != Leftovers::default() {
            self.leave(Collection::of(left), now);
        }
    }
}

/// The frontends that operations go over with, or remove, whoever their clients are.
fn switched(ops: &[Op]) -> Vec<ServiceKey> {
    let frontend = |op: &Op| match op {
        Op::PutService(key, _) | Op::DeleteService(key) if !key.is_whole() => {
            Some(ServiceKey { scope: scope::ANY, ..*key })
        }
        _ => None,
    };
    ops.iter().filter_map(frontend).collect()
}
