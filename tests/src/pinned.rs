//! What the agent would have written, on a datapath that is pinned and has none: frontends, and what the programs know of
//! the node.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use aya::maps::{Array, Map, MapData};
use lb_common::{
    BackendSet, BackendState, BackendValue, LinkValue, NodeValue, ServiceKey, ServiceValue, SlotKey,
    addr::from_ip,
    backend::state,
    maps,
    service::{proto, scope},
};
use lb_userspace::{
    datapath::{Attachments, Config, TcAttach, schema_folder},
    maps::{BpfMaps, LbMaps, Op, Table},
};

use crate::{
    bpf_root::BpfRoot,
    datapath::{default_config, live},
    netns::Namespace,
};

/// Programs on a host, and their maps.
pub struct Pinned {
    root: BpfRoot,
    config: Config,
    maps: BpfMaps,
    last: u32,
}

impl Pinned {
    /// Puts the programs on a host and leaves them there without an agent.
    ///
    /// # Errors
    /// Where the rights are missing.
    pub fn on(host: &Namespace, tc_attach: TcAttach) -> Result<Self> {
        let root = BpfRoot::new()?;
        let config = default_config(root.path(), tc_attach);
        live(host, &config, &[], true, async |life| {
            let attached = |now: &Attachments| now.interfaces.iter().all(|state| state.error.is_none());
            life.until("attached", |now| now.complete && attached(now)).await
        })?;
        let maps = BpfMaps::open(&schema_folder(&config.bpf_root))?;
        Ok(Self { root, config, maps, last: 0 })
    }

    /// Gives a frontend, over TCP and UDP, these backends, the first `local` of which are on this node.
    ///
    /// # Errors
    /// Where there is no room.
    pub fn serve(&mut self, vip: SocketAddr, backends: &[SocketAddr], local: u16, flags: u32) -> Result<()> {
        for proto in [proto::TCP, proto::UDP] {
            self.last += 1;
            let block = self.last;
            for (slot, backend) in (0u16..).zip(backends) {
                let backend_id = block * 1000 + u32::from(slot);
                let (address, port) = (from_ip(backend.ip()), backend.port());
                let value = BackendValue { address, port, pad: 0, backend_id };
                self.maps.apply(&Op::PutBackend(SlotKey { block, slot, pad: 0 }, value))?;
                self.maps.apply(&Op::PutState(backend_id, BackendState { flags: state::ACTIVE }))?;
            }
            let key = ServiceKey { address: from_ip(vip.ip()), port: vip.port(), proto, scope: scope::ANY };
            let set = BackendSet { block, count: u16::try_from(backends.len())?, local };
            let value = ServiceValue { set, service_id: block, flags, ..ServiceValue::default() };
            self.maps.apply(&Op::PutService(key, value))?;
        }
        Ok(())
    }

    /// Tells the programs the node's addresses, IPv4 first.
    ///
    /// # Errors
    /// Where the map is missing.
    pub fn set_node(&mut self, addresses: [IpAddr; 2]) -> Result<()> {
        let path = schema_folder(&self.config.bpf_root).join(maps::NODE);
        let mut map = Array::<MapData, NodeValue>::try_from(Map::from_map_data(MapData::from_pin(path)?)?)?;
        let value = NodeValue { addresses: addresses.map(from_ip), ..NodeValue::default() };
        map.set(0, value, 0).context(maps::NODE)
    }

    /// Tells the programs of an interface.
    ///
    /// # Errors
    /// Where the map is missing.
    pub fn set_link(&mut self, index: u32, addresses: Option<[IpAddr; 2]>, flags: u64) -> Result<()> {
        let mut map = Table::<u32, LinkValue>::open(&schema_folder(self.root.path()), maps::LINKS)?;
        let addresses = addresses.map(|both| both.map(from_ip)).unwrap_or_default();
        Ok(map.put(&index, &LinkValue { addresses, flags })?)
    }
}
