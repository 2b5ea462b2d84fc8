//! Tables for people.

use std::net::SocketAddr;

use super::{BackendCondition, BackendView, Document, EndpointView, FrontendView, NoBackends, SkippedView};
use crate::{
    model::{Policy, Warning},
    table::{columns, or_dash, together},
};

impl Document {
    /// Everything, table by table; those without rows are left out.
    pub fn to_tables(&self) -> String {
        let tables = [
            self.services_table(),
            columns(
                ["EXCLUDED ENDPOINT", "SERVICE", "PORT", "REASON", "MESSAGE"],
                self.excluded.iter().map(|it| {
                    [
                        socket_text(&it.address, it.port),
                        it.service.clone(),
                        or_dash(&it.port_name),
                        it.reason.clone(),
                        it.message.clone(),
                    ]
                }),
            ),
            columns(
                ["HEALTH CHECK", "PORT", "LOCAL ENDPOINTS"],
                self.health_checks
                    .iter()
                    .map(|it| [it.service.clone(), it.port.to_string(), it.local_endpoints.to_string()]),
            ),
            skipped_table(&self.skipped),
            warnings_table(&self.warnings),
        ];
        together(&tables)
    }

    /// The frontends with their backends, one line a backend.
    pub fn services_table(&self) -> String {
        columns(
            ["SERVICE", "PORT", "KIND", "FRONTEND", "BACKEND", "NOTE"],
            self.frontends.iter().flat_map(rows),
        )
    }
}

/// Endpoints, one line for each port and policy that judged it.
pub fn endpoints_table(endpoints: &[EndpointView]) -> String {
    let row = |it: &EndpointView| {
        let port = match (&it.port_name, it.protocol) {
            (Some(name), Some(protocol)) => format!("{}/{protocol}", or_dash(name)),
            _ => or_dash(""),
        };
        let policy = it.policy.map_or_else(|| or_dash(""), |policy| format!("{policy:?}"));
        let conditions = [("ready", it.ready), ("serving", it.serving), ("terminating", it.terminating)];
        let conditions = conditions.iter().filter_map(|(name, is)| is.then_some(*name)).collect::<Vec<_>>();
        let state = match it.state {
            Some(BackendCondition::Active) => "active".to_owned(),
            Some(BackendCondition::Draining) => "draining".to_owned(),
            None => or_dash(it.reason.as_deref().unwrap_or_default()),
        };
        [
            it.service.clone(),
            port,
            policy,
            socket_text(&it.address, it.port),
            or_dash(it.node.as_deref().unwrap_or_default()),
            or_dash(&conditions.join(",")),
            state,
            it.slice.clone(),
            it.message.clone().or_else(|| it.pod.clone()).unwrap_or_default(),
        ]
    };
    columns(
        ["SERVICE", "PORT", "POLICY", "ENDPOINT", "NODE", "CONDITIONS", "STATE", "SLICE", "NOTE"],
        endpoints.iter().map(row),
    )
}

/// An address with its port, where it has one and the text is an address.
fn socket_text(address: &str, port: Option<u16>) -> String {
    match port {
        Some(port) => address
            .parse()
            .map_or_else(|_| format!("{address}:{port}"), |ip| SocketAddr::new(ip, port).to_string()),
        None => or_dash(address),
    }
}

/// What is not served, one line each.
pub(crate) fn skipped_table(skipped: &[SkippedView]) -> String {
    let row = |it: &SkippedView| {
        [or_dash(it.service.as_deref().unwrap_or_default()), it.reason.clone(), it.message.clone()]
    };
    columns(["SKIPPED", "REASON", "MESSAGE"], skipped.iter().map(row))
}

/// What a user should know of, one line each.
pub(crate) fn warnings_table(warnings: &[Warning]) -> String {
    columns(["WARNING", "MESSAGE"], warnings.iter().map(|it| [it.object.clone(), it.message.clone()]))
}

/// The lines of a frontend, one a backend. What is said of the frontend itself stands in the first.
fn rows(frontend: &FrontendView) -> Vec<[String; 6]> {
    let mut head = [
        frontend.service.clone(),
        or_dash(&frontend.port_name),
        frontend.kind.to_string(),
        format!("{}/{}", SocketAddr::new(frontend.address, frontend.port), frontend.protocol),
    ];
    let mut facts = facts(frontend);
    let mut row = |backend: String, note: Vec<String>| {
        let [service, port, kind, address] = std::mem::take(&mut head);
        let notes = [note.join(", "), std::mem::take(&mut facts).join(", ")];
        let notes: Vec<_> = notes.into_iter().filter(|note| !note.is_empty()).collect();
        [service, port, kind, address, backend, notes.join("; ")]
    };
    if frontend.backends.is_empty() {
        let note = match frontend.no_backends {
            NoBackends::Reject => "no usable endpoint (reject)",
            NoBackends::Drop => "no endpoint on this node, and the policy is Local (drop)",
        };
        return vec![row("-".to_owned(), vec![note.to_owned()])];
    }
    let socket = |backend: &BackendView| SocketAddr::new(backend.address, backend.port).to_string();
    frontend.backends.iter().map(|backend| row(socket(backend), note(backend))).collect()
}

/// What is not as it would be by default.
fn facts(frontend: &FrontendView) -> Vec<String> {
    let ranges = &frontend.source_ranges;
    let facts = [
        (frontend.policy == Policy::Local).then(|| "policy Local".to_owned()),
        frontend.affinity_seconds.map(|seconds| format!("affinity {seconds} s")),
        (!ranges.is_empty()).then(|| format!("only from {}", ranges.join(" "))),
        frontend.closed.then(|| "nobody may connect".to_owned()),
        frontend
            .inside_backends
            .as_ref()
            .map(|inside| format!("{} backends for clients of the cluster", inside.len())),
        frontend.topology.clone(),
        frontend.withheld.as_ref().map(|reason| format!("not in the datapath ({reason})")),
    ];
    facts.into_iter().flatten().collect()
}

fn note(backend: &BackendView) -> Vec<String> {
    let draining = matches!(backend.state, BackendCondition::Draining).then_some("draining");
    let local = backend.local.then_some("local");
    let endpoint = backend.endpoint.as_deref();
    [endpoint, local, draining].into_iter().flatten().map(str::to_owned).collect()
}
