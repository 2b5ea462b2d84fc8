//! `readylb status`: the running agent, and what the maps really hold.

use std::{collections::BTreeMap, net::IpAddr, path::Path, time::Duration};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use lb_common::{Verdict, maps};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{Failure, Location, Output, block_on, duration, json, print};
use crate::{
    admin::{
        client::{self, ClientError},
        readiness::Readiness,
        status::AgentStatus,
    },
    datapath::{HostRouting, schema_folder},
    maps::{MapError, PinnedMaps},
    table::{columns, or_dash},
};

/// Show the running agent, and what the maps really hold
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 where the agent is ready; 1 where none answers, where a source that it needs fails \
                        or has not completed its first list, or where the maps cannot be read or written. What is printed is the \
                        same either way.\n\nExample:\n  readylb status -o json"
)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    location: Location,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// First wait until the maps hold what the sources say by now
    #[arg(long, value_enum, value_name = "HOW_SURE")]
    wait: Option<Milestone>,
    /// How long to wait at most
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m", requires = "wait")]
    timeout: Duration,
}

/// How far the maps are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Milestone {
    /// Every change is written
    Applied,
    /// Every change is written, and was read back from the kernel since
    Verified,
}

impl Milestone {
    /// The generation that has come so far.
    fn reached(self, agent: &AgentStatus) -> u64 {
        let reconciler = &agent.reconciler;
        match (reconciler.complete, self) {
            (false, _) => 0,
            (true, Self::Applied) => reconciler.applied,
            (true, Self::Verified) => reconciler.verified,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Verified => "verified",
        }
    }
}

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

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
    let socket = &args.location.admin_socket;
    if let Some(milestone) = args.wait {
        block_on(wait(socket, milestone, args.timeout))??;
    }
    let answer = block_on(ask(socket))?;
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
    let readiness = Readiness::of(&answer?);
    if !readiness.is_ready() {
        return Err(anyhow!("the agent is not ready: {}", readiness.missing.join("; ")).into());
    }
    Ok(())
}

async fn ask(socket: &Path) -> Result<AgentStatus, ClientError> {
    client::get(socket, "/v1/status").await
}

/// Waits until what the sources say now has come so far.
async fn wait(socket: &Path, milestone: Milestone, timeout: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    let mut agent = ask(socket).await?;
    // Of an agent that has not heard everything yet, the generation says nothing.
    let mut wanted = agent.reconciler.complete.then_some(agent.reconciler.generation);
    loop {
        let reached = milestone.reached(&agent);
        if wanted.is_some_and(|wanted| reached >= wanted) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let why = agent.reconciler.errors.iter().map(|(object, error)| format!("{object}: {error}"));
            let why = Readiness::of(&agent).missing.into_iter().chain(why).collect::<Vec<_>>().join("; ");
            let name = milestone.name();
            return Err(match wanted {
                Some(wanted) => {
                    anyhow!("generation {reached} is {name}, and not yet {wanted}: {}", or_dash(&why))
                }
                None => anyhow!("the agent has not heard every source yet: {}", or_dash(&why)),
            });
        }
        sleep(LOOK).await;
        agent = ask(socket).await?;
        wanted = wanted.or(agent.reconciler.complete.then_some(agent.reconciler.generation));
    }
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
        (maps::AFFINITY, Fill { entries: pinned.affinity.count()?, size: pinned.affinity.max_entries() }),
        (maps::SOCKETS, Fill { entries: pinned.sockets.count()?, size: pinned.sockets.max_entries() }),
        (
            maps::SOURCE_RANGES,
            Fill {
                entries: pinned.ranges.iter().try_fold(0, |count, range| range.map(|_| count + 1))?,
                size: pinned.ranges.max_entries(),
            },
        ),
    ];
    let packets = pinned.counters()?.into_iter().map(|(verdict, count)| (verdict.name(), count)).collect();
    Ok(Some(MapsReport { folder: folder.display().to_string(), entries: entries.into(), packets }))
}

fn agent_text(agent: &AgentStatus) -> String {
    let AgentStatus { version, node, pid, uptime_seconds, reconciler, .. } = agent;
    let mut text = format!("readylb {version} on node {node}, pid {pid}, up {uptime_seconds} s\n");
    let host_routing = if agent.features.host_routing.used { HostRouting::Bpf } else { HostRouting::Stack };
    text += &format!("host routing: {}\n\n", host_routing.name());
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
        let link = agent.surroundings.links.get(&interface.ifindex);
        let side = if link.is_some_and(|link| link.outside) { "outside" } else { "inside" };
        let error = interface.error.clone().unwrap_or_default();
        [interface.name.clone(), side.to_owned(), hooks.join(","), mode, error]
    });
    text += &columns(["INTERFACE", "SIDE", "HOOKS", "BY", "ERROR"], interfaces);
    text += "\n";
    let sockets = &agent.attachments.sockets;
    let hooks: Vec<_> = sockets.hooks.iter().map(|hook| hook.name()).collect();
    let cgroup = sockets.cgroup.as_ref().map_or_else(String::new, |cgroup| cgroup.display().to_string());
    let error = sockets.error.clone().unwrap_or_default();
    let row = [sockets.served.name().to_owned(), or_dash(&cgroup), or_dash(&hooks.join(",")), error];
    text += &columns(["SOCKETS", "CGROUP", "CALLS", "ERROR"], [row].into_iter());
    if agent.sockets.sockets > 0 {
        text +=
            &format!("{} UDP sockets were closed because their backend had gone\n", agent.sockets.sockets);
    }
    if let Some(error) = &agent.sockets.error {
        text += &format!("UDP sockets whose backend has gone stay connected to it: {error}\n");
    }
    let health_checks = agent
        .health_checks
        .iter()
        .map(|it| [it.address.to_string(), it.service.clone(), it.error.clone().unwrap_or_default()]);
    let health_checks = columns(["HEALTH CHECK", "SERVICE", "ERROR"], health_checks);
    if !health_checks.is_empty() {
        text += &format!("\n{health_checks}");
    }
    text += &format!(
        "\nnode addresses: {}; NodePorts on: {}\n",
        list(&agent.surroundings.addresses),
        list(&reconciler.node.nodeport_addresses)
    );
    let warnings = agent.surroundings.error.iter().chain(&agent.warnings);
    warnings.for_each(|sentence| text += &format!("warning: {sentence}\n"));
    let beyond = reconciler.frontends - reconciler.programmable;
    text += &format!(
        "\n{} Services, {} frontends: {} in the maps of {} that belong there, {beyond} withheld (readylb get services \
         says why)\n",
        reconciler.services, reconciler.frontends, reconciler.programmed, reconciler.programmable
    );
    text += &format!(
        "generation {} desired, {} applied, {} verified\n",
        reconciler.generation, reconciler.applied, reconciler.verified
    );
    let drift = reconciler.drift + agent.surroundings.drift;
    if drift > 0 {
        text += &format!("{drift} entries of maps were changed by somebody else and put right\n");
    }
    for (object, error) in &reconciler.errors {
        text += &format!("error: {object}: {error}\n");
    }
    if reconciler.warnings > 0 {
        text += &format!("{} warnings (readylb get services lists them)\n", reconciler.warnings);
    }
    text
}

fn list(addresses: &[IpAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    if addresses.is_empty() { "none known".to_owned() } else { addresses.join(", ") }
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
