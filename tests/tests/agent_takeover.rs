//! The datapath outlives its agent: nothing is lost when one is killed and the next takes over.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use lb_tests::{
    agent::AgentNode,
    datapath::programs_at,
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, list, replace, web},
    netns::shapes::{VIP, VIP_V6, routed},
    traffic::{Connection, NameServer, storm_tcp},
};
use lb_userspace::datapath::Hook;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

#[test]
fn b62_an_agent_killed_20_times_under_a_connection_storm_loses_no_connection() {
    let shape = routed().unwrap();
    let _servers = shape.backends.each_ref().map(|pod| NameServer::start(&pod.host, BACKEND_PORT).unwrap());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("web.json");
    replace(&file, &list(web(&shape, [true; 3]))).unwrap();
    let node = AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", file.to_str().unwrap()]).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();

    let vips = [SocketAddr::new(VIP.into(), PORT), SocketAddr::new(VIP_V6.into(), PORT)];
    let mut held = Connection::open(&shape.client.host, vips[0]).unwrap();
    let holder = held.ask().unwrap();
    let stop = AtomicBool::new(false);
    let storms = thread::scope(|scope| {
        let storms = vips.map(|vip| {
            scope.spawn({
                let (shape, stop) = (&shape, &stop);
                move || storm_tcp(&shape.client.host, vip, stop)
            })
        });
        for round in 0..20 {
            agent.kill();
            // What changed while nobody was there is taken in, and what was there serves on until then.
            let ready = if round % 2 == 0 { [true, true, false] } else { [true; 3] };
            replace(&file, &list(web(&shape, ready))).unwrap();
            agent = node.start().unwrap();
            let usable = shape.backends.iter().zip(ready).filter_map(|(pod, ready)| ready.then_some(pod));
            agent.settle_on(SERVICE, &addresses(usable)).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        storms.map(|storm| storm.join().unwrap())
    });

    for (vip, answers) in vips.iter().zip(storms) {
        assert!(answers.failures.is_empty(), "{vip}: {answers:?}");
        let total: usize = answers.by_name.values().sum();
        println!("{vip}: {total} connections over 20 kills, none failed");
        assert!(total > 1000, "{vip}: a storm of {total} connections shows little");
    }
    assert_eq!(held.ask().unwrap(), holder, "the connection from before the first kill goes on");
    for pod in shape.backends.iter().chain([&shape.client]) {
        for hook in [Hook::Ingress, Hook::Egress] {
            let programs = programs_at(&shape.nodes[0], &pod.node_interface, hook).unwrap();
            assert_eq!(programs, [format!("tcx {}", hook.program_name())], "{}", pod.node_interface);
        }
    }
}
