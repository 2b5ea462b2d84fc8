//! `readylb get services`: the frontends and backends, as the maps hold them.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use lb_common::{ServiceKey, SlotKey, addr, service::scope};
use serde::Serialize;

use super::super::{Failure, Location, Output, block_on, json, print};
use crate::{
    admin::{client, status::AgentStatus},
    datapath::schema_folder,
    desired::FrontendKind,
    maps::{MapError, PinnedMaps},
    model::{API_SERVER, Protocol},
    reconcile::Status,
    render::{
        Document, FrontendView, SkippedView,
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
    /// Who takes new connections, by the maps.
    backends: Vec<RowBackend>,
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
struct Held(HashMap<ServiceKey, Vec<SocketAddr>>);

impl Held {
    fn read(maps: &PinnedMaps) -> Result<Self, MapError> {
        let mut held = HashMap::new();
        for entry in maps.services.iter() {
            let (key, value) = entry?;
            if key.is_whole() {
                continue;
            }
            let slots = (0..value.set.count).map(|slot| SlotKey { block: value.set.block, slot, pad: 0 });
            let mut backends = Vec::new();
            for slot in slots {
                // A set that changed meanwhile: its block may be gone, and the next call shows the new one.
                if let Some(backend) = maps.backends.get(&slot)? {
                    backends.push(SocketAddr::new(addr::to_ip(&backend.address), backend.port));
                }
            }
            held.insert(key, backends);
        }
        Ok(Self(held))
    }
}

fn rows(desired: &[FrontendView], Held(mut held): Held, status: &Status) -> Vec<Row> {
    let mut rows: Vec<Row> = desired.iter().map(|view| row(view, held.remove(&key(view)), status)).collect();
    let mut unknown: Vec<_> = held.into_iter().collect();
    unknown.sort_unstable_by_key(|(key, _)| *key);
    rows.extend(unknown.into_iter().map(|(key, backends)| Row {
        service: None,
        port_name: None,
        kind: None,
        address: addr::to_ip(&key.address),
        port: key.port,
        protocol: Protocol::from_number(key.proto),
        programmed: true,
        backends: backends.into_iter().map(|it| backend(it, None)).collect(),
        note: Some("in the maps only (it goes when every source has completed its first list)".to_owned()),
    }));
    rows
}

fn row(view: &FrontendView, held: Option<Vec<SocketAddr>>, status: &Status) -> Row {
    let mut wanted: Vec<_> = view.backends.iter().map(|it| SocketAddr::new(it.address, it.port)).collect();
    let note = match &held {
        None if view.withheld.is_some() => Some("kept out of the maps (see below)".to_owned()),
        None => Some(format!("not in the maps ({})", why_not(view, status))),
        Some(held) if held.is_empty() && wanted.is_empty() => Some("no usable endpoint".to_owned()),
        Some(held) => {
            let mut held = held.clone();
            held.sort_unstable();
            wanted.sort_unstable();
            (held != wanted).then(|| format!("not as desired in the maps ({})", why_not(view, status)))
        }
    };
    let endpoint = |address: SocketAddr| {
        let found = view.backends.iter().find(|it| SocketAddr::new(it.address, it.port) == address);
        found.and_then(|it| it.endpoint.clone())
    };
    Row {
        service: Some(view.service.clone()),
        port_name: Some(view.port_name.clone()),
        kind: Some(view.kind),
        address: view.address,
        port: view.port,
        protocol: Some(view.protocol),
        programmed: held.is_some(),
        backends: held.unwrap_or_default().into_iter().map(|it| backend(it, endpoint(it))).collect(),
        note,
    }
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
    let mut notes = row.note.clone();
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
