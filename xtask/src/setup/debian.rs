//! Debian's package rust-src, unpacked into the target folder.
//!
//! The machine's own mirrors and keys are used, through a private apt configuration: nothing is installed, and
//! neither the package lists nor the sources of the system change.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::apt_sources::{self, Source};
use crate::bpf::{Places, command::output, toolchain::Rustc};

/// Carries the newest compilers, for some versions each, and is signed with keys that Debian 12 knows.
const BACKPORTS: &str = "trixie-backports";

/// Brings `library` of the package whose upstream version is that of `rustc`.
pub(super) fn rust_src(places: &Places, rustc: &Rustc) -> Result<()> {
    let scratch = places.toolchain.join("apt");
    let done = download(&scratch, rustc).and_then(|package| {
        let unpacked = scratch.join("unpacked");
        output(Command::new("dpkg-deb").arg("-x").args([&package, &unpacked]))?;
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

/// Downloads the package into `scratch` and returns its path.
fn download(scratch: &Path, rustc: &Rustc) -> Result<PathBuf> {
    let sources = apt_sources::of_this_machine()?;
    let lists = scratch.join("lists");
    let cache = scratch.join("cache");
    let parts = scratch.join("sources");
    for folder in [lists.join("partial"), cache.join("archives/partial"), parts.clone()] {
        create(&folder)?;
    }
    let file = parts.join("mirrors.sources");
    let text: String = sources.iter().chain(&with_backports(&sources)).map(Source::to_deb822).collect();
    fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;

    let apt = |program: &str| {
        let mut apt = Command::new(program);
        apt.current_dir(scratch).args(["-q", "-o", "Dir::Etc::SourceList=/dev/null"]);
        for (name, folder) in
            [("Dir::Etc::SourceParts", &parts), ("Dir::State::Lists", &lists), ("Dir::Cache", &cache)]
        {
            apt.arg("-o").arg(format!("{name}={}", folder.display()));
        }
        // The user _apt may not enter the target folder. Signatures are checked all the same.
        apt.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"]);
        apt.args(["-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20"]);
        apt
    };
    // Fails when one suite of many cannot be had; what counts is whether the package is in any of them.
    let updated = output(apt("apt-get").arg("update"));
    let offers = output(apt("apt-cache").args(["madison", "rust-src"]))?;
    let Some(version) = matching_version(&offers, &rustc.release) else {
        updated?;
        bail!("no suite of this machine's mirrors, nor {BACKPORTS}, has rust-src {}", rustc.release);
    };
    output(apt("apt-get").arg("download").arg(format!("rust-src={version}")))?;
    let mut files = fs::read_dir(scratch).with_context(|| format!("{} cannot be read", scratch.display()))?;
    files
        .find_map(|file| {
            file.ok().map(|file| file.path()).filter(|path| path.extension() == Some("deb".as_ref()))
        })
        .context("`apt-get download` left no package")
}

/// The same mirrors with the suite of backports, as far as they can have it.
fn with_backports(sources: &[Source]) -> Vec<Source> {
    let is_archive = |source: &&Source| {
        source.components.iter().any(|component| component == "main")
            && !source.suites.iter().any(|suite| suite.contains("security") || suite.ends_with("/updates"))
    };
    let mut added: Vec<Source> = Vec::new();
    for source in sources.iter().filter(is_archive) {
        // apt refuses to work when one suite of one mirror is listed twice with different keys.
        let has_it =
            |other: &Source| other.uris == source.uris && other.suites.iter().any(|suite| suite == BACKPORTS);
        if !sources.iter().chain(&added).any(has_it) {
            let (suites, components) = (vec![BACKPORTS.to_owned()], vec!["main".to_owned()]);
            added.push(Source { suites, components, ..source.clone() });
        }
    }
    added
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

fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))
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

    #[test]
    fn backports_are_looked_for_once_on_each_archive_and_not_on_security_mirrors() {
        let sources = apt_sources::parse_list(
            "deb [signed-by=/k.gpg] http://mirror/debian bookworm main contrib\n\
             deb http://mirror/debian-security bookworm-security main\n\
             deb http://mirror/debian-security buster/updates main\n\
             deb http://mirror/debian bookworm-updates main\n\
             deb http://vendor/apt stable stuff\n",
        );
        let backports = with_backports(&sources);
        assert_eq!(backports.len(), 1);
        assert_eq!(
            backports[0].to_deb822(),
            "Types: deb\nURIs: http://mirror/debian\nSuites: trixie-backports\nComponents: main\n\
             Signed-By: /k.gpg\n\n"
        );
        assert_eq!(with_backports(&[sources, backports].concat()), []);
    }
}
