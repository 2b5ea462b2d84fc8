//! What the agent would have written: frontends, backends and settings. The ids are given out as it gives them: one for each
//! service port, and one for each backend of one.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use aya::{
    maps::{Array, PerCpuArray, PerCpuValues},
    util::nr_cpus,
};
use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, Settings, SlotKey,
    addr::from_ip,
    backend::state,
    maps,
    service::{flags, proto, scope},
};

use crate::prog::Datapath;

/// A frontend: where it listens, and the protocol number.
pub type Frontend = (SocketAddr, u8);

/// The ids that were given out.
#[derive(Default)]
pub struct Ids {
    services: BTreeMap<Frontend, u32>,
    backends: BTreeMap<(Frontend, SocketAddr), u32>,
    last: u32,
}

impl Ids {
    /// One that was never given out before.
    fn fresh(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn service(&mut self, frontend: Frontend) -> u32 {
        let fresh = self.fresh();
        *self.services.entry(frontend).or_insert(fresh)
    }

    fn backend(&mut self, frontend: Frontend, backend: SocketAddr) -> u32 {
        let fresh = self.fresh();
        *self.backends.entry((frontend, backend)).or_insert(fresh)
    }
}

impl Datapath {
    /// Gives a frontend these backends, all active, as the agent does: a new block, then the one word that names it. The
    /// state of backends that are no longer in the set stays as it is.
    pub fn serve(&mut self, frontend: Frontend, backends: &[SocketAddr]) {
        let block = self.ids.fresh();
        for (slot, &backend) in (0u16..).zip(backends) {
            let backend_id = self.ids.backend(frontend, backend);
            self.set_state(frontend, backend, Some(state::ACTIVE));
            let value =
                BackendValue { address: from_ip(backend.ip()), port: backend.port(), pad: 0, backend_id };
            self.hash(maps::BACKENDS).insert(SlotKey { block, slot, pad: 0 }, value, 0).expect("room");
        }
        let count = u16::try_from(backends.len()).expect("few");
        let value = ServiceValue {
            set: BackendSet { block, count, local: 0 },
            service_id: self.ids.service(frontend),
            ..ServiceValue::default()
        };
        self.hash(maps::SERVICES).insert(service_key(frontend), value, 0).expect("room");
    }

    /// Makes an address a ClusterIP as a whole, with the [`flags`] of that or without [`flags::USABLE`].
    pub fn own_address(&mut self, address: IpAddr, usable: bool) {
        let flags = if usable { flags::CLUSTER_IP | flags::USABLE } else { flags::CLUSTER_IP };
        let value = ServiceValue { flags, ..ServiceValue::default() };
        self.hash(maps::SERVICES).insert(ServiceKey::whole(from_ip(address)), value, 0).expect("room");
    }

    /// Has packets to a frontend dropped, not refused, while it has no backend.
    pub fn drop_when_empty(&mut self, frontend: Frontend) {
        let mut map = self.hash::<ServiceKey, ServiceValue>(maps::SERVICES);
        let mut value = map.get(&service_key(frontend), 0).expect("it is there");
        value.flags |= flags::DROP_WHEN_EMPTY;
        map.insert(service_key(frontend), value, 0).expect("it is replaced");
    }

    /// Sets when the last ICMP error of each CPU is due (`lb_common::refuse::spend`).
    pub fn set_errors_due(&mut self, due: u64) {
        let map = self.ebpf.map_mut("ERRORS_DUE").expect("ERRORS_DUE");
        let cpus = nr_cpus().expect("the kernel tells");
        let values = PerCpuValues::try_from(vec![due; cpus]).expect("one a CPU");
        PerCpuArray::try_from(map).expect("a per-CPU array").set(0, values, 0).expect("element 0");
    }

    /// Makes the service port of one frontend the owner of another, whose backends stay as they are.
    pub fn hand_over(&mut self, from: Frontend, to: Frontend) {
        let mut map = self.hash::<ServiceKey, ServiceValue>(maps::SERVICES);
        let value = map.get(&service_key(from), 0).expect("it is there");
        map.insert(service_key(to), value, 0).expect("it is replaced");
    }

    /// Removes a frontend.
    pub fn stop_serving(&mut self, frontend: Frontend) {
        self.hash::<ServiceKey, ServiceValue>(maps::SERVICES)
            .remove(&service_key(frontend))
            .expect("it is there");
    }

    /// Sets the state bits of a backend, or removes it.
    pub fn set_state(&mut self, frontend: Frontend, backend: SocketAddr, flags: Option<u32>) {
        let id = self.ids.backend(frontend, backend);
        let mut map = self.hash::<u32, BackendState>(maps::BACKEND_STATE);
        match flags {
            Some(flags) => map.insert(id, BackendState { flags }, 0).expect("room"),
            None => map.remove(&id).expect("it is there"),
        }
    }

    /// Removes a backend for good: listed again, it is another one.
    pub fn retire(&mut self, frontend: Frontend, backend: SocketAddr) {
        self.set_state(frontend, backend, None);
        self.ids.backends.remove(&(frontend, backend));
    }

    /// Sets what the agent tells the programs.
    pub fn set_settings(&mut self, settings: Settings) {
        let map = self.ebpf.map_mut(maps::SETTINGS).expect(maps::SETTINGS);
        Array::try_from(map).expect("an array").set(0, settings, 0).expect("element 0");
    }
}

/// The key of a frontend in SERVICES.
pub fn service_key((address, proto): Frontend) -> ServiceKey {
    ServiceKey { address: from_ip(address.ip()), port: address.port(), proto, scope: scope::ANY }
}

/// A frontend of TCP.
pub const fn tcp(address: SocketAddr) -> Frontend {
    (address, proto::TCP)
}

/// A frontend of UDP.
pub const fn udp(address: SocketAddr) -> Frontend {
    (address, proto::UDP)
}
