//! The main job on files: Services and ready endpoints in, connections to ready pods out.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use lb_tests::{
    agent::AgentNode,
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, list, replace, web},
    netns::shapes::{ALL, Pod, Shape, VIP, VIP_V6, routed},
    traffic::{Answers, Connection, NameServer, TIMEOUT, ask_tcp, ask_udp},
};
use serde_json::{Value, json};
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
        let mut held =
            VIPS.map(|vip| Connection::open_with(&shape.client.host, vip, leaves.host.role()).unwrap());
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

/// As gossip protocols do it: both use their service port as the source of what they send.
#[test]
fn two_pods_that_use_each_others_vips_from_their_service_ports_are_not_mixed_up() {
    let shape = routed().unwrap();
    let [one, other, _] = &shape.backends;
    let vips = [Ipv4Addr::new(10, 96, 0, 61), Ipv4Addr::new(10, 96, 0, 62)];
    let objects = [(one, vips[0]), (other, vips[1])].into_iter().flat_map(|(pod, vip)| gossip(pod, vip));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("gossip.json");
    replace(&file, &list(objects)).unwrap();
    let node = AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", file.to_str().unwrap()]).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();

    let bound = |pod: &Pod| {
        let socket = pod.host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, BACKEND_PORT))).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    };
    let sockets = [bound(one), bound(other)];
    let pods = [one, other].map(|pod| SocketAddr::new(pod.v4.into(), BACKEND_PORT));
    let vips = vips.map(|vip| SocketAddr::new(vip.into(), BACKEND_PORT));
    let hear = |at: usize| sockets[at].recv_from(&mut [0; 64]).unwrap().1;
    for _ in 0..3 {
        // Each asks through the other's VIP, and is seen as itself.
        sockets[0].send_to(b"ask", vips[1]).unwrap();
        assert_eq!(hear(1), pods[0]);
        sockets[1].send_to(b"ask", vips[0]).unwrap();
        assert_eq!(hear(0), pods[1]);
        // Each answers, and is seen as the VIP that was asked.
        sockets[1].send_to(b"answer", pods[0]).unwrap();
        assert_eq!(hear(0), vips[1]);
        sockets[0].send_to(b"answer", pods[1]).unwrap();
        assert_eq!(hear(1), vips[0]);
    }
}

/// A UDP Service of one pod, on the port on which the pod listens.
fn gossip(pod: &Pod, vip: Ipv4Addr) -> [Value; 2] {
    let name = pod.host.role();
    let port = json!({"name": "gossip", "port": BACKEND_PORT, "protocol": "UDP"});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": vip, "ports": [&port]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [port],
        "endpoints": [{"addresses": [pod.v4]}],
    });
    [service, slice]
}
