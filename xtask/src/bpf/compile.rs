//! Compiling for the kernel.

use std::{env::consts::ARCH, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use super::{
    Places,
    command::{self, run},
    toolchain::{RustSrc, Toolchain},
};

/// Little-endian BPF. The agent runs on little-endian machines only.
const TARGET: &str = "bpfel-unknown-none";

/// A cargo command on the package lb-ebpf, for the BPF target. Every verb gets the same flags, so that they share
/// one compiled core library.
pub(crate) fn cargo(places: &Places, toolchain: &Toolchain, verb: &str) -> Command {
    let flags = [
        // aya-ebpf has the register layout of each architecture behind this.
        format!("--cfg=bpf_target_arch=\"{ARCH}\""),
        // The linker turns debug information into BTF, which names the fields in `bpftool map dump`.
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", toolchain.linker.display()),
    ];
    let mut cargo = command::cargo(&places.workspace, verb);
    cargo
        .args(["--locked", "--package=lb-ebpf", "--release", "--target", TARGET, "-Zbuild-std=core"])
        .arg("--target-dir")
        .arg(&places.objects)
        // A configured build folder is locked by the cargo that runs the build script, as the target folder is.
        .env("CARGO_BUILD_BUILD_DIR", &places.objects)
        // Stable rustc refuses `-Z` and the features that core is made of without it. Only this child gets it.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        // An empty wrapper also overrides a configured one.
        .env("RUSTC_WRAPPER", "")
        // `cargo clippy` sets this one for the build scripts that it runs.
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    if let RustSrc::Library(folder) = &toolchain.rust_src {
        // The only way to tell cargo of sources outside of the sysroot. RUSTC_BOOTSTRAP is as unofficial, and
        // both concern the one version that `cargo xtask setup` checked.
        cargo.env("__CARGO_TESTS_ONLY_SRC_ROOT", folder);
    }
    cargo
}

/// Compiles and links the eBPF programs, and returns the path of the object. Cargo itself finds out whether there
/// is anything to do.
pub(crate) fn build(places: &Places, toolchain: &Toolchain) -> Result<PathBuf> {
    run(&mut cargo(places, toolchain, "build")).context("the eBPF programs do not compile")?;
    Ok(places.objects.join(TARGET).join("release/readylb-ebpf"))
}
