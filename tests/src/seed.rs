//! What the agent would have written: frontends, backends and settings. The ids are given out as it gives them: one for each
//! service port, and one for each backend of one.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use aya::{
    Pod,
    maps::{
        Array, HashMap, MapData, PerCpuArray, PerCpuValues,
        lpm_trie::{Key, LpmTrie},
    },
    util::nr_cpus,
};
use lb_common::{
    AffinityKey, AffinityValue, BackendSet, BackendState, BackendValue, FlowKey, FlowValue, FragmentKey,
    FragmentValue, LinkValue, NodeValue, ServiceKey, ServiceValue, Settings, SlotKey, SourceKey,
    addr::from_ip,
    backend::state,
    maps,
    service::{flags, proto, scope},
    source_range::prefix_len,
};

use crate::prog::Datapath;

/// A frontend: where it listens, and the protocol number.
pub type Frontend = (SocketAddr, u8);

/// The ids that were given out.
#[derive(Default)]
pub struct Ids {
    services: BTreeMap<Frontend, u32>,
    backends: BTreeMap<(Frontend, SocketAddr), u32>,
    affinity_seconds: BTreeMap<Frontend, u32>,
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
    /// Gives a frontend these backends, all active, as the agent does: a new block in the order of ids, then the one word
    /// that names it. The state of backends that are no longer in the set stays as it is.
    pub fn serve(&mut self, frontend: Frontend, backends: &[SocketAddr]) {
        self.serve_here_and_there(frontend, &[], backends, &[]);
    }

