//! `readylb cleanup`: removes every trace.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::{Failure, Output, block_on, json, print};
use crate::{
    admin::server::remove_stale,
    datapath::{self, Trace},
};

/// Detach and remove every trace of readylb
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  readylb cleanup")]
pub(super) struct CleanupArgs {
    /// Folder of the pinned maps and links
    #[arg(long, value_name = "PATH", default_value = datapath::DEFAULT_BPF_ROOT)]
    bpf_root: PathBuf,
    /// Socket that an agent has left
    #[arg(long, value_name = "PATH", default_value = crate::admin::DEFAULT_SOCKET)]
    admin_socket: PathBuf,
    /// Also while an agent runs, which will fail from then on
    #[arg(long)]
    force: bool,
    /// How to print what was removed
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: CleanupArgs) -> Result<(), Failure> {
    let mut report = block_on(datapath::cleanup(&args.bpf_root, args.force))??;
    let socket = args.admin_socket.display();
    if remove_stale(&args.admin_socket).with_context(|| format!("cannot remove {socket}"))? {
        report.removed.push((Trace::Socket, socket.to_string()));
    }
    for sentence in &report.left {
        eprintln!("left: {sentence}");
    }
    print(&match args.output {
        Output::Json => json(&report)?,
        Output::Table if report.removed.is_empty() => {
            format!("nothing to remove under {}\n", args.bpf_root.display())
        }
        Output::Table => {
            let line = |(trace, name): &(Trace, String)| format!("removed {} {name}\n", trace.name());
            report.removed.iter().map(line).collect()
        }
    })?;
    Ok(())
}
