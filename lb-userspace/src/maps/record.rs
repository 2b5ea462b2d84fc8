//! The agent's own record of what the maps hold.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    hash::Hash,
};

use lb_common::{
    Address, BackendState, BackendValue, ServiceKey, ServiceValue, Settings, SlotKey,
    service::{flags::CLUSTER_IP, scope},
};

use super::{EntryKey, Op, Snapshot, SourceRange, Which};

/// What the maps hold: read back once at the start, then kept up with every operation that was carried out. A failed
/// operation changes neither, so the two never differ.
///
/// What is keyed by numbers that the agent gives out itself is ordered by them. They ascend, so that what belongs to
/// one Service is close together in memory, however many others there are.
#[derive(Debug, Default)]
pub struct Record {
    services: HashMap<ServiceKey, ServiceValue>,
    /// ClusterIPs as a whole ([`ServiceKey::whole`]).
    addresses: HashMap<Address, ServiceValue>,
    /// The slots of a block are one range.
    backends: BTreeMap<SlotKey, BackendValue>,
    states: BTreeMap<u32, BackendState>,
    /// Those of a service id are together.
    ranges: BTreeSet<SourceRange>,
    settings: Settings,
    /// Block → frontends that lead to it.
    block_users: BTreeMap<u32, u32>,
    /// How many of the services are apart for clients inside.
    insides: usize,
    /// Frontends, each behind its service id.
    frontends: BTreeSet<(u32, ServiceKey)>,
    /// Address → frontends that make it a ClusterIP.
    cluster_ips: HashMap<Address, BTreeSet<ServiceKey>>,
    /// Backend id → slots that hold it.
    holders: BTreeMap<u32, u32>,
}

impl Record {
    /// Takes over what was found in the maps.
    pub fn adopt(snapshot: Snapshot) -> Self {
        let mut record = Self {
            settings: snapshot.settings,
            states: snapshot.states.into_iter().collect(),
            ranges: snapshot.ranges,
            ..Self::default()
        };
        for (key, value) in snapshot.services {
            record.apply(&Op::PutService(key, value));
        }
        for (key, value) in snapshot.backends {
            record.apply(&Op::PutBackend(key, value));
        }
        record
    }

    /// Follows an operation that was carried out.
    pub fn apply(&mut self, op: &Op) {
        match *op {
            Op::PutService(key, value) if key.is_whole() => {
                self.addresses.insert(key.address, value);
            }
            Op::DeleteService(key) if key.is_whole() => {
                self.addresses.remove(&key.address);
            }
            Op::PutService(key, value) => {
                self.remove_service(&key);
                if value.flags & CLUSTER_IP != 0 {
                    self.cluster_ips.entry(key.address).or_default().insert(key);
                }
                self.services.insert(key, value);
                self.insides += usize::from(key.scope == scope::INSIDE);
                *self.block_users.entry(value.set.block).or_default() += 1;
                self.frontends.insert((value.service_id, key));
            }
            Op::DeleteService(key) => self.remove_service(&key),
            Op::PutBackend(key, value) => {
                if let Some(old) = self.backends.insert(key, value) {
                    decrement(&mut self.holders, old.backend_id);
                }
                *self.holders.entry(value.backend_id).or_default() += 1;
            }
            Op::DeleteBackend(key) => {
                if let Some(old) = self.backends.remove(&key) {
                    decrement(&mut self.holders, old.backend_id);
                }
            }
            Op::PutState(id, state) => {
                self.states.insert(id, state);
            }
            Op::DeleteState(id) => {
                self.states.remove(&id);
            }
            Op::PutRange(range) => {
                self.ranges.insert(range);
            }
            Op::DeleteRange(range) => {
                self.ranges.remove(&range);
            }
            Op::PutSettings(settings) => self.settings = settings,
        }
    }

    /// What takes an operation back, if it changes anything. Settings are not taken back: ids that were once reserved
    /// stay so.
    pub fn inverse(&self, op: &Op) -> Option<Op> {
        let key = op.key();
        match self.held(&key) {
            _ if key == EntryKey::Settings => None,
            Some(held) => (held != *op).then_some(held),
            None if op.deletes() => None,
            None => key.delete(),
        }
    }

    /// What is under a key, as the operation that makes it.
    pub fn held(&self, key: &EntryKey) -> Option<Op> {
        match *key {
            EntryKey::Service(key) => self.service(&key).map(|value| Op::PutService(key, *value)),
            EntryKey::Backend(key) => self.backends.get(&key).map(|value| Op::PutBackend(key, *value)),
            EntryKey::State(id) => self.states.get(&id).map(|state| Op::PutState(id, *state)),
            EntryKey::Range(range) => self.ranges.contains(&range).then_some(Op::PutRange(range)),
            EntryKey::Settings => Some(Op::PutSettings(self.settings)),
        }
    }

