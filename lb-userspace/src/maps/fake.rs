//! Maps in memory that fail on purpose.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lb_common::{
    ServiceKey,
    backend::state,
    maps,
    service::{
        flags::{CLUSTER_IP, INSIDE_APART},
        scope,
    },
};

use super::{LbMaps, MapError, Op, Part, Snapshot, Which};
use crate::sys::Cursor;

/// In-memory maps with the sizes and errors of the real ones. Clones share the same maps, as two openers of a pin do.
///
/// Without further ado one write in ten fails, chosen by a seed: who writes must be able to bear it.
#[derive(Clone, Debug)]
pub struct FakeMaps {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    holds: Snapshot,
    random: fastrand::Rng,
    failing: f64,
    sizes: Sizes,
    log: Vec<Op>,
    audit: bool,
    violations: Vec<String>,
}

/// Sizes of the maps, in entries.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of SERVICES.
    pub services: usize,
    /// Of BACKENDS.
    pub backends: usize,
    /// Of BACKEND_STATE.
    pub states: usize,
    /// Of SOURCE_RANGES.
    pub ranges: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            services: maps::SERVICES_SIZE,
            backends: maps::BACKENDS_SIZE,
            states: maps::BACKEND_STATE_SIZE,
            ranges: maps::SOURCE_RANGES_SIZE,
        }
    }
}

impl FakeMaps {
    /// Empty maps of the default sizes, one in ten of whose writes fails.
    pub fn new(seed: u64) -> Self {
        let shared = Shared {
            holds: Snapshot::default(),
            random: fastrand::Rng::with_seed(seed),
            failing: 0.1,
            sizes: Sizes::default(),
            log: Vec::new(),
            audit: false,
            violations: Vec::new(),
        };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Sets the share of writes that fail, 0 to 1.
    pub fn fail(&self, share: f64) {
        self.lock().failing = share;
    }

    /// Sets the sizes. What is there beyond them stays.
    pub fn resize(&self, sizes: Sizes) {
        self.lock().sizes = sizes;
    }

    /// After every write from now on, checks that what packets would see is whole. Costs a pass over the maps a write.
    pub fn audit(&self) {
        self.lock().audit = true;
    }

    /// What the checks found.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// What the maps hold.
    pub fn holds(&self) -> Snapshot {
        self.lock().holds.clone()
    }

    /// The writes that succeeded since the last call, in order.
    pub fn take_log(&self) -> Vec<Op> {
        std::mem::take(&mut self.lock().log)
    }

    /// Writes as somebody else would, past whoever thinks that the maps are theirs. Never fails on purpose.
    ///
    /// # Panics
    /// If there is no room.
    #[expect(clippy::expect_used, reason = "for tests")]
    pub fn tamper(&self, op: &Op) {
        self.lock().write(op).expect("there is room");
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LbMaps for FakeMaps {
    fn apply(&mut self, op: &Op) -> Result<(), MapError> {
        let mut shared = self.lock();
        if shared.random.f64() < shared.failing {
            return Err(MapError::Kernel {
                action: "write",
                map: op.map(),
                cause: io::ErrorKind::ResourceBusy.into(),
            });
        }
        shared.write(op)?;
        shared.log.push(*op);
        if shared.audit
            && let Err(violation) = whole(&shared.holds)
        {
            shared.violations.push(format!("after {op:?}: {violation}"));
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, MapError> {
        Ok(self.holds())
    }

    fn read(&self, map: Which, _from: Option<Cursor>) -> Result<Part, MapError> {
        let holds = self.holds();
        Ok(match map {
            Which::States => Part::last(holds.states.into_iter().map(|(id, state)| Op::PutState(id, state))),
            Which::Backends => {
                Part::last(holds.backends.into_iter().map(|(key, it)| Op::PutBackend(key, it)))
            }
            Which::Services => {
                Part::last(holds.services.into_iter().map(|(key, it)| Op::PutService(key, it)))
            }
            Which::Ranges => Part::last(holds.ranges.into_iter().map(Op::PutRange)),
            Which::Settings => Part::last(std::iter::once(Op::PutSettings(holds.settings))),
        })
    }
}

impl Shared {
    fn write(&mut self, op: &Op) -> Result<(), MapError> {
        let Snapshot { services, backends, states, ranges, settings } = &mut self.holds;
        let full = |size: usize| {
            let max_entries = u32::try_from(size).unwrap_or(u32::MAX);
            Err(MapError::Full { map: op.map(), max_entries })
        };
        let Sizes {
            services: services_size,
            backends: backends_size,
            states: states_size,
            ranges: ranges_size,
        } = self.sizes;
        match *op {
            Op::PutService(key, _) if !services.contains_key(&key) && services.len() >= services_size => {
                return full(services_size);
            }
            Op::PutBackend(key, _) if !backends.contains_key(&key) && backends.len() >= backends_size => {
                return full(backends_size);
            }
            Op::PutState(id, _) if !states.contains_key(&id) && states.len() >= states_size => {
                return full(states_size);
            }
            Op::PutRange(range) if !ranges.contains(&range) && ranges.len() >= ranges_size => {
                return full(ranges_size);
            }
            Op::PutService(key, value) => {
                services.insert(key, value);
            }
            Op::DeleteService(key) => {
                services.remove(&key);
            }
            Op::PutBackend(key, value) => {
                backends.insert(key, value);
            }
            Op::DeleteBackend(key) => {
                backends.remove(&key);
            }
            Op::PutState(id, value) => {
                states.insert(id, value);
            }
            Op::DeleteState(id) => {
                states.remove(&id);
            }
            Op::PutRange(range) => {
                ranges.insert(range);
            }
            Op::DeleteRange(range) => {
                ranges.remove(&range);
            }
            Op::PutSettings(value) => *settings = value,
        }
        Ok(())
    }
}

/// Whether every slot that a packet can choose is there, and its backend active; whether every ClusterIP as a whole is
/// where it is looked for, and the address of a frontend; and whether every frontend with an entry apart for clients inside
/// has one.
fn whole(maps: &Snapshot) -> Result<(), String> {
    for (key, value) in &maps.services {
        if key.is_whole() {
            let of_it = |other: &ServiceKey| other.address == key.address && !other.is_whole();
            let mut frontends = maps.services.iter().filter(|(other, _)| of_it(other));
            if frontends.all(|(_, value)| value.flags & CLUSTER_IP == 0) {
                return Err(format!("{key:?} has no frontend of a ClusterIP"));
            }
            if !maps.settings.may_be_cluster_ip(key.address) {
                return Err(format!("{key:?} is outside of {:?}", maps.settings.cluster_ips));
            }
        }
        if value.flags & INSIDE_APART != 0 {
            let inside = maps.services.get(&ServiceKey { scope: scope::INSIDE, ..*key });
            if inside.is_none() {
                return Err(format!("{key:?} has nothing for clients inside"));
            }
        }
        let set = value.set;
        if set.local > set.count {
            return Err(format!("{key:?} has {} local of {} backends", set.local, set.count));
        }
        for slot in 0..set.count {
            let slot = lb_common::SlotKey { block: set.block, slot, pad: 0 };
            let Some(backend) = maps.backends.get(&slot) else {
                return Err(format!("{key:?} leads to {slot:?}, which is not there"));
            };
            if maps.states.get(&backend.backend_id).is_none_or(|state| state.flags & state::ACTIVE == 0) {
                return Err(format!("{key:?} leads to {backend:?}, which is not active"));
            }
        }
    }
    Ok(())
}
