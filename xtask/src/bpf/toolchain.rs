//! What has to be on a machine before it can compile for the kernel.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{Places, command::output};

/// bpf-linker reads the bitcode that rustc writes, so its LLVM must be rustc's. This version opens the libLLVM
/// of the rustc in use; 0.11 and later want an LLVM of the system.
pub(crate) const LINKER_VERSION: &str = "0.10.3";

/// The compiler in use.
pub(crate) struct Rustc {
    /// For example `1.95.0`.
    pub(crate) release: String,
    /// Its installation folder.
    pub(crate) sysroot: PathBuf,
}

impl Rustc {
    /// Asks the rustc that cargo would run.
    pub(crate) fn find() -> Result<Self> {
        let program = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = output(Command::new(&program).arg("-vV"))?;
        let release = version
            .lines()
            .find_map(|line| line.strip_prefix("release: "))
            .with_context(|| format!("`{} -vV` names no release", program.display()))?;
        let sysroot = output(Command::new(&program).args(["--print", "sysroot"]))?;
        Ok(Self { release: release.to_owned(), sysroot: sysroot.trim().into() })
    }
}

/// The sources of the core library. No compiled one exists for a BPF target.
pub(crate) enum RustSrc {
    /// The component rust-src of the toolchain, where cargo finds it unasked.
    Component,
    /// A folder `library` elsewhere.
    Library(PathBuf),
}

/// Looks for the sources of exactly this rustc: core uses features of the compiler it was released with.
///
/// # Errors
///
/// RUST_SRC_DIR is set and is not a source tree of this version.
pub(crate) fn rust_src(places: &Places, rustc: &Rustc) -> Result<Option<RustSrc>> {
    let is_library = |folder: &Path| folder.join("Cargo.lock").is_file();
    if let Some(root) = env::var_os("RUST_SRC_DIR").map(PathBuf::from) {
        let version = fs::read_to_string(root.join("src/version")).unwrap_or_default();
        if version.trim() != rustc.release || !is_library(&root.join("library")) {
            bail!(
                "RUST_SRC_DIR={} does not hold `library` and `src/version` of rust {}",
                root.display(),
                rustc.release
            );
        }
        return Ok(Some(RustSrc::Library(root.join("library"))));
    }
    if is_library(&rustc.sysroot.join("lib/rustlib/src/rust/library")) {
        return Ok(Some(RustSrc::Component));
    }
    let ours = places.toolchain.join(format!("rust-src-{}/library", rustc.release));
    // Where Debian's package rust-src puts it.
    let system = PathBuf::from(format!("/usr/src/rustc-{}/library", rustc.release));
    Ok([ours, system].into_iter().find(|folder| is_library(folder)).map(RustSrc::Library))
}

/// Looks for bpf-linker of the right version, in PATH and among what `cargo xtask setup` brought.
pub(crate) fn linker(places: &Places) -> Option<PathBuf> {
    ["bpf-linker".into(), places.toolchain.join("bin/bpf-linker")].into_iter().find(|program| {
        output(Command::new(program).arg("--version"))
            .is_ok_and(|version| version.split_whitespace().nth(1) == Some(LINKER_VERSION))
    })
}

/// Everything that the eBPF build needs.
pub(crate) struct Toolchain {
    /// The sources of core.
    pub(crate) rust_src: RustSrc,
    /// The linker, a path or a name in PATH.
    pub(crate) linker: PathBuf,
}

impl Toolchain {
    /// Looks for all of it.
    ///
    /// # Errors
    ///
    /// One sentence that names what is missing, and the command that brings it.
    pub(crate) fn find(places: &Places) -> Result<Self> {
        let rustc = Rustc::find()?;
        match (rust_src(places, &rustc)?, linker(places)) {
            (Some(rust_src), Some(linker)) => Ok(Self { rust_src, linker }),
            (rust_src, linker) => {
                let source = rust_src.is_none().then(|| format!("the rust-src of rustc {}", rustc.release));
                let linker = linker.is_none().then(|| format!("bpf-linker {LINKER_VERSION}"));
                let missing: Vec<_> = source.into_iter().chain(linker).collect();
                bail!(
                    "the eBPF programs cannot be compiled without {}; run `cargo xtask setup` first",
                    missing.join(" and ")
                )
            }
        }
    }
}
