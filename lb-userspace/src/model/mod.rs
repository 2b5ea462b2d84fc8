//! The objects that a service proxy reads, reduced to the fields in use and free of any client library.

mod address;
mod endpoint_slice;
mod key;
mod protocol;
mod service;

pub use address::{InvalidAddress, parse_address};
pub use endpoint_slice::{AddressType, Conditions, Endpoint, EndpointSlice, SlicePort};
pub use key::{Kind, ObjectKey, ObjectRef};
pub use protocol::Protocol;
pub use service::{Policy, Service, ServicePort, ServiceType, SessionAffinity};

/// An object in one of the forms that the agent handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A `v1` Service.
    Service(Service),
    /// A `discovery.k8s.io/v1` EndpointSlice, or the part of a `v1` Endpoints object that one would mirror.
    EndpointSlice(EndpointSlice),
}

impl Object {
    /// What identifies the object.
    pub fn reference(&self) -> ObjectRef {
        match self {
            Self::Service(service) => ObjectRef { kind: Kind::Service, key: service.key.clone() },
            Self::EndpointSlice(slice) => ObjectRef { kind: slice.kind, key: slice.key.clone() },
        }
    }
}

/// Something in an object that a user should know of; the object is used all the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Warning {
    /// Kind and key, as in `EndpointSlice default/web-1`.
    pub object: String,
    /// One sentence.
    pub message: String,
}
