//! What the tests need from the machine, checked before the first one, so that a lack is one sentence and not a
//! hundred failures. Nothing that is tried here outlives the process that tries it.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{bpf::command::output, setup};

/// Fails with every lack that it finds.
pub(super) fn check() -> Result<()> {
    root()?;
    let checks = [tools(), network_namespace(), bpf_file_system(), bpf_map(), cgroup()];
    let lacks: Vec<String> =
        checks.into_iter().filter_map(|check| check.err().map(|error| format!("{error:#}"))).collect();
    if !lacks.is_empty() {
        bail!("this machine cannot run the tests:\n  {}", lacks.join("\n  "));
    }
    Ok(())
}

fn root() -> Result<()> {
    let uid = setup::uid()?;
    ensure!(
        uid == 0,
        "the tests make network namespaces and load eBPF programs: run them as root, not as uid {uid}"
    );
    Ok(())
}

fn tools() -> Result<()> {
    setup::missing_tools().map_or(Ok(()), |missing| bail!(missing))
}

fn network_namespace() -> Result<()> {
    unshared("--net", "true").context("a network namespace cannot be made (CAP_SYS_ADMIN)")
}

fn bpf_file_system() -> Result<()> {
    unshared("--mount", "mount -t bpf bpf /tmp")
        .context("a BPF file system cannot be mounted (CAP_SYS_ADMIN)")
}

fn bpf_map() -> Result<()> {
    let create = "bpftool map create /tmp/probe type array key 4 value 4 entries 1 name probe";
    unshared("--mount", &format!("mount -t bpf bpf /tmp && {create}"))
        .context("an eBPF map cannot be created (CAP_BPF, or CAP_SYS_ADMIN before Linux 5.8)")
}

fn cgroup() -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc is not mounted")?;
    let found = mounts.lines().any(|line| line.split(' ').nth(2) == Some("cgroup2"));
    ensure!(found, "no cgroup v2 file system is mounted, at /sys/fs/cgroup or elsewhere");
    Ok(())
}

/// Runs `script` in a namespace of its own. What it mounts over /tmp is seen by nobody else.
fn unshared(namespace: &str, script: &str) -> Result<()> {
    output(Command::new("unshare").args([namespace, "sh", "-c", script])).map(drop)
}
