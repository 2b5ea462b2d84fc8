//! Which endpoints of a Service port take new connections, and why the others do not.

mod candidate;
#[cfg(test)]
mod tests;

use std::{net::IpAddr, sync::Arc};

use lb_common::Verdict;

use self::candidate::{Candidate, Condition, first_address_text, without_duplicates};
use crate::model::{Conditions, EndpointSlice, Family, Policy, Protocol, ServicePort, SlicePort};

/// What became of the endpoints of one Service port in one address family under one traffic policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those that take new connections. Node-local ones first, then by address and port.
    pub usable: Vec<Backend>,
    /// Those that are terminating but serving, while others are ready: they keep their UDP flows. In the same order.
    pub draining: Vec<Backend>,
    /// All that take no new connection, the draining ones included, by address, port and reason.
    pub excluded: Vec<Excluded>,
}

/// An endpoint that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Where it listens.
    pub address: IpAddr,
    /// The slice's port, never the Service's `targetPort`.
    pub port: u16,
    /// On this node: its `nodeName` is the name of this node.
    pub local: bool,
    /// Not ready: terminating, but serving.
    pub draining: bool,
    /// `nodeName`.
    pub node: Option<Arc<str>>,
    /// `zone`.
    pub zone: Option<Arc<str>>,
    /// Its Pod, as `namespace/name`.
    pub target: Option<Arc<str>>,
}

/// An endpoint that takes no new connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excluded {
    /// Its address, or the text that is none.
    pub address: Box<str>,
    /// Its port, where the slice has one for the Service port.
    pub port: Option<u16>,
    /// Why.
    pub reason: Verdict,
    /// The same in one sentence about this endpoint.
    pub message: String,
}

/// Chooses among the endpoints in a Service's slices.
///
/// `protocol` is that of `port`; the two select the slice port by exact name and protocol. Slices of other address
/// types are not looked at. The result does not depend on the order of slices or endpoints.
pub fn select(
    port: &ServicePort,
    protocol: Protocol,
    family: Family,
    policy: Policy,
    slices: &[&EndpointSlice],
    node: &str,
) -> Selection {
    let mut selection = Selection::default();
    let mut candidates = Vec::new();
    for slice in slices.iter().filter(|slice| slice.address_type.family() == Some(family)) {
        let matching =
            |candidate: &&SlicePort| candidate.name == port.name && candidate.protocol == Ok(protocol);
        let mut matches = slice.ports.iter().filter(matching).peekable();
        if matches.peek().is_none() {
            let message = mismatch(port, protocol, slice);
            selection.exclude_all(slice, Verdict::PortNotInSlice, &message);
        }
        for matched in matches {
            let Some(number) = matched.port else {
                let message = format!("port {:?} of {} has no number", matched.name, slice.reference());
                selection.exclude_all(slice, Verdict::PortWithoutNumber, &message);
                continue;
            };
            for endpoint in &slice.endpoints {
                match Candidate::read(slice, endpoint, family, number, node) {
                    Ok(candidate) => candidates.push(candidate),
                    Err(excluded) => selection.excluded.push(excluded),
                }
            }
        }
    }
    let candidates = without_duplicates(candidates, &mut selection.excluded);
    selection.choose(candidates, policy);
    selection.excluded.sort();
    selection
}

impl Selection {
    /// Whether a Local policy leaves out endpoints that the cluster would use: then the traffic of a set that is empty
    /// is dropped rather than refused.
    pub fn is_usable_elsewhere(&self) -> bool {
        self.excluded.iter().any(|excluded| excluded.reason == Verdict::NotLocal)
    }

    fn exclude_all(&mut self, slice: &EndpointSlice, reason: Verdict, message: &str) {
        self.excluded.extend(slice.endpoints.iter().map(|endpoint| Excluded {
            address: first_address_text(endpoint),
            port: None,
            reason,
            message: message.to_owned(),
        }));
    }

    /// Takes the ready candidates, else those still serving. Each policy decides this among the candidates that it
    /// allows.
    fn choose(&mut self, candidates: Vec<Candidate<'_>>, policy: Policy) {
        let allows = |candidate: &Candidate<'_>| policy == Policy::Cluster || candidate.backend.local;
        let chosen = candidates.iter().filter(|candidate| allows(candidate)).map(|c| c.condition).min();
        let in_cluster = candidates.iter().map(|candidate| candidate.condition).min();
        for candidate in candidates {
            let condition = candidate.condition;
            let usable = condition.is_usable();
            if usable && allows(&candidate) && Some(condition) == chosen {
                self.usable.push(candidate.backend);
            } else if usable && !allows(&candidate) && Some(condition) == in_cluster {
                let node =
                    candidate.backend.node.as_deref().map_or("no node".into(), |node| format!("node {node}"));
                let message = format!("{} is on {node}, and the traffic policy is Local", candidate.told());
                self.excluded.push(candidate.excluded(Verdict::NotLocal, message));
            } else {
                let reason =
                    if condition == Condition::NotReady { Verdict::NotReady } else { Verdict::Terminating };
                let Conditions { ready, serving, terminating } = candidate.conditions;
                let message = format!(
                    "{} has ready={ready}, serving={serving}, terminating={terminating} in {}",
                    candidate.told(),
                    candidate.slice.reference()
                );
                self.excluded.push(candidate.excluded(reason, message));
                if usable && allows(&candidate) {
                    self.draining.push(candidate.backend);
                }
            }
        }
        let local_first = |backend: &Backend| !backend.local;
        self.usable.sort_by_key(local_first);
        self.draining.sort_by_key(local_first);
    }
}

/// Names both sides: most often one of them was renamed, or has no name.
fn mismatch(port: &ServicePort, protocol: Protocol, slice: &EndpointSlice) -> String {
    let there: Vec<_> = slice
        .ports
        .iter()
        .map(|port| match &port.protocol {
            Ok(protocol) => format!("{:?}/{protocol}", port.name),
            Err(text) => format!("{:?}/{text} (no such protocol)", port.name),
        })
        .collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    format!(
        "the Service port {:?}/{protocol} is not among the ports of {}: {there}",
        port.name,
        slice.reference()
    )
}
