//! Refusal between real sockets: a client learns at once that nobody takes its connection, wherever it is.
//!
//! ```text
//!   client ─veth─ node ─veth "uplink"─ upstream     the way to everything else, and a client from outside
//! ```

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey,
    addr::from_ip,
    backend::state,
    service::{flags, proto, scope},
};
use lb_tests::{
    bpf_root::BpfRoot,
    datapath::{config, live},
    frames::FrameSocket,
    netns::{
        Namespace,
        shapes::{self, Make, POD_INTERFACE, Shape, VIP, VIP_V6},
    },
    packet::{Packet, SYN},
    traffic::{NameServer, ask_tcp, ask_udp, ping},
};
use lb_userspace::{
    datapath::{Attachments, TcAttach, schema_folder},
    maps::{BpfMaps, LbMaps, Op},
};

/// A port with a frontend, and one without.
const PORT: u16 = 80;
const UNKNOWN_PORT: u16 = 81;
const BACKEND_PORT: u16 = 8080;
const VIPS: [IpAddr; 2] = [IpAddr::V4(VIP), IpAddr::V6(VIP_V6)];

/// A shape with an upstream, the programs on its node, and frontends on both VIPs.
struct World {
    shape: Shape,
    upstream: Namespace,
    maps: BpfMaps,
    _root: BpfRoot,
}

impl World {
    fn new(make: Make, tc_attach: TcAttach) -> Result<Self> {
        let shape = make()?;
        let node = &shape.nodes[0];
        let upstream = Namespace::new("upstream")?;
        node.join("uplink", &upstream, "eth0")?;
        for (host, interface, own, other) in [(node, "uplink", 1, 2), (&upstream, "eth0", 2, 1)] {
            host.ip(&format!("addr add 192.168.50.{own}/24 dev {interface}"))?;
            host.ip(&format!("addr add 2001:db8:50::{own}/64 dev {interface} nodad"))?;
            host.ip(&format!("route add default via 192.168.50.{other}"))?;
            host.ip(&format!("route add default via 2001:db8:50::{other}"))?;
        }
        let root = BpfRoot::new()?;
        let config = config(root.path(), tc_attach);
        live(node, &config, &[], true, async |life| {
            let attached = |now: &Attachments| now.interfaces.iter().all(|state| state.error.is_none());
            life.until("attached", |now| now.complete && attached(now)).await
        })?;
        let maps = BpfMaps::open(&schema_folder(root.path()))?;
        Ok(Self { shape, upstream, maps, _root: root })
    }

    /// Serves TCP and UDP on both VIPs, by the first backend or by none.
    fn serve(&mut self, usable: bool) -> Result<()> {
        for (block, vip) in (1..).zip(VIPS) {
            let backend = from_ip(self.shape.backends[0].address(vip));
            let value = BackendValue { address: backend, port: BACKEND_PORT, pad: 0, backend_id: block };
            self.maps.apply(&Op::PutState(block, BackendState { flags: state::ACTIVE }))?;
            self.maps.apply(&Op::PutBackend(SlotKey { block, slot: 0, pad: 0 }, value))?;
            let set = BackendSet { block, count: u16::from(usable), local: 0 };
            for proto in [proto::TCP, proto::UDP] {
                let key = ServiceKey { address: from_ip(vip), port: PORT, proto, scope: scope::ANY };
                let flags = flags::CLUSTER_IP;
                let value = ServiceValue { set, service_id: block, flags, ..ServiceValue::default() };
                self.maps.apply(&Op::PutService(key, value))?;
            }
            let flags = if usable { flags::CLUSTER_IP | flags::USABLE } else { flags::CLUSTER_IP };
            let value = ServiceValue { flags, ..ServiceValue::default() };
            self.maps.apply(&Op::PutService(ServiceKey::whole(from_ip(vip)), value))?;
        }
        Ok(())
    }

    /// The clients that are refused: a pod, one from outside, and the node itself.
    fn clients(&self) -> [&Namespace; 3] {
        [&self.shape.client.host, &self.upstream, &self.shape.nodes[0]]
    }
}

/// What becomes of a connection and of a datagram, with both VIPs.
fn refused(client: &Namespace, port: u16) {
    let refused = std::io::Error::from_raw_os_error(libc::ECONNREFUSED).to_string();
    for vip in VIPS {
        let to = SocketAddr::new(vip, port);
        assert_eq!(ask_tcp(client, to, 2).failures, [refused.as_str(); 2], "{}: TCP to {to}", client.role());
        assert_eq!(ask_udp(client, to, 2).failures, [refused.as_str(); 2], "{}: UDP to {to}", client.role());
    }
}

#[test]
fn b25_every_client_is_refused_at_once_and_served_once_an_endpoint_is_ready() {
    for (make, tc_attach) in [
        (shapes::routed as Make, TcAttach::Tcx),
        (shapes::bridge, TcAttach::Tcx),
        (shapes::routed, TcAttach::Clsact),
    ] {
        let mut world = World::new(make, tc_attach).unwrap();
        let backend = &world.shape.backends[0];
        let _server = NameServer::start(&backend.host, BACKEND_PORT).unwrap();
        world.serve(false).unwrap();
        world.clients().into_iter().for_each(|client| refused(client, PORT));
        world.serve(true).unwrap();
        for client in [&world.shape.client.host, &world.upstream] {
            for to in VIPS.map(|vip| SocketAddr::new(vip, PORT)) {
                for (transport, ask) in [("TCP", ask_tcp as fn(_, _, _) -> _), ("UDP", ask_udp)] {
                    let answers = ask(client, to, 1);
                    assert_eq!(answers.failures, [""; 0], "{}: {transport} {to}", client.role());
                }
            }
        }
    }
}

