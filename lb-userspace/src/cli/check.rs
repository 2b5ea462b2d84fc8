//! `readylb check`: whether this machine can run readylb.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::{Failure, Output, block_on, json, print};
use crate::{
    check::{Level, findings, gather},
    datapath,
    table::{columns, or_dash},
};

/// Look at this node before the agent runs on it; changes nothing
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 1 where something has status fail.\n\nExample:\n  readylb check -o json")]
pub(super) struct CheckArgs {
    /// Folder of the pinned maps and links
    #[arg(long, value_name = "PATH", default_value = datapath::DEFAULT_BPF_ROOT)]
    bpf_root: PathBuf,
    /// The cgroup (version 2) whose processes' sockets will be served [default: the root of the hierarchy]
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: CheckArgs) -> Result<(), Failure> {
    let facts =
        block_on(gather(&args.bpf_root, args.cgroup.as_deref()))?.context("cannot examine this node")?;
    let found = findings(&facts);
    print(&match args.output {
        Output::Json => json(&found)?,
        Output::Table => {
            let rows = found.iter().map(|it| {
                [
                    it.status.name().to_owned(),
                    it.check.clone(),
                    it.seen.clone(),
                    or_dash(it.fix.as_deref().unwrap_or_default()),
                ]
            });
            columns(["STATUS", "CHECK", "SEEN", "FIX"], rows)
        }
    })?;
    match found.iter().filter(|it| it.status == Level::Fail).count() {
        0 => Ok(()),
        1 => Err(anyhow!("1 check failed").into()),
        count => Err(anyhow!("{count} checks failed").into()),
    }
}
