//! Ids of Service ports and backends, and the numbers of blocks.
//!
//! An id in a map outlives the agent: flows, affinity and counters speak of it. So none is given out twice within a
//! schema, whenever the agent dies: before an id is used, SETTINGS says that ids up to a higher one may be in use, and a
//! new agent goes on from there. It finds the ids in use in the maps themselves.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, btree_map, hash_map::Entry};

use lb_common::{Address, Settings};

use crate::{desired::PortKey, maps::Record, model::ObjectKey};

/// How many ids a reservation holds: a write to SETTINGS for every so many new ids.
const RESERVATION: u32 = 1024;

/// A port of a Service: what a service id stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// The Service.
    pub service: ObjectKey,
    /// Its port.
    pub port: PortKey,
}

/// The ids in use, and the next ones.
#[derive(Debug, Default)]
pub struct Ids {
    services: HashMap<ServicePort, u32>,
    /// Service ids of [`Ids::services`]. An id in the maps that is not here was found there and has no owner yet.
    owned: BTreeMap<u32, ServicePort>,
    /// Service id → address and port → backend id.
    backends: BTreeMap<u32, HashMap<(Address, u16), u32>>,
    next: Next,
}

/// The next id of each sort. Zero is no id.
#[derive(Clone, Copy, Debug, Default)]
pub struct Next {
    service: u32,
    backend: u32,
    block: u32,
}

/// No id is left. It takes 4 294 967 294 of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {what} id is left in this schema; run `readylb cleanup` and start again")]
pub struct Exhausted {
    what: &'static str,
}

impl Ids {
    /// Finds the ids in use in what the maps hold.
    pub fn adopt(record: &Record) -> Self {
        let settings = record.settings();
        // SETTINGS reserves all that is in use. The maps are looked at as well, in case SETTINGS was lost alone.
        let used_services = record.services().values().map(|value| value.service_id);
        let used_services = used_services.chain(record.all_ranges().iter().map(|range| range.service_id));
        let used_backends = record.backends().values().map(|value| value.backend_id);
        let used_backends = used_backends.chain(record.states().keys().copied());
        let after = |used: Option<u32>| used.unwrap_or(0).saturating_add(1);
        let next = Next {
            service: settings.next_service_id.max(after(used_services.max())),
            backend: settings.next_backend_id.max(after(used_backends.max())),
            block: settings.next_block.max(1),
        };
        let mut backends: BTreeMap<u32, HashMap<_, _>> = BTreeMap::new();
        for value in record.services().values() {
            let slots =
                record.block(value.set.block).map(|(_, slot)| ((slot.address, slot.port), slot.backend_id));
            backends.entry(value.service_id).or_default().extend(slots);
        }
        Self { backends, next, ..Self::default() }
    }

    /// The id of a Service port. If it has none yet: the first of those `found` in its frontends that has no owner, else
    /// a new one.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn service(&mut self, port: ServicePort, found: impl Iterator<Item = u32>) -> Result<u32, Exhausted> {
        let entry = match self.services.entry(port) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(entry) => entry,
        };
        let mut ownerless = found.filter(|id| !self.owned.contains_key(id));
        let id = match ownerless.next() {
            Some(id) => id,
            None => take(&mut self.next.service, "service")?,
        };
        self.owned.insert(id, entry.key().clone());
        Ok(*entry.insert(id))
    }

    /// The id of a backend: of the membership of an address and port in a Service port.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn backend(&mut self, service_id: u32, address: Address, port: u16) -> Result<u32, Exhausted> {
        match self.backends.entry(service_id).or_default().entry((address, port)) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(entry) => Ok(*entry.insert(take(&mut self.next.backend, "backend")?)),
        }
    }

    /// The number of a block that is free. Numbers wrap around: a block is in use only while BACKENDS holds slots of it
    /// or a frontend leads to it.
    pub fn block(&mut self, record: &Record) -> u32 {
        loop {
            let block = self.next.block;
            self.next.block = block.checked_add(1).unwrap_or(1);
            if record.block(block).next().is_none() && !record.is_block_used(block) {
                return block;
            }
        }
    }

    /// The settings with a reservation that covers every id given out, if theirs does not.
    pub fn reserve(&self, settings: Settings) -> Option<Settings> {
        let mut reserved = settings;
        for (next, reservation) in [
            (self.next.service, &mut reserved.next_service_id),
            (self.next.backend, &mut reserved.next_backend_id),
            (self.next.block, &mut reserved.next_block),
        ] {
            // Nothing is given out yet while the next one is the first.
            if next > (*reservation).max(1) {
                *reservation = next.saturating_add(RESERVATION);
            }
        }
        (reserved != settings).then_some(reserved)
    }

    /// Where the next ids start, for [`Ids::take_back`].
    pub const fn next(&self) -> Next {
        self.next
    }

    /// Makes the ids that were given out since `next` available again. For ids that no frontend ever led to: no packet
    /// can have met them.
    pub const fn take_back(&mut self, next: Next) {
        self.next = next;
    }

    /// Forgets a service id that no frontend has, and those of its backends that no slot holds.
    pub fn forget_unused(&mut self, service_id: u32, record: &Record) {
        let btree_map::Entry::Occupied(mut backends) = self.backends.entry(service_id) else {
            self.disown(service_id, record);
            return;
        };
        backends.get_mut().retain(|_, id| record.holders(*id) > 0);
        if backends.get().is_empty() {
            backends.remove();
            self.disown(service_id, record);
        }
    }

    /// Numbers of service ids and of backend ids in use.
    #[cfg(test)]
    pub(crate) fn live(&self) -> (usize, usize) {
        (self.services.len(), self.backends.values().map(HashMap::len).sum())
    }

    fn disown(&mut self, service_id: u32, record: &Record) {
        if record.frontends(service_id).next().is_none()
            && let Some(port) = self.owned.remove(&service_id)
        {
            self.services.remove(&port);
        }
    }
}

fn take(next: &mut u32, what: &'static str) -> Result<u32, Exhausted> {
    let id = *next;
    *next = id.checked_add(1).ok_or(Exhausted { what })?;
    Ok(id)
}
