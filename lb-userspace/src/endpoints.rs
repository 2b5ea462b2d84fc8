//! Which endpoints of a Service port take new connections, and why the others do not.

mod candidate;
mod choice;
#[cfg(test)]
mod tests;
mod topology;

use std::{net::IpAddr, sync::Arc};

use lb_common::Verdict;

use self::candidate::{Candidate, without_duplicates};
pub use self::topology::{Hinted, Topology};
use crate::model::{Endpoint, EndpointSlice, Family, Policy, Protocol, ServicePort, TrafficDistribution};

/// Which endpoints are asked for, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The Service port. Its name and its protocol together select the slice port, exactly.
    pub port: &'a ServicePort,
    /// The protocol of `port`, which is known to be one.
    pub protocol: Protocol,
    /// Slices of other address types are not looked at.
    pub family: Family,
    /// The traffic policy.
    pub policy: Policy,
    /// What the Service asks of whoever writes hints. It explains, and decides nothing.
    pub wish: Option<TrafficDistribution>,
    /// Name of the node that the traffic starts from, or comes in at.
    pub node: &'a str,
    /// Its zone, if it is known.
    pub zone: Option<&'a str>,
}

/// What became of the endpoints of one Service port in one address family under one traffic policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those that take new connections. Node-local ones first, then by address and port.
    pub usable: Vec<Backend>,
    /// Those that are terminating but serving, while others are ready: they keep their UDP flows. In the same order.
    pub draining: Vec<Backend>,
    /// All that take no new connection, the draining ones included, by address, port and reason.
    pub excluded: Vec<Excluded>,
    /// What the hints of the endpoints led to.
    pub topology: Topology,
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
    pub message: Arc<str>,
}

/// One endpoint as a slice has it, and what became of it.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// Where it is listed.
    pub slice: &'a EndpointSlice,
    /// What is listed.
    pub endpoint: &'a Endpoint,
    /// Its port, where the slice has one for the Service port.
    pub port: Option<u16>,
    /// Whether it takes new connections, or why not.
    pub outcome: Outcome,
}

/// What became of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It takes new connections.
    Usable(Backend),
    /// It takes none, and keeps its UDP flows.
    Draining(Backend, Reason),
    /// It is not used.
    Excluded(Reason),
}

/// Why an endpoint takes no new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// From the table of reasons.
    pub verdict: Verdict,
    /// The same in one sentence about this endpoint.
    pub message: Arc<str>,
}

/// Chooses among the endpoints in a Service's slices. The result does not depend on the order of slices or endpoints.
pub fn select(query: &Query<'_>, slices: &[&EndpointSlice]) -> Selection {
    let (judged, topology) = judge(query, slices);
    let usable = Vec::with_capacity(judged.len());
    let mut selection = Selection { usable, topology, ..Selection::default() };
    for Judged { endpoint, port, outcome, .. } in judged {
        let excluded = |Reason { verdict, message }| Excluded {
            address: endpoint.address_text(),
            port,
            reason: verdict,
            message,
        };
        match outcome {
            Outcome::Usable(backend) => selection.usable.push(backend),
            Outcome::Draining(backend, reason) => {
                selection.draining.push(backend);
                selection.excluded.push(excluded(reason));
            }
            Outcome::Excluded(reason) => selection.excluded.push(excluded(reason)),
        }
    }
    // Stable: by address and port within.
    selection.usable.sort_by_key(|backend| !backend.local);
    selection.draining.sort_by_key(|backend| !backend.local);
    selection.excluded.sort();
    // It stays for as long as the Service does.
    selection.usable.shrink_to_fit();
    selection
}

/// The same, endpoint by endpoint: each that a slice of the family lists, with what became of it.
pub fn judge<'a>(query: &Query<'_>, slices: &[&'a EndpointSlice]) -> (Vec<Judged<'a>>, Topology) {
    let mut judged = Vec::new();
    let mut candidates = Vec::new();
    for slice in slices.iter().copied().filter(|slice| slice.address_type.family() == Some(query.family)) {
        let matching = slice.ports.iter().filter(|candidate| {
            candidate.name == query.port.name && candidate.protocol == Ok(query.protocol)
        });
        let mut matching = matching.peekable();
        if matching.peek().is_none() {
            leave_out(&mut judged, slice, Verdict::PortNotInSlice, mismatch(query, slice));
        }
        for port in matching {
            let Some(number) = port.port else {
                let message = format!("port {:?} of {} has no number", port.name, slice.reference());
                leave_out(&mut judged, slice, Verdict::PortWithoutNumber, message);
                continue;
            };
            for endpoint in &slice.endpoints {
                match Candidate::read(slice, endpoint, number, query) {
                    Ok(candidate) => candidates.push(candidate),
                    Err(reason) => judged.push(Judged {
                        slice,
                        endpoint,
                        port: Some(number),
                        outcome: Outcome::Excluded(reason),
                    }),
                }
            }
        }
    }
    let candidates = without_duplicates(candidates, &mut judged);
    let topology = choice::choose(query, candidates, &mut judged);
    (judged, topology)
}

impl Selection {
    /// Whether a Local policy leaves out endpoints that the cluster would use: then the traffic of a set that is empty
    /// is dropped rather than refused.
    pub fn is_usable_elsewhere(&self) -> bool {
        self.excluded.iter().any(|excluded| excluded.reason == Verdict::NotLocal)
    }
}

/// Leaves out a slice whole, for one reason that its endpoints share.
fn leave_out<'a>(judged: &mut Vec<Judged<'a>>, slice: &'a EndpointSlice, verdict: Verdict, message: String) {
    let message: Arc<str> = message.into();
    judged.extend(slice.endpoints.iter().map(|endpoint| Judged {
        slice,
        endpoint,
        port: None,
        outcome: Outcome::Excluded(Reason { verdict, message: message.clone() }),
    }));
}

/// How many ports of a slice a message names: there may be a thousand.
const PORTS_TOLD: usize = 5;

/// Names both sides: most often one of them was renamed, or has no name.
fn mismatch(query: &Query<'_>, slice: &EndpointSlice) -> String {
    let mut there: Vec<_> = slice
        .ports
        .iter()
        .take(PORTS_TOLD)
        .map(|port| match &port.protocol {
            Ok(protocol) => format!("{:?}/{protocol}", port.name),
            Err(text) => format!("{:?}/{text} (no such protocol)", port.name),
        })
        .collect();
    if let Some(more) = slice.ports.len().checked_sub(PORTS_TOLD).filter(|more| *more > 0) {
        there.push(format!("and {more} more"));
    }
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    format!(
        "the Service port {:?}/{} is not among the ports of {}: {there}",
        query.port.name,
        query.protocol,
        slice.reference()
    )
}
