//! A plan in the making.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ipnet::IpNet;
use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey,
    backend::state,
    service::{
        flags::{DROP_WHEN_EMPTY, SOURCE_RANGES},
        scope,
    },
};

use super::{
    Leftovers, Place, Plan, PlanError,
    address::Addresses,
    parts::{Part, met_by},
    place, ranges,
};
use crate::{
    desired::{EndpointSet, NoBackends},
    endpoints::{Backend, Selection},
    ids::{Exhausted, Ids, Next, ServicePort},
    maps::{Op, Record, SourceRange},
    model::ObjectKey,
};

/// Collects the operations of one Service.
pub(super) struct Draft<'a> {
    service: &'a ObjectKey,
    record: &'a Record,
    ids: &'a mut Ids,
    first_new: Next,
    service_ids: Vec<u32>,
    /// Flags by backend id. A backend can be in several sets of its Service port: it has the flags of all.
    states: BTreeMap<u32, u32>,
    slots: Vec<Op>,
    frontends: Vec<(ServiceKey, ServiceValue)>,
    /// Who may connect to the frontends that are guarded.
    source_ranges: &'a [IpNet],
    /// The service ids of such frontends.
    guarded: BTreeSet<u32>,
    complete: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(
        service: &'a ObjectKey,
        record: &'a Record,
        ids: &'a mut Ids,
        source_ranges: Option<&'a [IpNet]>,
        complete: bool,
    ) -> Self {
        Self {
            service,
            record,
            first_new: ids.next(),
            ids,
            service_ids: Vec::new(),
            states: BTreeMap::new(),
            slots: Vec::new(),
            frontends: Vec::new(),
            source_ranges: source_ranges.unwrap_or_default(),
            guarded: BTreeSet::new(),
            complete,
        }
    }

    /// Brings the entries that share a set to it. Until every first list is complete, the backends of the sets that their
    /// clients meet now stay in it.
    pub(super) fn set(&mut self, set: &EndpointSet, parts: &[Part]) -> Result<(), PlanError> {
        let held: Vec<_> = parts.iter().flat_map(|part| met_by(part, self.record)).collect();
        let port = ServicePort { service: self.service.clone(), port: set.port.clone() };
        let service_id = self.ids.service(port, held.iter().map(|value| value.service_id))?;
        self.service_ids.push(service_id);
        let mut wanted = Wanted::new(&set.selection);
        if !self.complete {
            held.iter().for_each(|value| wanted.keep(value, self.record));
        }
        let slots = wanted.chosen.len() + wanted.draining.len();
        if slots > usize::from(u16::MAX) {
            return Err(PlanError::TooManyEndpoints { port: set.port.name.clone(), count: slots });
        }
        let mut members = Vec::with_capacity(slots);
        for (place, flags) in wanted.chosen.iter().chain(&wanted.draining) {
            members.push(self.member(service_id, *place, *flags)?);
        }
        let count = wanted.chosen.len();
        let local = wanted.chosen.iter().filter(|(_, flags)| flags & state::LOCAL != 0).count();
        // The chosen ones come with those of this node first. Within, programs look for an id in order.
        members[..local].sort_unstable_by_key(|member| member.backend_id);
        members[local..count].sort_unstable_by_key(|member| member.backend_id);
        let backend_set = self.block(&held, service_id, &members, as_count(count), as_count(local));
        let flags = if set.no_backends() == NoBackends::Drop { DROP_WHEN_EMPTY } else { 0 };
        for part in parts {
            let value = ServiceValue {
                set: backend_set,
                service_id,
                flags: flags | part.flags,
                affinity_seconds: part.affinity_seconds,
                pad: 0,
            };
            self.frontends.push((part.key, value));
            if part.flags & SOURCE_RANGES != 0 {
                self.guarded.insert(service_id);
            }
        }
        Ok(())
    }

    /// Gives back the ids that it has taken.
    pub(super) fn abandon(self) {
        self.ids.take_back(self.first_new);
        for service_id in self.service_ids {
            self.ids.forget_unused(service_id, self.record);
        }
    }

    /// Puts everything in order.
    pub(super) fn finish(mut self) -> Plan {
        let (record, mut leftovers) = (self.record, Leftovers::default());
        let (new_ranges, old_ranges) = self.ranges();
        // What is apart for clients inside is there before they are sent to it.
        self.frontends.sort_by_key(|(key, _)| key.scope != scope::INSIDE);
        let frontends = self.frontends.iter().map(|(key, value)| (*key, Some(*value)));
        let addresses = Addresses::of(frontends, record, self.complete);
        let settings = addresses.settings(self.ids.reserve(record.settings()), record);
        let mut now: Vec<_> = settings.map(Op::PutSettings).into_iter().collect();
        now.reserve(self.states.len() + self.slots.len() + self.frontends.len());
        for (id, mut flags) in self.states {
            let held = record.states().get(&id).copied();
            // Who can be chosen from an old set stays active until that has been collected.
            flags |= held.map_or(0, |held| held.flags & state::ACTIVE);
            if held != Some(BackendState { flags }) {
                now.push(Op::PutState(id, BackendState { flags }));
            }
        }
        now.extend(self.slots.into_iter().chain(new_ranges).chain(addresses.before));
        for (key, value) in self.frontends {
            let held = record.services().get(&key);
            if held != Some(&value) {
                now.push(Op::PutService(key, value));
                held.into_iter().for_each(|held| leftovers.add(&key, held, record));
            }
        }
        now.extend(addresses.after.into_iter().chain(old_ranges));
        Plan { now, leftovers, held_back: addresses.held_back }
    }

    /// The ranges of clients that are to come, and those that are to go.
    fn ranges(&self) -> (Vec<Op>, Vec<Op>) {
        let (mut come, mut go) = (Vec::new(), Vec::new());
        for &service_id in &self.guarded {
            let wanted = ranges::entries(service_id, self.source_ranges);
            let held: BTreeSet<SourceRange> = self.record.ranges(service_id).copied().collect();
            come.extend(wanted.difference(&held).copied().map(Op::PutRange));
            go.extend(held.difference(&wanted).copied().map(Op::DeleteRange));
        }
        (come, go)
    }

    fn member(
        &mut self,
        service_id: u32,
        (address, port): Place,
        flags: u32,
    ) -> Result<BackendValue, Exhausted> {
        let backend_id = self.ids.backend(service_id, address, port)?;
        *self.states.entry(backend_id).or_default() |= flags;
        Ok(BackendValue { address, port, pad: 0, backend_id })
    }

    /// The block that a frontend of the Service port leads to already, if it is just so; else a new one. An empty set needs
    /// none.
    fn block(
        &mut self,
        held: &[&ServiceValue],
        service_id: u32,
        members: &[BackendValue],
        count: u16,
        local: u16,
    ) -> BackendSet {
        let slot = |block, (at, member)| (SlotKey { block, slot: as_count(at), pad: 0 }, member);
        let is_so = |value: &&ServiceValue| {
            let set = value.set;
            let wanted = members.iter().enumerate().map(|member| slot(set.block, member));
            (set.count, set.local) == (count, local)
                && value.service_id == service_id
                && self.record.block(set.block).map(|(key, value)| (*key, value)).eq(wanted)
        };
        let of_port = self.record.frontends(service_id);
        if let Some(value) = held.iter().copied().chain(of_port).find(is_so) {
            return value.set;
        }
        if members.is_empty() {
            return BackendSet::default();
        }
        let block = self.ids.block(self.record);
        let slots = members.iter().enumerate().map(|member| slot(block, member));
        self.slots.extend(slots.map(|(key, member)| Op::PutBackend(key, *member)));
        BackendSet { block, count, local }
    }
}

