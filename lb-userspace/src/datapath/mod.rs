//! The kernel edge: programs loaded over pinned maps, and put on interfaces so that they outlive the agent.
//!
//! ```text
//!   <bpf-root>/              locked by the one agent that writes it
//!   └── v<schema>/
//!       ├── SERVICES …       the maps ([`lb_common::maps::ALL`])
//!       ├── links/           <ifindex>-<hook>: TCX links; cgroup-<hook>: links of the cgroup
//!       └── qdiscs/          <ifindex>: a folder for each clsact qdisc that readylb made
//! ```
//!
//! It knows programs, maps and interfaces, and nothing of Services.

mod attach;
mod bpffs;
mod cgroup;
mod cleanup;
mod clsact;
mod features;
mod hook;
mod host_routing;
mod interfaces;
mod keeper;
mod links;
mod load;
mod lock;
mod namespace;
mod owned;
mod pinned;
mod sock;
mod tc;
mod tcx;
mod tracker;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{self, Path, PathBuf},
    time::Duration,
};

pub use attach::{AttachError, Attacher, Mode, TcAttach};
pub use bpffs::{BpffsError, state as bpffs_state, top as bpffs_top};
pub use cgroup::{CgroupError, cgroup_root};
pub use cleanup::{CleanupError, Report, Trace, cleanup};
pub use features::{Decision, Features};
pub use hook::Hook;
pub use host_routing::HostRouting;
pub use interfaces::{Link, Role, Selection};
pub use keeper::{Attachments, InterfaceState, Keeper};
use lb_common::SCHEMA_VERSION;
pub use links::list as links;
use load::{Load, Programs};
pub use load::{LoadError, SIZABLE};
use lock::Lock;
pub use lock::LockError;
use sock::{Plan, Sockets};
pub use sock::{SocketHook, SocketLb, SocketState};

use crate::{
    clock,
    maps::{MapError, SettingsMap},
};

/// Default of `--bpf-root`.
pub const DEFAULT_BPF_ROOT: &str = "/sys/fs/bpf/readylb";

/// Default of `--migration-window`.
pub const DEFAULT_MIGRATION_WINDOW: Duration = Duration::from_secs(3600);

/// What is the user's choice about the datapath.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where everything is pinned (`--bpf-root`).
    pub bpf_root: PathBuf,
    /// Sizes of maps in entries (`--map-size NAME=N`), where not the default. See [`SIZABLE`].
    pub map_sizes: BTreeMap<String, u32>,
    /// How long after the first start TCP in the middle of a connection that readylb does not know passes to the stack
    /// (`--migration-window`).
    pub migration_window: Duration,
    /// How programs are put on interfaces (`--tc-attach`).
    pub tc_attach: TcAttach,
    /// Whose sockets are served (`--socket-lb`).
    pub socket_lb: SocketLb,
    /// The cgroup whose processes they are of (`--cgroup`); the root of the hierarchy where none is named.
    pub cgroup: Option<PathBuf>,
    /// Which way packets of flows take (`--host-routing`).
    pub host_routing: HostRouting,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bpf_root: DEFAULT_BPF_ROOT.into(),
            map_sizes: BTreeMap::new(),
            migration_window: DEFAULT_MIGRATION_WINDOW,
            tc_attach: TcAttach::Auto,
            socket_lb: SocketLb::Host,
            cgroup: None,
            host_routing: HostRouting::Stack,
        }
    }
}

/// Why the datapath could not be opened. What was there before works on.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// There is nothing to pin to.
    #[error(transparent)]
    Bpffs(#[from] BpffsError),
    /// Another agent is at work there.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The programs are not in the kernel.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A map does not answer.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The folder has a name that is not possible there.
    #[error("cannot make {}: names on a BPF file system hold no dots", .0.display())]
    Dot(PathBuf),
    /// A folder cannot be made or read.
    #[error("cannot use {}: {cause}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
    /// TCX was asked for.
    #[error("--tc-attach tcx: {0}")]
    NoTcx(String),
    /// Ways past the host's stack were asked for.
    #[error("--host-routing bpf: {0}")]
    NoHostRouting(String),
}

/// The folder of everything of this schema.
pub fn schema_folder(bpf_root: &Path) -> PathBuf {
    bpf_root.join(format!("v{SCHEMA_VERSION}"))
}

fn links_folder(schema_folder: &Path) -> PathBuf {
    schema_folder.join("links")
}

fn qdiscs_folder(schema_folder: &Path) -> PathBuf {
    schema_folder.join("qdiscs")
}

/// The loaded programs and pinned maps of one `--bpf-root`, which is locked while this lives. Dropping it changes
/// nothing about what packets meet.
#[derive(Debug)]
pub struct Datapath {
    folder: PathBuf,
    programs: Programs,
    sockets: Sockets,
    mode: Mode,
    features: Features,
    other_schemas: Vec<PathBuf>,
    _lock: Lock,
}

