//! Who may use which address of a Service, and which of its backends.

use std::net::SocketAddr;

use lb_common::{
    LinkValue, Verdict,
    node::flags::EXTERNAL_CLUSTER_IPS,
    service::flags::{CLUSTER_IP, DROP_WHEN_EMPTY, INSIDE_APART, SOURCE_RANGES},
};
use lb_tests::{
    addrs::*,
    external::*,
    packet::{ACK, Packet, SYN},
    prog::{Datapath, Hook},
    seed::{tcp, udp},
};

/// The interface by which pods' packets come in.
const POD_SIDE: u32 = 78;

/// The VIP as a ClusterIP with all that goes with it.
fn serving_cluster_ip(vip: SocketAddr, backends: &[SocketAddr]) -> Datapath {
    let mut datapath = on_a_node();
    for frontend in [tcp(vip), udp(vip)] {
        datapath.serve(frontend, backends);
        datapath.add_flags(frontend, CLUSTER_IP);
    }
    datapath.own_address(vip.ip(), true);
    datapath
}

#[test]
fn a_cluster_ip_is_not_for_clients_outside() {
    for (client, vip, backend) in [(OUTSIDER, VIP, BACKEND_2), (OUTSIDER_V6, VIP_V6, BACKEND_V6)] {
        let mut datapath = serving_cluster_ip(vip, &[backend]);
        let unknown = SocketAddr::new(vip.ip(), 81);
        for packet in [
            Packet::tcp(client, vip, SYN),
            Packet::tcp(client, vip, ACK),
            Packet::udp(client, vip, b"x"),
            Packet::tcp(client, unknown, SYN),
            Packet::udp(client, unknown, b"x"),
            Packet::echo_request(client, vip, b"x"),
        ] {
            datapath.dropped(&packet, Verdict::OutsideClusterIP);
        }
        assert_eq!(datapath.flows().len(), 0);
    }
}

#[test]
fn a_connection_to_a_cluster_ip_that_is_known_goes_on_wherever_it_comes_in() {
    let mut datapath = serving_cluster_ip(VIP, &[BACKEND_2]);
    datapath.come_in_by(POD_SIDE);
    datapath.to_backend(&Packet::tcp(OUTSIDER, VIP, SYN), Verdict::FlowCreated, &[BACKEND_2]);
    datapath.come_in_by(UPLINK);
    datapath.to_backend(&Packet::tcp(OUTSIDER, VIP, ACK), Verdict::FlowContinued, &[BACKEND_2]);
}

#[test]
fn pods_are_inside_by_their_interface_or_their_address() {
    for (index, client) in [(POD_SIDE, OUTSIDER), (UPLINK, CLIENT), (0, OUTSIDER)] {
        let mut datapath = serving_cluster_ip(VIP, &[BACKEND_2]);
        datapath.come_in_by(index);
        datapath.to_backend(&Packet::tcp(client, VIP, SYN), Verdict::FlowCreated, &[BACKEND_2]);
    }
    let mut datapath = serving_cluster_ip(VIP, &[BACKEND_2]);
    datapath.set_link(POD_SIDE, LinkValue { flags: 0, ..LinkValue::default() });
    datapath.come_in_by(POD_SIDE);
    datapath.to_backend(&Packet::tcp(OUTSIDER, VIP, SYN), Verdict::FlowCreated, &[BACKEND_2]);
    assert_eq!(datapath.flows().len(), 2);
}

#[test]
fn cluster_ips_that_are_open_to_clients_outside_call_replies_back_from_other_nodes() {
    for (client, vip, backend) in [(OUTSIDER, VIP, BACKEND_2), (OUTSIDER_V6, VIP_V6, BACKEND_V6)] {
        let mut datapath = serving_cluster_ip(vip, &[backend]);
        datapath.set_node(node(EXTERNAL_CLUSTER_IPS));
        let stand_in = datapath.hidden(&Packet::tcp(client, vip, SYN), Verdict::FlowCreated, backend);
        datapath.called_back(&Packet::tcp(backend, stand_in, SYN | ACK), vip, client);
        datapath.refused(&Packet::tcp(client, SocketAddr::new(vip.ip(), 81), SYN), Verdict::UnknownPort);
        datapath.serve_here_and_there(tcp(vip), &[backend], &[], &[]);
        datapath.add_flags(tcp(vip), CLUSTER_IP);
        let other = SocketAddr::new(client.ip(), 1);
        datapath.seen(&Packet::tcp(other, vip, SYN), Verdict::FlowCreated, backend);
    }
    let mut datapath = serving_cluster_ip(VIP, &[BACKEND_2]);
    datapath.set_node(node(EXTERNAL_CLUSTER_IPS));
    datapath.seen(&Packet::tcp(CLIENT, VIP, SYN), Verdict::FlowCreated, BACKEND_2);
}

