//! What identifies an object.

use std::{fmt, sync::Arc};

/// The Service that leads to the API server itself, as `namespace/name`.
pub const API_SERVER: &str = "default/kubernetes";

/// Namespace and name; the namespace of an object that belongs to none is empty. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Whether a Service of this key leads to the API server itself.
    pub fn is_api_server(&self) -> bool {
        API_SERVER.split_once('/') == Some((&*self.namespace, &*self.name))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The kinds of objects that the agent handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `v1` Service.
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice.
    EndpointSlice,
    /// `v1` Endpoints, handled as slices: one a subset and address family. The first has the name of the object, the
    /// others `name/2`, `name/3` and so on.
    Endpoints,
    /// `v1` Node.
    Node,
    /// The addresses of this machine.
    Host,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Endpoints => "Endpoints",
            Self::Node => "Node",
            Self::Host => "host",
        })
    }
}

/// Kind and key: the identity of an object in events, whatever state the event carries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace and name.
    pub key: ObjectKey,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}
