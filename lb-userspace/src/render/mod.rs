//! The desired state as users see it: the document of `readylb render -o json`, and tables.

mod endpoints;
pub mod table;
#[cfg(test)]
mod tests;

use std::{net::IpAddr, sync::Arc};

pub use self::endpoints::{EndpointView, endpoints};

use lb_common::Verdict;
use serde::{Deserialize, Serialize};

use crate::{
    desired::{Desired, EndpointSet, Frontend, FrontendKind, NoBackends, ServiceDesired, Withheld},
    endpoints::{Backend, Topology},
    model::{Kind, ObjectKey, ObjectRef, Policy, Protocol, Store, Warning},
};

/// The desired state. Sorted: the same objects give the same bytes, in whatever order they came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Name of the node that it is for.
    pub node: String,
    /// Every frontend, save those whose address another one has by precedence.
    pub frontends: Vec<FrontendView>,
    /// Endpoints that take no new connection.
    pub excluded: Vec<ExcludedView>,
    /// Where load balancers ask for local endpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<HealthCheckView>,
    /// Services, frontends and slices that are not served.
    pub skipped: Vec<SkippedView>,
    /// What a user should know of.
    pub warnings: Vec<Warning>,
}

/// A frontend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FrontendView {
    /// `namespace/name`.
    pub service: String,
    /// Name of the Service port, empty where it has none.
    pub port_name: String,
    /// Which of the Service's addresses it is.
    pub kind: FrontendKind,
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// The traffic policy that chose the backends.
    pub policy: Policy,
    /// How long a client stays with its backend, in seconds.
    pub affinity_seconds: Option<u32>,
    /// `spec.loadBalancerSourceRanges`: only clients in one of these may connect, of whichever family the address is.
    /// They guard load-balancer addresses only.
    pub source_ranges: Vec<String>,
    /// None of the source ranges can be read, so nobody may connect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// What becomes of traffic while there is no backend.
    pub no_backends: NoBackends,
    /// What the hints of its endpoints led to, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Why it is kept out of the datapath, if it is, see `lb_common::Verdict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// Who takes new connections; node-local ones first.
    pub backends: Vec<BackendView>,
    /// Who takes the connections of this cluster's pods and of this node, where the external policy Local does not hold
    /// for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside_backends: Option<Vec<BackendView>>,
}

/// A health-check node port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HealthCheckView {
    /// `namespace/name`.
    pub service: String,
    /// The port, on the addresses of this node.
    pub port: u16,
    /// Number of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// A backend of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BackendView {
    /// Where it listens.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its node.
    pub node: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// On the node that the document is for.
    pub local: bool,
    /// How it stands.
    pub state: BackendCondition,
    /// Its Pod, as `namespace/name`.
    pub endpoint: Option<String>,
}

/// How a backend stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendCondition {
    /// Ready.
    Active,
    /// Serving while terminating, and used because nothing is ready.
    Draining,
}

/// An endpoint that takes no new connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExcludedView {
    /// `namespace/name`.
    pub service: String,
    /// Name of the Service port.
    pub port_name: String,
    /// Its address, or the text that is none.
    pub address: String,
    /// Its port, where its slice has one for the Service port.
    pub port: Option<u16>,
    /// The reason, see `lb_common::Verdict`.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// Something that is not served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SkippedView {
    /// `namespace/name`; absent for a slice of no Service.
    pub service: Option<String>,
    /// The reason, see `lb_common::Verdict`.
    pub reason: String,
    /// One sentence, which names the frontend or the slice if it is not about the whole Service.
    pub message: String,
}

