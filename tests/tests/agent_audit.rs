//! Somebody writes to the maps of a running agent by hand.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::time::{Duration, Instant};

use lb_common::{BackendState, BackendValue, LinkValue, ServiceKey, ServiceValue, SlotKey, maps};
use lb_tests::{
    agent::{Agent, AgentNode},
    manifests::{list, replace, web},
    netns::shapes::routed,
};
use lb_userspace::{datapath::schema_folder, maps::Table};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

/// The promise is 5 s; a machine that does other things as well gets more.
const PATIENCE: Duration = Duration::from_secs(15);

fn drift(agent: &Agent) -> u64 {
    let status = agent.status().unwrap();
    status.reconciler.drift + status.surroundings.drift
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} is not right in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_changed_in_the_maps_by_hand_is_right_again_and_counted_and_waited_for() {
    let shape = routed().unwrap();
    let folder = TempDir::new().unwrap();
    replace(&folder.path().join("web.json"), &list(web(&shape, [true; 3]))).unwrap();
    let arguments = ["--manifests", folder.path().to_str().unwrap()];
    let node = AgentNode::new(&shape.nodes[0], BINARY, &arguments).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();
    let verified = |timeout: &str| {
        let output =
            node.verb("status", &["--wait", "verified", "--timeout", timeout, "-o", "json"]).unwrap();
        output.status.code().unwrap()
    };
    assert_eq!(verified("20s"), 0);
    let status = agent.status().unwrap().reconciler;
    assert_eq!((status.verified, status.drift), (status.generation, 0));

    let pins = schema_folder(node.bpf_root());
    let mut services: Table<ServiceKey, ServiceValue> = Table::open(&pins, maps::SERVICES).unwrap();
    let mut backends: Table<SlotKey, BackendValue> = Table::open(&pins, maps::BACKENDS).unwrap();
    let mut states: Table<u32, BackendState> = Table::open(&pins, maps::BACKEND_STATE).unwrap();
    let mut links: Table<u32, LinkValue> = Table::open(&pins, maps::LINKS).unwrap();

    let (frontend, value) = services.iter().map(Result::unwrap).find(|(key, _)| !key.is_whole()).unwrap();
    services.remove(&frontend).unwrap();
    until("a deleted frontend", || services.get(&frontend).unwrap() == Some(value));

    let (slot, backend) = backends.iter().next().unwrap().unwrap();
    backends.put(&slot, &BackendValue { port: 1, ..backend }).unwrap();
    until("a changed slot", || backends.get(&slot).unwrap() == Some(backend));

    states.put(&4711, &BackendState { flags: 1 }).unwrap();
    until("an added state", || states.get(&4711).unwrap().is_none());

    links.put(&4711, &LinkValue::default()).unwrap();
    until("an added interface", || links.get(&4711).unwrap().is_none());

    until("the count", || drift(&agent) == 4);
    assert_eq!(verified("20s"), 0);
    agent.kill();
    assert_eq!(verified("1s"), 1, "nobody is there to wait for");
}