    /// The keys of a map.
    pub fn keys(&self, map: Which) -> Box<dyn Iterator<Item = EntryKey> + '_> {
        match map {
            Which::States => Box::new(self.states.keys().copied().map(EntryKey::State)),
            Which::Backends => Box::new(self.backends.keys().copied().map(EntryKey::Backend)),
            Which::Services => {
                let whole = self.addresses.keys().copied().map(ServiceKey::whole);
                Box::new(self.services.keys().copied().chain(whole).map(EntryKey::Service))
            }
            Which::Ranges => Box::new(self.ranges.iter().copied().map(EntryKey::Range)),
            Which::Settings => Box::new(std::iter::once(EntryKey::Settings)),
        }
    }

    /// Number of entries of a map.
    pub fn len(&self, map: Which) -> usize {
        match map {
            Which::States => self.states.len(),
            Which::Backends => self.backends.len(),
            Which::Services => self.services.len() + self.addresses.len(),
            Which::Ranges => self.ranges.len(),
            Which::Settings => 1,
        }
    }

    /// The frontends, and what of them is apart for clients inside.
    pub const fn services(&self) -> &HashMap<ServiceKey, ServiceValue> {
        &self.services
    }

    /// Number of frontends.
    pub fn frontend_count(&self) -> usize {
        self.services.len() - self.insides
    }

    /// The entry of an address as a whole.
    pub fn address(&self, address: &Address) -> Option<&ServiceValue> {
        self.addresses.get(address)
    }

    /// The addresses that have such an entry.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        self.addresses.keys().copied()
    }

    /// The frontends that make an address a ClusterIP.
    pub fn cluster_ip(&self, address: Address) -> impl Iterator<Item = (&ServiceKey, &ServiceValue)> {
        let keys = self.cluster_ips.get(&address).into_iter().flatten();
        keys.filter_map(|key| self.services.get_key_value(key))
    }

    /// The slots of a block, in order.
    pub fn block(&self, block: u32) -> impl Iterator<Item = (&SlotKey, &BackendValue)> + Clone {
        let slot = |slot| SlotKey { block, slot, pad: 0 };
        self.backends.range(slot(0)..=slot(u16::MAX))
    }

    /// Every slot of every block, in order.
    pub const fn backends(&self) -> &BTreeMap<SlotKey, BackendValue> {
        &self.backends
    }

    /// The state of every backend.
    pub const fn states(&self) -> &BTreeMap<u32, BackendState> {
        &self.states
    }

    /// Every range of clients, those of a service id together.
    pub const fn all_ranges(&self) -> &BTreeSet<SourceRange> {
        &self.ranges
    }

    /// The ranges of clients of a service id, in order.
    pub fn ranges(&self, service_id: u32) -> impl Iterator<Item = &SourceRange> {
        let first = SourceRange { service_id, client: [0; 16], bits: 0 };
        self.ranges.range(first..).take_while(move |range| range.service_id == service_id)
    }

    /// The settings.
    pub const fn settings(&self) -> Settings {
        self.settings
    }

    /// Whether a frontend leads to the block.
    pub fn is_block_used(&self, block: u32) -> bool {
        self.block_users.contains_key(&block)
    }

    /// The frontends that have the service id, and what of them is apart for clients inside.
    pub fn frontends(&self, service_id: u32) -> impl Iterator<Item = &ServiceValue> {
        let first = (service_id, ServiceKey { address: [0; 16], port: 0, proto: 0, scope: 0 });
        let keys = self.frontends.range(first..).take_while(move |(id, _)| *id == service_id);
        keys.filter_map(|(_, key)| self.services.get(key))
    }

    /// Number of slots that hold the backend.
    pub fn holders(&self, backend_id: u32) -> u32 {
        self.holders.get(&backend_id).copied().unwrap_or_default()
    }

    /// A frontend, or an address as a whole.
    fn service(&self, key: &ServiceKey) -> Option<&ServiceValue> {
        if key.is_whole() { self.addresses.get(&key.address) } else { self.services.get(key) }
    }

    fn remove_service(&mut self, key: &ServiceKey) {
        let Some(old) = self.services.remove(key) else { return };
        self.insides -= usize::from(key.scope == scope::INSIDE);
        decrement(&mut self.block_users, old.set.block);
        self.frontends.remove(&(old.service_id, *key));
        remove_member(&mut self.cluster_ips, key.address, key);
    }
}

/// An empty set has no entry, so that what has gone leaves nothing behind.
fn remove_member<K: Eq + Hash>(sets: &mut HashMap<K, BTreeSet<ServiceKey>>, of: K, key: &ServiceKey) {
    if let Entry::Occupied(mut set) = sets.entry(of) {
        set.get_mut().remove(key);
        if set.get().is_empty() {
            set.remove();
        }
    }
}

/// Nor has a count of zero.
fn decrement(counts: &mut BTreeMap<u32, u32>, key: u32) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