/// Whoever fills in the checksums: see `netns_clusterip`.
#[test]
fn b25_checksums_of_refusals_are_right_whoever_was_to_fill_in_those_of_the_packets() {
    for complete_at_sender in [true, false] {
        let mut world = World::new(shapes::routed, TcAttach::Auto).unwrap();
        let client = &world.shape.client;
        let (host, interface) = match complete_at_sender {
            true => (&client.host, POD_INTERFACE),
            false => (&world.shape.nodes[0], client.node_interface.as_str()),
        };
        host.offload(interface, "tx", false).unwrap();
        world.serve(false).unwrap();
        refused(&world.shape.client.host, PORT);
    }
}

#[test]
fn b26_an_unknown_port_is_refused_and_a_ping_answered_and_nothing_leaves_the_node() {
    let mut world = World::new(shapes::routed, TcAttach::Auto).unwrap();
    world.serve(true).unwrap();
    let seen = FrameSocket::open(&world.upstream, "eth0").unwrap();
    for client in [&world.shape.client.host, &world.shape.nodes[0]] {
        refused(client, UNKNOWN_PORT);
        for vip in VIPS {
            ping(client, vip).with_context(|| format!("{}: ping of {vip}", client.role())).unwrap();
        }
    }
    nothing_left(&world, &seen).unwrap();
}

/// A kernel's own client, or any client where sockets are not served.
#[test]
fn b29_a_client_on_the_node_that_is_not_served_at_its_socket_is_refused_and_nothing_leaves_the_node() {
    let mut world = World::new(shapes::routed, TcAttach::Auto).unwrap();
    world.serve(true).unwrap();
    let seen = FrameSocket::open(&world.upstream, "eth0").unwrap();
    refused(&world.shape.nodes[0], PORT);
    nothing_left(&world, &seen).unwrap();
}

/// That no packet to a VIP has come to where `seen` listens.
fn nothing_left(world: &World, seen: &FrameSocket) -> Result<()> {
    // Comes after all that, so what was sent before has been seen by then.
    let stranger = SocketAddr::new(Ipv4Addr::new(10, 96, 200, 1).into(), UNKNOWN_PORT);
    world.shape.client.host.run(|| UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", stranger))?;
    let is_to = |frame: &[u8], wanted: &[IpAddr]| {
        let destination = match SlicedPacket::from_ethernet(frame).ok().and_then(|packet| packet.net) {
            Some(NetSlice::Ipv4(ip)) => ip.header().destination_addr().into(),
            Some(NetSlice::Ipv6(ip)) => ip.header().destination_addr().into(),
            _ => return false,
        };
        wanted.contains(&destination)
    };
    let vips_and_stranger = [VIPS[0], VIPS[1], stranger.ip()];
    let first = seen.receive(Duration::from_secs(3), |frame| is_to(frame, &vips_and_stranger))?;
    ensure!(is_to(&first, &[stranger.ip()]), "a packet to a VIP has left the node: {first:02x?}");
    Ok(())
}

/// On an uplink that listens in on its network, a packet to a VIP that is on its way to another node is that node's.
#[test]
fn what_is_on_its_way_to_another_node_is_left_to_it() {
    let mut world = World::new(shapes::routed, TcAttach::Auto).unwrap();
    world.serve(false).unwrap();
    let node = &world.shape.nodes[0];
    node.ip("link set uplink promisc on").unwrap();
    let own = node.mac("uplink").unwrap();
    let from_upstream = SocketAddr::new("192.168.50.2".parse().unwrap(), 40_000);
    let seen = FrameSocket::open(&world.upstream, "eth0").unwrap();
    let syn = |ethernet, port| {
        let client = SocketAddr::new(from_upstream.ip(), port);
        Packet::tcp(client, SocketAddr::new(VIP.into(), PORT), SYN).to_ethernet(ethernet).bytes()
    };
    // The answer to the second comes after one to the first would.
    seen.send(&syn([2, 0, 0, 0, 0, 9], 1)).unwrap();
    seen.send(&syn(own, 2)).unwrap();
    let reset_to = |frame: &[u8]| match SlicedPacket::from_ethernet(frame).ok()?.transport? {
        TransportSlice::Tcp(tcp) if tcp.rst() => Some(tcp.destination_port()),
        _ => None,
    };
    // The socket sees what leaves this end as well, but no RST does: upstream knows nothing of these connections.
    let first = seen.receive(Duration::from_secs(3), |frame| reset_to(frame).is_some()).unwrap();
    assert_eq!(reset_to(&first), Some(2), "{first:02x?}");
}

#[test]
fn b26_a_ping_without_a_usable_endpoint_is_told_that_nobody_is_there() {
    let mut world = World::new(shapes::routed, TcAttach::Auto).unwrap();
    world.serve(false).unwrap();
    for client in world.clients() {
        for vip in VIPS {
            let error = ping(client, vip).unwrap_err();
            let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            assert_eq!(kind, Some(ErrorKind::HostUnreachable), "{}: {vip}: {error}", client.role());
        }
    }
}
