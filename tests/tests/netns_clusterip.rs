//! A ClusterIP on the wire: real sockets, the compiled programs, and maps as the agent writes them.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use anyhow::{Result, ensure};
use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey,
    addr::from_ip,
    backend::state,
    service::{proto, scope},
};
use lb_tests::{
    bpf_root::BpfRoot,
    datapath::{default_config, live},
    netns::shapes::{self, ALL, POD_INTERFACE, Shape, VIP, VIP_V6},
    traffic::{Answers, NameServer, ask_tcp, ask_udp},
};
use lb_userspace::{
    datapath::{Attachments, Config, TcAttach, schema_folder},
    maps::{BpfMaps, LbMaps, Op},
};

const PORT: u16 = 80;
const BACKEND_PORT: u16 = 8080;
/// How often the client asks, and what each of three backends may answer of that: 25 to 42 %, which an even choice
/// misses once in ten million times.
const ROUNDS: [(TcAttach, usize, RangeInclusive<usize>); 2] =
    [(TcAttach::Tcx, 1000, 250..=420), (TcAttach::Clsact, 100, 1..=100)];

/// A frontend for every backend of the shape, for TCP and UDP.
fn serve(maps: &mut BpfMaps, shape: &Shape, vip: IpAddr, first_block: u32) -> Result<()> {
    for (block, proto) in (first_block..).zip([proto::TCP, proto::UDP]) {
        for (slot, backend) in (0..).zip(&shape.backends) {
            let backend_id = block * 10 + u32::from(slot);
            let value = BackendValue {
                address: from_ip(backend.address(vip)),
                port: BACKEND_PORT,
                pad: 0,
                backend_id,
            };
            maps.apply(&Op::PutBackend(SlotKey { block, slot, pad: 0 }, value))?;
            maps.apply(&Op::PutState(backend_id, BackendState { flags: state::ACTIVE }))?;
        }
        let key = ServiceKey { address: from_ip(vip), port: PORT, proto, scope: scope::ANY };
        let set = BackendSet { block, count: 3, local: 0 };
        maps.apply(&Op::PutService(key, ServiceValue { set, service_id: block, ..ServiceValue::default() }))?;
    }
    Ok(())
}

/// Puts the programs on the client's node and leaves them there without an agent; serves both VIPs.
fn balance(shape: &Shape, config: &Config) -> Result<()> {
    live(&shape.nodes[0], config, &[], true, async |life| {
        let attached = |now: &Attachments| now.interfaces.iter().all(|state| state.error.is_none());
        life.until("attached", |now| now.complete && attached(now)).await
    })?;
    let mut maps = BpfMaps::open(&schema_folder(&config.bpf_root))?;
    serve(&mut maps, shape, VIP.into(), 1)?;
    serve(&mut maps, shape, VIP_V6.into(), 3)
}

/// Asks each VIP over each transport, none of which may fail: what was asked, and who answered.
fn ask_every_way(shape: &Shape, times: usize) -> Result<Vec<(String, Answers)>> {
    let mut all = Vec::new();
    for vip in [IpAddr::from(VIP), IpAddr::from(VIP_V6)] {
        for (transport, ask) in [("TCP", ask_tcp as fn(_, _, _) -> Answers), ("UDP", ask_udp)] {
            let answers = ask(&shape.client.host, SocketAddr::new(vip, PORT), times);
            ensure!(answers.failures.is_empty(), "{transport} {vip}: {answers:?}");
            all.push((format!("{transport} {vip}"), answers));
        }
    }
    Ok(all)
}

fn start_servers(shape: &Shape) -> Result<Vec<NameServer>> {
    shape.backends.iter().map(|pod| NameServer::start(&pod.host, BACKEND_PORT)).collect()
}

#[test]
fn every_backend_answers_its_share_on_every_shape_in_both_families_and_ways_of_attaching() {
    for (name, make) in ALL {
        for (tc_attach, times, share) in ROUNDS {
            let shape = make().unwrap();
            let root = BpfRoot::new().unwrap();
            let _servers = start_servers(&shape).unwrap();
            balance(&shape, &default_config(root.path(), tc_attach)).unwrap();
            for (how, answers) in ask_every_way(&shape, times).unwrap() {
                let counts: Vec<usize> = answers.by_name.values().copied().collect();
                let fair = counts.len() == shape.backends.len() && counts.iter().all(|n| share.contains(n));
                assert!(fair, "{name} {tc_attach:?} {how}: {answers:?}");
            }
        }
    }
}

/// veth carries packets whose checksum nobody has filled in yet, which hides a wrong one. With complete sums from the
/// senders, a rewrite that forgets the sum fails; with sums that are filled in when the packet leaves the node, one that
/// corrects it in the wrong way does.
#[test]
fn checksums_are_right_whoever_fills_them_in() {
    for complete_at_sender in [true, false] {
        let shape = shapes::routed().unwrap();
        let root = BpfRoot::new().unwrap();
        let _servers = start_servers(&shape).unwrap();
        for pod in shape.backends.iter().chain([&shape.client]) {
            let (host, interface) = match complete_at_sender {
                true => (&pod.host, POD_INTERFACE),
                false => (&shape.nodes[0], pod.node_interface.as_str()),
            };
            host.offload(interface, "tx", false).unwrap();
        }
        balance(&shape, &default_config(root.path(), TcAttach::Auto)).unwrap();
        ask_every_way(&shape, 20).unwrap();
    }
}
