//! Programs on pinned links, so that they outlive the agent: one link and one pin for each place.

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use crate::sys;

/// Makes `program` the one program of the link that is pinned at `path`: in place where `is_there` says that the link is
/// where it belongs, so that nothing is missed, else on a new link from `create`.
pub(super) fn attach(
    path: &Path,
    program: BorrowedFd<'_>,
    is_there: impl FnOnce(BorrowedFd<'_>) -> io::Result<bool>,
    create: impl FnOnce() -> io::Result<OwnedFd>,
) -> io::Result<()> {
    match sys::open_pin(path) {
        Ok(link) if is_there(link.as_fd())? => return sys::link_update(link.as_fd(), program),
        Ok(link) => remove(link.as_fd(), path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    sys::pin(create()?.as_fd(), path)
}

/// Detaches and unpins a link; whether it was there.
pub(super) fn release(path: &Path) -> io::Result<bool> {
    match sys::open_pin(path) {
        Ok(link) => remove(link.as_fd(), path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The kernel would detach a link without a pin by itself, but some time later; and not at all while anybody else has
/// it open.
fn remove(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    sys::link_detach(link)?;
    fs::remove_file(path)
}
