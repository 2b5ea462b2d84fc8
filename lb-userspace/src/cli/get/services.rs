//! `readylb get services`: the frontends and backends, as the maps hold them.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use lb_common::{
    BackendSet, ServiceKey, SlotKey, addr,
    service::{flags, scope},
};
use serde::Serialize;

use super::super::{Failure, Location, Output, block_on, json, print};
use crate::{
    admin::{client, status::AgentStatus},
    datapath::schema_folder,
    desired::{FrontendKind, NoBackends},
    maps::{MapError, PinnedMaps},
    model::{API_SERVER, Policy, Protocol},
    reconcile::Status,
    render::{
        BackendView, Document, FrontendView, SkippedView,
        table::{skipped_table, warnings_table},
    },
    table::{columns, or_dash, together},
};

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    frontends: Vec<Row>,
    skipped: Vec<SkippedView>,
    warnings: Vec<crate::model::Warning>,
}

/// A frontend, in the maps or meant to be.
#[derive(Serialize)]
struct Row {
    /// Null where only the maps know of it.
    service: Option<String>,
    port_name: Option<String>,
    kind: Option<FrontendKind>,
    address: IpAddr,
    port: u16,
    /// Null for a protocol that this version does not know.
    protocol: Option<Protocol>,
    /// Whether the maps have the frontend.
    programmed: bool,
    /// The traffic policy; null where only the maps know of the frontend.
    policy: Option<Policy>,
    /// Who takes new connections, by the maps; those on this node first.
    backends: Vec<RowBackend>,
    /// How many of them are on this node.
    local: usize,
    /// Who takes those of clients inside the cluster, where these are others.
    inside_backends: Option<Vec<RowBackend>>,
    /// Where maps and desired state differ.
    note: Option<String>,
}

#[derive(Serialize)]
struct RowBackend {
    address: IpAddr,
    port: u16,
    endpoint: Option<String>,
}

pub(super) fn run(location: &Location, output: Output) -> Result<(), Failure> {
    let document = block_on(client::get::<Document>(&location.admin_socket, "/v1/render"))??;
    let status = block_on(client::get::<AgentStatus>(&location.admin_socket, "/v1/status"))??.reconciler;
    let held = Held::read(&PinnedMaps::open(&schema_folder(&location.bpf_root))?)?;
    let report = Report {
        frontends: rows(&document.frontends, held, &status),
        skipped: document.skipped,
        warnings: document.warnings,
    };
    print(&match output {
        Output::Json => json(&report)?,
        Output::Table => text(&report),
    })?;
    Ok(())
}

/// Frontends and the backends that take their new connections, by the maps.
struct Held(HashMap<ServiceKey, HeldFrontend>);

/// What the maps hold of a frontend.
#[derive(Clone, Default)]
struct HeldFrontend {
    backends: Vec<SocketAddr>,
    local: usize,
    /// For clients inside the cluster, where theirs are apart.
    inside: Option<Vec<SocketAddr>>,
}

impl Held {
    fn read(maps: &PinnedMaps) -> Result<Self, MapError> {
        let mut held = HashMap::new();
        for entry in maps.services.iter() {
            let (key, value) = entry?;
            if key.is_whole() || key.scope != scope::ANY {
                continue;
            }
            let apart = if value.flags & flags::INSIDE_APART != 0 {
                maps.services.get(&ServiceKey { scope: scope::INSIDE, ..key })?
            } else {
                None
            };
            let frontend = HeldFrontend {
                backends: chosen(maps, value.set)?,
                local: value.set.local.into(),
                inside: apart.map(|apart| chosen(maps, apart.set)).transpose()?,
            };
            held.insert(key, frontend);
        }
        Ok(Self(held))
    }
}

/// The backends that take new connections in a set.
fn chosen(maps: &PinnedMaps, set: BackendSet) -> Result<Vec<SocketAddr>, MapError> {
    let mut backends = Vec::new();
    for slot in 0..set.count {
        // A set that changed meanwhile: its block may be gone, and the next call shows the new one.
        if let Some(backend) = maps.backends.get(&SlotKey { block: set.block, slot, pad: 0 })? {
            backends.push(SocketAddr::new(addr::to_ip(&backend.address), backend.port));
        }
    }
    Ok(backends)
}

fn rows(desired: &[FrontendView], Held(mut held): Held, status: &Status) -> Vec<Row> {
    let mut rows: Vec<Row> = desired.iter().map(|view| row(view, held.remove(&key(view)), status)).collect();
    let mut unknown: Vec<_> = held.into_iter().collect();
    unknown.sort_unstable_by_key(|(key, _)| *key);
    let without_name = |backends: Vec<SocketAddr>| backends.into_iter().map(|it| backend(it, None)).collect();
    rows.extend(unknown.into_iter().map(|(key, held)| Row {
        service: None,
        port_name: None,
        kind: None,
        address: addr::to_ip(&key.address),
        port: key.port,
        protocol: Protocol::from_number(key.proto),
        programmed: true,
        policy: None,
        local: held.local,
        backends: without_name(held.backends),
        inside_backends: held.inside.map(without_name),
        note: Some("in the maps only (it goes when every source has completed its first list)".to_owned()),
    }));
    rows
}

