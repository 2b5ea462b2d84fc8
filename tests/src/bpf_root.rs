//! A `--bpf-root` of a test's own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

/// A BPF file system on a temporary folder. Gone when dropped, with everything pinned there.
#[derive(Debug)]
pub struct BpfRoot {
    path: PathBuf,
    mount_point: TempDir,
}

impl BpfRoot {
    /// Mounts one.
    ///
    /// # Errors
    /// Where the rights are missing.
    pub fn new() -> Result<Self> {
        let mount_point = tempfile::Builder::new().prefix("readylb-test-").tempdir()?;
        mount(Some("readylb-test"), mount_point.path(), Some("bpf"), MsFlags::empty(), None::<&str>)
            .context("cannot mount a BPF file system (CAP_SYS_ADMIN)")?;
        Ok(Self { path: mount_point.path().join("readylb"), mount_point })
    }

    /// The folder to give to an agent; it does not exist yet.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another folder on the same file system.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.mount_point.path().join(name)
    }
}

impl Drop for BpfRoot {
    fn drop(&mut self) {
        // At once out of sight, also where a descriptor of a failed test is still open.
        if let Err(error) = umount2(self.mount_point.path(), MntFlags::MNT_DETACH) {
            eprintln!("cannot unmount {}: {error}", self.mount_point.path().display());
        }
    }
}
