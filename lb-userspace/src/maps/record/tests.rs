use lb_common::{BackendSet, addr};
use proptest::prelude::*;

use super::*;

/// Operations on a few keys, so that they meet.
fn op() -> impl Strategy<Value = Op> {
    let address = addr::from_v4([10, 96, 0, 50]);
    let service = (0u16..3).prop_map(move |port| match port {
        0 => ServiceKey::whole(address),
        _ => ServiceKey { address, port, proto: 6, scope: 0 },
    });
    let service = (service, 0u8..2)
        .prop_map(|(key, scope)| ServiceKey { scope: if key.is_whole() { 0 } else { scope }, ..key });
    let value = (0u32..3, 0u32..3, any::<bool>()).prop_map(|(block, service_id, cluster_ip)| ServiceValue {
        set: BackendSet { block, count: 1, local: 0 },
        service_id,
        flags: if cluster_ip { CLUSTER_IP } else { 0 },
        ..ServiceValue::default()
    });
    let slot = || (0u32..3, 0u16..3).prop_map(|(block, slot)| SlotKey { block, slot, pad: 0 });
    let backend = (0u32..3).prop_map(|backend_id| BackendValue {
        address: addr::from_v4([10, 244, 1, 21]),
        port: 8080,
        pad: 0,
        backend_id,
    });
    let state = (0u32..3).prop_map(|flags| BackendState { flags });
    let range = || {
        (0u32..3, 0u32..2).prop_map(move |(service_id, bits)| SourceRange {
            service_id,
            client: address,
            bits,
        })
    };
    prop_oneof![
        (service.clone(), value).prop_map(|(key, value)| Op::PutService(key, value)),
        service.prop_map(Op::DeleteService),
        (slot(), backend).prop_map(|(key, value)| Op::PutBackend(key, value)),
        slot().prop_map(Op::DeleteBackend),
        (0u32..3, state).prop_map(|(id, state)| Op::PutState(id, state)),
        (0u32..3).prop_map(Op::DeleteState),
        range().prop_map(Op::PutRange),
        range().prop_map(Op::DeleteRange),
    ]
}

fn counted(all: impl Iterator<Item = u32>) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts
}

fn after(ops: &[Op]) -> Record {
    let mut record = Record::default();
    ops.iter().for_each(|op| record.apply(op));
    record
}

fn same(a: &Record, b: &Record) -> bool {
    a.services == b.services
        && a.addresses == b.addresses
        && a.backends == b.backends
        && a.states == b.states
        && a.ranges == b.ranges
}

proptest! {
    #[test]
    fn the_counts_are_those_of_the_entries(ops in proptest::collection::vec(op(), 0..40)) {
        let record = after(&ops);
        prop_assert_eq!(&record.block_users, &counted(record.services.values().map(|value| value.set.block)));
        let by_id: BTreeSet<_> = record.services.iter().map(|(key, value)| (value.service_id, *key)).collect();
        prop_assert_eq!(&record.frontends, &by_id);
        for (id, _) in &by_id {
            let of_id = record.services.values().filter(|value| value.service_id == *id).count();
            prop_assert_eq!(record.frontends(*id).count(), of_id);
        }
        let cluster_ips: BTreeSet<_> = record.cluster_ips.values().flatten().copied().collect();
        let flagged = record.services.iter().filter(|(_, value)| value.flags & CLUSTER_IP != 0);
        prop_assert_eq!(&cluster_ips, &flagged.map(|(key, _)| *key).collect());
        prop_assert!(record.cluster_ips.values().all(|frontends| !frontends.is_empty()));
        let insides = record.services.keys().filter(|key| key.scope == scope::INSIDE).count();
        prop_assert_eq!(record.frontend_count(), record.services.len() - insides);
        for service_id in 0..4 {
            let of_id = record.ranges.iter().filter(|range| range.service_id == service_id);
            prop_assert!(record.ranges(service_id).eq(of_id));
        }
        prop_assert_eq!(&record.holders, &counted(record.backends.values().map(|value| value.backend_id)));
    }

    #[test]
    fn the_inverse_takes_an_operation_back(ops in proptest::collection::vec(op(), 0..20), op in op()) {
        let mut record = after(&ops);
        let inverse = record.inverse(&op);
        record.apply(&op);
        match inverse {
            Some(inverse) => record.apply(&inverse),
            None => prop_assert!(same(&record, &after(&ops)), "it changes nothing"),
        }
        prop_assert!(same(&record, &after(&ops)));
    }
}