/// The members of a set to be, each with its state.
struct Wanted {
    /// Node-local ones first.
    chosen: Vec<(Place, u32)>,
    draining: Vec<(Place, u32)>,
}

impl Wanted {
    fn new(selection: &Selection) -> Self {
        let flags = |backend: &Backend| {
            let draining = if backend.draining { state::DRAINING } else { 0 };
            let local = if backend.local { state::LOCAL } else { 0 };
            draining | local
        };
        let chosen = selection.usable.iter().map(|it| (place(it), flags(it) | state::ACTIVE)).collect();
        let draining = selection.draining.iter().map(|it| (place(it), flags(it))).collect();
        Self { chosen, draining }
    }

    /// Adds the backends of a present set that are not chosen.
    fn keep(&mut self, held: &ServiceValue, record: &Record) {
        let mut chosen: HashSet<Place> = self.chosen.iter().map(|(place, _)| *place).collect();
        let mut draining: HashSet<Place> = self.draining.iter().map(|(place, _)| *place).collect();
        for (key, value) in record.block(held.set.block) {
            let at = (value.address, value.port);
            if chosen.contains(&at) {
                continue;
            }
            let flags = record.states().get(&value.backend_id).map_or(0, |state| state.flags);
            if key.slot < held.set.count {
                chosen.insert(at);
                self.chosen.push((at, flags | state::ACTIVE));
            } else if draining.insert(at) {
                self.draining.push((at, flags & !state::ACTIVE));
            }
        }
        self.draining.retain(|(place, _)| !chosen.contains(place));
        // Stable: the others stay in their order.
        self.chosen.sort_by_key(|(_, flags)| flags & state::LOCAL == 0);
    }
}

/// A count or an index of slots.
#[expect(clippy::cast_possible_truncation, reason = "sets with more than u16::MAX slots are refused before")]
const fn as_count(slots: usize) -> u16 {
    slots as u16
}
