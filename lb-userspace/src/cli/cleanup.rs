//! `readylb cleanup`: removes every trace.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, Output, block_on};
use crate::datapath;

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
    let report = block_on(datapath::cleanup(&args.bpf_root, args.force))??;
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Table => {
            for (trace, name) in &report.removed {
                println!("removed {} {name}", format!("{trace:?}").to_lowercase());
            }
            if report.removed.is_empty() {
                println!("nothing to remove under {}", args.bpf_root.display());
            }
            for sentence in &report.left {
                eprintln!("left: {sentence}");
            }
        }
    }
    Ok(())
}
