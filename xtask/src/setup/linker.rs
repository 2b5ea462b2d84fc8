//! bpf-linker.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::bpf::{
    Places,
    command::run,
    toolchain::{LINKER_VERSION, linker},
};

/// Builds bpf-linker into the target folder, unless it is there or in PATH.
pub(super) fn ensure(places: &Places) -> Result<()> {
    if let Some(found) = linker(places) {
        println!("setup: bpf-linker {LINKER_VERSION}: {}", found.display());
        return Ok(());
    }
    println!("setup: bpf-linker {LINKER_VERSION}: building it, which takes some minutes");
    let mut install = Command::new("cargo");
    install
        .args([
            "install",
            "--quiet",
            "--locked",
            "--force",
            &format!("bpf-linker@{LINKER_VERSION}"),
            "--root",
        ])
        .arg(&places.toolchain);
    // Meant for the agent, not for a tool that runs on this machine; without a target folder, cargo uses a
    // temporary one.
    for variable in ["CARGO_BUILD_TARGET", "CARGO_TARGET_DIR", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"] {
        install.env_remove(variable);
    }
    run(&mut install)?;
    let built = linker(places).with_context(|| {
        format!("bpf-linker in {} does not run with this toolchain", places.toolchain.join("bin").display())
    })?;
    println!("setup: bpf-linker {LINKER_VERSION}: {}", built.display());
    Ok(())
}
