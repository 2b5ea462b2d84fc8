//! The cgroup (version 2) whose processes' sockets are served: found, or named by the user.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsFd, fd::BorrowedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

/// Why no cgroup can be used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No mount of the hierarchy.
    #[error("no cgroup v2 file system is mounted; mount one with `mount -t cgroup2 none PATH`")]
    NotMounted,
    /// A container sees its own part of it.
    #[error(
        "{} is the part of the cgroup v2 hierarchy that this container sees; mount the host's into it, or name a cgroup \
         with --cgroup",
        .0.display()
    )]
    Part(PathBuf),
    /// The folder named is none.
    #[error("{} is not a cgroup of version 2", .0.display())]
    NotCgroup(PathBuf),
    /// It cannot be examined.
    #[error("cannot use {}: {cause}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// An open cgroup.
#[derive(Debug)]
pub(super) struct Cgroup {
    path: PathBuf,
    folder: File,
    id: u64,
}

impl Cgroup {
    /// Opens the one that was named, else the root of the hierarchy.
    pub(super) fn open(named: Option<&Path>) -> Result<Self, CgroupError> {
        let path = named.map_or_else(cgroup_root, |named| Ok(named.to_owned()))?;
        let io = |cause| CgroupError::Io { path: path.clone(), cause };
        let kind = statfs(&path).map_err(|error| io(error.into()))?.filesystem_type();
        if kind != CGROUP2_SUPER_MAGIC {
            return Err(CgroupError::NotCgroup(path));
        }
        let folder = File::open(&path).map_err(io)?;
        // The kernel's id of a cgroup is the inode number of its folder (Linux 5.5).
        let id = folder.metadata().map_err(io)?.ino();
        Ok(Self { path, folder, id })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel's number of it.
    pub(super) const fn id(&self) -> u64 {
        self.id
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Where the root of the cgroup v2 hierarchy is mounted.
///
/// # Errors
/// [`CgroupError`] where it is not, or where only a part of it is.
pub fn cgroup_root() -> Result<PathBuf, CgroupError> {
    const MOUNTS: &str = "/proc/thread-self/mountinfo";
    let mountinfo =
        fs::read_to_string(MOUNTS).map_err(|cause| CgroupError::Io { path: MOUNTS.into(), cause })?;
    // Every cgroup but the root has this file.
    choose(mounts(&mountinfo), |mount| {
        !mount.join("cgroup.events").exists() && mount.join("cgroup.procs").exists()
    })
}

/// The first mount that shows the whole hierarchy.
fn choose(
    mounts: impl Iterator<Item = PathBuf>,
    is_root: impl Fn(&Path) -> bool,
) -> Result<PathBuf, CgroupError> {
    let mut part = None;
    for mount in mounts {
        if is_root(&mount) {
            return Ok(mount);
        }
        part.get_or_insert(mount);
    }
    Err(part.map_or(CgroupError::NotMounted, CgroupError::Part))
}

/// The mount points of the hierarchy (proc(5), `mountinfo`).
fn mounts(mountinfo: &str) -> impl Iterator<Item = PathBuf> {
    mountinfo.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mount_point = place.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then(|| mount_point.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    const OWN: &str = "31 25 0:27 /pod /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup rw\n";
    const HOST: &str = "32 25 0:27 /../.. /host/cgroup rw - cgroup2 cgroup rw\n";

    #[test]
    fn the_mount_that_shows_the_root_is_chosen() {
        let chosen = |mountinfo: &str| {
            choose(mounts(mountinfo), |mount| mount == Path::new("/host/cgroup"))
                .map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&[V1, OWN, HOST].concat()), Ok("/host/cgroup".into()));
        assert!(
            chosen(&[V1, OWN].concat()).is_err_and(|error| error.starts_with("/sys/fs/cgroup is the part"))
        );
        assert!(chosen(V1).is_err_and(|error| error.starts_with("no cgroup v2")));
    }

    #[test]
    fn a_folder_that_is_no_cgroup_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Cgroup::open(Some(folder.path())).unwrap_err().to_string();
        assert_eq!(error, format!("{} is not a cgroup of version 2", folder.path().display()));
    }
}
