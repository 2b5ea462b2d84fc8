//! `cargo xtask lint`

use anyhow::{Result, bail};

use crate::{
    bpf::{Places, Toolchain, command, compile},
    host, layers, setup,
};

/// Runs every check, also after one has failed.
pub(crate) fn run() -> Result<()> {
    let places = Places::find()?;
    let failed = failures(&places, &setup::toolchain(&places)?);
    if !failed.is_empty() {
        bail!("lint failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs every check and returns the names of those that failed. What is wrong is on the terminal by then.
pub(crate) fn failures(places: &Places, toolchain: &Toolchain) -> Vec<&'static str> {
    let deny = ["--", "-Dwarnings"];
    let mut failed = Vec::new();
    let mut check = |name, result: Result<()>| match result {
        Ok(()) => println!("lint: {name}: ok"),
        Err(error) => {
            eprintln!("lint: {name}: {error:#}");
            failed.push(name);
        }
    };
    check("format", command::run(command::cargo(&places.workspace, "fmt").args(["--all", "--check"])));
    check("layers", layers::check(&places.workspace));
    check("clippy", command::run(host::cargo(places, "clippy").arg("--all-targets").args(deny)));
    check("clippy of lb-ebpf", command::run(compile::cargo(places, toolchain, "clippy").args(deny)));
    check(
        "documentation",
        command::run(host::cargo(places, "doc").arg("--no-deps").env("RUSTDOCFLAGS", "-Dwarnings")),
    );
    failed
}
