//! Every endpoint of every Service, chosen or not, with the reason: `readylb get endpoints`.

use serde::{Deserialize, Serialize};

use super::{BackendCondition, text};
use crate::{
    desired::{Desired, EndpointSet, Identity, NodeView, ServiceDesired, Skipped, explain, left_out},
    endpoints::{Judged, Outcome, Reason},
    model::{Conditions, Endpoint, EndpointSlice, ObjectKey, Policy, Protocol, Service, Store},
};

/// An endpoint in one slice, for one port of its Service under one traffic policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EndpointView {
    /// `namespace/name`.
    pub service: String,
    /// Name of the Service port, empty where it has none; null where no port of the Service looks at the slice.
    pub port_name: Option<String>,
    /// Protocol of the Service port.
    pub protocol: Option<Protocol>,
    /// The traffic policy that it was judged under.
    pub policy: Option<Policy>,
    /// Its address, or the text that is none.
    pub address: String,
    /// Its port, where its slice has one for the Service port.
    pub port: Option<u16>,
    /// `nodeName`.
    pub node: Option<String>,
    /// `zone`.
    pub zone: Option<String>,
    /// Its Pod, as `namespace/name`.
    pub pod: Option<String>,
    /// Kind, namespace and name of the slice, as in `EndpointSlice default/web-1`.
    pub slice: String,
    /// `conditions.ready` as received, true where it is absent.
    pub ready: bool,
    /// `conditions.serving` as received, true where it is absent.
    pub serving: bool,
    /// `conditions.terminating` as received, false where it is absent.
    pub terminating: bool,
    /// How it stands, if it takes new connections.
    pub state: Option<BackendCondition>,
    /// Why it takes none, see `lb_common::Verdict`.
    pub reason: Option<String>,
    /// The same in one sentence.
    pub message: Option<String>,
}

/// The endpoints of all Services, sorted.
pub fn endpoints(
    identity: &Identity,
    node: &NodeView,
    desired: &Desired,
    store: &Store,
) -> Vec<EndpointView> {
    let mut views = Vec::new();
    for (key, of) in desired.services() {
        let Some(service) = store.service(key) else { continue };
        let slices = store.slices_of(key);
        for set in &of.sets {
            let judged = explain(service, &slices, identity, node, set);
            views.extend(judged.into_iter().map(|judged| EndpointView::judged(key, set, judged)));
        }
        for slice in &slices {
            let Some(why) = why_unseen(slice, &slices, of) else { continue };
            let unseen = |endpoint| EndpointView::unseen(service, slice, endpoint, &why);
            views.extend(slice.endpoints.iter().map(unseen));
        }
    }
    views.sort();
    views
}

/// Why nothing looks at a slice, if so.
fn why_unseen(slice: &EndpointSlice, slices: &[&EndpointSlice], of: &ServiceDesired) -> Option<Skipped> {
    left_out(slice, slices, &of.sets).or_else(|| of.skipped.first().filter(|_| of.sets.is_empty()).cloned())
}

impl EndpointView {
    fn judged(service: &ObjectKey, set: &EndpointSet, judged: Judged<'_>) -> Self {
        let (state, why) = match judged.outcome {
            Outcome::Usable(backend) if backend.draining => (Some(BackendCondition::Draining), None),
            Outcome::Usable(_) => (Some(BackendCondition::Active), None),
            Outcome::Draining(_, why) | Outcome::Excluded(why) => (None, Some(why)),
        };
        let (reason, message) =
            why.map(|Reason { verdict, message }| (verdict.name().to_owned(), message.to_string())).unzip();
        Self {
            port_name: Some(set.port.name.to_string()),
            protocol: Some(set.port.protocol),
            policy: Some(set.policy),
            port: judged.port,
            state,
            reason,
            message,
            ..Self::listed(service, judged.slice, judged.endpoint)
        }
    }

    fn unseen(service: &Service, slice: &EndpointSlice, endpoint: &Endpoint, why: &Skipped) -> Self {
        Self {
            reason: Some(why.reason.name().to_owned()),
            message: Some(why.message.clone()),
            ..Self::listed(&service.key, slice, endpoint)
        }
    }

    /// What the slice says.
    fn listed(service: &ObjectKey, slice: &EndpointSlice, endpoint: &Endpoint) -> Self {
        let Conditions { ready, serving, terminating } = endpoint.conditions;
        Self {
            service: service.to_string(),
            port_name: None,
            protocol: None,
            policy: None,
            address: endpoint.address_text().into(),
            port: None,
            node: text(&endpoint.node),
            zone: text(&endpoint.zone),
            pod: text(&endpoint.target),
            slice: slice.reference().to_string(),
            ready,
            serving,
            terminating,
            state: None,
            reason: None,
            message: None,
        }
    }
}
