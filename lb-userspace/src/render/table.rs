//! Tables for people.

use std::net::SocketAddr;

use super::{BackendCondition, BackendView, Document, FrontendView, NoBackends, SkippedView};
use crate::{
    model::Warning,
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
                    let endpoint = match it.port {
                        Some(port) => it.address.parse().map_or_else(
                            |_| format!("{}:{port}", it.address),
                            |ip| SocketAddr::new(ip, port).to_string(),
                        ),
                        None => it.address.clone(),
                    };
                    [
                        endpoint,
                        it.service.clone(),
                        or_dash(&it.port_name),
                        it.reason.clone(),
                        it.message.clone(),
                    ]
                }),
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

fn rows(frontend: &FrontendView) -> Vec<[String; 6]> {
    let first = [
        frontend.service.clone(),
        or_dash(&frontend.port_name),
        frontend.kind.to_string(),
        format!("{}/{}", SocketAddr::new(frontend.address, frontend.port), frontend.protocol),
    ];
    if frontend.backends.is_empty() {
        let note = match frontend.no_backends {
            NoBackends::Reject => "no usable endpoint (reject)",
            NoBackends::Drop => "no endpoint on this node, and the policy is Local (drop)",
        };
        let [service, port, kind, address] = first;
        return vec![[service, port, kind, address, "-".to_owned(), note.to_owned()]];
    }
    // What is said once for the frontend is left blank on the lines of its other backends.
    let blank = <[String; 4]>::default;
    let heads = std::iter::once(first).chain(std::iter::repeat_with(blank));
    let row = |([service, port, kind, address], backend): ([String; 4], &BackendView)| {
        let socket = SocketAddr::new(backend.address, backend.port).to_string();
        [service, port, kind, address, socket, note(backend)]
    };
    heads.zip(&frontend.backends).map(row).collect()
}

fn note(backend: &BackendView) -> String {
    let draining = matches!(backend.state, BackendCondition::Draining).then_some("draining");
    let local = backend.local.then_some("local");
    let endpoint = backend.endpoint.as_deref();
    [endpoint, local, draining].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