#[test]
fn only_clients_of_a_source_range_may_connect() {
    for (client, vip, backend, other) in [
        (OUTSIDER, BALANCED, BACKEND_1, "203.0.114.9"),
        (OUTSIDER_V6, BALANCED_V6, BACKEND_V6, "2001:db8:999a::9"),
    ] {
        let bits = if client.is_ipv4() { 24 } else { 48 };
        for frontend in [tcp(vip), udp(vip)] {
            let mut datapath = on_a_node();
            datapath.serve_outside(frontend, &[backend], &[]);
            datapath.add_flags(frontend, SOURCE_RANGES);
            let from = |source| packet(frontend.1, source, vip, SYN);
            datapath.dropped(&from(client), Verdict::SourceNotAllowed);
            datapath.allow(frontend, client.ip(), bits);
            datapath.to_backend(&from(client), Verdict::FlowCreated, &[backend]);
            let other = SocketAddr::new(other.parse().unwrap(), 1);
            datapath.dropped(&from(other), Verdict::SourceNotAllowed);
            // A range is one service port's, and each packet of the client would be allowed by another's.
            let neighbour = (SocketAddr::new(vip.ip(), 444), frontend.1);
            datapath.serve_outside(neighbour, &[backend], &[]);
            datapath.add_flags(neighbour, SOURCE_RANGES);
            datapath.dropped(&packet(frontend.1, client, neighbour.0, SYN), Verdict::SourceNotAllowed);
        }
    }
}

