//! The object's map definitions against the types that user space reads and writes them with.

use std::collections::BTreeMap;

use aya_obj::{Map, Object, btf::BtfKind};
use lb_common::{
    AffinityKey, AffinityValue, BackendState, BackendValue, FlowKey, FlowValue, FragmentKey, FragmentValue,
    LinkValue, NodeValue, ServiceKey, ServiceValue, Settings, SlotKey, SocketKey, SocketValue, SourceKey,
    maps,
};
use lb_userspace::object::OBJECT;

/// Key and value size of a map.
fn sizes<K, V>() -> (usize, usize) {
    (size_of::<K>(), size_of::<V>())
}

#[test]
fn every_map_has_the_sizes_of_its_types() {
    let want = BTreeMap::from([
        (maps::SERVICES, (sizes::<ServiceKey, ServiceValue>(), maps::SERVICES_SIZE)),
        (maps::BACKENDS, (sizes::<SlotKey, BackendValue>(), maps::BACKENDS_SIZE)),
        (maps::BACKEND_STATE, (sizes::<u32, BackendState>(), maps::BACKEND_STATE_SIZE)),
        (maps::FLOWS_NEW, (sizes::<FlowKey, FlowValue>(), maps::FLOWS_SIZE)),
        (maps::FLOWS, (sizes::<FlowKey, FlowValue>(), maps::FLOWS_SIZE)),
        (maps::AFFINITY, (sizes::<AffinityKey, AffinityValue>(), maps::AFFINITY_SIZE)),
        (maps::FRAGMENTS, (sizes::<FragmentKey, FragmentValue>(), maps::FRAGMENTS_SIZE)),
        (maps::SOURCE_RANGES, (sizes::<(u32, SourceKey), u32>(), maps::SOURCE_RANGES_SIZE)),
        (maps::NODE, (sizes::<u32, NodeValue>(), 1)),
        (maps::LINKS, (sizes::<u32, LinkValue>(), maps::LINKS_SIZE)),
        (maps::SOCKETS, (sizes::<SocketKey, SocketValue>(), maps::SOCKETS_SIZE)),
        (maps::SETTINGS, (sizes::<u32, Settings>(), 1)),
        (maps::COUNTERS, (sizes::<u32, u64>(), maps::COUNTERS_SIZE)),
    ]);
    assert!(want.keys().copied().eq(sorted(&maps::ALL)), "a row for every map");
    let object = Object::parse(OBJECT).unwrap();
    for (name, want) in want {
        let map = &object.maps[name];
        let key_and_value = (map.key_size() as usize, map.value_size() as usize);
        assert_eq!((key_and_value, map.max_entries() as usize), want, "{name}");
    }
}

fn sorted(names: &[&'static str]) -> Vec<&'static str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

#[test]
fn every_map_can_be_dumped_with_the_names_of_its_fields() {
    let object = Object::parse(OBJECT).unwrap();
    let btf = object.btf.as_ref().expect("the object has BTF");
    for name in maps::ALL {
        let Map::Btf(map) = &object.maps[name] else { panic!("{name} has no BTF") };
        assert_ne!((map.def.btf_key_type_id, map.def.btf_value_type_id), (0, 0), "{name}");
    }
    for name in [
        "ServiceKey",
        "ServiceValue",
        "BackendSet",
        "SlotKey",
        "BackendValue",
        "FlowKey",
        "FlowValue",
        "AffinityKey",
        "AffinityValue",
        "SocketKey",
        "SocketValue",
    ] {
        btf.id_by_type_name_kind(name, BtfKind::Struct).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
