//! Programs on TCX links, pinned so that they outlive the agent.

use std::{collections::BTreeSet, fs, io, os::fd::BorrowedFd, path::PathBuf};

use super::{Hook, pinned};
use crate::sys;

/// The folder of link pins. A name is `<ifindex>-<hook>`: interface names may hold dots, which a BPF file system does not
/// allow, and come back on other interfaces, which an index does not.
#[derive(Debug)]
pub(super) struct TcxLinks {
    folder: PathBuf,
}

impl TcxLinks {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn pin_path(&self, ifindex: u32, hook: Hook) -> PathBuf {
        self.folder.join(format!("{ifindex}-{}", hook.name()))
    }

    /// Makes `program` the one program of ours at this hook: in place where one is there, so that no packet misses it.
    pub(super) fn attach(&self, program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> io::Result<()> {
        pinned::attach(
            &self.pin_path(ifindex, hook),
            program,
            // The link of an interface that has gone keeps its pin, and that of one which has moved to another network
            // namespace keeps its index as well: only what the kernel lists here and now is in use.
            |link| is_attached(link, ifindex, hook),
            || sys::tcx_link_create(program, ifindex, hook.tcx_place()),
        )
    }

    /// Takes our programs off an interface, which may have gone. Returns the hooks where there was a link.
    pub(super) fn release(&self, ifindex: u32) -> io::Result<Vec<Hook>> {
        let mut released = Vec::new();
        for hook in Hook::DETACH_ORDER {
            if pinned::release(&self.pin_path(ifindex, hook))? {
                released.push(hook);
            }
        }
        Ok(released)
    }

    /// The indices of interfaces that have a pin.
    pub(super) fn pinned(&self) -> io::Result<BTreeSet<u32>> {
        let names = fs::read_dir(&self.folder)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        Ok(names.iter().filter_map(|name| name.to_str()?.split_once('-')?.0.parse().ok()).collect())
    }
}

fn is_attached(link: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> io::Result<bool> {
    let id = sys::link_id(link)?;
    Ok(sys::tcx_query(ifindex, hook.tcx_place())?.iter().any(|program| program.link_id == id))
}
