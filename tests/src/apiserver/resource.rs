//! The resources that are served.

use serde_json::{Value, json};

/// A resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// `v1` Services.
    Services,
    /// `v1` Endpoints.
    Endpoints,
    /// `v1` Nodes, which have no namespace.
    Nodes,
    /// `discovery.k8s.io/v1` EndpointSlices.
    EndpointSlices,
}

impl Resource {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [Self::Services, Self::Endpoints, Self::Nodes, Self::EndpointSlices];

    /// The plural name, as in URLs.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::Endpoints => "endpoints",
            Self::Nodes => "nodes",
            Self::EndpointSlices => "endpointslices",
        }
    }

    /// The kind of an object.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Services => "Service",
            Self::Endpoints => "Endpoints",
            Self::Nodes => "Node",
            Self::EndpointSlices => "EndpointSlice",
        }
    }

    /// Group and version.
    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Services | Self::Endpoints | Self::Nodes => "v1",
            Self::EndpointSlices => "discovery.k8s.io/v1",
        }
    }

    pub(super) fn namespaced(self) -> bool {
        self != Self::Nodes
    }

    /// The resource of an object.
    pub(super) fn of(object: &Value) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| {
            object["apiVersion"] == resource.api_version() && object["kind"] == resource.kind()
        })
    }

    /// The one of this name in an API group.
    pub(super) fn named(api_version: &str, plural: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|resource| resource.api_version() == api_version && resource.plural() == plural)
    }

    /// The object of a bookmark: an empty one of the kind, as Go writes it.
    pub(super) fn bookmark(self, metadata: Value) -> Value {
        let (kind, version) = (self.kind(), self.api_version());
        match self {
            Self::Services => json!({
                "kind": kind, "apiVersion": version, "metadata": metadata, "spec": {}, "status": {"loadBalancer": {}},
            }),
            Self::Endpoints => json!({"kind": kind, "apiVersion": version, "metadata": metadata}),
            Self::Nodes => json!({
                "kind": kind, "apiVersion": version, "metadata": metadata, "spec": {},
                "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}},
            }),
            Self::EndpointSlices => json!({
                "kind": kind, "apiVersion": version, "metadata": metadata, "addressType": "", "endpoints": null,
                "ports": null,
            }),
        }
    }
}
