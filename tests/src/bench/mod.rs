//! Benchmarks. Each is a module that makes rows; `report` prints them and knows whether their targets hold.
//!
//! The machine is shared and its speed changes within minutes, so what is compared is measured in turns
//! (`samples`), and targets are about ratios and bytes.

pub mod cluster;
mod plan;
mod report;
mod samples;

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use self::{cluster::Cluster, report::Row};

/// Measure readylb
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
    /// Write the rows to this file as well
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Benchmark {
    /// From events to operations on maps, without a kernel: time against the number of Services, and memory
    Plan(plan::Args),
    /// Print the objects that the benchmarks use, for `readylb render --manifests -`
    Objects(cluster::Args),
    /// A part of `plan` that needs a process of its own
    #[command(hide = true)]
    PlanPart(plan::PartArgs),
}

/// Runs a benchmark. The exit code is 0 if all targets hold.
pub fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(cli: Cli) -> Result<ExitCode> {
    let rows = match cli.benchmark {
        Benchmark::Plan(args) => plan::run(&args)?,
        Benchmark::Objects(args) => {
            Cluster::of(args.services).write(&args, &mut io::stdout().lock())?;
            return Ok(ExitCode::SUCCESS);
        }
        Benchmark::PlanPart(args) => {
            plan::run_part(&args, &mut io::stdout().lock())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    io::stdout().lock().write_all(report::table(&rows).as_bytes())?;
    if let Some(file) = &cli.json {
        fs::write(file, serde_json::to_string_pretty(&rows)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let missed: Vec<_> = rows.iter().filter(|row| !row.holds()).map(Row::name).collect();
    if !missed.is_empty() {
        println!("\nmissed: {}", missed.join(", "));
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
