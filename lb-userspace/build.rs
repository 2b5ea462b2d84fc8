//! Builds the eBPF object that the agent embeds.

#[path = "../xtask/src/bpf/mod.rs"]
mod bpf;

use std::{env, fs, path::Path, process::ExitCode};

use anyhow::{Context as _, Result};

fn main() -> ExitCode {
    for input in ["Cargo.toml", "Cargo.lock", "lb-common", "lb-ebpf", "xtask/src/bpf"] {
        println!("cargo::rerun-if-changed=../{input}");
    }
    println!("cargo::rerun-if-env-changed=RUST_SRC_DIR");
    let Err(error) = embed() else { return ExitCode::SUCCESS };
    // The messages of a compiler that ran are on standard error; cargo shows them for a failed script only.
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

fn embed() -> Result<()> {
    let places = bpf::Places::find()?;
    let toolchain = match bpf::Toolchain::find(&places) {
        Ok(toolchain) => toolchain,
        Err(missing) => {
            // Cargo stops with this one line, without all that a failed script wrote.
            println!("cargo::error={missing:#}");
            return Ok(());
        }
    };
    let object = bpf::build(&places, &toolchain)?;
    let out = env::var_os("OUT_DIR").context("cargo sets no OUT_DIR")?;
    let embedded = Path::new(&out).join("readylb-ebpf");
    fs::copy(&object, &embedded)
        .with_context(|| format!("{} cannot be copied to {}", object.display(), embedded.display()))?;
    Ok(())
}
