//! The programs that the tests and the demo run.

use std::{collections::BTreeSet, env, fs, os::unix::fs::MetadataExt as _, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::bpf::command::output;

/// Each program, and the Debian package that has it.
const TOOLS: [(&str, &str); 13] = [
    ("bpftool", "bpftool"),
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("dnsmasq", "dnsmasq-base"),
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("mount", "mount"),
    ("ncat", "ncat"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("tc", "iproute2"),
    ("unshare", "util-linux"),
];

/// Installs what is missing when it may, else names it. The build needs none of these programs, so a missing one
/// is not yet an error here; the tests do not start without them.
pub(super) fn ensure() -> Result<()> {
    let Some(missing) = missing() else {
        println!("setup: tools: {}", TOOLS.map(|(tool, _)| tool).join(" "));
        return Ok(());
    };
    if uid()? != 0 || !in_path("apt-get") {
        println!("setup: tools: {missing}");
        return Ok(());
    }
    println!("setup: tools: {missing}: doing that");
    install(&packages())?;
    if let Some(missing) = self::missing() {
        bail!("apt-get reports success, but there is still {missing}");
    }
    println!("setup: tools: {}", TOOLS.map(|(tool, _)| tool).join(" "));
    Ok(())
}

/// What is not in PATH and the command that installs it, as one sentence.
pub(crate) fn missing() -> Option<String> {
    let tools: Vec<_> = TOOLS.iter().map(|(tool, _)| *tool).filter(|tool| !in_path(tool)).collect();
    let packages: Vec<_> = packages().into_iter().collect();
    (!tools.is_empty())
        .then(|| format!("no {} in PATH, run `apt-get install {}`", tools.join(", "), packages.join(" ")))
}

/// Brings tools that only one verb needs, each with its package; installs those that are missing, as root.
pub(crate) fn bring(tools: &[(&str, &'static str)]) -> Result<()> {
    let lacking = |tools: &[(&str, &'static str)]| -> BTreeSet<&'static str> {
        tools.iter().filter(|(tool, _)| !in_path(tool)).map(|(_, package)| *package).collect()
    };
    let packages = lacking(tools);
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.iter().copied().collect::<Vec<_>>().join(" ");
    if uid()? != 0 || !in_path("apt-get") {
        bail!("this needs the packages {names}; run `apt-get install {names}`");
    }
    println!("setup: tools: apt-get install {names}");
    install(&packages)?;
    if !lacking(tools).is_empty() {
        bail!("apt-get reports success, but what {names} should have brought is not in PATH");
    }
    Ok(())
}

fn install(packages: &BTreeSet<&str>) -> Result<()> {
    apt_get(&["update"])?;
    let install = ["install", "--yes", "--no-install-recommends"];
    apt_get(&install.into_iter().chain(packages.iter().copied()).collect::<Vec<_>>())
}

/// The packages of the missing tools.
fn packages() -> BTreeSet<&'static str> {
    TOOLS.iter().filter(|(tool, _)| !in_path(tool)).map(|(_, package)| *package).collect()
}

/// The user that this process acts as.
pub(crate) fn uid() -> Result<u32> {
    Ok(fs::metadata("/proc/self").context("/proc is not mounted")?.uid())
}

fn in_path(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).is_file())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut apt_get = Command::new("apt-get");
    // Another package manager at work is waited for, at most two minutes.
    apt_get.args(["-q", "-o", "DPkg::Lock::Timeout=120"]).args(arguments);
    output(apt_get.env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
}
