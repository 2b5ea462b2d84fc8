//! Maps that somebody else writes to as well.

use lb_common::{BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, Settings, SlotKey};
use proptest::{collection::vec, prelude::*};

use super::tests::Agent;
use crate::{
    maps::{Op, Record, SourceRange, Which, fake::FakeMaps},
    testing::{BACKEND_1, BACKEND_2, BACKEND_3, apply, web, web_slice},
};

/// An agent on maps that do not fail, with one Service in them.
fn at_work() -> (Agent, FakeMaps) {
    let maps = FakeMaps::new(0);
    maps.fail(0.0);
    let mut agent = Agent::on(&maps);
    agent.complete();
    agent.say(apply(0, web()));
    agent.say(apply(1, web_slice(&[BACKEND_1, BACKEND_2])));
    agent.settle();
    (agent, maps)
}

/// Every entry of the maps, as the operation that makes it.
fn entries(maps: &FakeMaps) -> Vec<Op> {
    let record = Record::adopt(maps.holds());
    Which::ALL
        .into_iter()
        .flat_map(|map| record.keys(map).collect::<Vec<_>>())
        .filter_map(|key| record.held(&key))
        .collect()
}

/// The same entry with another value.
fn changed(op: &Op) -> Option<Op> {
    Some(match *op {
        Op::PutService(key, value) => {
            Op::PutService(key, ServiceValue { set: BackendSet { count: 9, ..value.set }, ..value })
        }
        Op::PutBackend(key, value) => Op::PutBackend(key, BackendValue { port: value.port ^ 1, ..value }),
        Op::PutState(id, state) => Op::PutState(id, BackendState { flags: state.flags ^ 1 }),
        Op::PutSettings(settings) => Op::PutSettings(Settings { flags: settings.flags ^ 1, ..settings }),
        _ => return None,
    })
}

/// Entries that nobody has a use for.
fn foreign() -> [Op; 4] {
    let key = ServiceKey { address: [7; 16], port: 7, proto: 6, scope: 0 };
    let slot = SlotKey { block: 777, slot: 7, pad: 0 };
    let backend = BackendValue { address: [7; 16], port: 7, pad: 0, backend_id: 777 };
    [
        Op::PutService(key, ServiceValue::default()),
        Op::PutBackend(slot, backend),
        Op::PutState(777, BackendState { flags: 1 }),
        Op::PutRange(SourceRange { service_id: 777, client: [7; 16], bits: 128 }),
    ]
}

#[test]
fn every_kind_of_entry_that_was_deleted_changed_or_added_is_right_again_after_two_readings() {
    let (mut agent, maps) = at_work();
    let right = maps.holds();
    let mut tampered = 0;
    let deleted = entries(&maps).into_iter().filter_map(|op| op.key().delete());
    let changed = entries(&maps).iter().filter_map(changed).collect::<Vec<_>>();
    for op in deleted.chain(changed).chain(foreign()) {
        maps.tamper(&op);
        assert_ne!(maps.holds(), right, "{op:?}");
        agent.audit_for_two_passes();
        tampered += 1;
        assert_eq!(maps.holds(), right, "{op:?}");
        assert_eq!(agent.engine.status().drift, tampered, "{op:?} counts once");
    }
    assert!(tampered > 10, "{tampered}");
    assert!(agent.error().is_empty());
}

#[test]
fn what_was_written_meanwhile_is_no_drift_and_is_verified_by_the_reading_after_it() {
    let (mut agent, _) = at_work();
    agent.audit_for_two_passes();
    let status = agent.engine.status();
    assert_eq!((status.verified, status.drift), (status.generation, 0));
    let before = status.verified;
    // Between every two parts, as the map that is read stands.
    for backends in [&[BACKEND_3][..], &[BACKEND_1], &[BACKEND_2, BACKEND_3], &[], &[BACKEND_1]] {
        for _ in Which::ALL {
            agent.audit();
            agent.say(apply(1, web_slice(backends)));
            agent.settle();
            agent.audit();
        }
    }
    assert_eq!(agent.engine.status().drift, 0);
    agent.audit_for_two_passes();
    agent.step();
    let status = agent.engine.status();
    assert!(status.verified > before && status.verified == status.generation, "{status:?}");
    assert_eq!(status.drift, 0);
}

#[test]
fn a_repair_that_fails_is_told_and_verifies_nothing_until_it_succeeds() {
    let (mut agent, maps) = at_work();
    let right = maps.holds();
    maps.tamper(&entries(&maps)[0].key().delete().unwrap());
    maps.fail(1.0);
    agent.audit_for_two_passes();
    assert!(agent.error()[0].contains("BACKEND_STATE"), "{:?}", agent.error());
    assert_eq!(agent.engine.status().verified, 0);
    maps.fail(0.0);
    agent.audit_for_two_passes();
    assert!(agent.error().is_empty(), "{:?}", agent.error());
    assert_eq!(maps.holds(), right);
    assert_eq!(agent.engine.status().verified, agent.engine.status().applied);
}

proptest! {
    #[test]
    fn any_damage_is_repaired(
        damage in vec((any::<proptest::sample::Index>(), 0u8..3), 0..12),
    ) {
        let (mut agent, maps) = at_work();
        let right = maps.holds();
        for (which, how) in damage {
            let all = entries(&maps);
            let entry = which.get(&all);
            let op = match how {
                0 => entry.key().delete(),
                1 => changed(entry),
                _ => Some(*which.get(&foreign())),
            };
            op.iter().for_each(|op| maps.tamper(op));
            if how == 2 {
                agent.audit();
            }
        }
        agent.audit_for_two_passes();
        prop_assert_eq!(maps.holds(), right);
    }
}
