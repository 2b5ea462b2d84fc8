//! Puts the parts together: `readylb run`. Nothing imports this but the command line.
//!
//! ```text
//!   sources ──events──► reconciler ──ops──► maps
//!                           ▲  │
//!   admin socket ──requests─┘  └─status──► admin socket
//!   keeper: programs on interfaces         flow collector ──no orphans──► reconciler
//!   node maps ◄─ reconciler, keeper        health-check node ports ◄─ reconciler
//! ```

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    admin::{
        server,
        status::{AgentView, Source, Sources as RunningSources},
    },
    check::{pinned_beside, refuse_beside},
    datapath::{self, Attachments, Datapath, Keeper, Selection},
    desired::{HealthChecks, Identity},
    flow_gc::{self, FlowGc},
    health_check,
    maps::BpfMaps,
    node_maps::{self, NodeMaps, local_ports_overlap},
    object::OBJECT,
    reconcile::{self, Engine, Status},
    sock_gc::{self, SockGc},
    source::{
        Contact, Feed, SourceEvent, host,
        kube::{self, Cluster, ClusterOptions, EndpointsApi},
        manifest,
    },
};

/// Events on their way to the reconciler. Sources wait when there are more: each may hold a slice, and the objects are not
/// to be in memory twice.
const EVENTS: usize = 256;

/// Requests on their way to the reconciler.
const REQUESTS: usize = 64;

/// Where objects come from.
#[derive(Clone, Debug)]
pub enum Sources {
    /// The Kubernetes API, and what of it says which endpoints there are.
    Cluster(ClusterOptions, EndpointsApi),
    /// Files and folders.
    Manifests(Vec<PathBuf>),
}

/// What the agent is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where objects come from.
    pub sources: Sources,
    /// Who this is.
    pub identity: Identity,
    /// Where the programs go.
    pub interfaces: Selection,
    /// Where pods are, and who outside may use cluster IPs.
    pub cluster: node_maps::Options,
    /// Where questions are answered.
    pub admin_socket: PathBuf,
    /// Maps and programs.
    pub datapath: datapath::Config,
}

/// How long parts that wait for the operating system may hold up the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs until SIGTERM or SIGINT. The datapath stays, and serves on.
///
/// # Errors
/// Where it cannot start, or a part of it ends.
pub fn run(config: Config) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(start_and_wait(config));
    runtime.shutdown_timeout(PATIENCE);
    outcome
}

async fn start_and_wait(config: Config) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let socket = config.admin_socket.clone();
    let stop = CancellationToken::new();
    let mut agent = match start(config, &stop).await {
        Ok(agent) => agent,
        Err(error) => {
            // Only one that nobody listens on: another agent's stays.
            drop(server::remove_stale(&socket));
            return Err(error);
        }
    };
    let outcome = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        Some(ended) = agent.parts.join_next() => Err(match ended {
            Ok(Ok(name)) => anyhow!("the {name} has ended"),
            Ok(Err(error)) => error,
            Err(panic) => anyhow!(panic).context("a part of the agent has failed"),
        }),
    };
    stop.cancel();
    // Whoever writes to maps or interfaces has ended before another agent can take the lock.
    agent.parts.shutdown().await;
    drop(agent.datapath);
    if let Err(error) = server::remove_stale(&socket) {
        warn!("cannot remove {}: {error}", socket.display());
    }
    if outcome.is_ok() {
        info!("stopped; the datapath serves on (`readylb cleanup` removes it)");
    }
    outcome
}

/// The tasks of the agent. Each runs as long as it does, and tells its name if it ends.
type Parts = JoinSet<Result<&'static str>>;

/// A running agent.
struct Agent {
    parts: Parts,
    /// Holds the lock on the maps.
    datapath: Datapath,
}

async fn start(config: Config, stop: &CancellationToken) -> Result<Agent> {
    let started = Instant::now();
    let mut parts = Parts::new();
    // What can fail without a trace comes first.
    let root = &config.datapath.bpf_root;
    let beside = pinned_beside(root)
        .with_context(|| format!("cannot look for other proxies beside {}", root.display()))?;
    refuse_beside(&beside)?;
    let listener = server::listen(&config.admin_socket)
        .with_context(|| format!("cannot listen on {}", config.admin_socket.display()))?;
    let (events, event_queue) = mpsc::channel(EVENTS);
    let node = config.identity.node.to_string();
    let mut sources = start_sources(config.sources, node, events.clone(), stop, &mut parts).await?;
    start_host_source(&mut sources, events, stop, &mut parts);
    let datapath = Datapath::open(OBJECT, &config.datapath)?;
    for other in datapath.other_schemas() {
        warn!("{} is of another version of readylb; `readylb cleanup` removes it", other.display());
    }

    let node_maps = NodeMaps::open(datapath.folder(), config.cluster)?;
    let engine = Engine::start(
        Box::new(BpfMaps::open(datapath.folder())?),
        reconcile::Config {
            identity: config.identity.clone(),
            feeds: sources.0.len(),
            optional: sources.optional(),
            remembered: node_maps.addresses(),
        },
    )?;
    let (status, status_now) = watch::channel(engine.status().clone());
    let (checks, checks_now) = watch::channel(HealthChecks::new());
    let (requests, request_queue) = mpsc::channel(REQUESTS);
    parts.spawn(async move {
        reconcile::run(engine, event_queue, request_queue, status, checks).await;
        Ok("reconciler")
    });
    let health_checks = start_health_checks(checks_now, status_now.clone(), &mut parts);

    let (keeper, attachments) =
        Keeper::new(datapath.attacher()?, config.interfaces).context("cannot watch the interfaces")?;
    parts.spawn(async move {
        keeper.run().await;
        Ok("keeper of the interfaces")
    });

    let surroundings = start_node_maps(node_maps, status_now.clone(), attachments.clone(), &mut parts);

    let (pass, passes) = watch::channel(flow_gc::Pass::default());
    let collector = FlowGc::open(datapath.folder())?;
    let removals = status_now.clone();
    parts.spawn(async move {
        flow_gc::run(collector, move || removals.borrow().removals, pass).await;
        Ok("flow collector")
    });
    parts.spawn(clear_orphan_flows(passes.clone(), requests.clone()));

    let (closed, closed_now) = watch::channel(sock_gc::Closed::default());
    let collector = SockGc::open(datapath.folder())?;
    let written = status_now.clone();
    parts.spawn(async move {
        sock_gc::run(collector, written, closed).await;
        Ok("collector of sockets")
    });

    let view = AgentView {
        started,
        node: config.identity.node.to_string(),
        sources,
        features: datapath.features().clone(),
        reconciler: status_now,
        attachments,
        surroundings,
        health_checks,
        warnings: machine_warnings(),
        passes,
        closed: closed_now,
        requests,
    };
    parts.spawn(async move {
        server::serve(listener, view).await.context("the admin socket")?;
        Ok("admin socket")
    });
    info!("started on node {}", config.identity.node);
    Ok(Agent { parts, datapath })
}

