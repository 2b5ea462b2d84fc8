//! Clients outside the cluster, on the wire: who answers them, and whom the server sees.
//!
//! ```text
//!   outsider ─veth─ node-a ═VXLAN═ node-b
//!                     │              │
//!                  backend-1   backend-2, backend-3
//! ```

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::{Result, ensure};
use lb_common::{node::link_flags::OUTSIDE, service::flags::EXTERNAL};
use lb_tests::{
    netns::{
        Namespace,
        outside::{OUTSIDER, UPLINK, outsider_of},
        shapes::{self, POD_INTERFACE, Shape},
    },
    pinned::Pinned,
    traffic::{Answers, Connection, NameServer, ask_tcp, ask_udp},
};
use lb_userspace::datapath::TcAttach;

const BACKEND_PORT: u16 = 8080;
const NODE_PORT: u16 = 30_080;
/// Addresses of node-a, IPv4 and IPv6, between nodes as VXLAN has them.
const OVERLAY: [IpAddr; 2] = [v4(10, 244, 255, 1), v6(0xff, 1)];
const BALANCED: [IpAddr; 2] = [v4(198, 51, 100, 20), v6(0x6000, 0x20)];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(subnet: u16, host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host))
}

struct World {
    shape: Shape,
    outsider: Namespace,
    datapath: Pinned,
    _servers: Vec<NameServer>,
}

impl World {
    fn new(tc_attach: TcAttach) -> Result<Self> {
        let shape = shapes::vxlan()?;
        let node_a = &shape.nodes[0];
        let outsider = outsider_of(node_a)?;
        let servers = shape.backends.iter();
        let servers = servers.map(|pod| NameServer::start_naming_clients(&pod.host, BACKEND_PORT));
        let servers = servers.collect::<Result<_>>()?;
        let mut datapath = Pinned::on(node_a, tc_attach)?;
        datapath.set_node(UPLINK)?;
        datapath.set_link(node_a.ifindex("eth1")?, Some(UPLINK), OUTSIDE)?;
        datapath.set_link(node_a.ifindex("vxlan0")?, Some(OVERLAY), 0)?;
        Ok(Self { shape, outsider, datapath, _servers: servers })
    }

    /// Gives a VIP these of the shape's backends, of which the first `local` are on node-a.
    fn serve(&mut self, vip: SocketAddr, backends: &[usize], local: u16) -> Result<()> {
        let address = |&index: &usize| self.shape.backends[index].address(vip.ip());
        let backends: Vec<_> =
            backends.iter().map(|index| SocketAddr::new(address(index), BACKEND_PORT)).collect();
        self.datapath.serve(vip, &backends, local, EXTERNAL)
    }

    /// Asks a VIP from outside over both transports; every answer has to be this one.
    fn is_answered(&self, vip: SocketAddr, times: usize, answer: &str) -> Result<()> {
        for (transport, ask) in [("TCP", ask_tcp as fn(_, _, _) -> Answers), ("UDP", ask_udp)] {
            let answers = ask(&self.outsider, vip, times);
            let want = BTreeMap::from([(answer.to_owned(), times)]);
            ensure!(answers.by_name == want, "{transport} {vip}: {answers:?}, not {answer}");
        }
        Ok(())
    }
}

/// Every VIP that clients outside ask, with the place of its family.
fn vips() -> Vec<(usize, SocketAddr)> {
    let of = |addresses: [IpAddr; 2], port| {
        addresses.map(|address| SocketAddr::new(address, port)).into_iter().enumerate()
    };
    of(UPLINK, NODE_PORT).chain(of(BALANCED, 80)).collect()
}

#[test]
fn clients_outside_are_answered_and_only_backends_elsewhere_see_the_node_in_their_place() {
    for tc_attach in [TcAttach::Tcx, TcAttach::Clsact] {
        let mut world = World::new(tc_attach).unwrap();
        for (family, vip) in vips() {
            world.serve(vip, &[0], 1).unwrap();
            world.is_answered(vip, 5, &format!("backend-1 {}", OUTSIDER[family])).unwrap();
            world.serve(vip, &[1], 0).unwrap();
            world.is_answered(vip, 5, &format!("backend-2 {}", OVERLAY[family])).unwrap();
        }
    }
}

#[test]
fn b27_a_local_set_keeps_the_clients_address_and_the_whole_set_reaches_every_backend() {
    let mut world = World::new(TcAttach::Auto).unwrap();
    for (family, vip) in vips() {
        world.serve(vip, &[0], 1).unwrap();
        world.is_answered(vip, 10, &format!("backend-1 {}", OUTSIDER[family])).unwrap();
        world.serve(vip, &[0, 1, 2], 1).unwrap();
        for ask in [ask_tcp as fn(&Namespace, SocketAddr, usize) -> Answers, ask_udp] {
            let answers = ask(&world.outsider, vip, 60);
            assert!(answers.failures.is_empty(), "{answers:?}");
            let names: Vec<&str> = answers.by_name.keys().map(String::as_str).collect();
            let (client, node) = (OUTSIDER[family], OVERLAY[family]);
            let want =
                [format!("backend-1 {client}"), format!("backend-2 {node}"), format!("backend-3 {node}")];
            assert_eq!(names, want);
        }
    }
}

#[test]
fn a_connection_through_the_node_goes_on_when_its_backend_is_no_longer_in_the_set() {
    let mut world = World::new(TcAttach::Auto).unwrap();
    for (family, vip) in vips() {
        world.serve(vip, &[1], 0).unwrap();
        let mut held = Connection::open(&world.outsider, vip).unwrap();
        let answer = format!("backend-2 {}", OVERLAY[family]);
        assert_eq!(held.ask().unwrap(), answer);
        world.serve(vip, &[2], 0).unwrap();
        assert_eq!(held.ask().unwrap(), answer);
        world.is_answered(vip, 2, &format!("backend-3 {}", OVERLAY[family])).unwrap();
    }
}

/// See the test of the same name for cluster IPs.
#[test]
fn checksums_are_right_whoever_fills_them_in() {
    for complete_at_sender in [true, false] {
        let mut world = World::new(TcAttach::Auto).unwrap();
        let node_a = &world.shape.nodes[0];
        if complete_at_sender {
            world.outsider.offload("eth0", "tx", false).unwrap();
            for pod in &world.shape.backends {
                pod.host.offload(POD_INTERFACE, "tx", false).unwrap();
            }
        } else {
            let ports = world.shape.backends.iter().take(1).map(|pod| pod.node_interface.as_str());
            for interface in ports.chain(["eth0", "eth1", "vxlan0"]) {
                node_a.offload(interface, "tx", false).unwrap();
            }
        }
        for (family, vip) in vips() {
            world.serve(vip, &[0], 1).unwrap();
            world.is_answered(vip, 5, &format!("backend-1 {}", OUTSIDER[family])).unwrap();
            world.serve(vip, &[2], 0).unwrap();
            world.is_answered(vip, 5, &format!("backend-3 {}", OVERLAY[family])).unwrap();
        }
    }
}
