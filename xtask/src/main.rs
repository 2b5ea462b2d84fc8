//! Everything that is done to this repository: `cargo xtask <verb>`, one file per verb.

mod bench;
mod bpf;
mod build_ebpf;
mod demo;
mod host;
mod layers;
mod lint;
mod setup;
mod test;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring what the build and the tests need and this machine lacks
    Setup,
    /// Compile the eBPF programs and print the path of the object
    BuildEbpf,
    /// Show the main job in network namespaces: traffic follows readiness
    Demo,
    /// Measure: `bench plan` for the way from events to operations on maps; builds in release
    Bench(bench::Args),
    /// Check format, lints, documentation and the direction of imports
    Lint,
    /// Run what CI runs: set up, build, lint and every test
    Test(test::Args),
    /// Boot Debian's kernels in virtual machines, and load the programs and send traffic in each
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Setup => setup::run().map(|()| ExitCode::SUCCESS),
        Verb::BuildEbpf => build_ebpf::run().map(|()| ExitCode::SUCCESS),
        Verb::Demo => demo::run().map(|()| ExitCode::SUCCESS),
        Verb::Bench(args) => bench::run(&args),
        Verb::Lint => lint::run().map(|()| ExitCode::SUCCESS),
        Verb::Test(args) => test::run(&args),
        Verb::Vm(args) => vm::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
