//! The objects that a service proxy reads, reduced to the fields in use and free of any client library.

mod address;
mod claims;
mod endpoint_slice;
mod key;
mod node;
mod pod;
mod pod_status;
mod probe;
mod protocol;
mod service;
pub mod store;

pub use address::{Family, InvalidAddress, InvalidRange, parse_address, parse_range, unfit};
pub use endpoint_slice::{AddressType, Conditions, Endpoint, EndpointSlice, Hints, SlicePort};
pub use key::{API_SERVER, Kind, ObjectKey, ObjectRef};
pub use node::{Host, Interface, Node};
pub use pod::{Container, ContainerPort, ContainerStatus, POD_ANNOTATIONS, POD_IPS, Phase, Pod};
pub use pod_status::PodStatus;
pub use probe::{Handler, HttpGet, Probe, ProbeKind, ProbePort};
pub use protocol::Protocol;
pub use service::{
    LoadBalancerIp, Policy, Service, ServicePort, ServiceType, SessionAffinity, TrafficDistribution,
};
pub use store::Store;

/// An object in one of the forms that the agent handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A `v1` Service.
    Service(Service),
    /// A `discovery.k8s.io/v1` EndpointSlice, or the part of a `v1` Endpoints object that one would mirror.
    EndpointSlice(EndpointSlice),
    /// A `v1` Node.
    Node(Node),
    /// The addresses of this machine.
    Host(Host),
}

impl Object {
    /// What identifies the object.
    pub fn reference(&self) -> ObjectRef {
        match self {
            Self::Service(service) => service.reference(),
            Self::EndpointSlice(slice) => slice.reference(),
            Self::Node(node) => node.reference(),
            Self::Host(_) => Host::reference(),
        }
    }
}

/// Something in an object that a user should know of; the object is used all the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Warning {
    /// Kind and key, as in `EndpointSlice default/web-1`.
    pub object: String,
    /// One sentence.
    pub message: String,
}

impl Warning {
    /// A warning about an object.
    pub fn new(object: &ObjectRef, message: &str) -> Self {
        Self { object: object.to_string(), message: message.to_owned() }
    }
}
