//! What a change leaves behind.

use std::{
    cell::LazyCell,
    collections::{BTreeSet, HashMap, HashSet},
};

use lb_common::{
    BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey,
    backend::state::ACTIVE,
    service::{
        flags::{INSIDE_APART, SOURCE_RANGES},
        scope,
    },
};

use crate::{
    ids::Ids,
    maps::{Op, Record},
};

/// What may have fallen out of use. Whether it has is decided when it is collected: a backend can come back before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Blocks that a frontend led to.
    blocks: BTreeSet<u32>,
    /// Service ids of such frontends.
    services: BTreeSet<u32>,
    /// Backends that may be gone.
    gone: BTreeSet<u32>,
    /// Backends of the service ids above that packets may no longer be able to choose.
    demoted: BTreeSet<u32>,
    /// Entries for clients inside of frontends that may no longer have one apart.
    insides: BTreeSet<ServiceKey>,
}

impl Leftovers {
    /// What is out of use already, and what may only drain: an earlier agent may have left it so.
    pub fn unused(record: &Record) -> Self {
        let mut blocks: Vec<_> = record.backends().keys().map(|slot| slot.block).collect();
        blocks.dedup();
        blocks.retain(|block| !record.is_block_used(*block));
        let slots = blocks.iter().flat_map(|block| record.block(*block));
        // Behind those that packets can choose are those that only drain, most often none.
        let draining = record.services().values().flat_map(|value| {
            record.block(value.set.block).skip(value.set.count.into()).map(|(_, slot)| slot.backend_id)
        });
        let unheld = record.states().keys().copied().filter(|id| record.holders(*id) == 0);
        let of_ranges = record.all_ranges().iter().map(|range| range.service_id);
        let insides = record.services().keys().filter(|key| key.scope == scope::INSIDE);
        Self {
            services: record.services().values().map(|value| value.service_id).chain(of_ranges).collect(),
            insides: insides.copied().collect(),
            gone: slots.map(|(_, value)| value.backend_id).chain(unheld).collect(),
            demoted: draining.collect(),
            blocks: blocks.into_iter().collect(),
        }
    }

    /// Adds what operations were to write that did not all succeed.
    pub fn add_failed(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::PutService(key, value) => {
                    self.services.insert(value.service_id);
                    self.insides.extend((key.scope == scope::INSIDE).then_some(*key));
                }
                Op::PutRange(range) => {
                    self.services.insert(range.service_id);
                }
                Op::PutBackend(slot, value) => {
                    self.blocks.insert(slot.block);
                    self.gone.insert(value.backend_id);
                    self.demoted.insert(value.backend_id);
                }
                _ => {}
            }
        }
    }

    /// Leaves out the blocks that are in use: whoever takes the last frontend away from one starts a grace period of
    /// its own.
    pub fn only_unused(mut self, record: &Record) -> Self {
        self.blocks.retain(|block| !record.is_block_used(*block));
        self
    }

    /// The operations that end what no frontend leads to any more, and that need not wait: the state goes of a backend that
    /// only unused slots hold, and one that is held but no longer chosen only drains from now on. Datagrams, which ask for
    /// the state, move with the next one.
    pub fn retire(&self, record: &Record) -> Vec<Op> {
        let mut unused = HashMap::<u32, u32>::new();
        for (_, value) in self.unused_slots(record) {
            *unused.entry(value.backend_id).or_default() += 1;
        }
        let chosen = LazyCell::new(|| self.chosen(record));
        let states = self.gone.union(&self.demoted).filter_map(|id| record.states().get_key_value(id));
        let retired = states.filter_map(|(id, state)| {
            let is_held = record.holders(*id) > unused.get(id).copied().unwrap_or_default();
            if !is_held && self.gone.contains(id) {
                Some(Op::DeleteState(*id))
            } else if state.flags & ACTIVE != 0 && self.demoted.contains(id) && !chosen.contains(id) {
                Some(Op::PutState(*id, BackendState { flags: state.flags & !ACTIVE }))
            } else {
                None
            }
        });
        retired.collect()
    }

    /// The operations that remove what is unused: the slots of blocks that no frontend leads to, what was not
    /// [retired](Self::retire), entries for clients inside that none of them is sent to any more, and ranges of clients that
    /// nobody asks for. What the entries lead to is [left](Self::left_by_insides) by that.
    pub fn collect(&self, record: &Record) -> Vec<Op> {
        let slots = self.unused_slots(record).map(|(key, _)| Op::DeleteBackend(*key));
        let insides = self.unused_insides(record).map(|(key, _)| Op::DeleteService(*key));
        let is_guarded = |value: &ServiceValue| value.flags & SOURCE_RANGES != 0;
        let unguarded = self.services.iter().filter(|id| !record.frontends(**id).any(is_guarded));
        let ranges = unguarded.flat_map(|id| record.ranges(*id)).copied().map(Op::DeleteRange);
        slots.chain(self.retire(record)).chain(insides).chain(ranges).collect()
    }

    /// What may be unused once the entries for clients inside are [collected](Self::collect). A packet may have read one of
    /// them just before, so it has a grace period of its own.
    #[must_use]
    pub fn left_by_insides(&self, record: &Record) -> Self {
        let mut left = Self::default();
        self.unused_insides(record).for_each(|(key, value)| left.add(key, value, record));
        left
    }

    fn unused_insides<'a>(
        &'a self,
        record: &'a Record,
    ) -> impl Iterator<Item = (&'a ServiceKey, &'a ServiceValue)> {
        let is_apart = |key: &ServiceKey| {
            let of_all = record.services().get(&ServiceKey { scope: scope::ANY, ..*key });
            of_all.is_some_and(|value| value.flags & INSIDE_APART != 0)
        };
        let unused = self.insides.iter().filter(move |key| !is_apart(key));
        unused.filter_map(|key| record.services().get_key_value(key))
    }

    fn unused_slots<'a>(
        &'a self,
        record: &'a Record,
    ) -> impl Iterator<Item = (&'a SlotKey, &'a BackendValue)> {
        let unused = self.blocks.iter().filter(|block| !record.is_block_used(**block));
        unused.flat_map(|block| record.block(*block))
    }

    /// The backends that a packet can choose now, in any frontend of the Service ports.
    fn chosen(&self, record: &Record) -> HashSet<u32> {
        let frontends = self.services.iter().flat_map(|service_id| record.frontends(*service_id));
        let slots = frontends.flat_map(|value| record.block(value.set.block).take(value.set.count.into()));
        slots.map(|(_, value)| value.backend_id).collect()
    }

    /// Forgets the ids that are no longer in the maps.
    pub fn forget_ids(&self, record: &Record, ids: &mut Ids) {
        for service_id in &self.services {
            ids.forget_unused(*service_id, record);
        }
    }

    /// Adds what a frontend leads to now, and what of it is apart.
    pub(super) fn add(&mut self, key: &ServiceKey, value: &ServiceValue, record: &Record) {
        if value.flags & INSIDE_APART != 0 {
            self.insides.insert(ServiceKey { scope: scope::INSIDE, ..*key });
        }
        self.services.insert(value.service_id);
        self.blocks.insert(value.set.block);
        let backends = record.block(value.set.block).map(|(_, slot)| slot.backend_id);
        self.gone.extend(backends.clone());
        self.demoted.extend(backends);
    }
}