fn row(view: &FrontendView, held: Option<HeldFrontend>, status: &Status) -> Row {
    let note = match &held {
        None if view.withheld.is_some() => Some("kept out of the maps (see below)".to_owned()),
        None => Some(format!("not in the maps ({})", why_not(view, status))),
        Some(held) if !is_as_desired(held, view) => {
            Some(format!("not as desired in the maps ({})", why_not(view, status)))
        }
        Some(held) if held.backends.is_empty() => Some(
            match view.no_backends {
                NoBackends::Reject => "no usable endpoint",
                NoBackends::Drop => "no endpoint on this node (drop)",
            }
            .to_owned(),
        ),
        Some(_) => None,
    };
    let views = || view.backends.iter().chain(view.inside_backends.iter().flatten());
    let endpoint = |address: SocketAddr| {
        let found = views().find(|it| SocketAddr::new(it.address, it.port) == address);
        found.and_then(|it| it.endpoint.clone())
    };
    let programmed = held.is_some();
    let held = held.unwrap_or_default();
    let named =
        |backends: Vec<SocketAddr>| backends.into_iter().map(|it| backend(it, endpoint(it))).collect();
    Row {
        service: Some(view.service.clone()),
        port_name: Some(view.port_name.clone()),
        kind: Some(view.kind),
        address: view.address,
        port: view.port,
        protocol: Some(view.protocol),
        programmed,
        policy: Some(view.policy),
        local: held.local,
        backends: named(held.backends),
        inside_backends: held.inside.map(named),
        note,
    }
}

fn is_as_desired(held: &HeldFrontend, view: &FrontendView) -> bool {
    let is_same = |held: &[SocketAddr], wanted: &[BackendView]| {
        let mut held = held.to_vec();
        let mut wanted: Vec<_> = wanted.iter().map(|it| SocketAddr::new(it.address, it.port)).collect();
        held.sort_unstable();
        wanted.sort_unstable();
        held == wanted
    };
    let inside = match (&held.inside, &view.inside_backends) {
        (Some(held), Some(wanted)) => is_same(held, wanted),
        (held, wanted) => held.is_none() && wanted.is_none(),
    };
    is_same(&held.backends, &view.backends) && inside
}

/// What is said of a frontend beside its backends.
fn facts(row: &Row) -> Option<String> {
    let is_local = row.policy == Some(Policy::Local);
    let facts = [
        is_local.then(|| "policy Local".to_owned()),
        (row.kind != Some(FrontendKind::ClusterIP) && !is_local && row.local > 0)
            .then(|| format!("{} of {} on this node", row.local, row.backends.len())),
        row.inside_backends
            .as_ref()
            .map(|inside| format!("{} backends for clients of the cluster", inside.len())),
        row.note.clone(),
    ];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    (!facts.is_empty()).then(|| facts.join(", "))
}

/// Why the maps differ from the desired state.
fn why_not(view: &FrontendView, status: &Status) -> String {
    if let Some(error) = status.errors.get(&format!("Service {}", view.service)) {
        return error.clone();
    }
    if !status.complete {
        return "until every source has completed its first list nothing shrinks".to_owned();
    }
    if view.service == API_SERVER && view.backends.is_empty() {
        return "the API server keeps its last usable endpoints".to_owned();
    }
    "not yet; look again".to_owned()
}

fn backend(address: SocketAddr, endpoint: Option<String>) -> RowBackend {
    RowBackend { address: address.ip(), port: address.port(), endpoint }
}

fn key(view: &FrontendView) -> ServiceKey {
    ServiceKey {
        address: addr::from_ip(view.address),
        port: view.port,
        proto: view.protocol.number(),
        scope: scope::ANY,
    }
}

fn text(report: &Report) -> String {
    let services = columns(
        ["SERVICE", "PORT", "KIND", "FRONTEND", "BACKEND", "NOTE"],
        report.frontends.iter().flat_map(lines),
    );
    let tables = together(&[services, skipped_table(&report.skipped), warnings_table(&report.warnings)]);
    if tables.is_empty() { "no Services\n".to_owned() } else { tables }
}

fn lines(row: &Row) -> Vec<[String; 6]> {
    let protocol = row.protocol.map_or_else(|| "?".to_owned(), |protocol| protocol.to_string());
    let mut head = [
        or_dash(row.service.as_deref().unwrap_or_default()),
        or_dash(row.port_name.as_deref().unwrap_or_default()),
        row.kind.map_or_else(|| "-".to_owned(), |kind| kind.to_string()),
        format!("{}/{protocol}", SocketAddr::new(row.address, row.port)),
    ];
    let mut notes = facts(row);
    let mut backends: Vec<_> = row
        .backends
        .iter()
        .map(|it| (SocketAddr::new(it.address, it.port).to_string(), it.endpoint.clone()))
        .collect();
    if backends.is_empty() {
        backends.push(("-".to_owned(), None));
    }
    backends
        .into_iter()
        .map(|(address, endpoint)| {
            let [service, port, kind, frontend] = std::mem::take(&mut head);
            let note: Vec<_> = [endpoint, notes.take()].into_iter().flatten().collect();
            [service, port, kind, frontend, address, note.join("; ")]
        })
        .collect()
}