fn start_health_checks(
    checks: watch::Receiver<HealthChecks>,
    status: watch::Receiver<Status>,
    parts: &mut Parts,
) -> watch::Receiver<Vec<health_check::HealthCheckState>> {
    let (report, reported) = watch::channel(Vec::new());
    parts.spawn(async move {
        health_check::run(checks, status, report).await;
        Ok("server of health-check node ports")
    });
    reported
}

fn start_node_maps(
    maps: NodeMaps,
    status: watch::Receiver<Status>,
    attachments: watch::Receiver<Attachments>,
    parts: &mut Parts,
) -> watch::Receiver<node_maps::Surroundings> {
    let (report, reported) = watch::channel(maps.surroundings());
    parts.spawn(async move {
        node_maps::run(maps, status, attachments, report).await;
        Ok("writer of what the programs know of this node")
    });
    reported
}

/// What is wrong with the machine. Nothing of it is changed.
fn machine_warnings() -> Vec<String> {
    let ports = local_ports_overlap().unwrap_or_else(|error| {
        Some(format!("it cannot be read which ports this node gives its own connections: {error}"))
    });
    ports.iter().for_each(|sentence| warn!("{sentence}"));
    ports.into_iter().collect()
}

async fn start_sources(
    sources: Sources,
    node: String,
    events: mpsc::Sender<SourceEvent>,
    stop: &CancellationToken,
    parts: &mut Parts,
) -> Result<RunningSources> {
    match sources {
        Sources::Cluster(options, endpoints_api) => {
            let cluster = Cluster::find(&options).await?;
            let feeds = kube::Feeds {
                services: Feed(0),
                endpoints: Feed(1),
                node: Feed(2),
                node_name: node,
                endpoints_api,
            };
            let contacts = kube::Contacts::new(&cluster, &feeds);
            let kube::Contacts { services, endpoints, node } = contacts.clone();
            let stop = stop.clone();
            parts.spawn(async move {
                kube::follow(&cluster, &feeds, &contacts, events, kube::Timing::default(), stop).await?;
                Ok("cluster source")
            });
            // By number of the feed.
            Ok(RunningSources(vec![
                Source::required(services),
                Source::required(endpoints),
                Source::optional(node),
            ]))
        }
        Sources::Manifests(paths) => {
            let named = |path: &PathBuf| Source::required(Contact::new(path.display().to_string()));
            let sources = paths.iter().map(named).collect();
            for (number, path) in paths.into_iter().enumerate() {
                let (events, stop) = (events.clone(), stop.clone());
                parts.spawn(async move {
                    manifest::follow(path, Feed(number), events, manifest::Timing::default(), stop).await;
                    Ok("manifest source")
                });
            }
            Ok(RunningSources(sources))
        }
    }
}

/// The last feed: the addresses of this machine, whatever the other sources are.
fn start_host_source(
    sources: &mut RunningSources,
    events: mpsc::Sender<SourceEvent>,
    stop: &CancellationToken,
    parts: &mut Parts,
) {
    let (feed, stop) = (Feed(sources.0.len()), stop.clone());
    parts.spawn(async move {
        host::follow(feed, events, host::Timing::default(), stop).await;
        Ok("source of this machine's addresses")
    });
    sources.0.push(Source::required(Contact::new("addresses of this machine".to_owned())));
}

/// Tells the reconciler when no flow is left whose frontend has gone, so that the programs stop looking for such flows.
async fn clear_orphan_flows(
    mut passes: watch::Receiver<flow_gc::Pass>,
    requests: mpsc::Sender<reconcile::Request>,
) -> Result<&'static str> {
    while passes.changed().await.is_ok() {
        let pass = *passes.borrow_and_update();
        if pass.orphans != Some(0) {
            continue;
        }
        let (answer, answered) = oneshot::channel();
        let request = reconcile::Request::ClearOrphanFlows { removals: pass.removals, answer };
        if requests.send(request).await.is_err() {
            break;
        }
        if let Ok(Err(error)) = answered.await {
            warn!("cannot say that no flow without a frontend is left: {error}");
        }
    }
    Ok("watcher of orphan flows")
}
