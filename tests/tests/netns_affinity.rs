//! Session affinity with real sockets and a running agent.

use std::net::{IpAddr, SocketAddr};

use lb_tests::{
    agent::AgentNode,
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, list, replace, web},
    netns::{
        Namespace,
        shapes::{ALL, Shape, VIP, VIP_V6},
    },
    traffic::{Answers, Connection, NameServer, ask_tcp, ask_udp},
};
use serde_json::json;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const VIPS: [SocketAddr; 2] =
    [SocketAddr::new(IpAddr::V4(VIP), PORT), SocketAddr::new(IpAddr::V6(VIP_V6), PORT)];

type Ask = fn(&Namespace, SocketAddr, usize) -> Answers;

const TRANSPORTS: [(&str, Ask); 2] = [("TCP", ask_tcp), ("UDP", ask_udp)];

/// The manifest of the Service with affinity.
fn sticky(shape: &Shape, ready: [bool; 3]) -> String {
    let [mut service, slices @ ..] = web(shape, ready);
    service["spec"]["sessionAffinity"] = json!("ClientIP");
    list([service].into_iter().chain(slices))
}

/// The one backend that has answered 20 times.
fn one_of_20(ask: Ask, from: &Namespace, vip: SocketAddr) -> String {
    let answers = ask(from, vip, 20);
    let whole: Vec<_> = answers.by_name.iter().filter(|(_, count)| **count == 20).collect();
    let [(name, _)] = whole[..] else { panic!("{vip}: {answers:?}") };
    name.clone()
}

#[test]
fn b40_a_client_stays_with_one_backend_until_that_is_not_ready_and_its_open_connection_stays() {
    for (name, make) in ALL {
        let shape = make().unwrap();
        let client = &shape.client.host;
        let _servers =
            shape.backends.each_ref().map(|pod| NameServer::start(&pod.host, BACKEND_PORT).unwrap());
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("web.json");
        replace(&file, &sticky(&shape, [true; 3])).unwrap();
        let node = AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", file.to_str().unwrap()]).unwrap();
        let mut agent = node.start().unwrap();
        agent.settle().unwrap();

        let asked = VIPS.into_iter().flat_map(|vip| TRANSPORTS.map(|(transport, ask)| (vip, transport, ask)));
        for (vip, transport, ask) in asked {
            let its = one_of_20(ask, client, vip);
            let mut held = Connection::open(client, vip).unwrap();
            let of_held = held.ask().unwrap();
            assert!(transport == "UDP" || of_held == its, "{name} {vip}: {of_held} and not {its}");

            let ready =
                shape.backends.each_ref().map(|pod| pod.host.role() != of_held && pod.host.role() != its);
            replace(&file, &sticky(&shape, ready)).unwrap();
            let stay = shape.backends.iter().zip(ready).filter(|(_, ready)| *ready).map(|(pod, _)| pod);
            agent.settle_on(SERVICE, &addresses(stay)).unwrap();
            let next = one_of_20(ask, client, vip);
            assert_ne!(next, its, "{name} {transport} {vip}");
            assert_eq!(held.ask().unwrap(), of_held, "{name} {vip}: the open connection goes on");

            // Who is ready again is not gone back to.
            replace(&file, &sticky(&shape, [true; 3])).unwrap();
            agent.settle_on(SERVICE, &addresses(&shape.backends)).unwrap();
            assert_eq!(one_of_20(ask, client, vip), next, "{name} {transport} {vip}");
        }
    }
}

#[test]
fn a_client_stays_with_its_backend_across_a_restart_of_the_agent() {
    let shape = lb_tests::netns::shapes::routed().unwrap();
    let client = &shape.client.host;
    let _servers = shape.backends.each_ref().map(|pod| NameServer::start(&pod.host, BACKEND_PORT).unwrap());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("web.json");
    replace(&file, &sticky(&shape, [true; 3])).unwrap();
    let node = AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", file.to_str().unwrap()]).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();
    let its = one_of_20(ask_tcp, client, VIPS[0]);
    agent.kill();
    assert_eq!(one_of_20(ask_tcp, client, VIPS[0]), its);
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();
    assert_eq!(one_of_20(ask_tcp, client, VIPS[0]), its);

    let status = node.verb("status", &["-o", "json"]).unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["maps"]["entries"]["AFFINITY"], json!({"entries": 1, "size": 65_536}));
}
