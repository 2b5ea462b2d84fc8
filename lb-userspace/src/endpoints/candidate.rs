//! One endpoint, before it is known which ones are chosen.

use std::net::IpAddr;

use lb_common::Verdict;

use super::{Backend, Judged, Outcome, Query, Reason};
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
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) slice: &'a EndpointSlice,
    pub(super) endpoint: &'a Endpoint,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) condition: Condition,
    /// On the node that the query is for.
    pub(super) local: bool,
}

impl<'a> Candidate<'a> {
    /// Reads an endpoint of a slice of the query's family; `port` is the slice's.
    pub(super) fn read(
        slice: &'a EndpointSlice,
        endpoint: &'a Endpoint,
        port: u16,
        query: &Query<'_>,
    ) -> Result<Self, Reason> {
        let exclude = |verdict, message: String| {
            let message = format!("{}: {message}", slice.reference());
            Reason { verdict, message: message.into() }
        };
        let address = match &endpoint.address {
            Some(Ok(address)) => *address,
            Some(Err(invalid)) => return Err(exclude(Verdict::InvalidAddress, invalid.to_string())),
            None => return Err(exclude(Verdict::InvalidAddress, "an endpoint without addresses".into())),
        };
        if Family::of(address) != query.family {
            let message = format!("{address} is not of the slice's address type");
            return Err(exclude(Verdict::WrongFamily, message));
        }
        if let Some(what) = unfit(address) {
            let message = format!("{address} is {what}, which no endpoint can have");
            return Err(exclude(Verdict::InvalidAddress, message));
        }
        let condition = Condition::of(endpoint.conditions);
        let local = endpoint.node.as_deref() == Some(query.node);
        Ok(Self { slice, endpoint, address, port, condition, local })
    }

    pub(super) fn backend(&self) -> Backend {
        Backend {
            address: self.address,
            port: self.port,
            local: self.local,
            draining: self.condition != Condition::Ready,
            node: self.endpoint.node.clone(),
            zone: self.endpoint.zone.clone(),
            target: self.endpoint.target.clone(),
        }
    }

    pub(super) const fn judged(self, outcome: Outcome) -> Judged<'a> {
        Judged { slice: self.slice, endpoint: self.endpoint, port: Some(self.port), outcome }
    }

    /// The endpoint as a message calls it.
    pub(super) fn told(&self) -> String {
        match &self.endpoint.target {
            Some(target) => format!("endpoint {} (Pod {target})", self.address),
            None => format!("endpoint {}", self.address),
        }
    }

    const fn place(&self) -> (IpAddr, u16) {
        (self.address, self.port)
    }

    /// By address and port; then the one nearest to ready, then one of this node, so that a Local policy finds it; then by
    /// slice, then by what else it says.
    fn rank(&self) -> impl Ord + use<'_, 'a> {
        let Endpoint { target, node, zone, hints, .. } = self.endpoint;
        (
            self.place(),
            self.condition,
            !self.local,
            self.slice.kind,
            &self.slice.key,
            target,
            node,
            zone,
            hints,
        )
    }
}

/// One candidate an address and port, in that order. An address that is both ready and not ready is ready.
pub(super) fn without_duplicates<'a>(
    mut candidates: Vec<Candidate<'a>>,
    judged: &mut Vec<Judged<'a>>,
) -> Vec<Candidate<'a>> {
    candidates.sort_by(|a, b| a.rank().cmp(&b.rank()));
    let mut unique: Vec<Candidate<'a>> = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        match unique.last() {
            Some(first) if first.place() == candidate.place() => {
                let message =
                    format!("{} is listed in {} as well", candidate.told(), first.slice.reference());
                let reason = Reason { verdict: Verdict::DuplicateEndpoint, message: message.into() };
                judged.push(candidate.judged(Outcome::Excluded(reason)));
            }
            _ => unique.push(candidate),
        }
    }
    unique
}
