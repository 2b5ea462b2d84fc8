//! The Service, as a proxy reads it.

use serde::{Deserialize, Serialize};

use super::{Kind, ObjectKey, ObjectRef, Protocol};

/// A `v1` Service, reduced to what a proxy obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.creationTimestamp`, seconds since the epoch; absent in manifests.
    pub created: Option<i64>,
    /// Value of the label `service.kubernetes.io/service-proxy-name`.
    pub proxy_name: Option<Box<str>>,
    /// It has the label `service.kubernetes.io/headless`, whatever its value.
    pub headless: bool,
    /// `spec.type`.
    pub service_type: ServiceType,
    /// `spec.clusterIPs`, else `spec.clusterIP` alone, as text: `None` and the empty text included.
    pub cluster_ips: Vec<Box<str>>,
    /// `spec.externalIPs`, as text.
    pub external_ips: Vec<Box<str>>,
    /// `status.loadBalancer.ingress[]` of those with an `ip`.
    pub load_balancer_ips: Vec<LoadBalancerIp>,
    /// `spec.loadBalancerSourceRanges`, as text.
    pub source_ranges: Vec<Box<str>>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.sessionAffinity`.
    pub affinity: SessionAffinity,
    /// `spec.internalTrafficPolicy`.
    pub internal_policy: Policy,
    /// `spec.externalTrafficPolicy`.
    pub external_policy: Policy,
    /// `spec.healthCheckNodePort`.
    pub health_check_port: Option<u16>,
    /// `spec.trafficDistribution`.
    pub traffic_distribution: Option<TrafficDistribution>,
    /// What the object says that is not understood or not obeyed; one sentence each.
    pub warnings: Vec<String>,
}

impl Service {
    /// What identifies the object.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef { kind: Kind::Service, key: self.key.clone() }
    }
}

/// `spec.type` of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// Reached by its cluster IPs only; also where the field is absent.
    ClusterIP,
    /// On a port of every node as well.
    NodePort,
    /// Behind a load balancer of the platform as well.
    LoadBalancer,
    /// A DNS alias; its addresses and ports mean nothing.
    ExternalName,
}

impl ServiceType {
    /// Whether `nodePort` of its ports means anything.
    pub const fn has_node_ports(self) -> bool {
        matches!(self, Self::NodePort | Self::LoadBalancer)
    }
}

/// One of `status.loadBalancer.ingress[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerIp {
    /// `ip`, as text.
    pub ip: Box<str>,
    /// `ipMode` is Proxy: traffic to the address has to reach the load balancer itself.
    pub proxied: bool,
}

/// `spec.trafficDistribution`: a wish, which whoever writes the slices turns into hints for their endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// Endpoints of the client's zone: PreferSameZone, and PreferClose, its older name.
    SameZone,
    /// Endpoints of the client's node.
    SameNode,
}

impl TrafficDistribution {
    /// As in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameZone => "PreferSameZone",
            Self::SameNode => "PreferSameNode",
        }
    }
}

/// One of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// `name`; empty where it is absent. Matched with the slice's port name exactly.
    pub name: Box<str>,
    /// `protocol`; the text itself where Kubernetes has no such protocol.
    pub protocol: Result<Protocol, Box<str>>,
    /// `port`, 1–65535.
    pub port: u16,
    /// `nodePort`.
    pub node_port: Option<u16>,
}

/// `spec.sessionAffinity` with its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionAffinity {
    /// Each connection is on its own; also where the field is absent.
    None,
    /// Connections of one client address go to one backend.
    ClientIP {
        /// `sessionAffinityConfig.clientIP.timeoutSeconds`, 1–86400, default 10800.
        timeout_seconds: u32,
    },
}

/// A traffic policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Every endpoint of the cluster; also where the field is absent.
    Cluster,
    /// Endpoints of this node only.
    Local,
}
