//! What programs and model remember, in the form of the maps.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use aya::maps::HashMap;
use lb_common::{
    AffinityKey, AffinityValue, Direction, FlowKey, FlowValue, FragmentKey, FragmentValue, Tuple,
    addr::{from_ip, to_ip},
    flow::{flags, seen},
    fragment::{self, hook},
    maps,
};

use crate::{
    flows::{flow_key, line},
    model::{
        Model, Witness,
        affinity::Held,
        flows::{Ends, Entry, Side},
        fragments::{First, Parent},
    },
    prog::{Datapath, Hook},
};

/// Every entry of the flow tables, of AFFINITY and of FRAGMENTS. What a slot was is a hint, and not compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) flows: BTreeMap<FlowKey, String>,
    pub(super) clients: BTreeMap<(IpAddr, u32), String>,
    pub(super) fragments: BTreeMap<(Hook, Parent), First>,
}

impl Memory {
    pub(super) fn of_programs(datapath: &Datapath) -> Self {
        let flows = datapath.flows().into_iter().map(|(table, key, value)| (key, line(table, &key, &value)));
        let affinity = affinity(datapath);
        let clients = affinity.iter().map(|entry| entry.expect("readable"));
        let held = |value: AffinityValue| Held { backend: value.backend_id, last: value.last_used };
        let clients =
            clients.map(|(key, value)| ((to_ip(&key.client), key.service_id), format!("{:?}", held(value))));
        let first = fragments(datapath);
        let first = first.iter().map(|entry| entry.expect("readable"));
        let fragments = first.map(|(key, value)| (fragments_of(&key), first_of(&value)));
        Self { flows: flows.collect(), clients: clients.collect(), fragments: fragments.collect() }
    }

    pub(super) fn of_model(model: &Model) -> Self {
        let flows = model.flows.entries.iter().map(|((side, ends), entry)| {
            let key = key_of(*side, ends);
            (key, line(entry.table, &key, &value_of(entry)))
        });
        let clients = model.affinity.clients.iter().map(|(client, held)| (*client, format!("{held:?}")));
        let fragments = model.fragments.first.iter().map(|(key, first)| (*key, *first));
        Self { flows: flows.collect(), clients: clients.collect(), fragments: fragments.collect() }
    }
}

pub(super) fn key_of(side: Side, ends: &Ends) -> FlowKey {
    let direction = match side {
        Side::Forward => Direction::Forward,
        Side::Reply => Direction::Reply,
    };
    flow_key(ends.from, ends.to, ends.proto, direction)
}

fn value_of(entry: &Entry) -> FlowValue {
    let shown = &entry.shown;
    let bits = [
        (shown.any, seen::ANY),
        (shown.fin, seen::FIN),
        (shown.rst, seen::RST),
        (shown.answered, seen::ANSWERED),
    ];
    FlowValue {
        last_seen: entry.last,
        translated: key_of(Side::Forward, &entry.becomes).tuple,
        backend_id: entry.backend,
        service_id: entry.service,
        seen: bits.into_iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum(),
        flags: [(entry.is_direct, flags::DIRECT), (entry.is_hidden, flags::SOURCE_NAT)]
            .into_iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, bit)| bit)
            .sum(),
        pad: 0,
    }
}

fn affinity(datapath: &Datapath) -> HashMap<&aya::maps::MapData, AffinityKey, AffinityValue> {
    let map = datapath.ebpf().map(maps::AFFINITY).expect(maps::AFFINITY);
    HashMap::try_from(map).expect("a hash map of these types")
}

pub(super) fn record(datapath: &Datapath, (client, service_id): (IpAddr, u32)) -> Option<AffinityValue> {
    affinity(datapath).get(&AffinityKey { client: from_ip(client), service_id }, 0).ok()
}

fn fragments(datapath: &Datapath) -> HashMap<&aya::maps::MapData, FragmentKey, FragmentValue> {
    let map = datapath.ebpf().map(maps::FRAGMENTS).expect(maps::FRAGMENTS);
    HashMap::try_from(map).expect("a hash map of these types")
}

pub(super) fn fragment_key((hook, parent): &(Hook, Parent)) -> FragmentKey {
    const FRAGMENT_HEADER: u8 = 44;
    let of_v4 = |id: u32| {
        let [.., high, low] = id.to_be_bytes();
        [high, low, 0, 0]
    };
    FragmentKey {
        source: from_ip(parent.from),
        destination: from_ip(parent.to),
        id: u32::from_ne_bytes(if parent.from.is_ipv4() {
            of_v4(parent.id)
        } else {
            parent.id.to_be_bytes()
        }),
        proto: parent.proto.unwrap_or(FRAGMENT_HEADER),
        hook: if *hook == Hook::Ingress { hook::INGRESS } else { hook::EGRESS },
        pad: 0,
    }
}

fn fragments_of(key: &FragmentKey) -> (Hook, Parent) {
    let (from, to) = (to_ip(&key.source), to_ip(&key.destination));
    let [a, b, c, d] = key.id.to_ne_bytes();
    let id = if from.is_ipv4() { u32::from_be_bytes([c, d, a, b]) } else { u32::from_be_bytes([a, b, c, d]) };
    let hook = if key.hook == hook::INGRESS { Hook::Ingress } else { Hook::Egress };
    (hook, Parent { from, to, id, proto: from.is_ipv4().then_some(key.proto) })
}

fn first_of(value: &FragmentValue) -> First {
    First {
        address: to_ip(&value.address),
        is_dropped: value.flags & fragment::flags::DROPPED != 0,
        is_marked: value.mark != 0,
        seen: value.first_seen,
    }
}

/// What the programs remember of a first fragment.
pub(super) fn first(datapath: &Datapath, key: &(Hook, Parent)) -> Option<First> {
    fragments(datapath).get(&fragment_key(key), 0).ok().map(|value| first_of(&value))
}

/// The programs tell by what they have recorded.
impl Witness for Datapath {
    fn bound_to(&self, packet: &Ends) -> Option<u32> {
        self.flow(&key_of(Side::Forward, packet)).map(|(_, value)| value.backend_id)
    }

    fn held_by(&self, client: IpAddr, service: u32) -> Option<u32> {
        record(self, (client, service)).map(|value| value.backend_id)
    }
}

/// The entries that have one of these ends.
pub(super) fn flows_of(datapath: &Datapath, ends: &Ends) -> Vec<String> {
    let is_of = |tuple: &Tuple| {
        let has = |address, port| {
            let end = SocketAddr::new(to_ip(address), port);
            end == ends.from || end == ends.to
        };
        has(&tuple.source, tuple.source_port) || has(&tuple.destination, tuple.destination_port)
    };
    let flows =
        datapath.flows().into_iter().filter(|(_, key, value)| is_of(&key.tuple) || is_of(&value.translated));
    flows.map(|(table, key, value)| line(table, &key, &value)).collect()
}
