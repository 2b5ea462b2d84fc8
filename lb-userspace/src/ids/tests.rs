use lb_common::{BackendSet, BackendValue, ServiceKey, ServiceValue, SlotKey, addr};

use super::*;
use crate::{
    maps::{Op, Snapshot},
    model::Protocol,
    testing::key,
};

const BACKEND: Address = addr::from_v4([10, 244, 1, 21]);

fn port(service: &str, name: &str) -> ServicePort {
    ServicePort { service: key(service), port: PortKey { name: name.into(), protocol: Protocol::Tcp } }
}

fn frontend(port: u16) -> ServiceKey {
    ServiceKey { address: addr::from_v4([10, 96, 0, 50]), port, proto: 6, scope: 0 }
}

fn slot(block: u32) -> SlotKey {
    SlotKey { block, slot: 0, pad: 0 }
}

fn leads_to(block: u32, service_id: u32) -> ServiceValue {
    ServiceValue { set: BackendSet { block, count: 1, local: 0 }, service_id, ..ServiceValue::default() }
}

fn backend(backend_id: u32) -> BackendValue {
    BackendValue { address: BACKEND, port: 8080, pad: 0, backend_id }
}

/// What an earlier agent left: a frontend with service id 7 that leads to backend 9 in block 3, and its reservation.
fn left_by_another() -> Record {
    let mut snapshot = Snapshot::default();
    snapshot.services.insert(frontend(80), leads_to(3, 7));
    snapshot.backends.insert(slot(3), backend(9));
    snapshot.settings.next_service_id = 1024;
    snapshot.settings.next_backend_id = 2048;
    snapshot.settings.next_block = 3072;
    Record::adopt(snapshot)
}

#[test]
fn the_same_thing_has_the_same_id_and_another_has_another() {
    let mut ids = Ids::adopt(&Record::default());
    let web = ids.service(port("default/web", "http"), [].into_iter()).unwrap();
    assert_eq!(ids.service(port("default/web", "http"), [].into_iter()), Ok(web));
    let admin = ids.service(port("default/web", "admin"), [].into_iter()).unwrap();
    assert_ne!(web, admin);
    let of_web = ids.backend(web, BACKEND, 8080).unwrap();
    assert_eq!(ids.backend(web, BACKEND, 8080), Ok(of_web));
    assert_ne!(ids.backend(web, BACKEND, 8081), Ok(of_web));
    assert_ne!(ids.backend(admin, BACKEND, 8080), Ok(of_web), "membership, not the address alone");
    assert_ne!(of_web, 0, "zero is no backend");
}

#[test]
fn a_new_agent_finds_the_ids_in_the_maps_and_gives_out_none_of_the_reserved() {
    let record = left_by_another();
    let mut ids = Ids::adopt(&record);
    let web = ids.service(port("default/web", "http"), [7].into_iter()).unwrap();
    assert_eq!(web, 7);
    assert_eq!(ids.backend(web, BACKEND, 8080), Ok(9));
    assert_eq!(ids.backend(web, BACKEND, 8081), Ok(2048));
    assert_eq!(ids.service(port("default/other", "http"), [7].into_iter()), Ok(1024), "7 has an owner");
    assert_eq!(ids.block(&record), 3072);
}

#[test]
fn ids_in_the_maps_are_not_given_out_even_without_a_reservation() {
    let mut snapshot = Snapshot::default();
    snapshot.services.insert(frontend(80), leads_to(1, 7));
    snapshot.backends.insert(slot(1), backend(9));
    snapshot.states.insert(12, lb_common::BackendState::default());
    let record = Record::adopt(snapshot);
    let mut ids = Ids::adopt(&record);
    assert_eq!(ids.service(port("default/other", "http"), [].into_iter()), Ok(8));
    assert_eq!(ids.backend(8, BACKEND, 8080), Ok(13));
    assert_eq!(ids.block(&record), 2, "block 1 is in use");
}

#[test]
fn a_reservation_covers_every_id_given_out_and_is_written_once_for_many() {
    let mut ids = Ids::adopt(&Record::default());
    let mut settings = Settings::default();
    let mut writes = 0;
    for address in 0..3000u32 {
        let id = ids.backend(1, addr::from_v4(address.to_be_bytes()), 8080).unwrap();
        if let Some(reserved) = ids.reserve(settings) {
            settings = reserved;
            writes += 1;
        }
        assert!(id < settings.next_backend_id);
    }
    assert_eq!(writes, 3);
    assert_eq!(ids.reserve(settings), None);
}

#[test]
fn blocks_wrap_around_past_those_in_use() {
    let mut record = Record::default();
    record.apply(&Op::PutSettings(Settings { next_block: u32::MAX, ..Settings::default() }));
    record.apply(&Op::PutBackend(slot(1), backend(9)));
    record.apply(&Op::PutService(frontend(80), leads_to(2, 7)));
    let mut ids = Ids::adopt(&record);
    assert_eq!(ids.block(&record), u32::MAX);
    assert_eq!(ids.block(&record), 3, "0 is no block, 1 has a slot, a frontend leads to 2");
}

#[test]
fn without_ids_left_it_says_so() {
    let mut record = Record::default();
    let last = u32::MAX - 1;
    record.apply(&Op::PutSettings(Settings {
        next_backend_id: last,
        next_service_id: last,
        ..Settings::default()
    }));
    let mut ids = Ids::adopt(&record);
    assert_eq!(ids.service(port("default/web", "http"), [].into_iter()), Ok(last));
    let error = ids.service(port("default/other", "http"), [].into_iter()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no service id is left in this schema; run `readylb cleanup` and start again"
    );
    assert_eq!(ids.backend(last, BACKEND, 8080), Ok(last));
    assert!(ids.backend(last, BACKEND, 8081).is_err());
    assert_eq!(ids.backend(last, BACKEND, 8080), Ok(last), "what has one keeps it");
}

#[test]
fn ids_are_forgotten_when_nothing_in_the_maps_has_them() {
    let mut record = left_by_another();
    let mut ids = Ids::adopt(&record);
    let web = ids.service(port("default/web", "http"), [7].into_iter()).unwrap();

    record.apply(&Op::DeleteService(frontend(80)));
    ids.forget_unused(web, &record);
    assert_eq!(
        ids.service(port("default/web", "http"), [].into_iter()),
        Ok(7),
        "its backend still has a slot"
    );

    record.apply(&Op::DeleteBackend(slot(3)));
    ids.forget_unused(web, &record);
    assert_eq!(ids.live(), (0, 0));
    assert!(ids.owned.is_empty());
    assert_eq!(ids.service(port("default/web", "http"), [].into_iter()), Ok(1024));
}
