//! New flows: which backends may have one, and what is recorded.

use std::{collections::BTreeSet, net::SocketAddr};

use lb_common::Verdict;

use super::{
    End, Model, Witness,
    flows::{Ends, Entry, Shown, Side},
    parse::Packet,
    services::{Backend, Frontend},
    untranslatable,
};
use crate::flows::Table;

/// How many backends are tried for a flow.
const TRIES: usize = 4;

impl Frontend {
    /// What becomes of a new conversation where there is nobody to have it.
    pub(super) fn empty(&self) -> Option<End> {
        match (self.backends.is_empty(), self.drops_when_empty) {
            (false, _) => None,
            (true, true) => Some(End::Dropped(Verdict::NoLocalBackend)),
            (true, false) => Some(End::Answerable(Verdict::NoBackend)),
        }
    }
}

impl Model {
    /// Binds a packet to a backend. `replaces`: it has a flow, which ends with this.
    pub(super) fn bind(
        &mut self,
        packet: &Packet,
        frontend: &Frontend,
        replaces: bool,
        now: u64,
        witness: &impl Witness,
    ) -> Result<SocketAddr, End> {
        if !packet.begins() {
            return Err(match self.services.is_migrating {
                true => End::Passed(Verdict::MidflowPassed),
                false => End::Answerable(Verdict::MidflowUnknown),
            });
        }
        if let Some(end) = frontend.empty() {
            return Err(end);
        }
        if let Some(verdict) = untranslatable(packet) {
            return Err(End::Dropped(verdict));
        }
        let (ends, backends) = (packet.ends, &frontend.backends);
        let client = ends.from.ip();
        let held = self.affinity.slot(client, frontend, now);
        let starts = held.map_or(0..backends.len(), |slot| slot..slot + 1);
        let right: BTreeSet<Option<usize>> =
            starts.map(|start| self.first_free(&ends, backends, start, now)).collect();
        let taken = one_of(
            &right,
            |id| backends.iter().position(|backend| backend.id == id),
            || witness.bound_to(&ends),
        );

        // A client that had a backend keeps it, also when another one takes this flow.
        let remembered = held
            .or(taken)
            .map(|slot| backends[slot].id)
            .or_else(|| witness.held_by(client, frontend.service));
        if let Some(backend) = remembered {
            self.affinity.remember(client, frontend, backend, now);
        }
        let Some(slot) = taken else { return Err(End::Dropped(Verdict::TupleInUse)) };
        self.record(packet, &backends[slot], frontend.service, replaces, now);
        Ok(backends[slot].address)
    }

    /// The first backend from a slot on whose replies would not be another flow's.
    fn first_free(&self, ends: &Ends, backends: &[Backend], start: usize, now: u64) -> Option<usize> {
        let tried = (start..start + TRIES).map(|slot| slot % backends.len());
        tried.into_iter().find(|slot| {
            let replies = Ends { to: backends[*slot].address, ..*ends }.reversed();
            let owner = self.flows.owner_of(&replies).filter(|owner| owner != ends);
            owner.is_none_or(|owner| self.flows.is_dead(&owner, now))
        })
    }

    fn record(&mut self, packet: &Packet, backend: &Backend, service: u32, replaces: bool, now: u64) {
        let ends = packet.ends;
        let becomes = Ends { to: backend.address, ..ends };
        let replies = becomes.reversed();
        // The flow that had them has ended; no late packet of its may get into this one.
        if let Some(owner) = self.flows.owner_of(&replies).filter(|owner| *owner != ends) {
            self.flows.entries.remove(&(Side::Forward, owner));
        }
        if replaces && self.flows.reply_of(&ends).is_some() {
            let old = self.flows.forward(&ends).map(|forward| forward.becomes.reversed());
            old.map(|old| self.flows.entries.remove(&(Side::Reply, old)));
        }
        let reply = Entry {
            becomes: ends.reversed(),
            backend: backend.id,
            service,
            table: Table::New,
            shown: Shown::default(),
            is_direct: false,
            // A backend that reaches itself: its reply would not leave it.
            is_hidden: backend.address.ip() == ends.from.ip(),
            last: now,
        };
        self.flows.put(Side::Reply, replies, reply);
        let shown = Shown::default().and(packet.says());
        self.flows.put(Side::Forward, ends, Entry { becomes, shown, ..reply });
    }
}

/// The one that was chosen, where there is a choice. A witness who names none that is right is not believed: the packet will
/// show it.
fn one_of(
    right: &BTreeSet<Option<usize>>,
    slot_of: impl Fn(u32) -> Option<usize>,
    chosen: impl Fn() -> Option<u32>,
) -> Option<usize> {
    if right.len() == 1 {
        return right.first().copied().flatten();
    }
    let chosen = chosen().and_then(slot_of);
    if right.contains(&chosen) { chosen } else { right.last().copied().flatten() }
}
