//! `cargo xtask bench`

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::{
    bpf::{self, Places, command},
    host, setup,
};

#[derive(clap::Args)]
// The help is that of the program behind it, which knows the benchmarks.
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The benchmark and its options: `plan`, `plan --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

/// Builds with all optimizations and measures. Fails where a target is missed.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::run()?;
    let places = Places::find()?;
    bpf::build(&places, &setup::toolchain(&places)?)?;
    command::run(host::cargo(&places, "build").args(["--release", "--bin=bench"]))?;
    let program = places.objects.with_file_name("release").join("bench");
    let status = Command::new(&program)
        .args(&args.arguments)
        .status()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
