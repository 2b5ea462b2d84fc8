//! Which programs in the kernel belong to a datapath: those that use a map pinned in its folder.

use std::{collections::BTreeSet, fs, io, path::Path};

use aya::{
    maps::MapInfo,
    programs::{ProgramError, loaded_programs},
};

use crate::causes::with_causes;

/// The ids of the loaded programs that use a map which is pinned directly in `folder`.
///
/// # Errors
/// What the kernel says, for instance where the rights to list programs are missing.
pub(super) fn programs(folder: &Path) -> io::Result<BTreeSet<u32>> {
    let mut maps = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            // A pin that is no map has nothing to say here.
            maps.extend(MapInfo::from_pin(entry.path()).ok().map(|info| info.id()));
        }
    }
    let mut ours = BTreeSet::new();
    for program in loaded_programs() {
        match program.and_then(|program| Ok((program.id(), program.map_ids()?.unwrap_or_default()))) {
            Ok((id, used)) if used.iter().any(|map| maps.contains(map)) => {
                ours.insert(id);
            }
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(io::Error::other(with_causes(&error))),
        }
    }
    Ok(ours)
}

/// Programs come and go while they are listed.
fn is_gone(error: &ProgramError) -> bool {
    matches!(error, ProgramError::SyscallError(error) if error.io_error.raw_os_error() == Some(libc::ENOENT))
}
