//! Node ports on the addresses that the node has now.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use lb_tests::{
    agent::AgentNode,
    manifests::{list, replace},
    netns::Namespace,
};
use lb_userspace::{desired::FrontendKind, render::Document};
use serde_json::json;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const NODE_PORT: u16 = 30080;

/// Within so long a Service is at a new address, and no longer at one that has gone. It takes a fraction of a second where
/// the machine is not busy.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(5);

/// The addresses of the node port.
fn node_port_addresses(document: &Document) -> Vec<IpAddr> {
    let frontends = document.frontends.iter().filter(|it| it.kind == FrontendKind::NodePort);
    frontends.inspect(|it| assert_eq!(it.port, NODE_PORT)).map(|it| it.address).collect()
}

#[test]
fn b45_node_ports_follow_the_addresses_of_the_node() {
    let node = Namespace::new("node").unwrap();
    let router = Namespace::new("router").unwrap();
    for (interface, address) in [("eth0", "192.168.50.11/24"), ("eth1", "172.16.0.5/24")] {
        node.join(interface, &router, interface).unwrap();
        node.ip(&format!("addr add {address} dev {interface}")).unwrap();
    }
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {
            "type": "NodePort",
            "clusterIP": "10.96.0.50",
            "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}],
        },
    });
    let folder = TempDir::new().unwrap();
    replace(&folder.path().join("web.json"), &list([service])).unwrap();
    let arguments = [
        "--manifests",
        folder.path().to_str().unwrap(),
        "--nodeport-addresses",
        "192.168.0.0/16,2001:db8::/32",
    ];
    let agents = AgentNode::new(&node, BINARY, &arguments).unwrap();
    let mut agent = agents.start().unwrap();
    let status = agent.settle().unwrap();
    assert_eq!(status.sources.last().map(|source| source.name.as_str()), Some("addresses of this machine"));
    let first: IpAddr = "192.168.50.11".parse().unwrap();
    assert_eq!(node_port_addresses(&agent.document().unwrap()), [first]);

    let second: IpAddr = "192.168.60.5".parse().unwrap();
    for (change, want) in [
        ("addr add 192.168.60.5/24 dev eth1", &[first, second][..]),
        ("addr del 192.168.60.5/24 dev eth1", &[first]),
        // The Service has no IPv6.
        ("addr add 2001:db8::5/64 dev eth1", &[first]),
        ("addr del 192.168.50.11/24 dev eth0", &[]),
        ("addr add 192.168.60.5/24 dev eth1", &[second]),
    ] {
        node.ip(change).unwrap();
        let changed = Instant::now();
        agent.wait(change, |_, document| node_port_addresses(document) == want).unwrap();
        assert!(changed.elapsed() < FOLLOWS_WITHIN, "{change}: {:?}", changed.elapsed());
    }
    let services = agents.verb("get services", &[]).unwrap();
    let services = String::from_utf8(services.stdout).unwrap();
    assert!(services.contains("192.168.60.5:30080/TCP") && !services.contains("192.168.50.11"), "{services}");
}
