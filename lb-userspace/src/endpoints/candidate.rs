//! One endpoint, before it is known which ones are chosen.

use std::net::IpAddr;

use lb_common::Verdict;

use super::{Backend, Excluded};
use crate::model::{Conditions, Endpoint, EndpointSlice, Family, unfit};

/// How far an endpoint is from taking new connections. Of an endpoint that is listed more than once the least counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    Ready,
    /// Terminating, but serving: used when nothing is ready.
    Serving,
    /// Terminating, and no longer serving.
    Stopped,
    NotReady,
}

impl Condition {
    /// `ready` alone decides about a ready one, so `publishNotReadyAddresses` holds whatever else the slice says.
    const fn of(Conditions { ready, serving, terminating }: Conditions) -> Self {
        match (ready, serving, terminating) {
            (true, _, _) => Self::Ready,
            (false, true, true) => Self::Serving,
            (false, false, true) => Self::Stopped,
            (false, _, false) => Self::NotReady,
        }
    }

    pub(super) const fn is_usable(self) -> bool {
        matches!(self, Self::Ready | Self::Serving)
    }
}

/// An endpoint with an address that it can have, and a port.
pub(super) struct Candidate<'a> {
    pub(super) backend: Backend,
    pub(super) condition: Condition,
    /// As the slice has them.
    pub(super) conditions: Conditions,
    pub(super) slice: &'a EndpointSlice,
}

impl<'a> Candidate<'a> {
    /// Reads an endpoint of a slice of this family; `port` is the slice's, `node` the name of this node.
    pub(super) fn read(
        slice: &'a EndpointSlice,
        endpoint: &Endpoint,
        family: Family,
        port: u16,
        node: &str,
    ) -> Result<Self, Excluded> {
        let exclude = |reason, message: String| {
            let message = format!("{}: {message}", slice.reference());
            Excluded { address: first_address_text(endpoint), port: Some(port), reason, message }
        };
        let address = match endpoint.addresses.first() {
            Some(Ok(address)) => *address,
            Some(Err(invalid)) => return Err(exclude(Verdict::InvalidAddress, invalid.to_string())),
            None => return Err(exclude(Verdict::InvalidAddress, "an endpoint without addresses".into())),
        };
        if Family::of(address) != family {
            let message = format!("{address} is not of the slice's address type");
            return Err(exclude(Verdict::WrongFamily, message));
        }
        if let Some(what) = unfit(address) {
            let message = format!("{address} is {what}, which no endpoint can have");
            return Err(exclude(Verdict::InvalidAddress, message));
        }
        let condition = Condition::of(endpoint.conditions);
        let backend = Backend {
            address,
            port,
            local: endpoint.node.as_deref() == Some(node),
            draining: condition != Condition::Ready,
            node: endpoint.node.clone(),
            zone: endpoint.zone.clone(),
            target: endpoint.target.clone(),
        };
        Ok(Self { backend, condition, conditions: endpoint.conditions, slice })
    }

    const fn place(&self) -> (IpAddr, u16) {
        (self.backend.address, self.backend.port)
    }

    /// The endpoint as a message calls it.
    pub(super) fn told(&self) -> String {
        match &self.backend.target {
            Some(target) => format!("endpoint {} (Pod {target})", self.backend.address),
            None => format!("endpoint {}", self.backend.address),
        }
    }

    pub(super) fn excluded(&self, reason: Verdict, message: String) -> Excluded {
        let Backend { address, port, .. } = self.backend;
        Excluded { address: address.to_string().into(), port: Some(port), reason, message }
    }

    /// By address and port; then the one nearest to ready, then by slice, then by what else it says.
    fn rank(&self) -> impl Ord + use<'_, 'a> {
        let Backend { target, node, zone, .. } = &self.backend;
        (self.place(), self.condition, self.slice.kind, &self.slice.key, target, node, zone)
    }
}

/// One candidate an address and port. An address that is both ready and not ready is ready.
pub(super) fn without_duplicates<'a>(
    mut candidates: Vec<Candidate<'a>>,
    excluded: &mut Vec<Excluded>,
) -> Vec<Candidate<'a>> {
    candidates.sort_by(|a, b| a.rank().cmp(&b.rank()));
    let mut unique: Vec<Candidate<'a>> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        match unique.last() {
            Some(first) if first.place() == candidate.place() => {
                let message =
                    format!("{} is listed in {} as well", candidate.told(), first.slice.reference());
                excluded.push(candidate.excluded(Verdict::DuplicateEndpoint, message));
            }
            _ => unique.push(candidate),
        }
    }
    unique
}

/// The address that counts, as text: of those that an endpoint has, the API calls any as good as the other.
pub(super) fn first_address_text(endpoint: &Endpoint) -> Box<str> {
    match endpoint.addresses.first() {
        Some(Ok(address)) => address.to_string().into(),
        Some(Err(invalid)) => invalid.text.clone(),
        None => "".into(),
    }
}
