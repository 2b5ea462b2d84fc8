//! The objects that a service proxy reads, reduced to the fields in use and free of any client library.

mod address;
mod claims;
mod endpoint_slice;
mod key;
mod protocol;
mod service;
pub mod store;

pub use address::{Family, InvalidAddress, parse_address, unfit};
pub use endpoint_slice::{AddressType, Conditions, Endpoint, EndpointSlice, SlicePort};
pub use key::{Kind, ObjectKey, ObjectRef};
pub use protocol::Protocol;
pub use service::{Policy, Service, ServicePort, ServiceType, SessionAffinity};
pub use store::Store;

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
            Self::Service(service) => service.reference(),
            Self::EndpointSlice(slice) => slice.reference(),
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
