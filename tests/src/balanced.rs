//! A shape whose client has a ClusterIP in front of the backends: maps as the agent writes them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey,
    addr::from_ip,
    backend::state,
    service::{proto, scope},
};
use lb_userspace::{
    datapath::{Attachments, Config, schema_folder},
    maps::{BpfMaps, LbMaps, Op},
};

use crate::{
    datapath::live,
    netns::shapes::{POD_INTERFACE, Shape, VIP, VIP_V6},
    traffic::{Answers, NameServer, ask_tcp, ask_udp},
};

/// The port of both VIPs.
pub const PORT: u16 = 80;
/// The port of the servers.
pub const BACKEND_PORT: u16 = 8080;

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
///
/// # Errors
/// What the kernel says.
pub fn balance(shape: &Shape, config: &Config) -> Result<()> {
    live(&shape.nodes[0], config, &[], true, async |life| {
        let attached = |now: &Attachments| now.interfaces.iter().all(|state| state.error.is_none());
        life.until("attached", |now| now.complete && attached(now)).await
    })?;
    let mut maps = BpfMaps::open(&schema_folder(&config.bpf_root))?;
    serve(&mut maps, shape, VIP.into(), 1)?;
    serve(&mut maps, shape, VIP_V6.into(), 3)
}

/// Asks each VIP over each transport, none of which may fail: what was asked, and who answered.
///
/// # Errors
/// What has failed.
pub fn ask_every_way(shape: &Shape, times: usize) -> Result<Vec<(String, Answers)>> {
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

/// Starts a server on every backend.
///
/// # Errors
/// Where the port is taken.
pub fn start_servers(shape: &Shape) -> Result<Vec<NameServer>> {
    shape.backends.iter().map(|pod| NameServer::start(&pod.host, BACKEND_PORT)).collect()
}

/// Has checksums completed by their senders, else by the node when a packet leaves it. A veth carries packets whose checksum
/// nobody has filled in yet otherwise.
///
/// # Errors
/// What ethtool says.
pub fn fill_in_sums(shape: &Shape, at_sender: bool) -> Result<()> {
    for pod in shape.backends.iter().chain([&shape.client]) {
        let (host, interface) = match at_sender {
            true => (&pod.host, POD_INTERFACE),
            false => (&shape.nodes[0], pod.node_interface.as_str()),
        };
        host.offload(interface, "tx", false)?;
    }
    Ok(())
}
