//! Removes flows that have ended, and tells whether any is left whose frontend has gone.
//!
//! The programs end a flow only by using its place for another one, so without this the tables would fill up. They go on
//! working while no agent runs, and so does everything else about flows.

mod fate;

use std::{path::Path, time::Duration};

pub use fate::End;
use fate::{
    Role, SHORTEST_LIMIT, are_partners, end, has_source_nat, is_forward, outward_key, partner_key, role,
};
use lb_common::{FlowKey, FlowValue, ServiceKey, ServiceValue, maps, service::scope, settings::flags};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tracing::warn;

use crate::{
    clock,
    maps::{MapError, SettingsMap, Table},
    sys::Cursor,
};

/// Time between two passes over the tables.
const PASS_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two rounds of a pass.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// Entries looked at in a round: about 10 ms of one CPU, and 100 ms where every flow has ended.
const ROUND_ENTRIES: usize = 32_768;

/// Entries read by one call.
const STEP_ENTRIES: usize = 4096;

/// Flows removed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// [`End::Closed`].
    pub closed: u64,
    /// [`End::Unanswered`].
    pub unanswered: u64,
    /// [`End::Idle`].
    pub idle: u64,
}

impl Removed {
    fn count(&mut self, end: End) {
        match end {
            End::Closed => self.closed += 1,
            End::Unanswered => self.unanswered += 1,
            End::Idle => self.idle += 1,
        }
    }
}

/// What a pass over all flows found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// When it began: nanoseconds of `CLOCK_MONOTONIC`.
    pub began: u64,
    /// How many frontends had been removed when it began ([`crate::reconcile::Status::removals`]).
    pub removals: u64,
    /// Entries looked at; a flow has two, and four where an address of this node stands for its client.
    pub entries: u64,
    /// Flows removed since the agent started.
    pub removed: Removed,
    /// Whether FLOWS, which takes no new flow when it is full, is filled for the most part. Closed connections are then
    /// removed sooner, from the next pass on, and passes follow each other without a pause.
    pub crowded: bool,
    /// Flows that are left without a frontend. `None` where nobody asked: [`flags::ORPHAN_FLOWS`] was not set when the
    /// pass began. With 0 the flag can be cleared ([`crate::reconcile::Request::ClearOrphanFlows`]).
    pub orphans: Option<u64>,
}

/// The collector, in the middle of a pass or between two.
pub struct FlowGc {
    flows_new: Table<FlowKey, FlowValue>,
    flows: Table<FlowKey, FlowValue>,
    services: Table<ServiceKey, ServiceValue>,
    settings: SettingsMap,
    pass: Pass,
    at: Position,
    /// Whether the pass before this one found FLOWS filled for the most part.
    crowded: bool,
    entries_in_flows: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Start,
    FlowsNew(Option<Cursor>),
    Flows(Option<Cursor>),
}

impl FlowGc {
    /// Over the maps that are pinned in `folder` ([`crate::datapath::Datapath::folder`]).
    ///
    /// # Errors
    /// [`MapError::Kernel`] where one is not there, or is not of this schema.
    pub fn open(folder: &Path) -> Result<Self, MapError> {
        Ok(Self {
            flows_new: Table::open(folder, maps::FLOWS_NEW)?,
            flows: Table::open(folder, maps::FLOWS)?,
            services: Table::open(folder, maps::SERVICES)?,
            settings: SettingsMap::open(folder)?,
            pass: Pass::default(),
            at: Position::Start,
            crowded: false,
            entries_in_flows: 0,
        })
    }

