//! Hints: whose traffic an endpoint is meant for.
//!
//! Whoever writes the slices turns the wishes of a Service (`trafficDistribution`, the annotation
//! `service.kubernetes.io/topology-mode`) into hints; a proxy obeys the hints and does not look at the wishes. As in
//! kube-proxy they count only if every ready endpoint has one and one of them is for us: a part of them would send all
//! traffic of the zone to that part.

use std::{fmt, sync::Arc};

use lb_common::Verdict;

use super::{
    Query, Reason,
    candidate::{Candidate, Condition},
};
use crate::model::Hints;

/// What the hints of the ready endpoints led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// There are none.
    #[default]
    Unhinted,
    /// Only the endpoints that are meant for us are used.
    Hinted(Hinted),
    /// There are some, and every endpoint is used all the same; why, in one sentence.
    Every(String),
}

/// Whose hints are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hinted {
    /// Those for our node.
    Node(Box<str>),
    /// Those for our zone.
    Zone(Box<str>),
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unhinted => f.write_str("no endpoint has hints"),
            Self::Hinted(Hinted::Node(node)) => write!(f, "the endpoints hinted for node {node}"),
            Self::Hinted(Hinted::Zone(zone)) => write!(f, "the endpoints hinted for zone {zone}"),
            Self::Every(why) => write!(f, "every endpoint: {why}"),
        }
    }
}

impl Topology {
    /// Whose hints are to be followed for these candidates.
    pub(super) fn of(query: &Query<'_>, candidates: &[Candidate<'_>]) -> Self {
        let ready: Vec<_> = candidates
            .iter()
            .filter(|candidate| candidate.condition == Condition::Ready)
            .map(|candidate| candidate.endpoint.hints.as_deref())
            .collect();
        let nodes = Hinting::of(&ready, |hints| &hints.nodes, Some(query.node));
        let zones = Hinting::of(&ready, |hints| &hints.zones, query.zone);
        match (nodes, zones) {
            (Hinting::Ours, _) => Self::Hinted(Hinted::Node(query.node.into())),
            (_, Hinting::Ours) => Self::Hinted(Hinted::Zone(query.zone.unwrap_or_default().into())),
            (Hinting::None, Hinting::None) => match query.wish.filter(|_| !ready.is_empty()) {
                Some(wish) => {
                    Self::Every(format!("the Service asks for {}, and none has a hint", wish.name()))
                }
                None => Self::Unhinted,
            },
            (Hinting::Others, Hinting::None) => {
                Self::Every(format!("none is hinted for node {}", query.node))
            }
            (nodes, zones) => {
                let what = if zones == Hinting::None { "node" } else { "zone" };
                let hinting = if zones == Hinting::None { nodes } else { zones };
                Self::Every(match (hinting, query.zone) {
                    (Hinting::Some { hinted }, _) => {
                        format!("only {hinted} of {} ready ones have a {what} hint", ready.len())
                    }
                    (_, Some(zone)) => format!("none is hinted for zone {zone}"),
                    (_, None) => format!("the zone of node {} is not known", query.node),
                })
            }
        }
    }

    /// Why a ready candidate is not for us, if so.
    pub(super) fn leaves_out(&self, candidate: &Candidate<'_>) -> Option<Reason> {
        let Self::Hinted(hinted) = self else { return None };
        let hints = candidate.endpoint.hints.as_deref();
        let (names, ours, what) = match hinted {
            Hinted::Node(node) => (hints.map(|hints| &hints.nodes), node, "node"),
            Hinted::Zone(zone) => (hints.map(|hints| &hints.zones), zone, "zone"),
        };
        let names = names.map_or(&[][..], |names| names);
        if candidate.condition != Condition::Ready || names.iter().any(|name| **name == **ours) {
            return None;
        }
        let message = format!(
            "{} is hinted for {what} {}, and this is {what} {ours}",
            candidate.told(),
            names.join(", ")
        );
        Some(Reason { verdict: Verdict::HintedElsewhere, message: message.into() })
    }
}

/// How far the ready endpoints have hints of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hinting {
    /// None has.
    None,
    /// Some have.
    Some { hinted: usize },
    /// All have, and none is for us.
    Others,
    /// All have, and at least one is for us.
    Ours,
}

impl Hinting {
    fn of(ready: &[Option<&Hints>], names: fn(&Hints) -> &Vec<Arc<str>>, ours: Option<&str>) -> Self {
        let hinted = ready.iter().filter_map(|hints| hints.map(names)).filter(|names| !names.is_empty());
        let is_ours = |names: &Vec<Arc<str>>| names.iter().any(|name| Some(&**name) == ours);
        match hinted.clone().count() {
            0 => Self::None,
            count if count < ready.len() => Self::Some { hinted: count },
            _ if hinted.into_iter().any(is_ours) => Self::Ours,
            _ => Self::Others,
        }
    }
}
