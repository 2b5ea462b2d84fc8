//! The nodes, as a proxy reads them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Kind, ObjectKey, ObjectRef};

/// A `v1` Node, reduced to what a proxy obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, without a namespace.
    pub key: ObjectKey,
    /// Value of the label `topology.kubernetes.io/zone`.
    pub zone: Option<Box<str>>,
    /// `status.addresses[].address` of type InternalIP, then those of type ExternalIP, as text, in the order of the object.
    pub ips: Vec<Box<str>>,
}

impl Node {
    /// What identifies the object.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef { kind: Kind::Node, key: self.key.clone() }
    }
}

/// The addresses that the machine itself has now. There is one such object, and no API has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The addresses on its interfaces that another machine may reach: no loopback, link-local or tentative ones. Sorted.
    pub addresses: Vec<IpAddr>,
    /// Of each family, the one that the kernel prefers as a source towards other machines. It is among the addresses.
    pub primary: Vec<IpAddr>,
    /// The interfaces that have such addresses or lead out. Sorted by index.
    pub interfaces: Vec<Interface>,
}

/// An interface of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its addresses that another machine may reach, the one that it is best known by first of each family.
    pub addresses: Vec<IpAddr>,
    /// The way out to other machines leads over it, by IPv4 or IPv6.
    pub leads_out: bool,
}

impl Host {
    /// What identifies the object.
    pub fn reference() -> ObjectRef {
        ObjectRef { kind: Kind::Host, key: ObjectKey::new("", "addresses") }
    }
}
