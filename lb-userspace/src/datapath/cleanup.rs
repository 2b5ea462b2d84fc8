//! Removes a datapath with every trace of it: `readylb cleanup`.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{self, Path, PathBuf},
};

use nix::net::if_::if_indextoname;
use serde::{Deserialize, Serialize};

use super::{
    Hook, bpffs,
    clsact::Clsact,
    links_folder,
    lock::{Lock, LockError},
    owned, pinned, qdiscs_folder, schema_folders, sock,
};

/// What a thing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trace {
    /// A pinned link, with the program on it: of an interface or of a cgroup.
    Link,
    /// A filter of a clsact qdisc.
    Filter,
    /// A clsact qdisc that readylb made.
    Qdisc,
    /// A pinned map.
    Map,
    /// A folder.
    Folder,
    /// A BPF file system that readylb mounted.
    Mount,
    /// The socket on which an agent answered.
    Socket,
}

impl Trace {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Filter => "filter",
            Self::Qdisc => "qdisc",
            Self::Map => "map",
            Self::Folder => "folder",
            Self::Mount => "mount",
            Self::Socket => "socket",
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Everything removed: what it was, and its path or interface.
    pub removed: Vec<(Trace, String)>,
    /// What looks like readylb's and is not of this `--bpf-root`, or is in the way; a sentence each.
    pub left: BTreeSet<String>,
}

/// Why it is not, or not all, removed.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// An agent is at work there.
    #[error("{0}; stop it first, or use --force")]
    InUse(LockError),
    /// Something cannot be removed.
    #[error("cannot remove {what}: {cause}")]
    Remove {
        /// The thing.
        what: String,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// Removes everything of every schema under `bpf_root`, and what its programs are attached to in the network namespace
/// of this thread. With `force` also while an agent is at work there. Call within a tokio runtime.
///
/// # Errors
/// [`CleanupError`]. What was removed before stays so, and the rest can be tried again.
pub async fn cleanup(bpf_root: &Path, force: bool) -> Result<Report, CleanupError> {
    let bpf_root = &path::absolute(bpf_root).map_err(cannot_remove(bpf_root.display()))?;
    let mut report = Report::default();
    if bpf_root.exists() {
        let _lock = match Lock::take(bpf_root) {
            Ok(lock) => Some(lock),
            Err(_) if force => None,
            Err(error) => return Err(CleanupError::InUse(error)),
        };
        report.root(bpf_root).await?;
    }
    // After the lock is gone: an open folder keeps its file system mounted.
    let unmounted = bpffs::release(bpf_root).map_err(cannot_remove("the mounted BPF file system"))?;
    report.removed.extend(unmounted.map(|path| (Trace::Mount, path.display().to_string())));
    Ok(report)
}

impl Report {
    async fn root(&mut self, bpf_root: &Path) -> Result<(), CleanupError> {
        let folders = schema_folders(bpf_root).map_err(cannot_remove(bpf_root.display()))?;
        self.filters(&folders)
            .await
            .map_err(cannot_remove(format!("the filters of {}", bpf_root.display())))?;
        // Links come before maps, so that no program is left that runs over maps which nobody can reach.
        for folder in &folders {
            // Requests first, see `Hook::DETACH_ORDER`.
            let (requests, replies): (Vec<_>, Vec<_>) =
                contents(&links_folder(folder))?.into_iter().partition(|pin| {
                    pin.to_string_lossy().ends_with(Hook::Ingress.name()) || sock::is_request_pin(pin)
                });
            for pin in requests.into_iter().chain(replies) {
                pinned::release(&pin).map_err(cannot_remove(pin.display()))?;
                self.removed.push((Trace::Link, pin.display().to_string()));
            }
        }
        for folder in &folders {
            self.folder(folder)?;
        }
        if !bpffs::is_empty(bpf_root).map_err(cannot_remove(bpf_root.display()))? {
            self.left.insert(format!("{} holds something that is not readylb's", bpf_root.display()));
            return Ok(());
        }
        match fs::remove_dir(bpf_root) {
            // It is a mount point itself, and what becomes of that is decided by who mounted it.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            removed => {
                removed.map_err(cannot_remove(bpf_root.display()))?;
                self.removed.push((Trace::Folder, bpf_root.display().to_string()));
            }
        }
        Ok(())
    }

    async fn filters(&mut self, schema_folders: &[PathBuf]) -> io::Result<()> {
        let mut ours = BTreeSet::new();
        for folder in schema_folders {
            ours.extend(owned::programs(folder)?);
        }
        for made in schema_folders.iter().map(|folder| qdiscs_folder(folder)).filter(|made| made.exists()) {
            let clsact = Clsact::open(made)?;
            for ifindex in clsact.interfaces().await? {
                let name = interface_name(ifindex);
                let released = clsact.release(ifindex, |program| ours.contains(&program)).await?;
                for hook in released.filters {
                    self.removed.push((Trace::Filter, format!("{name} {}", hook.name())));
                }
                if released.qdisc {
                    self.removed.push((Trace::Qdisc, name.clone()));
                }
                for hook in released.left {
                    let hook = hook.name();
                    self.left.insert(format!(
                        "the filter at {name} {hook} is readylb's by its name, but its maps are not under this --bpf-root"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Removes a folder of maps and of folders.
    fn folder(&mut self, folder: &Path) -> Result<(), CleanupError> {
        for path in contents(folder)? {
            if path.is_dir() {
                self.folder(&path)?;
            } else {
                fs::remove_file(&path).map_err(cannot_remove(path.display()))?;
                self.removed.push((Trace::Map, path.display().to_string()));
            }
        }
        fs::remove_dir(folder).map_err(cannot_remove(folder.display()))?;
        self.removed.push((Trace::Folder, folder.display().to_string()));
        Ok(())
    }
}

/// What is in a folder; nothing where there is none.
fn contents(folder: &Path) -> Result<BTreeSet<PathBuf>, CleanupError> {
    let read = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    };
    read.map_err(cannot_remove(folder.display()))
}

fn interface_name(ifindex: u32) -> String {
    if_indextoname(ifindex)
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| format!("interface {ifindex}"))
}

fn cannot_remove(what: impl ToString) -> impl FnOnce(io::Error) -> CleanupError {
    move |cause| CleanupError::Remove { what: what.to_string(), cause }
}