impl Document {
    /// The document of a desired state.
    pub fn new(node: &str, desired: &Desired, store: &Store) -> Self {
        let mut document = Self {
            node: node.to_owned(),
            frontends: Vec::new(),
            excluded: Vec::new(),
            health_checks: Vec::new(),
            skipped: Vec::new(),
            warnings: Vec::new(),
        };
        for (key, service) in desired.services() {
            document.add_frontends(key, service, desired);
            document.add_left_out(key, service);
        }
        document.skipped.extend(store.slices_without_service().map(|slice| {
            let reason = Verdict::SliceWithoutService;
            let message = format!("{} has no kubernetes.io/service-name label", slice.reference());
            SkippedView { service: None, reason: reason.name().to_owned(), message }
        }));
        document.skipped.extend(store.slices_without_object().map(|slice| {
            let reason = Verdict::NoSuchService;
            let service = slice.service_key().map(|key| key.to_string());
            let message = format!("{}: {}", slice.reference(), reason.describe());
            SkippedView { service, reason: reason.name().to_owned(), message }
        }));
        let mut warnings = store.warnings();
        warnings.extend(desired.warnings().map(|(key, message)| {
            Warning::new(&ObjectRef { kind: Kind::Service, key: key.clone() }, message)
        }));
        warnings.extend(store.contested().map(|object| {
            Warning::new(&object, "several sources have the object, and that of the last of them is used")
        }));
        document.warnings.extend(warnings);
        document.frontends.sort();
        document.excluded.sort();
        // A Service port can exclude an endpoint once for each policy.
        document.excluded.dedup();
        document.health_checks.sort();
        document.skipped.sort();
        // Addresses can be listed twice.
        document.skipped.dedup();
        document
    }

    fn add_frontends(&mut self, key: &ObjectKey, service: &ServiceDesired, desired: &Desired) {
        for (frontend, set, withheld) in desired.frontends_of(key) {
            if withheld.as_ref().is_none_or(|withheld| withheld.reason != Verdict::AddressTaken) {
                let mut view = FrontendView::new(key, frontend, set);
                view.inside_backends = frontend.inside.map(|set| backends(&service.sets[set]));
                view.withheld = withheld.as_ref().map(|withheld| withheld.reason.name().to_owned());
                if let Some(ranges) = service.source_ranges.as_ref().filter(|_| frontend.is_guarded()) {
                    view.source_ranges = ranges.iter().map(ToString::to_string).collect();
                    view.closed = ranges.is_empty();
                }
                self.frontends.push(view);
            }
            self.skipped.extend(withheld.map(|withheld| SkippedView {
                service: Some(key.to_string()),
                reason: withheld.reason.name().to_owned(),
                message: withheld.message,
            }));
        }
        let Some((check, taken)) = desired.health_check_of(key) else { return };
        match taken {
            Some(Withheld { reason, message }) => self.skipped.push(SkippedView {
                service: Some(key.to_string()),
                reason: reason.name().to_owned(),
                message,
            }),
            None => self.health_checks.push(HealthCheckView {
                service: key.to_string(),
                port: check.port,
                local_endpoints: check.local_endpoints,
            }),
        }
    }

    fn add_left_out(&mut self, key: &ObjectKey, service: &ServiceDesired) {
        self.skipped.extend(service.skipped.iter().map(|skipped| SkippedView {
            service: Some(key.to_string()),
            reason: skipped.reason.name().to_owned(),
            message: skipped.message.clone(),
        }));
        for set in &service.sets {
            self.excluded.extend(set.selection.excluded.iter().map(|excluded| ExcludedView {
                service: key.to_string(),
                port_name: set.port.name.to_string(),
                address: excluded.address.to_string(),
                port: excluded.port,
                reason: excluded.reason.name().to_owned(),
                message: excluded.message.to_string(),
            }));
        }
    }
}

impl FrontendView {
    fn new(key: &ObjectKey, frontend: &Frontend, set: &EndpointSet) -> Self {
        Self {
            service: key.to_string(),
            port_name: set.port.name.to_string(),
            kind: frontend.kind,
            address: frontend.address,
            port: frontend.port,
            protocol: frontend.protocol,
            policy: set.policy,
            affinity_seconds: frontend.affinity_seconds,
            source_ranges: Vec::new(),
            closed: false,
            no_backends: set.no_backends(),
            topology: (set.selection.topology != Topology::Unhinted)
                .then(|| set.selection.topology.to_string()),
            withheld: None,
            backends: backends(set),
            inside_backends: None,
        }
    }
}

fn backends(set: &EndpointSet) -> Vec<BackendView> {
    set.selection.usable.iter().map(BackendView::from).collect()
}

/// A name that may be absent, of its own.
fn text(shared: &Option<Arc<str>>) -> Option<String> {
    shared.as_deref().map(str::to_owned)
}

impl From<&Backend> for BackendView {
    fn from(backend: &Backend) -> Self {
        Self {
            address: backend.address,
            port: backend.port,
            node: text(&backend.node),
            zone: text(&backend.zone),
            local: backend.local,
            state: if backend.draining { BackendCondition::Draining } else { BackendCondition::Active },
            endpoint: text(&backend.target),
        }
    }
}
