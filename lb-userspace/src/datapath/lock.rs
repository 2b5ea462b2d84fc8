//! One writer for each `--bpf-root`: two agents that write the same maps would undo each other's work.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{Flock, FlockArg},
    sys::stat::{major, minor},
};

/// Why the lock was not got.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("{} is in use by {}", root.display(), name(*pid))]
    Held {
        /// The folder.
        root: PathBuf,
        /// The other process, where the kernel tells.
        pid: Option<u32>,
    },
    /// The folder cannot be locked.
    #[error("cannot lock {}: {cause}", root.display())]
    Io {
        /// The folder.
        root: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
}

fn name(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("the process {pid}"))
}

/// An exclusive lock on a folder, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _folder: Flock<File>,
}

impl Lock {
    /// Locks the folder `root`, which exists.
    ///
    /// The lock is on the folder itself (flock(2) works on folders of a BPF file system), so that the path is enough to
    /// find it and nothing is left behind.
    pub(super) fn take(root: &Path) -> Result<Self, LockError> {
        let io = |cause| LockError::Io { root: root.to_owned(), cause };
        loop {
            let folder = File::open(root).map_err(io)?;
            match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
                // A cleanup may have removed the folder between open and lock, and another agent made a new one.
                Ok(folder) if is_at(&folder, root) => return Ok(Self { _folder: folder }),
                Ok(_) => {}
                Err((folder, nix::Error::EWOULDBLOCK)) => {
                    return Err(LockError::Held { root: root.to_owned(), pid: owner(&folder) });
                }
                Err((_, error)) => return Err(io(error.into())),
            }
        }
    }
}

fn is_at(folder: &File, path: &Path) -> bool {
    match (folder.metadata(), fs::metadata(path)) {
        (Ok(locked), Ok(named)) => (locked.dev(), locked.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Who has locked the file: proc(5), `/proc/locks`.
fn owner(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let device = metadata.dev();
    let file = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.ino());
    owner_in(&fs::read_to_string("/proc/locks").ok()?, &file)
}

/// The process in a line such as `1: FLOCK  ADVISORY  WRITE 19111 00:27:28627 0 EOF`. The kernel shows a process of
/// another PID namespace as 0 or -1.
fn owner_in(locks: &str, file: &str) -> Option<u32> {
    let mut owners = locks.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, pid, locked, ..] if locked == file => pid.parse().ok(),
            _ => None,
        }
    });
    owners.find(|&pid| pid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_to_come_is_told_who_was_first() {
        let root = tempfile::tempdir().unwrap();
        let first = Lock::take(root.path()).unwrap();
        let Err(LockError::Held { pid, .. }) = Lock::take(root.path()) else {
            panic!("locked twice");
        };
        assert_eq!(pid, Some(std::process::id()));
        drop(first);
        Lock::take(root.path()).unwrap();
    }

    #[test]
    fn only_the_flock_of_this_file_names_its_owner() {
        const LOCKS: &str = "1: FLOCK  ADVISORY  WRITE 19111 00:27:28627 0 EOF\n\
                             1: -> FLOCK  ADVISORY  WRITE 19112 00:27:28627 0 EOF\n\
                             2: POSIX  ADVISORY  WRITE 7 00:27:99 0 EOF\n\
                             3: FLOCK  ADVISORY  WRITE 0 00:27:77 0 EOF\n";
        for (name, file, want) in [
            ("held", "00:27:28627", Some(19_111)),
            ("a POSIX lock", "00:27:99", None),
            ("held from another PID namespace", "00:27:77", None),
            ("free", "00:27:1", None),
        ] {
            assert_eq!(owner_in(LOCKS, file), want, "{name}");
        }
    }
}
