//! The parts of a Service's desired state.

use std::{fmt, net::IpAddr};

use lb_common::{ServiceKey, Verdict, addr, service::scope};
use serde::{Deserialize, Serialize};

use crate::{
    endpoints::Selection,
    model::{Family, Policy, Protocol},
};

/// A port of a Service, by what its identity is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// Its name; empty where it has none.
    pub name: Box<str>,
    /// Its protocol.
    pub protocol: Protocol,
}

/// The endpoints of a Service port in one family under one policy: the unit that shares a block of BACKENDS, however
/// many frontends lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSet {
    /// The Service port.
    pub port: PortKey,
    /// The address family.
    pub family: Family,
    /// The traffic policy.
    pub policy: Policy,
    /// Who is in, and why the others are not.
    pub selection: Selection,
}

impl EndpointSet {
    /// What becomes of traffic while nothing is usable.
    pub fn no_backends(&self) -> NoBackends {
        if self.selection.is_usable_elsewhere() { NoBackends::Drop } else { NoBackends::Reject }
    }
}

/// What becomes of traffic to a frontend without backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoBackends {
    /// The client is told at once.
    Reject,
    /// Silence: another node would serve it.
    Drop,
}

/// Where clients of a Service port connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Which of the Service's addresses it is.
    pub kind: FrontendKind,
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Index of its endpoints in [`super::ServiceDesired::sets`].
    pub set: usize,
    /// The same for clients inside the cluster (its pods and this node), where theirs is another one: the external policy
    /// Local is not for them.
    pub inside: Option<usize>,
    /// Protocol, the same as its set's.
    pub protocol: Protocol,
    /// How long a client stays with its backend, in seconds; `None` without session affinity.
    pub affinity_seconds: Option<u32>,
}

impl Frontend {
    /// Its key in SERVICES.
    pub fn key(&self) -> ServiceKey {
        ServiceKey {
            address: addr::from_ip(self.address),
            port: self.port,
            proto: self.protocol.number(),
            scope: scope::ANY,
        }
    }

    /// Whether source ranges are for it, where the Service has some.
    pub fn is_guarded(&self) -> bool {
        self.kind == FrontendKind::LoadBalancer
    }
}

impl fmt::Display for Frontend {
    /// As in `ClusterIP 10.96.0.50:80/TCP`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = std::net::SocketAddr::new(self.address, self.port);
        write!(f, "{} {socket}/{}", self.kind, self.protocol)
    }
}

/// Which of a Service's addresses a frontend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FrontendKind {
    /// One of `spec.clusterIPs`.
    ClusterIP,
    /// A port of this node.
    NodePort,
    /// One of `spec.externalIPs`.
    ExternalIP,
    /// One of `status.loadBalancer.ingress[].ip`.
    LoadBalancer,
}

impl FrontendKind {
    /// Who wins an address, port and protocol that two claim: the lower one.
    pub(super) const fn precedence(self) -> u8 {
        match self {
            Self::ClusterIP => 0,
            Self::NodePort => 1,
            Self::ExternalIP | Self::LoadBalancer => 2,
        }
    }
}

impl fmt::Display for FrontendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::ExternalIP => "ExternalIP",
            Self::LoadBalancer => "LoadBalancer",
        })
    }
}

/// `spec.healthCheckNodePort`: where load balancers ask whether this node has endpoints of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The port, on the addresses of this node.
    pub port: u16,
    /// Number of ready endpoints on this node, by address. Zero: the load balancer should send nothing here.
    pub local_endpoints: usize,
}

/// Why a frontend is kept out of the datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The reason.
    pub reason: Verdict,
    /// The same in one sentence about this frontend.
    pub message: String,
}

/// Something of a Service that makes no frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Why.
    pub reason: Verdict,
    /// The same in one sentence about what is skipped.
    pub message: String,
}
