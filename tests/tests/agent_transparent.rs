//! What is no Service's crosses the same interfaces as it is: same bytes out as in, and where the node routes, one hop less.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use lb_common::checksum::checksum;
use lb_tests::{
    agent::AgentNode,
    frames::FrameSocket,
    manifests::{BACKEND_PORT, list, replace, web},
    netns::shapes::{POD_INTERFACE, Shape, VIP, VIP_V6, bridge, routed},
    packet::{ACK, Extension, Packet, SYN},
    traffic::{NameServer, ask_tcp},
};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

/// How long a frame may take. Only a failure takes so long.
const PATIENCE: Duration = Duration::from_secs(3);

const MAC_LEN: usize = 6;

/// Frames from the client to a backend that are no Service's, each with its name. The port is that of a Service, and the
/// address is not; or the address is, and the port is not looked at.
fn frames(client: IpAddr, backend: IpAddr) -> Vec<(&'static str, Packet)> {
    let from = SocketAddr::new(client, 40_000);
    let to = SocketAddr::new(backend, 80);
    let long = [0x5a; 1200];
    let mut frames = vec![
        ("SYN", Packet::tcp(from, to, SYN)),
        ("segment with data", Packet::tcp(from, to, ACK).with_payload(&long)),
        (
            "segment with a wrong checksum",
            Packet::tcp(from, to, ACK).with_payload(b"wrong").with_checksum(0x1234),
        ),
        ("datagram", Packet::udp(from, to, b"query")),
        ("first fragment", Packet::udp(from, to, &long).fragment(0, true)),
        ("later fragment", Packet::udp(from, to, &long).fragment(160, false)),
    ];
    if client.is_ipv4() {
        frames.push(("datagram without checksum", Packet::udp(from, to, b"none").with_checksum(0)));
        frames.push((
            "segment with a router alert",
            Packet::tcp(from, to, SYN).with_ip_options(&[0x94, 4, 0, 0]),
        ));
    } else {
        frames.push((
            "destination options",
            Packet::tcp(from, to, SYN).with_extension(Extension::DestinationOptions),
        ));
        frames.push((
            "authentication header",
            Packet::tcp(from, to, SYN).with_extension(Extension::Authentication),
        ));
    }
    frames
}

/// The IP packet of a frame after a router has passed it on.
fn one_hop_less(ip: &[u8]) -> Vec<u8> {
    let mut ip = ip.to_vec();
    if ip[0] >> 4 == 4 {
        let header = usize::from(ip[0] & 0x0f) * 4;
        ip[8] -= 1;
        ip[10..12].fill(0);
        let sum = checksum(&ip[..header]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        ip[7] -= 1;
    }
    ip
}

fn assert_transparent(shape: &Shape, what: &str, is_routed: bool) {
    let [backend, ..] = &shape.backends;
    let client = &shape.client;
    let own = client.host.mac(POD_INTERFACE).unwrap();
    let next_hop = if is_routed {
        shape.nodes[0].mac(&client.node_interface).unwrap()
    } else {
        backend.host.mac(POD_INTERFACE).unwrap()
    };
    // The node knows its neighbour before the first frame: it would hold that back.
    let server = NameServer::start(&backend.host, BACKEND_PORT).unwrap();
    for like in [IpAddr::from(VIP), IpAddr::from(VIP_V6)] {
        let answers = ask_tcp(&client.host, SocketAddr::new(backend.address(like), BACKEND_PORT), 1);
        assert!(answers.failures.is_empty(), "{what}: {answers:?}");
    }
    drop(server);
    let out = FrameSocket::open(&client.host, POD_INTERFACE).unwrap();
    let into = FrameSocket::open(&backend.host, POD_INTERFACE).unwrap();
    for like in [IpAddr::from(VIP), IpAddr::from(VIP_V6)] {
        for (name, packet) in frames(client.address(like), backend.address(like)) {
            let mut sent = packet.bytes();
            sent[..MAC_LEN].copy_from_slice(&next_hop);
            sent[MAC_LEN..2 * MAC_LEN].copy_from_slice(&own);
            let (link, ip) = sent.split_at(lb_tests::packet::ETHERNET_LEN);
            let want = if is_routed { one_hop_less(ip) } else { ip.to_vec() };
            out.send(&sent).unwrap();
            let got = into
                .receive(PATIENCE, |frame| {
                    frame.ends_with(&want[want.len() - 16..]) && frame.len() == sent.len()
                })
                .unwrap_or_else(|error| panic!("{what}: {name} to {}: {error}", backend.address(like)));
            let (got_link, got_ip) = got.split_at(lb_tests::packet::ETHERNET_LEN);
            assert_eq!(got_ip, want, "{what}: {name}");
            if !is_routed {
                assert_eq!(got_link, link, "{what}: {name}");
            }
        }
    }
}

#[test]
fn what_is_no_services_leaves_as_it_came() {
    for (name, make, is_routed) in [("routed", routed as fn() -> _, true), ("bridge", bridge, false)] {
        let shape = make().unwrap();
        assert_transparent(&shape, &format!("{name}, without readylb"), is_routed);
        for mode in ["tcx", "clsact"] {
            let folder = TempDir::new().unwrap();
            let file = folder.path().join("web.json");
            replace(&file, &list(web(&shape, [true; 3]))).unwrap();
            let arguments = ["--manifests", file.to_str().unwrap(), "--tc-attach", mode];
            let node = AgentNode::new(&shape.nodes[0], BINARY, &arguments).unwrap();
            let mut agent = node.start().unwrap();
            agent.settle().unwrap();
            assert_transparent(&shape, &format!("{name}, {mode}"), is_routed);
            agent.kill();
            assert!(node.verb("cleanup", &[]).unwrap().status.success());
        }
    }
}
