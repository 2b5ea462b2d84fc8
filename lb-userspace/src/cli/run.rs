//! `readylb run`: the agent.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::{Failure, IdentityArgs, Location, duration};
use crate::{
    agent::{self, Sources},
    datapath::{self, HostRouting, Selection, SocketLb, TcAttach},
    node_maps::{self, ClusterCidrs},
    source::kube::{ClusterOptions, EndpointsApi},
};

/// Run the agent: watch Services and endpoints, and program the datapath.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  readylb run --manifests /etc/readylb --interface 'veth*'")]
pub(super) struct RunArgs {
    /// Read objects from this file or folder and watch it, instead of a cluster (repeatable)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "master", "endpoints_api"])]
    manifests: Vec<PathBuf>,
    /// Reach the cluster as this file says; default: in-cluster, else the usual kubeconfig
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server, in place of the one that the configuration names
    #[arg(long, value_name = "URL")]
    master: Option<String>,
    /// What of the cluster says which endpoints there are
    #[arg(long, value_enum, default_value_t)]
    endpoints_api: EndpointsApi,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Serve on interfaces with such names (repeatable; default: veths, tunnels and uplinks)
    #[arg(long, value_name = "GLOB")]
    interface: Vec<String>,
    #[command(flatten)]
    location: Location,
    /// Size of a map, in entries, when it is first made; later starts keep it (repeatable)
    #[arg(long, value_name = "NAME=N", value_parser = map_size)]
    map_size: Vec<(String, u32)>,
    /// Where the pods of the cluster are, as a comma-separated list of at most four CIDRs: their connections to external
    /// addresses are the cluster's own, by whichever interface they come; default: what comes by pods' and tunnels' interfaces
    #[arg(long, value_name = "CIDRS")]
    cluster_cidr: Option<ClusterCidrs>,
    /// Let clients outside the cluster use cluster IPs
    #[arg(long)]
    external_clusterip: bool,
    /// How long after the first start TCP connections of the proxy before this one may pass
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h")]
    migration_window: Duration,
    /// How programs are put on interfaces
    #[arg(long, value_enum, default_value_t)]
    tc_attach: TcAttach,
    /// Whose sockets are served: clients on the node itself need it
    #[arg(long, value_enum, default_value_t)]
    socket_lb: SocketLb,
    /// Serve the sockets of the processes below this cgroup (version 2) [default: the root of the hierarchy]
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Which way packets of flows take through the node
    #[arg(long, value_enum, default_value_t)]
    host_routing: HostRouting,
}

fn map_size(text: &str) -> Result<(String, u32), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=N, as in SERVICES=4096")?;
    if !datapath::SIZABLE.contains(&name) {
        return Err(format!(
            "no map {name} whose size can be chosen; there are {}",
            datapath::SIZABLE.join(", ")
        ));
    }
    match size.parse() {
        Ok(size) if size > 0 => Ok((name.to_owned(), size)),
        _ => Err(format!("{size:?} is not a number of entries")),
    }
}

pub(super) fn run(args: RunArgs) -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    let interfaces = Selection::from_patterns(args.interface.iter().map(String::as_str))
        .context("--interface")
        .map_err(Failure::BadInput)?;
    if args.manifests.iter().any(|path| path == Path::new("-")) {
        return Err(Failure::BadInput(anyhow!("--manifests -: standard input cannot be watched")));
    }
    let sources = if args.manifests.is_empty() {
        let options = ClusterOptions { kubeconfig: args.kubeconfig, master: args.master };
        Sources::Cluster(options, args.endpoints_api)
    } else {
        Sources::Manifests(args.manifests)
    };
    let config = agent::Config {
        sources,
        identity: args.identity.resolve().map_err(Failure::BadInput)?,
        interfaces,
        cluster: node_maps::Options {
            cluster: args.cluster_cidr.unwrap_or_default(),
            external_cluster_ips: args.external_clusterip,
        },
        admin_socket: args.location.admin_socket,
        datapath: datapath::Config {
            bpf_root: args.location.bpf_root,
            map_sizes: args.map_size.into_iter().collect(),
            migration_window: args.migration_window,
            tc_attach: args.tc_attach,
            socket_lb: args.socket_lb,
            cgroup: args.cgroup,
            host_routing: args.host_routing,
        },
    };
    agent::run(config)?;
    Ok(())
}

/// What `RUST_LOG` says, else everything from `info` on. What the client library says about failing requests, the sources
/// say in one sentence and once.
fn log_filter() -> tracing_subscriber::EnvFilter {
    const DEFAULT: &str = "info,kube_client=off,kube_runtime=off";
    tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| DEFAULT.into())
}
