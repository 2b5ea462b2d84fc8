//! What the agent has said.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use crate::seed;

/// One of the backends that a frontend may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its identity as a backend of this service port.
    pub id: u32,
    /// Where it listens.
    pub address: SocketAddr,
}

/// What is known of a frontend.
#[derive(Clone, Debug)]
pub struct Frontend {
    /// The service port that it belongs to.
    pub service: u32,
    /// Those who may be chosen, in the order in which they are tried.
    pub backends: Vec<Backend>,
    /// Whether it is one of a ClusterIP.
    pub is_cluster_ip: bool,
    /// Whether packets are dropped, not refused, while there is no backend.
    pub drops_when_empty: bool,
    /// How long a client stays with its backend, in nanoseconds.
    pub affinity: Option<u64>,
}

/// Whether a backend may be used. One without has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is in the set.
    Active,
    /// It is terminating, but serving.
    Draining,
}

/// Everything that the agent has said.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// By address, port and protocol.
    pub frontends: HashMap<seed::Frontend, Frontend>,
    /// ClusterIPs as a whole: whether one of their frontends has a usable endpoint.
    pub cluster_ips: HashMap<IpAddr, bool>,
    /// By backend id.
    pub standing: HashMap<u32, Standing>,
    /// Whether TCP or SCTP without a flow may still belong to the proxy that was there before.
    pub is_migrating: bool,
    /// Whether a frontend was removed that may have left flows.
    pub has_orphans: bool,
}

impl Services {
    pub(super) fn cluster_ip(&self, address: IpAddr) -> Option<bool> {
        self.cluster_ips.get(&address).copied()
    }
}
