//! The BPF file system under the pins: found, or mounted, and unmounted again if it was ours.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

/// Where every distribution mounts the BPF file system, and the only place where readylb does.
const STANDARD: &str = "/sys/fs/bpf";

/// The source of a mount that readylb made, as `/proc/thread-self/mountinfo` shows it: the memory of who made it.
const OUR_SOURCE: &str = "readylb";

/// Why there is no BPF file system to pin to.
#[derive(Debug, thiserror::Error)]
pub enum BpffsError {
    /// The folder is on another file system, and not at the place where readylb may mount one.
    #[error(
        "{} is not on a BPF file system; mount one with `mount -t bpf bpf {}`, or choose another --bpf-root",
        root.display(), existing.display()
    )]
    NotBpf {
        /// The folder asked for.
        root: PathBuf,
        /// The part of its path that exists.
        existing: PathBuf,
    },
    /// Mounting failed.
    #[error("cannot mount a BPF file system on {STANDARD}: {0}")]
    Mount(nix::Error),
    /// The path cannot be examined.
    #[error("cannot examine {}: {cause}", path.display())]
    Examine {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// Makes sure that `root` is, or can be made, on a BPF file system; mounts one on `/sys/fs/bpf` where that is the place
/// and it is missing. Returns whether it did.
///
/// # Errors
/// [`BpffsError`].
pub(super) fn ensure(root: &Path) -> Result<bool, BpffsError> {
    let existing = existing_part(root);
    if is_bpf(existing)? {
        return Ok(false);
    }
    if !existing.starts_with(STANDARD) {
        return Err(BpffsError::NotBpf { root: root.to_owned(), existing: existing.to_owned() });
    }
    // A second agent on this machine may be here too, and one mount would hide the other.
    let _turn = File::open(STANDARD)
        .and_then(|folder| Flock::lock(folder, FlockArg::LockExclusive).map_err(|(_, error)| error.into()))
        .map_err(|cause| BpffsError::Examine { path: STANDARD.into(), cause })?;
    if is_bpf(Path::new(STANDARD))? {
        return Ok(false);
    }
    mount(Some(OUR_SOURCE), STANDARD, Some("bpf"), MsFlags::empty(), Some("mode=0700"))
        .map_err(BpffsError::Mount)?;
    Ok(true)
}

/// Whether `root` is, or can be made, on a BPF file system that is mounted; `false` where `readylb run` would mount one.
///
/// # Errors
/// [`BpffsError`], where it would not.
pub fn state(root: &Path) -> Result<bool, BpffsError> {
    let existing = existing_part(root);
    if is_bpf(existing)? {
        return Ok(true);
    }
    if existing.starts_with(STANDARD) {
        return Ok(false);
    }
    Err(BpffsError::NotBpf { root: root.to_owned(), existing: existing.to_owned() })
}

/// The uppermost folder of the BPF file system that holds `root`; `None` where none does.
pub fn top(root: &Path) -> Option<PathBuf> {
    let on_bpf = |path: &&Path| is_bpf(path).unwrap_or(false);
    existing_part(root).ancestors().take_while(on_bpf).last().map(Path::to_owned)
}

/// Unmounts the file system that holds `root` if readylb has mounted it and nobody has pinned anything there. Returns
/// where it was mounted.
///
/// # Errors
/// What the kernel says. That somebody uses it is no error: then it stays.
pub(super) fn release(root: &Path) -> io::Result<Option<PathBuf>> {
    let mountinfo = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let Some(mount_point) = our_mount(&mountinfo, existing_part(root)) else {
        return Ok(None);
    };
    if !is_empty(&mount_point)? {
        return Ok(None);
    }
    match umount2(&mount_point, MntFlags::empty()) {
        Ok(()) => Ok(Some(mount_point)),
        Err(nix::Error::EBUSY) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether nothing is pinned there. Only the kernel makes names with dots: `maps.debug` and `progs.debug`
/// (`CONFIG_BPF_PRELOAD`).
pub(super) fn is_empty(mount_point: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(mount_point)? {
        if !entry?.file_name().as_encoded_bytes().contains(&b'.') {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The mount point of the BPF file system that readylb mounted and that holds `path` (proc(5), `mountinfo`).
fn our_mount(mountinfo: &str, path: &Path) -> Option<PathBuf> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mount_point = Path::new(place.split(' ').nth(4)?);
        path.starts_with(mount_point).then_some((mount_point, kind))
    });
    // Of mounts that hold the path the innermost counts, and of those on one place the last.
    let (mount_point, kind) = mounts.max_by_key(|(mount_point, _)| mount_point.components().count())?;
    kind.starts_with(&format!("bpf {OUR_SOURCE} ")).then(|| mount_point.to_owned())
}

fn existing_part(path: &Path) -> &Path {
    path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"))
}

fn is_bpf(path: &Path) -> Result<bool, BpffsError> {
    match statfs(path) {
        Ok(found) => Ok(found.filesystem_type() == BPF_FS_MAGIC),
        Err(error) => Err(BpffsError::Examine { path: path.to_owned(), cause: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_innermost_mount_counts_and_only_if_it_is_ours() {
        const SYS: &str = "20 1 0:19 / /sys rw - sysfs sysfs rw\n";
        const OURS: &str = "42 20 0:39 / /sys/fs/bpf rw,relatime shared:5 - bpf readylb rw,mode=700\n";
        const DISTRIBUTION: &str = "42 20 0:39 / /sys/fs/bpf rw - bpf bpf rw,mode=700\n";
        const INNER: &str = "43 42 0:40 / /sys/fs/bpf/readylb rw - bpf bpf rw\n";
        let standard = Some(PathBuf::from(STANDARD));
        for (name, mountinfo, want) in [
            ("ours", [SYS, OURS].concat(), standard.clone()),
            ("the distribution's", [SYS, DISTRIBUTION].concat(), None),
            ("none", SYS.to_owned(), None),
            ("somebody's inside ours", [SYS, OURS, INNER].concat(), None),
            ("ours over the distribution's", [SYS, DISTRIBUTION, OURS].concat(), standard),
        ] {
            assert_eq!(our_mount(&mountinfo, Path::new("/sys/fs/bpf/readylb")), want, "{name}");
        }
    }
}
