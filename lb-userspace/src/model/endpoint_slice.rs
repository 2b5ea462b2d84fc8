//! The EndpointSlice, as a proxy reads it.

use std::{fmt, net::IpAddr, sync::Arc};

use super::{Family, InvalidAddress, Kind, ObjectKey, ObjectRef, Protocol};

/// A `discovery.k8s.io/v1` EndpointSlice, reduced to what a proxy obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// What the object really is: an EndpointSlice, or Endpoints read as one.
    pub kind: Kind,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Name of the Service in the same namespace: the label `kubernetes.io/service-name`, never empty.
    pub service: Option<Arc<str>>,
    /// `addressType`.
    pub address_type: AddressType,
    /// `ports`.
    pub ports: Vec<SlicePort>,
    /// `endpoints`.
    pub endpoints: Vec<Endpoint>,
    /// What the object says that is not understood or not obeyed; one sentence each.
    pub warnings: Vec<String>,
}

impl EndpointSlice {
    /// What identifies the object.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef { kind: self.kind, key: self.key.clone() }
    }

    /// The Service that the slice belongs to: always one of its own namespace.
    pub fn service_key(&self) -> Option<ObjectKey> {
        let name = self.service.clone()?;
        Some(ObjectKey { namespace: self.key.namespace.clone(), name })
    }
}

/// `addressType` of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressType {
    /// IPv4 addresses only.
    Ipv4,
    /// IPv6 addresses only.
    Ipv6,
    /// Host names, which no proxy resolves.
    Fqdn,
    /// A value of a newer API.
    Unknown(Box<str>),
}

impl AddressType {
    /// The address family, if it is one of addresses.
    pub const fn family(&self) -> Option<Family> {
        match self {
            Self::Ipv4 => Some(Family::Ipv4),
            Self::Ipv6 => Some(Family::Ipv6),
            Self::Fqdn | Self::Unknown(_) => None,
        }
    }
}

impl fmt::Display for AddressType {
    /// As in the API.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Fqdn => "FQDN",
            Self::Unknown(text) => text,
        })
    }
}

/// One of a slice's `ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// `name`; empty where it is absent.
    pub name: Box<str>,
    /// `protocol`; the text itself where Kubernetes has no such protocol.
    pub protocol: Result<Protocol, Box<str>>,
    /// `port`; absent means all ports, which a proxy cannot use.
    pub port: Option<u16>,
}

/// One of a slice's `endpoints`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The first of `addresses`, which the API defines as fungible, if there is one. Text that is no address is kept,
    /// for the report of what is left out.
    pub address: Option<Result<IpAddr, InvalidAddress>>,
    /// `conditions`.
    pub conditions: Conditions,
    /// `nodeName`.
    pub node: Option<Arc<str>>,
    /// `zone`.
    pub zone: Option<Arc<str>>,
    /// `hints`.
    pub hints: Option<Arc<Hints>>,
    /// `targetRef` as `namespace/name`, if it is a Pod.
    pub target: Option<Arc<str>>,
}

impl Endpoint {
    /// The address that counts, or the text that is none: of those that an endpoint has, the API calls any as good as the
    /// other.
    pub fn address_text(&self) -> Box<str> {
        match &self.address {
            Some(Ok(address)) => address.to_string().into(),
            Some(Err(invalid)) => invalid.text.clone(),
            None => "".into(),
        }
    }
}

/// `hints` of an endpoint: whose traffic it is meant for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hints {
    /// `forNodes[].name`.
    pub nodes: Vec<Arc<str>>,
    /// `forZones[].name`.
    pub zones: Vec<Arc<str>>,
}

/// `conditions` of an endpoint, with the API's defaults filled in: an unknown `ready` is ready, an unknown `serving` is
/// serving, an unknown `terminating` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Takes new connections.
    pub ready: bool,
    /// Answers, whether terminating or not.
    pub serving: bool,
    /// Is being deleted.
    pub terminating: bool,
}