    /// The same with backends on this node, on others, and ones that only drain.
    pub fn serve_here_and_there(
        &mut self,
        frontend: Frontend,
        here: &[SocketAddr],
        there: &[SocketAddr],
        draining: &[SocketAddr],
    ) {
        let block = self.ids.fresh();
        let mut slots = Vec::new();
        for (run, flags) in [(here, state::ACTIVE), (there, state::ACTIVE), (draining, state::DRAINING)] {
            let mut ids: Vec<_> = run.iter().map(|&it| (self.ids.backend(frontend, it), it)).collect();
            ids.sort_unstable();
            run.iter().for_each(|&backend| self.set_state(frontend, backend, Some(flags)));
            slots.extend(ids);
        }
        for (slot, (backend_id, backend)) in (0u16..).zip(slots) {
            let value =
                BackendValue { address: from_ip(backend.ip()), port: backend.port(), pad: 0, backend_id };
            self.hash(maps::BACKENDS).insert(SlotKey { block, slot, pad: 0 }, value, 0).expect("room");
        }
        let count = |backends: &[SocketAddr]| u16::try_from(backends.len()).expect("few");
        let value = ServiceValue {
            set: BackendSet { block, count: count(here) + count(there), local: count(here) },
            service_id: self.ids.service(frontend),
            affinity_seconds: self.ids.affinity_seconds.get(&frontend).copied().unwrap_or_default(),
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

    /// Makes an address none of ours.
    pub fn disown_address(&mut self, address: IpAddr) {
        let key = ServiceKey::whole(from_ip(address));
        self.hash::<ServiceKey, ServiceValue>(maps::SERVICES).remove(&key).expect("it is there");
    }

    /// Has packets to a frontend dropped, not refused, while it has no backend.
    pub fn drop_when_empty(&mut self, frontend: Frontend) {
        self.add_flags(frontend, flags::DROP_WHEN_EMPTY);
    }

    /// Adds bits of [`flags`] to a frontend, until it gets other backends.
    pub fn add_flags(&mut self, frontend: Frontend, bits: u32) {
        let mut map = self.hash::<ServiceKey, ServiceValue>(maps::SERVICES);
        let mut value = map.get(&service_key(frontend), 0).expect("it is there");
        value.flags |= bits;
        map.insert(service_key(frontend), value, 0).expect("it is replaced");
    }

    /// Gives clients inside the cluster the frontend as it is now, apart from clients outside.
    pub fn set_apart(&mut self, frontend: Frontend) {
        let mut map = self.hash::<ServiceKey, ServiceValue>(maps::SERVICES);
        let value = map.get(&service_key(frontend), 0).expect("it is there");
        let inside = ServiceKey { scope: scope::INSIDE, ..service_key(frontend) };
        map.insert(inside, value, 0).expect("room");
    }

    /// Lets clients of a range connect to a frontend with [`flags::SOURCE_RANGES`].
    pub fn allow(&mut self, frontend: Frontend, range: IpAddr, bits: u32) {
        let bits = if range.is_ipv4() { 96 + bits } else { bits };
        let data = SourceKey { service_id: self.ids.service(frontend), client: from_ip(range) };
        let map = self.ebpf.map_mut(maps::SOURCE_RANGES).expect(maps::SOURCE_RANGES);
        let mut trie = LpmTrie::<_, SourceKey, u32>::try_from(map).expect("a trie of these types");
        trie.insert(&Key::new(prefix_len(bits), data), 1, 0).expect("room");
    }

    /// Sets what the programs know of the node.
    pub fn set_node(&mut self, node: NodeValue) {
        let map = self.ebpf.map_mut(maps::NODE).expect(maps::NODE);
        Array::try_from(map).expect("an array").set(0, node, 0).expect("element 0");
    }

    /// Sets what they know of an interface.
    pub fn set_link(&mut self, index: u32, link: LinkValue) {
        self.hash(maps::LINKS).insert(index, link, 0).expect("room");
    }

    /// Sets when the last ICMP error of each CPU is due (`lb_common::refuse::spend`).
    pub fn set_errors_due(&mut self, due: u64) {
        let map = self.ebpf.map_mut("ERRORS_DUE").expect("ERRORS_DUE");
        let cpus = nr_cpus().expect("the kernel tells");
        let values = PerCpuValues::try_from(vec![due; cpus]).expect("one a CPU");
        PerCpuArray::try_from(map).expect("a per-CPU array").set(0, values, 0).expect("element 0");
    }

    /// Gives a frontend session affinity from the next time on that it gets its backends; none for 0 seconds.
    pub fn set_affinity(&mut self, frontend: Frontend, seconds: u32) {
        self.ids.affinity_seconds.insert(frontend, seconds);
    }

    /// The key of a client of a frontend in AFFINITY.
    pub fn affinity_key(&mut self, frontend: Frontend, client: SocketAddr) -> AffinityKey {
        AffinityKey { client: from_ip(client.ip()), service_id: self.ids.service(frontend) }
    }

    /// What AFFINITY holds for a client of a frontend.
    pub fn affinity(&mut self, frontend: Frontend, client: SocketAddr) -> Option<AffinityValue> {
        let key = self.affinity_key(frontend, client);
        self.hash(maps::AFFINITY).get(&key, 0).ok()
    }

    /// Lets a client's backend have been used that many nanoseconds earlier.
    pub fn age_affinity(&mut self, frontend: Frontend, client: SocketAddr, by: u64) {
        let mut value = self.affinity(frontend, client).expect("the client has a backend");
        value.last_used -= by;
        let key = self.affinity_key(frontend, client);
        self.hash(maps::AFFINITY).insert(key, value, 0).expect("it is replaced");
    }

    /// Lets every first fragment have been seen that many nanoseconds earlier.
    pub fn age_fragments(&mut self, by: u64) {
        let mut map = self.hash::<FragmentKey, FragmentValue>(maps::FRAGMENTS);
        let entries: Vec<_> = map.iter().collect::<Result<_, _>>().expect("readable");
        for (key, mut value) in entries {
            value.first_seen -= by;
            map.insert(key, value, 0).expect("it is replaced");
        }
    }

    /// The id of a frontend's service port.
    pub fn service_id(&mut self, frontend: Frontend) -> u32 {
        self.ids.service(frontend)
    }

    /// The id of a backend of a frontend.
    pub fn backend_id(&mut self, frontend: Frontend, backend: SocketAddr) -> u32 {
        self.ids.backend(frontend, backend)
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

    /// Empties every map that the agent or the programs have filled. Ids are not given out again.
    pub fn forget_everything(&mut self) {
        fn clear<K: Pod, V: Pod>(mut map: HashMap<&mut MapData, K, V>) {
            let keys: Vec<K> = map.keys().map(|key| key.expect("readable")).collect();
            keys.iter().for_each(|key| map.remove(key).expect("it is there"));
        }
        clear(self.hash::<ServiceKey, ServiceValue>(maps::SERVICES));
        clear(self.hash::<SlotKey, BackendValue>(maps::BACKENDS));
        clear(self.hash::<u32, BackendState>(maps::BACKEND_STATE));
        clear(self.hash::<AffinityKey, AffinityValue>(maps::AFFINITY));
        clear(self.hash::<FragmentKey, FragmentValue>(maps::FRAGMENTS));
        for table in [maps::FLOWS, maps::FLOWS_NEW] {
            clear(self.hash::<FlowKey, FlowValue>(table));
        }
        self.ids.affinity_seconds.clear();
        self.set_settings(Settings::default());
        self.set_errors_due(0);
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

/// A frontend of SCTP.
pub const fn sctp(address: SocketAddr) -> Frontend {
    (address, proto::SCTP)
}