    /// Looks at about `at_most` entries. Returns the pass if that was its end; the next round then begins another.
    /// `now` is in nanoseconds of `CLOCK_MONOTONIC`, and `removals` what [`Pass::removals`] is if a pass begins.
    ///
    /// # Errors
    /// [`MapError`]; the next round begins a new pass.
    pub fn round(&mut self, now: u64, removals: u64, at_most: usize) -> Result<Option<Pass>, MapError> {
        let mut left = at_most;
        while left > 0 {
            match self.step(now, removals, left.min(STEP_ENTRIES)) {
                Ok((_, true)) => return Ok(Some(self.pass)),
                Ok((entries, false)) => left = left.saturating_sub(entries.max(1)),
                Err(error) => {
                    self.at = Position::Start;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Returns how many entries were looked at, and whether they were the last ones.
    fn step(&mut self, now: u64, removals: u64, at_most: usize) -> Result<(usize, bool), MapError> {
        if self.at == Position::Start {
            let orphans_asked_for = self.settings.get()?.flags & flags::ORPHAN_FLOWS != 0;
            self.crowded = self.pass.crowded;
            self.pass = Pass {
                began: now,
                removals,
                removed: self.pass.removed,
                orphans: orphans_asked_for.then_some(0),
                ..Pass::default()
            };
            self.entries_in_flows = 0;
            self.at = Position::FlowsNew(None);
        }
        let step = match self.at {
            Position::Start | Position::FlowsNew(None) => self.flows_new.step(None, at_most)?,
            Position::FlowsNew(from) => self.flows_new.step(from, at_most)?,
            Position::Flows(from) => self.flows.step(from, at_most)?,
        };
        let count = step.entries.len();
        for (key, value) in &step.entries {
            self.look_at(key, value, now)?;
        }
        self.pass.entries += count as u64;
        let in_flows = matches!(self.at, Position::Flows(_));
        if in_flows {
            self.entries_in_flows += count;
        }
        self.at = match (in_flows, step.next) {
            (false, Some(next)) => Position::FlowsNew(Some(next)),
            (false, None) => Position::Flows(None),
            (true, Some(next)) => Position::Flows(Some(next)),
            (true, None) => Position::Start,
        };
        if self.at == Position::Start {
            self.pass.crowded = self.entries_in_flows > self.flows.max_entries() as usize / 4 * 3;
        }
        Ok((count, self.at == Position::Start))
    }

    fn look_at(&mut self, key: &FlowKey, value: &FlowValue, now: u64) -> Result<(), MapError> {
        match role(key) {
            Role::Own => self.look_at_flow(key, value, now),
            _ if now.saturating_sub(value.last_seen) <= SHORTEST_LIMIT => Ok(()),
            Role::Outward(reply_key) => match self.find(&reply_key)? {
                Some(reply) if has_source_nat(&reply) => Ok(()),
                _ => self.free_port(key, value, now),
            },
            Role::Return => {
                let outward = self.find(&partner_key(key, value))?;
                if !outward.is_some_and(|outward| are_partners(key, &outward)) {
                    self.remove_if_still_silent(key, value.last_seen)?;
                }
                Ok(())
            }
        }
    }

    /// Removes an outward entry and its return entry, unless packets have begun to use them again.
    fn free_port(&mut self, key: &FlowKey, value: &FlowValue, now: u64) -> Result<(), MapError> {
        if now.saturating_sub(value.last_seen) > SHORTEST_LIMIT
            && self.remove_if_still_silent(key, value.last_seen)?
        {
            let return_key = partner_key(key, value);
            if let Some(back) = self.find(&return_key)?.filter(|back| are_partners(key, back)) {
                self.remove_if_still_silent(&return_key, back.last_seen)?;
            }
        }
        Ok(())
    }

    fn look_at_flow(&mut self, key: &FlowKey, value: &FlowValue, now: u64) -> Result<(), MapError> {
        if now.saturating_sub(value.last_seen) > SHORTEST_LIMIT {
            let partner_key = partner_key(key, value);
            let partner = self.find(&partner_key)?.filter(|partner| are_partners(key, partner));
            let (forward, reply) = if is_forward(key) {
                (Some(value), partner.as_ref())
            } else {
                (partner.as_ref(), Some(value))
            };
            if let Some(end) = end(key.proto, forward, reply, now, self.crowded) {
                let own = (key, Some(value));
                let other = (&partner_key, partner.as_ref());
                // Forward first. A client that begins anew in between gets both entries anew, and the worst that can
                // happen is that a reply entry is missing, which the next packet to the VIP puts back.
                let order = if is_forward(key) { [own, other] } else { [other, own] };
                let mut removed = false;
                for (key, value) in order {
                    if let Some(value) = value {
                        removed |= self.remove_if_still_silent(key, value.last_seen)?;
                    }
                }
                if removed {
                    self.pass.removed.count(end);
                    if let Some(key) = outward_key(key, value)
                        && let Some(value) = self.find(&key)?
                    {
                        self.free_port(&key, &value, now)?;
                    }
                }
                return Ok(());
            }
        }
        self.count_orphan(key)
    }

    fn find(&self, key: &FlowKey) -> Result<Option<FlowValue>, MapError> {
        match self.flows.get(key)? {
            Some(value) => Ok(Some(value)),
            None => self.flows_new.get(key),
        }
    }

    /// A packet may have revived the flow since it was read, or it went with its partner. Returns whether it was there
    /// to be removed.
    fn remove_if_still_silent(&mut self, key: &FlowKey, last_seen: u64) -> Result<bool, MapError> {
        let mut removed = false;
        for table in [&mut self.flows_new, &mut self.flows] {
            if table.get(key)?.is_some_and(|value| value.last_seen == last_seen) {
                removed |= table.remove(key)?;
            }
        }
        Ok(removed)
    }

    fn count_orphan(&mut self, key: &FlowKey) -> Result<(), MapError> {
        if let Some(orphans) = self.pass.orphans
            && is_forward(key)
        {
            let frontend = ServiceKey {
                address: key.tuple.destination,
                port: key.tuple.destination_port,
                proto: key.proto,
                scope: scope::ANY,
            };
            let is_orphan = self.services.get(&frontend)?.is_none();
            self.pass.orphans = Some(orphans + u64::from(is_orphan));
        }
        Ok(())
    }
}

/// Runs passes until it is dropped, and reports each. `removals` tells how many frontends have been removed until now
/// ([`crate::reconcile::Status::removals`]).
pub async fn run(mut gc: FlowGc, removals: impl Fn() -> u64, report: watch::Sender<Pass>) {
    loop {
        let removals = removals();
        let round = spawn_blocking(move || {
            let outcome = gc.round(clock::monotonic(), removals, ROUND_ENTRIES);
            (gc, outcome)
        });
        let outcome;
        (gc, outcome) = match round.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => return,
            },
        };
        let pause = match outcome {
            Ok(None) => ROUND_INTERVAL,
            Ok(Some(pass)) => {
                report.send_replace(pass);
                if pass.crowded { ROUND_INTERVAL } else { PASS_INTERVAL }
            }
            Err(error) => {
                warn!("cannot collect ended flows: {error}");
                PASS_INTERVAL
            }
        };
        sleep(pause).await;
    }
}
