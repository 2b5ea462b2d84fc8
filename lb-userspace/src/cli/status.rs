//! `readylb status`: the running agent, and what the maps really hold.

use std::{collections::BTreeMap, path::Path};

use anyhow::anyhow;
use clap::Args;
use lb_common::{Verdict, maps};
use serde::Serialize;

use super::{Failure, Location, Output, block_on, json, print};
use crate::{
    admin::{client, readiness::Readiness, status::AgentStatus},
    datapath::schema_folder,
    maps::{MapError, PinnedMaps},
    table::{columns, or_dash},
};

/// Show the running agent, and what the maps really hold
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 where the agent is ready; 1 where none answers, where a source that it needs fails \
                        or has not completed its first list, or where the maps cannot be read. What is printed is the \
                        same either way.\n\nExample:\n  readylb status -o json"
)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    location: Location,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report<'a> {
    /// What the agent says; null where none answers.
    agent: Option<&'a AgentStatus>,
    /// What is pinned; null where nothing is.
    maps: Option<&'a MapsReport>,
}

#[derive(Serialize)]
struct MapsReport {
    folder: String,
    entries: BTreeMap<&'static str, Fill>,
    packets: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Fill {
    entries: usize,
    size: u32,
}

pub(super) fn run(args: StatusArgs) -> Result<(), Failure> {
    let answer = block_on(client::get::<AgentStatus>(&args.location.admin_socket, "/v1/status"))?;
    let pinned = maps_report(&schema_folder(&args.location.bpf_root));
    let maps = pinned.as_ref().ok().and_then(Option::as_ref);
    print(&match args.output {
        Output::Json => json(&Report { agent: answer.as_ref().ok(), maps })?,
        Output::Table => {
            let agent = answer.as_ref().ok().map(|agent| agent_text(agent) + "\n");
            let none = || format!("no maps are pinned under {}\n", args.location.bpf_root.display());
            agent.unwrap_or_default() + &maps.map_or_else(none, maps_text)
        }
    })?;
    pinned?;
    let readiness = Readiness::of(answer?.feeds());
    if !readiness.is_ready() {
        return Err(anyhow!("the agent is not ready: {}", readiness.missing.join("; ")).into());
    }
    Ok(())
}

/// What the pinned maps hold; `None` where none are pinned.
fn maps_report(folder: &Path) -> Result<Option<MapsReport>, MapError> {
    if !folder.join(maps::SERVICES).exists() {
        return Ok(None);
    }
    let pinned = PinnedMaps::open(folder)?;
    let entries = [
        (maps::SERVICES, Fill { entries: pinned.services.count()?, size: pinned.services.max_entries() }),
        (maps::BACKENDS, Fill { entries: pinned.backends.count()?, size: pinned.backends.max_entries() }),
        (maps::BACKEND_STATE, Fill { entries: pinned.states.count()?, size: pinned.states.max_entries() }),
        (maps::FLOWS_NEW, Fill { entries: pinned.flows_new.count()?, size: pinned.flows_new.max_entries() }),
        (maps::FLOWS, Fill { entries: pinned.flows.count()?, size: pinned.flows.max_entries() }),
    ];
    let packets = pinned.counters()?.into_iter().map(|(verdict, count)| (verdict.name(), count)).collect();
    Ok(Some(MapsReport { folder: folder.display().to_string(), entries: entries.into(), packets }))
}

fn agent_text(agent: &AgentStatus) -> String {
    let AgentStatus { version, node, pid, uptime_seconds, reconciler, .. } = agent;
    let mut text = format!("readylb {version} on node {node}, pid {pid}, up {uptime_seconds} s\n\n");
    let sources = agent.feeds().map(|(source, feed)| {
        let name = if source.required { source.name.clone() } else { format!("{} (optional)", source.name) };
        let listed = if feed.synced { "complete" } else { "first list not complete" };
        let heard = source.heard_seconds_ago.map(|seconds| format!("{seconds} s ago")).unwrap_or_default();
        let error = feed.failing.clone().unwrap_or_default();
        [name, listed.to_owned(), or_dash(&heard), error]
    });
    text += &columns(["SOURCE", "STATE", "HEARD", "ERROR"], sources);
    text += "\n";
    let interfaces = agent.attachments.interfaces.iter().map(|interface| {
        let hooks: Vec<_> = interface.hooks.iter().map(|hook| hook.name()).collect();
        let mode = interface.mode.name().to_owned();
        [interface.name.clone(), hooks.join(","), mode, interface.error.clone().unwrap_or_default()]
    });
    text += &columns(["INTERFACE", "HOOKS", "BY", "ERROR"], interfaces);
    let beyond = reconciler.frontends - reconciler.programmable;
    text += &format!(
        "\n{} Services, {} frontends: {} in the maps of {} that belong there, {beyond} withheld (readylb get services \
         says why)\n",
        reconciler.services, reconciler.frontends, reconciler.programmed, reconciler.programmable
    );
    text += &format!("generation {} desired, {} applied\n", reconciler.generation, reconciler.applied);
    for (object, error) in &reconciler.errors {
        text += &format!("error: {object}: {error}\n");
    }
    if reconciler.warnings > 0 {
        text += &format!("{} warnings (readylb get services lists them)\n", reconciler.warnings);
    }
    text
}

fn maps_text(maps: &MapsReport) -> String {
    let fill =
        |(name, fill): (&&str, &Fill)| [(*name).to_owned(), fill.entries.to_string(), fill.size.to_string()];
    let mut text = columns(["MAP", "ENTRIES", "SIZE"], maps.entries.iter().map(fill));
    text += "\n";
    let described = Verdict::ALL.iter().filter_map(|verdict| {
        let count = maps.packets.get(verdict.name())?;
        Some([verdict.name().to_owned(), count.to_string(), verdict.describe().to_owned()])
    });
    text += &columns(["PACKETS", "COUNT", "MEANING"], described);
    text
}
