//! Which entries of SERVICES a Service is to have: one for a frontend, two where clients inside the cluster have a set of
//! their own.

use std::collections::BTreeMap;

use lb_common::{
    ServiceKey, ServiceValue,
    service::{
        flags::{CLUSTER_IP, EXTERNAL, INSIDE_APART, SOURCE_RANGES},
        scope,
    },
};

use super::{brings_some, grows, ranges};
use crate::{
    desired::{Desired, Frontend, FrontendKind, ServiceDesired},
    maps::Record,
    model::ObjectKey,
};

/// An entry to be.
pub(super) struct Part {
    pub(super) key: ServiceKey,
    /// Index of its set in the desired state of the Service.
    set: usize,
    /// Its flags, apart from what its set has to say.
    pub(super) flags: u32,
    pub(super) affinity_seconds: u32,
}

/// The entries that can be written now.
#[derive(Default)]
pub(super) struct Parts {
    /// By index of the set that they share.
    pub(super) by_set: BTreeMap<usize, Vec<Part>>,
    /// Others wait until every first list is complete.
    pub(super) held_back: bool,
}

impl Parts {
    pub(super) fn of(key: &ObjectKey, desired: &Desired, record: &Record, complete: bool) -> Self {
        let mut parts = Self::default();
        let Some(service) = desired.service(key) else { return parts };
        for (frontend, _, withheld) in desired.frontends_of(key) {
            let of_it = of_frontend(frontend, service);
            let is_empty = |part: &Part| service.sets[part.set].selection.usable.is_empty();
            let cuts_off = key.is_api_server()
                && record.services().contains_key(&frontend.key())
                && of_it.iter().any(is_empty);
            if withheld.is_some() || cuts_off {
                continue;
            }
            let turn = if complete { Turn::Now } else { turn(&of_it, service, record) };
            parts.held_back |= turn != Turn::Now;
            if turn != Turn::Later {
                of_it.into_iter().for_each(|part| parts.by_set.entry(part.set).or_default().push(part));
            }
        }
        parts
    }
}

/// The entries of a frontend, that for clients from anywhere first.
fn of_frontend(frontend: &Frontend, service: &ServiceDesired) -> Vec<Part> {
    let is_guarded = frontend.is_guarded() && service.source_ranges.is_some();
    let of_kind = if frontend.kind == FrontendKind::ClusterIP { CLUSTER_IP } else { EXTERNAL };
    let flags = of_kind | if is_guarded { SOURCE_RANGES } else { 0 };
    let apart = if frontend.inside.is_some() { INSIDE_APART } else { 0 };
    let part = |scope, set, flags| Part {
        key: ServiceKey { scope, ..frontend.key() },
        set,
        flags,
        affinity_seconds: frontend.affinity_seconds.unwrap_or_default(),
    };
    let inside = frontend.inside.map(|set| part(scope::INSIDE, set, flags));
    [part(scope::ANY, frontend.set, flags | apart)].into_iter().chain(inside).collect()
}

/// When a frontend can be written before every first list is complete.
#[derive(PartialEq, Eq)]
enum Turn {
    /// Now, and as it is desired.
    Now,
    /// Now, and what it would lose stays beside what is new.
    InPart,
    /// It has nothing to gain.
    Later,
}

fn turn(parts: &[Part], service: &ServiceDesired, record: &Record) -> Turn {
    let selection = |part: &Part| &service.sets[part.set].selection;
    let Some(outside) = parts.first() else { return Turn::Later };
    let Some(held) = record.services().get(&outside.key) else {
        return if selection(outside).usable.is_empty() { Turn::Later } else { Turn::Now };
    };
    let grows = |part: &Part| met_by(part, record).all(|met| grows(record, met, selection(part)));
    let brings_some = |part: &Part| met_by(part, record).any(|met| brings_some(record, met, selection(part)));
    if parts.iter().all(grows) {
        Turn::Now
    } else if parts.iter().any(brings_some) || is_guarded_otherwise(held, outside, service, record) {
        Turn::InPart
    } else {
        Turn::Later
    }
}

/// What the clients of an entry to be meet now: those inside what is apart for them, if something is, and else what is for
/// all.
pub(super) fn met_by<'a>(part: &Part, record: &'a Record) -> impl Iterator<Item = &'a ServiceValue> {
    let at = |scope| record.services().get(&ServiceKey { scope, ..part.key });
    let of_all = at(scope::ANY);
    let apart = of_all.filter(|value| value.flags & INSIDE_APART != 0).and_then(|_| at(scope::INSIDE));
    let is_for_all = part.key.scope == scope::ANY && part.flags & INSIDE_APART == 0;
    let (first, second) = match (part.key.scope, apart) {
        (scope::INSIDE, Some(apart)) => (Some(apart), None),
        _ => (of_all, apart.filter(|_| is_for_all)),
    };
    first.into_iter().chain(second)
}

/// Whether other clients may connect than are to. A Service says so by itself: nothing that a list has yet to bring changes it.
fn is_guarded_otherwise(held: &ServiceValue, part: &Part, service: &ServiceDesired, record: &Record) -> bool {
    let is_guarded = part.flags & SOURCE_RANGES != 0;
    (held.flags & SOURCE_RANGES != 0) != is_guarded
        || service.source_ranges.as_ref().is_some_and(|wanted| {
            is_guarded && !record.ranges(held.service_id).eq(&ranges::entries(held.service_id, wanted))
        })
}
