//! A pod that reaches itself through its own Service, on the wire.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::{Result, ensure};
use lb_tests::{
    netns::shapes::{self, Make, POD_INTERFACE, VIP, VIP_V6},
    pinned::Pinned,
    traffic::{NameServer, ask_tcp_from, ask_udp},
};
use lb_userspace::datapath::TcAttach;

const PORT: u16 = 80;
const BACKEND_PORT: u16 = 8080;
const NODE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 168, 50, 11)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x5000, 0, 0, 0, 0, 0x11)),
];

fn reaches_itself(make: Make, tc_attach: TcAttach, checksums: Option<bool>) -> Result<()> {
    let shape = make()?;
    let (node, pod) = (&shape.nodes[0], &shape.client);
    for address in NODE {
        node.ip(&format!("addr add {address} dev lo"))?;
    }
    match checksums {
        Some(true) => pod.host.offload(POD_INTERFACE, "tx", false)?,
        Some(false) => node.offload(&pod.node_interface, "tx", false)?,
        None => {}
    }
    let _server = NameServer::start_naming_clients(&pod.host, BACKEND_PORT)?;
    let mut datapath = Pinned::on(node, tc_attach)?;
    datapath.set_node(NODE)?;
    for (vip, seen) in [IpAddr::from(VIP), VIP_V6.into()].into_iter().zip(NODE) {
        let itself = pod.address(vip);
        let vip = SocketAddr::new(vip, PORT);
        datapath.serve(vip, &[SocketAddr::new(itself, BACKEND_PORT)], 1, 0)?;
        let want = BTreeMap::from([(format!("client {seen}"), 2)]);
        let over_tcp = ask_tcp_from(&pod.host, SocketAddr::new(itself, 40_000), vip, 2);
        ensure!(over_tcp.by_name == want, "TCP {vip}: {over_tcp:?}");
        let over_udp = ask_udp(&pod.host, vip, 2);
        ensure!(over_udp.by_name == want, "UDP {vip}: {over_udp:?}");
    }
    Ok(())
}

#[test]
fn a_pod_reaches_itself_through_its_service_on_every_shape_twice_from_one_port() {
    for (name, make) in shapes::ALL {
        for tc_attach in [TcAttach::Tcx, TcAttach::Clsact] {
            let done = reaches_itself(make, tc_attach, None);
            done.unwrap_or_else(|error| panic!("{name} {tc_attach:?}: {error:#}"));
        }
    }
}

/// See the test of the same name for cluster IPs.
#[test]
fn checksums_are_right_whoever_fills_them_in() {
    for complete_at_sender in [true, false] {
        reaches_itself(shapes::routed, TcAttach::Auto, Some(complete_at_sender)).unwrap();
    }
}
