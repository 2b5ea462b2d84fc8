//! The command line: one verb, one file.
//!
//! Exit codes: 0 ok, 1 failed, 2 bad arguments or bad input. Errors go to standard error, one sentence each.

mod check;
mod cleanup;
mod get;
mod render;
mod run;
mod status;

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::{
    desired::{Identity, NodePortAddresses},
    node,
    table::printable,
};

/// An eBPF service load balancer for Kubernetes nodes: new connections go only to endpoints that are ready now.
#[derive(Debug, Parser)]
#[command(name = "readylb", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the agent: watch Services and endpoints, and program the datapath
    Run(Box<run::RunArgs>),
    /// Print the desired state for some manifests; needs no root and no kernel
    Render(render::RenderArgs),
    /// Look at this node before the agent runs on it: what is missing or in the way, and how to put it right
    Check(check::CheckArgs),
    /// Show the running agent, and what the maps really hold
    Status(status::StatusArgs),
    /// List what the running agent serves
    Get(get::GetArgs),
    /// Detach and remove every trace of readylb
    Cleanup(cleanup::CleanupArgs),
}

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// Where the running agent and its maps are.
#[derive(Clone, Debug, Args)]
struct Location {
    /// Folder of the pinned maps and links; the schema version is a folder in it
    #[arg(long, value_name = "PATH", default_value = crate::datapath::DEFAULT_BPF_ROOT)]
    bpf_root: PathBuf,
    /// Socket on which the agent answers questions
    #[arg(long, value_name = "PATH", default_value = crate::admin::DEFAULT_SOCKET)]
    admin_socket: PathBuf,
}

/// Who this node is, and which Services are its own.
#[derive(Clone, Debug, Args)]
struct IdentityArgs {
    /// Name of this node, as endpoints name it; default: the variable NODE_NAME, else the host name
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Serve the Services with this value of the label service.kubernetes.io/service-proxy-name; default: those without
    #[arg(long, value_name = "NAME")]
    service_proxy_name: Option<String>,
    /// Serve NodePorts on these addresses of the node: `primary`, or a comma-separated list of CIDRs
    #[arg(long, value_name = "CIDRS", default_value_t)]
    nodeport_addresses: NodePortAddresses,
}

impl IdentityArgs {
    fn resolve(self) -> anyhow::Result<Identity> {
        let node = node::name(self.hostname_override.as_deref())?;
        Ok(Identity {
            proxy_name: self.service_proxy_name.map(Into::into),
            nodeport_addresses: self.nodeport_addresses,
            ..Identity::of(&node)
        })
    }
}

/// Why a verb did not do what it was asked to.
#[derive(Debug)]
enum Failure {
    /// It failed. Exit code 1.
    Failed(anyhow::Error),
    /// The input cannot be used. Exit code 2.
    BadInput(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs one verb and tells the exit code.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run(args) => run::run(*args),
        Verb::Render(args) => render::run(args),
        Verb::Check(args) => check::run(args),
        Verb::Status(args) => status::run(args),
        Verb::Get(args) => get::run(&args),
        Verb::Cleanup(args) => cleanup::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => report(&error, 1),
        Err(Failure::BadInput(error)) => report(&error, 2),
    }
}

fn report(error: &anyhow::Error, code: u8) -> ExitCode {
    // `{:#}` is the chain of causes on one line.
    eprintln!("readylb: {}", printable(&format!("{error:#}")));
    ExitCode::from(code)
}

/// A duration as an argument.
fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration =
        text.parse().map_err(|error| format!("{error}; expected something like 1h30m"))?;
    Duration::try_from(span).map_err(|_| "it is not negative".to_owned())
}

/// Writes to standard output. That nobody reads it any more (`| head`) is no failure.
fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The text of a value as JSON, with a line end.
fn json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Runs a future of a verb that has no runtime of its own.
fn block_on<T>(future: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future))
}
