//! Debian's kernels for virtual machines, unpacked into a folder.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    apt::{Apt, create},
    apt_sources,
};

/// Depends on the newest kernel of a suite in its flavour for clouds, which is the smallest.
const NEWEST: &str = "linux-image-cloud-amd64";

/// Unpacks the kernel of `suite` with its modules below `cache`, unless that was done before, and returns where.
pub(crate) fn unpack(cache: &Path, suite: &str) -> Result<PathBuf> {
    let folder = cache.join(suite);
    if folder.exists() {
        return Ok(folder);
    }
    let scratch = cache.join(format!("{suite}.new"));
    // What an earlier run has left half done.
    let _ = fs::remove_dir_all(&scratch);
    let machine = apt_sources::of_this_machine()?;
    let mut sources = apt_sources::of_suite(&machine, suite);
    if sources.is_empty() {
        sources = machine.into_iter().filter(|it| it.suites.iter().any(|listed| listed == suite)).collect();
    }
    ensure!(!sources.is_empty(), "no mirror of this machine can have the suite {suite}");
    let apt = Apt::new(&scratch, &sources)?;
    apt.update()?;
    let packages = packages(|name| apt.cache(&["show", "--no-all-versions", name]))?;
    let unpacked = scratch.join("unpacked");
    create(&unpacked)?;
    apt.unpack(&packages, &unpacked)?;
    fs::rename(&unpacked, &folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    // The packages themselves and the lists are not needed any more.
    let _ = fs::remove_dir_all(&scratch);
    Ok(folder)
}

/// The packages that the kernel is in: newer ones have its modules in another package. `show` tells of one.
fn packages(show: impl Fn(&str) -> Result<String>) -> Result<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut open = vec![NEWEST.to_owned()];
    while let Some(package) = open.pop() {
        for name in kernel_packages(&show(&package)?) {
            if found.insert(name.clone()) {
                open.push(name);
            }
        }
    }
    ensure!(!found.is_empty(), "{NEWEST} depends on no kernel");
    Ok(found.into_iter().collect())
}

/// The packages of a kernel among those that the stanza of a package depends on.
fn kernel_packages(stanza: &str) -> Vec<String> {
    const PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
    let depends = stanza.lines().find_map(|line| line.strip_prefix("Depends:")).unwrap_or_default();
    let names = depends.split(',').filter_map(|one| one.split_whitespace().next());
    names.filter(|name| PARTS.iter().any(|part| name.starts_with(part))).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_followed_to_the_packages_that_it_is_in() {
        let show = |name: &str| {
            Ok(match name {
                NEWEST => {
                    "Package: linux-image-cloud-amd64\nDepends: linux-image-7.2-cloud-amd64 (= 7.2.1-1)\n"
                }
                "linux-image-7.2-cloud-amd64" => {
                    "Depends: linux-binary-7.2-cloud-amd64 (= 7.2.1-1), linux-modules-7.2-cloud-amd64, kmod, \
                     linux-base (>= 4.3~)\n"
                }
                _ => "Package: leaf\n",
            }
            .to_owned())
        };
        let want =
            ["linux-binary-7.2-cloud-amd64", "linux-image-7.2-cloud-amd64", "linux-modules-7.2-cloud-amd64"];
        assert_eq!(packages(show).unwrap(), want);
        assert!(packages(|_| Ok("Depends: kmod\n".to_owned())).is_err());
    }
}
