//! Parts of the benchmark in processes of their own: as an agent starts, with a heap that nobody has used before.

use std::{io::Write, process::Command};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde::de::DeserializeOwned;

use super::{memory, times};

/// What the child process is told.
#[derive(clap::Args)]
pub(in super::super) struct PartArgs {
    #[arg(value_enum)]
    part: Part,
    services: usize,
}

/// What it measures.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Part {
    Full,
    Memory,
}

/// Measures a part in a child process.
pub(super) fn measure<T: DeserializeOwned>(part: Part, services: usize) -> Result<T> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let name = part.to_possible_value().context("a part without a name")?;
    let child = Command::new(program)
        .args(["plan-part", name.get_name(), &services.to_string()])
        .output()
        .context("a child process cannot be started")?;
    let errors = String::from_utf8_lossy(&child.stderr);
    ensure!(child.status.success(), "the child process for {part:?} failed: {}", errors.trim());
    serde_json::from_slice(&child.stdout).context("the child process printed something else")
}

/// The work of the child process.
pub(in super::super) fn run_part(args: &PartArgs, out: &mut impl Write) -> Result<()> {
    match args.part {
        Part::Full => serde_json::to_writer(out, &times::build(args.services)?)?,
        Part::Memory => serde_json::to_writer(out, &memory::measure(args.services)?)?,
    }
    Ok(())
}