impl Datapath {
    /// Loads the programs of `object` over the maps that are pinned, and makes those that are missing. Nothing is
    /// attached yet.
    ///
    /// # Errors
    /// [`DatapathError`]. That sockets cannot be served is none. A pinned map that does not fit is found before anything is made or attached.
    pub fn open(object: &[u8], config: &Config) -> Result<Self, DatapathError> {
        let root = &path::absolute(&config.bpf_root)
            .map_err(|cause| DatapathError::Folder { path: config.bpf_root.clone(), cause })?;
        if bpffs::ensure(root)? {
            tracing::info!("mounted a BPF file system for {}", root.display());
        }
        make_folder(root)?;
        let lock = Lock::take(root)?;
        let other_schemas = other_schemas(root)?;
        let features = Features::probe(config.host_routing);
        if config.host_routing == HostRouting::Bpf && !features.host_routing.used {
            return Err(DatapathError::NoHostRouting(features.host_routing.reason));
        }
        let mode = mode(config.tc_attach, &features)?;
        let folder = schema_folder(root);
        make_folder(&folder)?;
        let plan = Plan::new(config.socket_lb, config.cgroup.as_deref());
        let load = Load {
            object,
            folder: &folder,
            sizes: &config.map_sizes,
            coarse_clock: features.coarse_clock.used,
            socket_errors: features.socket_errors.used,
            sockets: plan.as_ref().and_then(|plan| Some(plan.as_ref().ok()?.scope)),
            host_routing: features.host_routing.used,
        };
        let (programs, socket_programs) = load.run()?;
        let socket_programs = socket_programs.map_err(|error| error.to_string());
        let sockets = Sockets::new(config.socket_lb, links_folder(&folder), plan, socket_programs);
        make_folder(&links_folder(&folder))?;
        make_folder(&qdiscs_folder(&folder))?;
        begin_migration_window(&folder, config.migration_window)?;
        Ok(Self { folder, programs, sockets, mode, features, other_schemas, _lock: lock })
    }

    /// Where the maps are pinned.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the kernel can do.
    pub const fn features(&self) -> &Features {
        &self.features
    }

    /// Folders of other schemas under the same root: another version of readylb was or is at work there.
    pub fn other_schemas(&self) -> &[PathBuf] {
        &self.other_schemas
    }

    /// What puts the programs on interfaces of this thread's network namespace, and on the cgroup. Call within a tokio runtime.
    ///
    /// # Errors
    /// Where descriptors or netlink sockets are missing.
    pub fn attacher(&self) -> io::Result<Attacher> {
        Attacher::open(self.programs.try_clone()?, self.sockets.clone(), self.mode, self.folder.clone())
    }
}

fn make_folder(path: &Path) -> Result<(), DatapathError> {
    fs::create_dir_all(path).map_err(|cause| match cause.raw_os_error() {
        Some(libc::EPERM) if path.as_os_str().as_encoded_bytes().contains(&b'.') => {
            DatapathError::Dot(path.to_owned())
        }
        _ => DatapathError::Folder { path: path.to_owned(), cause },
    })
}

fn other_schemas(root: &Path) -> Result<Vec<PathBuf>, DatapathError> {
    let listed = (|| {
        let mut folders = schema_folders(root)?;
        folders.retain(|folder| *folder != schema_folder(root));
        Ok(folders)
    })();
    listed.map_err(|cause| DatapathError::Folder { path: root.to_owned(), cause })
}

/// Folders of other schemas under a root; none where it cannot be read.
pub fn other_schemas_at(root: &Path) -> Vec<PathBuf> {
    other_schemas(root).unwrap_or_default()
}

/// The folders of every schema under a root, sorted.
fn schema_folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let version = name.to_str().and_then(|name| name.strip_prefix('v')?.parse::<u32>().ok());
        if version.is_some() && entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

fn mode(asked: TcAttach, features: &Features) -> Result<Mode, DatapathError> {
    match asked {
        TcAttach::Tcx if !features.tcx.used => Err(DatapathError::NoTcx(features.tcx.reason.clone())),
        TcAttach::Auto if !features.tcx.used => Ok(Mode::Clsact),
        TcAttach::Auto | TcAttach::Tcx => Ok(Mode::Tcx),
        TcAttach::Clsact => Ok(Mode::Clsact),
    }
}

/// Writes the end of the migration window, unless an earlier start has: restarts do not prolong it.
fn begin_migration_window(folder: &Path, window: Duration) -> Result<(), DatapathError> {
    let mut map = SettingsMap::open(folder)?;
    let mut settings = map.get()?;
    if settings.migration_until == 0 {
        settings.migration_until = clock::monotonic().saturating_add(clock::nanoseconds(window));
        map.put(&settings)?;
    }
    Ok(())
}
