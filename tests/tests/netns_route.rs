//! Past the host's stack (`--host-routing bpf`): traffic that no rule of the node sees, a hop further all the same.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use lb_tests::{
    balanced::{BACKEND_PORT, PORT, ask_every_way, balance, fill_in_sums, start_servers},
    bpf_root::BpfRoot,
    datapath::default_config,
    frames::FrameSocket,
    netns::{
        Namespace,
        shapes::{self, Make, POD_INTERFACE, Shape, VIP, VIP_V6},
    },
    packet::ETHERNET_LEN,
    traffic::{TIMEOUT, ask_udp},
};
use lb_userspace::datapath::{Config, HostRouting, TcAttach};

const SHAPES: [(&str, Make); 2] = [("routed", shapes::routed), ("two nodes", shapes::two_nodes)];

fn config(root: &BpfRoot, host_routing: HostRouting, tc_attach: TcAttach) -> Config {
    Config { host_routing, ..default_config(root.path(), tc_attach) }
}

/// Has a node drop all that its stack forwards.
fn forward_nothing(node: &Namespace) -> Result<()> {
    node.sh("nft add table inet guard")?;
    node.sh("nft add chain inet guard forward { type filter hook forward priority 0 ; policy drop ; }")
        .map(drop)
}

/// Where a frame's time to live or hop limit lies, and that of a UDP destination port.
fn offsets(vip: IpAddr) -> (usize, usize) {
    if vip.is_ipv4() {
        (ETHERNET_LEN + 8, ETHERNET_LEN + 20 + 2)
    } else {
        (ETHERNET_LEN + 7, ETHERNET_LEN + 40 + 2)
    }
}

/// Asks a VIP once. Gives the time to live of the question as it is at the backend.
fn time_to_live_at_backend(shape: &Shape, vip: IpAddr) -> Result<u8> {
    let sockets: Vec<_> = shape
        .backends
        .iter()
        .map(|pod| FrameSocket::open(&pod.host, POD_INTERFACE))
        .collect::<Result<_>>()?;
    let answers = ask_udp(&shape.client.host, SocketAddr::new(vip, PORT), 1);
    let answered = |pod: &shapes::Pod| answers.by_name.contains_key(pod.host.role());
    let backend = shape.backends.iter().position(answered);
    let backend = backend.ok_or_else(|| anyhow::anyhow!("{vip}: {answers:?}"))?;
    let (time_to_live, port) = offsets(vip);
    let is_question = |frame: &[u8]| frame.get(port..port + 2) == Some(&BACKEND_PORT.to_be_bytes());
    Ok(sockets[backend].receive(TIMEOUT, is_question)?[time_to_live])
}

#[test]
fn traffic_to_a_vip_and_back_passes_no_forward_rule_with_bpf_and_every_one_with_stack() {
    for (name, make) in SHAPES {
        for tc_attach in [TcAttach::Tcx, TcAttach::Clsact] {
            let shape = make().unwrap();
            let root = BpfRoot::new().unwrap();
            let _servers = start_servers(&shape).unwrap();
            forward_nothing(&shape.nodes[0]).unwrap();
            balance(&shape, &config(&root, HostRouting::Bpf, tc_attach)).unwrap();
            println!("{name} {tc_attach:?}");
            ask_every_way(&shape, 20).unwrap();

            balance(&shape, &config(&root, HostRouting::Stack, tc_attach)).unwrap();
            for vip in [IpAddr::from(VIP), IpAddr::from(VIP_V6)] {
                let answers = ask_udp(&shape.client.host, SocketAddr::new(vip, PORT), 1);
                assert_eq!((answers.by_name.len(), answers.failures.len()), (0, 1), "{name}: {answers:?}");
            }
        }
    }
}

#[test]
fn a_node_is_one_hop_whichever_way_the_packet_takes() {
    for host_routing in [HostRouting::Stack, HostRouting::Bpf] {
        let shape = shapes::routed().unwrap();
        let root = BpfRoot::new().unwrap();
        let _servers = start_servers(&shape).unwrap();
        balance(&shape, &config(&root, host_routing, TcAttach::Auto)).unwrap();
        for vip in [IpAddr::from(VIP), IpAddr::from(VIP_V6)] {
            assert_eq!(time_to_live_at_backend(&shape, vip).unwrap(), 63, "{host_routing:?} {vip}");
        }
    }
}

/// As in netns_clusterip: complete sums from the senders, and sums that are filled in when the packet leaves the node.
#[test]
fn checksums_are_right_whoever_fills_them_in() {
    for complete_at_sender in [true, false] {
        let shape = shapes::routed().unwrap();
        let root = BpfRoot::new().unwrap();
        let _servers = start_servers(&shape).unwrap();
        fill_in_sums(&shape, complete_at_sender).unwrap();
        forward_nothing(&shape.nodes[0]).unwrap();
        balance(&shape, &config(&root, HostRouting::Bpf, TcAttach::Auto)).unwrap();
        ask_every_way(&shape, 20).unwrap();
    }
}
