//! Who is chosen among the candidates.

use lb_common::Verdict;

use super::{
    Judged, Outcome, Query, Reason, Topology,
    candidate::{Candidate, Condition},
};
use crate::model::{Conditions, Policy};

/// Takes the ready candidates, else those that still serve. Each policy decides this among the candidates that it allows.
/// Of the ready ones the topology may take a part; it applies to Cluster sets only.
pub(super) fn choose<'a>(
    query: &Query<'_>,
    candidates: Vec<Candidate<'a>>,
    judged: &mut Vec<Judged<'a>>,
) -> Topology {
    let allows = |candidate: &Candidate<'_>| query.policy == Policy::Cluster || candidate.local;
    let nearest = |candidates: &mut dyn Iterator<Item = &Candidate<'a>>| {
        candidates.map(|candidate| candidate.condition).filter(|condition| condition.is_usable()).min()
    };
    let chosen = nearest(&mut candidates.iter().filter(|candidate| allows(candidate)));
    let in_cluster = nearest(&mut candidates.iter());
    let topology = match query.policy {
        Policy::Cluster => Topology::of(query, &candidates),
        Policy::Local => Topology::default(),
    };
    for candidate in candidates {
        let outcome = if !allows(&candidate) && Some(candidate.condition) == in_cluster {
            Outcome::Excluded(not_local(&candidate))
        } else if !allows(&candidate) || Some(candidate.condition) != chosen {
            let reason = not_chosen(&candidate);
            if allows(&candidate) && candidate.condition.is_usable() {
                Outcome::Draining(candidate.backend(), reason)
            } else {
                Outcome::Excluded(reason)
            }
        } else if let Some(reason) = topology.leaves_out(&candidate) {
            Outcome::Excluded(reason)
        } else {
            Outcome::Usable(candidate.backend())
        };
        judged.push(candidate.judged(outcome));
    }
    topology
}

fn not_local(candidate: &Candidate<'_>) -> Reason {
    let node = candidate.endpoint.node.as_deref().map_or("no node".into(), |node| format!("node {node}"));
    let message = format!("{} is on {node}, and the traffic policy is Local", candidate.told());
    Reason { verdict: Verdict::NotLocal, message: message.into() }
}

fn not_chosen(candidate: &Candidate<'_>) -> Reason {
    let is_leaving = candidate.condition != Condition::NotReady;
    let verdict = if is_leaving { Verdict::Terminating } else { Verdict::NotReady };
    let Conditions { ready, serving, terminating } = candidate.endpoint.conditions;
    let message = format!(
        "{} has ready={ready}, serving={serving}, terminating={terminating} in {}",
        candidate.told(),
        candidate.slice.reference()
    );
    Reason { verdict, message: message.into() }
}
