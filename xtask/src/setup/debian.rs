//! Debian's package rust-src, unpacked into the target folder.
//!
//! The machine's own mirrors and keys are used, see [`Apt`].

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::{
    apt::{Apt, create},
    apt_sources,
};
use crate::bpf::{Places, toolchain::Rustc};

/// Carries the newest compilers, for some versions each, and is signed with keys that Debian 12 knows.
const BACKPORTS: &str = "trixie-backports";

/// Brings `library` of the package whose upstream version is that of `rustc`.
pub(super) fn rust_src(places: &Places, rustc: &Rustc) -> Result<()> {
    let scratch = places.toolchain.join("apt");
    let done = download(&scratch, rustc).and_then(|unpacked| {
        let folder = places.toolchain.join(format!("rust-src-{}", rustc.release));
        let library = unpacked.join(format!("usr/src/rustc-{}/library", rustc.release));
        create(&folder)?;
        // Within one file system: either all of it is there or nothing.
        fs::rename(&library, folder.join("library"))
            .with_context(|| format!("{} cannot be moved to {}", library.display(), folder.display()))
    });
    // Some hundred megabytes. If they cannot be removed, the next run overwrites them.
    let _ = fs::remove_dir_all(&scratch);
    done
}

/// Downloads the package into `scratch` and returns the folder with what was in it.
fn download(scratch: &Path, rustc: &Rustc) -> Result<PathBuf> {
    let sources = apt_sources::of_this_machine()?;
    let backports = apt_sources::of_suite(&sources, BACKPORTS);
    let apt = Apt::new(scratch, &[sources, backports].concat())?;
    // Fails when one suite of many cannot be had; what counts is whether the package is in any of them.
    let updated = apt.update();
    let offers = apt.cache(&["madison", "rust-src"])?;
    let Some(version) = matching_version(&offers, &rustc.release) else {
        updated?;
        bail!("no suite of this machine's mirrors, nor {BACKPORTS}, has rust-src {}", rustc.release);
    };
    let unpacked = scratch.join("unpacked");
    apt.unpack(&[format!("rust-src={version}")], &unpacked)?;
    Ok(unpacked)
}

/// The first version in the output of `apt-cache madison` that packages exactly `release`.
fn matching_version<'a>(madison: &'a str, release: &str) -> Option<&'a str> {
    madison.lines().filter_map(|line| line.split('|').nth(1).map(str::trim)).find(|version| {
        let without_epoch = version.split_once(':').map_or(*version, |(_, rest)| rest);
        // `+dfsg1` or the Debian revision follows; `~beta.2` would be something older.
        without_epoch
            .strip_prefix(release)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '-']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADISON: &str = "\
  rust-src | 1.96.1+dfsg1-2~bpo13+1 | http://mirror/debian trixie-backports/main amd64 Packages
  rust-src | 1.95.0~beta.5+dfsg1-1 | http://mirror/debian experimental/main amd64 Packages
  rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://mirror/debian trixie-backports/main amd64 Packages
  rust-src | 1:1.63.0-2 | http://mirror/debian bookworm/main amd64 Packages
";

    #[test]
    fn a_package_is_taken_only_for_exactly_the_release_of_the_compiler() {
        assert_eq!(matching_version(MADISON, "1.95.0"), Some("1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(matching_version(MADISON, "1.96.1"), Some("1.96.1+dfsg1-2~bpo13+1"));
        assert_eq!(matching_version(MADISON, "1.63.0"), Some("1:1.63.0-2"));
        assert_eq!(matching_version(MADISON, "1.96.0"), None);
        assert_eq!(matching_version(MADISON, "1.9"), None);
        assert_eq!(matching_version(MADISON, "1.97.0-nightly"), None);
        assert_eq!(matching_version("", "1.95.0"), None);
    }
}
