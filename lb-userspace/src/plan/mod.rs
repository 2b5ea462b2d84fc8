//! The pure difference between what the maps hold and what they should hold, for what a change touches.
//!
//! A packet must see the old set of a frontend or the new one, never a mixture. So the order is:
//!
//! ```text
//!   reservation of ids → states of those that come → slots of a new block → ranges of clients that are new
//!   → one write a frontend, which goes over, after that of what is apart for clients inside → the ClusterIP as a whole
//!   → ranges that are no longer
//!   → states of those that have gone, or now only drain
//!   → (grace period) → slots of the old block, what is no longer apart, ranges that nobody asks for
//! ```

mod address;
mod draft;
mod leftovers;
mod parts;
mod ranges;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use lb_common::{Address, ServiceKey, ServiceValue, addr, settings::flags::ORPHAN_FLOWS};
pub use leftovers::Leftovers;

use self::{address::Addresses, draft::Draft, parts::Parts};
use crate::{
    desired::Desired,
    endpoints::{Backend, Selection},
    ids::{Exhausted, Ids},
    maps::{Op, Record},
    model::ObjectKey,
};

/// What is to be done, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// All of this now, or nothing of it.
    pub now: Vec<Op>,
    /// What may be unused then: its states at once, its slots after the grace period.
    pub leftovers: Leftovers,
    /// A frontend waits until every first list is complete.
    pub held_back: bool,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No id is left.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// More endpoints than a slot can number.
    #[error("port {port:?} has {count} endpoints, more than the {} that a set can hold", u16::MAX)]
    TooManyEndpoints {
        /// Name of the Service port.
        port: Box<str>,
        /// How many.
        count: usize,
    },
}

/// Brings the frontends of a Service to their desired state. It removes none: see [`removal`].
///
/// Until every first list is `complete`, nothing shrinks: a frontend in the maps keeps every backend of its present set and
/// gets the new ones beside them, and a new frontend is made only with a backend. An endpoint that is missing may be in
/// a slice that has not come yet.
///
/// The Service of the API server never goes over to an empty set: the agent would cut itself off, and could not hear
/// of new endpoints.
///
/// # Errors
/// [`PlanError`]; no id has been given out then.
pub fn service(
    key: &ObjectKey,
    desired: &Desired,
    record: &Record,
    ids: &mut Ids,
    complete: bool,
) -> Result<Plan, PlanError> {
    let Some(service) = desired.service(key) else { return Ok(Plan::default()) };
    let Parts { by_set, held_back } = Parts::of(key, desired, record, complete);
    let mut draft = Draft::new(key, record, ids, service.source_ranges.as_deref(), complete);
    match by_set.into_iter().try_for_each(|(set, parts)| draft.set(&service.sets[set], &parts)) {
        Ok(()) => {
            let plan = draft.finish();
            Ok(Plan { held_back: held_back || plan.held_back, ..plan })
        }
        Err(error) => {
            draft.abandon();
            Err(error)
        }
    }
}

/// Removes a frontend that nobody wants any more; for nothing if it is not there.
pub fn removal(frontend: &ServiceKey, record: &Record) -> Plan {
    let Some(held) = record.services().get(frontend) else { return Plan::default() };
    let mut plan = Plan::default();
    let mut settings = record.settings();
    if settings.flags & ORPHAN_FLOWS == 0 {
        // First, so that no packet of a live flow can miss both the frontend and the flag.
        settings.flags |= ORPHAN_FLOWS;
        plan.now.push(Op::PutSettings(settings));
    }
    let addresses = Addresses::of([(*frontend, None)].into_iter(), record, false);
    plan.now.extend(addresses.before.into_iter().chain(addresses.after));
    plan.now.push(Op::DeleteService(*frontend));
    plan.leftovers.add(frontend, held, record);
    plan
}

/// Whether a frontend would gain something by going over to this set: a backend, or one that is chosen now and only drained.
fn brings_some(record: &Record, held: &ServiceValue, selection: &Selection) -> bool {
    let places = |chosen: bool| -> HashSet<_> {
        let slots = record.block(held.set.block).filter(|(key, _)| chosen == (key.slot < held.set.count));
        slots.map(|(_, value)| (value.address, value.port)).collect()
    };
    let (chosen, draining) = (places(true), places(false));
    selection.usable.iter().any(|backend| !chosen.contains(&place(backend)))
        || selection.draining.iter().map(place).any(|it| !chosen.contains(&it) && !draining.contains(&it))
}

/// Whether a frontend loses nothing by going over to this set.
fn grows(record: &Record, held: &ServiceValue, selection: &Selection) -> bool {
    let usable: HashSet<_> = selection.usable.iter().map(place).collect();
    let draining: HashSet<_> = selection.draining.iter().map(place).collect();
    record.block(held.set.block).all(|(key, value)| {
        let place = (value.address, value.port);
        usable.contains(&place) || (key.slot >= held.set.count && draining.contains(&place))
    })
}

/// Where a backend listens, as maps have it.
type Place = (Address, u16);

fn place(backend: &Backend) -> Place {
    (addr::from_ip(backend.address), backend.port)
}
