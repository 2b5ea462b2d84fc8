//! The main job on files: Services and ready endpoints in, connections to ready pods out.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::net::SocketAddr;

use lb_tests::{
    agent::AgentNode,
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, list, replace, web},
    netns::shapes::{ALL, Shape, VIP, VIP_V6},
    traffic::{Answers, Connection, NameServer, ask_tcp, ask_udp},
};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const VIPS: [SocketAddr; 2] =
    [SocketAddr::new(std::net::IpAddr::V4(VIP), PORT), SocketAddr::new(std::net::IpAddr::V6(VIP_V6), PORT)];

type Ask = fn(&lb_tests::netns::Namespace, SocketAddr, usize) -> Answers;

const TRANSPORTS: [(&str, Ask); 2] = [("TCP", ask_tcp), ("UDP", ask_udp)];

fn servers(shape: &Shape) -> [NameServer; 3] {
    shape.backends.each_ref().map(|pod| NameServer::start(&pod.host, BACKEND_PORT).unwrap())
}

/// A folder with one manifest, `web.json`.
fn manifest(shape: &Shape, ready: [bool; 3]) -> TempDir {
    let folder = TempDir::new().unwrap();
    replace(&folder.path().join("web.json"), &list(web(shape, ready))).unwrap();
    folder
}

fn assert_spread(what: &str, answers: &Answers, total: usize) {
    assert!(answers.failures.is_empty(), "{what}: {answers:?}");
    assert_eq!(answers.by_name.values().sum::<usize>(), total, "{what}");
    assert_eq!(answers.by_name.len(), 3, "{what}: {answers:?}");
    for (name, &count) in &answers.by_name {
        let share = count * 100 / total;
        assert!((25..=42).contains(&share), "{what}: {name} got {share} % of {answers:?}");
    }
}

#[test]
fn on_every_shape_600_connections_and_600_datagrams_spread_over_the_backends() {
    for (name, make) in ALL {
        let shape = make().unwrap();
        let _servers = servers(&shape);
        let folder = manifest(&shape, [true; 3]);
        let node = AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", folder.path().to_str().unwrap()])
            .unwrap();
        let mut agent = node.start().unwrap();
        agent.settle().unwrap();
        for vip in VIPS {
            for (transport, ask) in TRANSPORTS {
                let answers = ask(&shape.client.host, vip, 600);
                assert_spread(&format!("{name} {transport} {vip}"), &answers, 600);
            }
        }
    }
}

#[test]
fn an_endpoint_that_is_not_ready_gets_no_new_connection_and_keeps_its_open_one() {
    for (name, make) in ALL {
        let shape = make().unwrap();
        let _servers = servers(&shape);
        let folder = manifest(&shape, [true; 3]);
        let file = folder.path().join("web.json");
        let node = AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", file.to_str().unwrap()]).unwrap();
        let mut agent = node.start().unwrap();
        agent.settle().unwrap();

        let [leaves, stay @ ..] = &shape.backends;
        let mut held = VIPS.map(|vip| hold(&shape, vip, leaves.host.role()));
        replace(&file, &list(web(&shape, [false, true, true]))).unwrap();
        agent.settle_on(SERVICE, &addresses(stay)).unwrap();
        for vip in VIPS {
            for (transport, ask) in TRANSPORTS {
                let answers = ask(&shape.client.host, vip, 300);
                assert!(answers.failures.is_empty(), "{name} {transport} {vip}: {answers:?}");
                assert_eq!(answers.by_name.get(leaves.host.role()), None, "{name} {transport} {vip}");
                assert_eq!(answers.by_name.values().sum::<usize>(), 300);
            }
        }
        for connection in &mut held {
            assert_eq!(connection.ask().unwrap(), leaves.host.role(), "{name}: the open connection goes on");
        }

        replace(&file, &list(web(&shape, [true; 3]))).unwrap();
        agent.settle_on(SERVICE, &addresses(&shape.backends)).unwrap();
        let answers = ask_tcp(&shape.client.host, VIPS[0], 300);
        assert_spread(&format!("{name}: ready again"), &answers, 300);
    }
}

/// Opens connections until one is with the wanted backend.
fn hold(shape: &Shape, vip: SocketAddr, backend: &str) -> Connection {
    for _ in 0..100 {
        let mut connection = Connection::open(&shape.client.host, vip).unwrap();
        if connection.ask().unwrap() == backend {
            return connection;
        }
    }
    panic!("no connection of 100 to {vip} is with {backend}");
}
