//! Clients on the node itself, from manifest to connection, and without an agent.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Result, bail};
use lb_tests::{
    agent::AgentNode,
    cgroup::{Cgroup, links_on, programs_on},
    datapath::DEADLINE,
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, list, replace, web},
    netns::{
        Namespace,
        shapes::{VIP, VIP_V6, bridge},
    },
    traffic::{Answers, NameServer, ask_tcp, ask_udp},
};
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const VIPS: [SocketAddr; 2] =
    [SocketAddr::new(std::net::IpAddr::V4(VIP), PORT), SocketAddr::new(std::net::IpAddr::V6(VIP_V6), PORT)];

const TIMES: usize = 100;

/// Connections and connected datagrams of a client on the node to both VIPs, [`TIMES`] of each.
fn ask_every_way(cgroup: &Cgroup, node: &Namespace) -> Vec<Answers> {
    cgroup.run(node, || {
        VIPS.iter().flat_map(|&vip| [ask_tcp(node, vip, TIMES), ask_udp(node, vip, TIMES)]).collect()
    })
}

/// A UDP socket that is connected to a VIP, and by that to the backend with this name; and how many it took.
fn connected_to(name: &str, vip: SocketAddr) -> Result<(UdpSocket, usize)> {
    let any: SocketAddr = if vip.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    for sockets in 1..=TIMES {
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(DEADLINE))?;
        socket.connect(vip)?;
        socket.send(b"who?")?;
        let mut answer = [0; 64];
        let length = socket.recv(&mut answer)?;
        if &answer[..length] == name.as_bytes() {
            return Ok((socket, sockets));
        }
    }
    bail!("no socket of {TIMES} is connected to {name}")
}

#[test]
fn clients_on_the_node_follow_readiness_outlive_the_agent_and_are_gone_with_a_cleanup() {
    let shape = bridge().unwrap();
    let host = &shape.nodes[0];
    let cgroup = Cgroup::new().unwrap();
    let _servers = shape.backends.each_ref().map(|pod| NameServer::start(&pod.host, BACKEND_PORT).unwrap());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("web.json");
    replace(&file, &list(web(&shape, [true; 3]))).unwrap();
    let arguments = ["--manifests", file.to_str().unwrap(), "--cgroup", cgroup.path().to_str().unwrap()];
    let node = AgentNode::new(host, BINARY, &arguments).unwrap();
    let mut agent = node.start().unwrap();
    let status = agent.settle().unwrap();
    assert_eq!((status.attachments.sockets.hooks.len(), status.attachments.sockets.error), (8, None));
    for answers in ask_every_way(&cgroup, host) {
        assert_eq!(answers.failures, [""; 0]);
        assert_eq!(answers.by_name.len(), 3, "{answers:?}");
    }

    let [leaves, stay @ ..] = &shape.backends;
    let connected = cgroup.run(host, || VIPS.map(|vip| connected_to(leaves.host.role(), vip).unwrap()));
    replace(&file, &list(web(&shape, [false, true, true]))).unwrap();
    agent.settle_on(SERVICE, &addresses(stay)).unwrap();
    let mut calls = 2 * 4 * TIMES;
    for (socket, sockets) in connected {
        calls += sockets;
        // It waits until it is closed.
        assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
    agent.wait("counting both sockets", |status, _| status.sockets.sockets == 2).unwrap();
    let to_the_others = |answers: &Answers| {
        assert_eq!(answers.failures, [""; 0]);
        assert_eq!(answers.by_name.get(leaves.host.role()), None);
        assert_eq!(answers.by_name.values().sum::<usize>(), TIMES);
    };
    ask_every_way(&cgroup, host).iter().for_each(to_the_others);

    let shown = node.verb("status", &["-o", "json"]).unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["maps"]["packets"]["SocketBound"], calls);
    assert_eq!(shown["maps"]["packets"]["FlowCreated"], 0, "no packet was left to translate");
    assert_eq!(shown["agent"]["attachments"]["sockets"]["served"], "host");

    let table = String::from_utf8(node.verb("status", &[]).unwrap().stdout).unwrap();
    let row = table.lines().find(|line| line.contains(cgroup.path().to_str().unwrap())).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!((cells[0], cells[2].split(',').count()), ("host", 8), "{row}");

    let links = links_on(cgroup.path()).unwrap();
    agent.kill();
    ask_every_way(&cgroup, host).iter().for_each(to_the_others);
    agent = node.start().unwrap();
    agent.settle().unwrap();
    assert_eq!(links_on(cgroup.path()).unwrap(), links, "the same links after a restart");

    // Nobody is ready: at once, and not after a timeout.
    replace(&file, &list(web(&shape, [false; 3]))).unwrap();
    agent.settle_on(SERVICE, &[]).unwrap();
    let refused = cgroup.run(host, || {
        VIPS.map(|vip| std::net::TcpStream::connect_timeout(&vip, Duration::from_secs(1)).unwrap_err().kind())
    });
    assert_eq!(refused, [ErrorKind::ConnectionRefused; 2]);

    agent.kill();
    assert!(node.verb("cleanup", &[]).unwrap().status.success());
    assert_eq!(programs_on(cgroup.path()).unwrap(), [""; 0]);
}