#[test]
fn source_ranges_hold_for_pods_too_and_for_new_connections_only() {
    let mut datapath = on_a_node();
    datapath.serve_outside(tcp(BALANCED), &[BACKEND_1], &[]);
    datapath.to_backend(&Packet::tcp(OUTSIDER, BALANCED, SYN), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.add_flags(tcp(BALANCED), SOURCE_RANGES);
    datapath.allow(tcp(BALANCED), "192.0.2.0".parse().unwrap(), 24);
    datapath.to_backend(&Packet::tcp(OUTSIDER, BALANCED, ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.come_in_by(POD_SIDE);
    datapath.dropped(&Packet::tcp(CLIENT, BALANCED, SYN), Verdict::SourceNotAllowed);
    // A client that may not connect is not told that there is nobody.
    datapath.serve_outside(tcp(BALANCED), &[], &[]);
    datapath.add_flags(tcp(BALANCED), SOURCE_RANGES);
    datapath.dropped(&Packet::tcp(CLIENT, BALANCED, SYN), Verdict::SourceNotAllowed);
}

/// A NodePort with the Local policy: one backend here for clients outside, and all for those inside.
fn serving_apart(here: &[SocketAddr], there: &[SocketAddr]) -> Datapath {
    let mut datapath = on_a_node();
    let frontend = tcp(NODE_PORT);
    datapath.serve_outside(frontend, here, there);
    datapath.set_apart(frontend);
    datapath.serve_outside(frontend, here, &[]);
    datapath.add_flags(frontend, INSIDE_APART);
    datapath
}

#[test]
fn b27_the_policy_local_keeps_to_this_node_for_clients_outside_only() {
    let mut datapath = serving_apart(&[BACKEND_1], &[BACKEND_2]);
    for port in 1..=20 {
        let client = SocketAddr::new(OUTSIDER.ip(), port);
        datapath.seen(&Packet::tcp(client, NODE_PORT, SYN), Verdict::FlowCreated, BACKEND_1);
    }
    let mut datapath = serving_apart(&[], &[BACKEND_2]);
    datapath.add_flags(tcp(NODE_PORT), DROP_WHEN_EMPTY);
    datapath.dropped(&Packet::tcp(OUTSIDER, NODE_PORT, SYN), Verdict::NoLocalBackend);
    for index in [UPLINK, POD_SIDE] {
        datapath.come_in_by(index);
        let client = SocketAddr::new(CLIENT.ip(), u16::try_from(index).unwrap());
        datapath.hidden(&Packet::tcp(client, NODE_PORT, SYN), Verdict::FlowCreated, BACKEND_2);
        datapath.hidden(&Packet::tcp(client, NODE_PORT, ACK), Verdict::FlowContinued, BACKEND_2);
    }
}

#[test]
fn b27_the_internal_policy_local_never_leaves_the_node() {
    let mut datapath = serving_cluster_ip(VIP, &[]);
    datapath.add_flags(tcp(VIP), DROP_WHEN_EMPTY);
    datapath.come_in_by(POD_SIDE);
    datapath.dropped(&Packet::tcp(CLIENT, VIP, SYN), Verdict::NoLocalBackend);
}

#[test]
fn an_external_address_is_ours_with_its_exact_ports_only() {
    for (client, vip) in [(OUTSIDER, NODE_PORT), (OUTSIDER_V6, NODE_PORT_V6)] {
        let mut datapath = on_a_node();
        datapath.serve_outside(tcp(vip), &[], &[]);
        datapath.refused(&Packet::tcp(client, vip, SYN), Verdict::NoBackend);
        datapath.add_flags(tcp(vip), DROP_WHEN_EMPTY);
        datapath.dropped(&Packet::tcp(client, vip, SYN), Verdict::NoLocalBackend);
        datapath.untouched(&Packet::udp(client, vip, b"x"));
        datapath.untouched(&Packet::tcp(client, SocketAddr::new(vip.ip(), vip.port() + 1), SYN));
        datapath.untouched(&Packet::echo_request(client, vip, b"x"));
    }
}

#[test]
fn b43_a_client_has_one_local_backend_in_each_port_with_affinity() {
    const PORTS: [u16; 2] = [5060, 40_982];
    let here = [BACKEND_1, SocketAddr::new(BACKEND_1.ip(), 8081), SocketAddr::new(BACKEND_1.ip(), 8082)];
    let mut datapath = on_a_node();
    for port in PORTS {
        let frontend = udp(SocketAddr::new(BALANCED.ip(), port));
        datapath.set_affinity(frontend, 600);
        datapath.serve_outside(frontend, &here, &[BACKEND_2]);
        datapath.set_apart(frontend);
        datapath.serve_outside(frontend, &here, &[]);
        datapath.add_flags(frontend, INSIDE_APART);
        let vip = SocketAddr::new(BALANCED.ip(), port);
        let ask = |source_port| Packet::udp(SocketAddr::new(OUTSIDER.ip(), source_port), vip, b"x");
        let backend = datapath.to_backend(&ask(1), Verdict::FlowCreated, &here);
        for source_port in 2..=10 {
            datapath.to_backend(&ask(source_port), Verdict::FlowCreated, &[backend]);
        }
    }
}

#[test]
fn b44_tcp_and_udp_at_one_node_port_are_handled_apart() {
    let mut datapath = on_a_node();
    let segment = |flags| Packet::tcp(OUTSIDER, NODE_PORT, flags);
    datapath.serve_outside(tcp(NODE_PORT), &[BACKEND_1], &[]);
    datapath.serve_outside(udp(NODE_PORT), &[BACKEND_1_DNS], &[]);
    datapath.to_backend(&segment(SYN), Verdict::FlowCreated, &[BACKEND_1]);
    datapath.to_backend(&Packet::udp(OUTSIDER, NODE_PORT, b"x"), Verdict::FlowCreated, &[BACKEND_1_DNS]);
    datapath.stop_serving(udp(NODE_PORT));
    datapath.untouched(&Packet::udp(OUTSIDER, NODE_PORT, b"x"));
    datapath.to_backend(&segment(ACK), Verdict::FlowContinued, &[BACKEND_1]);
    datapath.serve_outside(udp(NODE_PORT), &[BACKEND_2_DNS], &[]);
    let other = SocketAddr::new(OUTSIDER.ip(), 1);
    let outcome = datapath.run(Hook::Ingress, &Packet::udp(other, NODE_PORT, b"x").bytes());
    assert_eq!(outcome.bytes, Packet::udp(other, BACKEND_2_DNS, b"x").bytes());
}
