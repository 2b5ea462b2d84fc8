//! Where things are.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::command::{cargo, output};

/// The folders that the eBPF build reads and writes.
pub(crate) struct Places {
    /// The root of the workspace.
    pub(crate) workspace: PathBuf,
    /// The target folder of the programs and of the core library under them. Not the one of the workspace: cargo
    /// locks that while a build script runs, and this build would wait for it for ever.
    pub(crate) objects: PathBuf,
    /// What `cargo xtask setup` brought because the machine did not have it.
    pub(crate) toolchain: PathBuf,
}

impl Places {
    /// Asks cargo for the target folder, which the environment or a configuration file can move.
    pub(crate) fn find() -> Result<Self> {
        // Both packages that include this file are one level below the root.
        let workspace =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has no root")?;
        let metadata = metadata(workspace)?;
        let target =
            metadata["target_directory"].as_str().context("`cargo metadata` names no target folder")?;
        Ok(Self {
            workspace: workspace.to_path_buf(),
            objects: Path::new(target).join("bpf"),
            toolchain: Path::new(target).join("toolchain"),
        })
    }
}

/// What cargo knows of the workspace, its dependencies apart.
pub(crate) fn metadata(workspace: &Path) -> Result<Value> {
    let text = output(cargo(workspace, "metadata").args(["--no-deps", "--format-version=1"]))?;
    serde_json::from_str(&text).context("`cargo metadata` printed something other than JSON")
}
