//! The facts about this machine, in the network namespace of this thread. Nothing is changed.

use std::{fs, path::Path, process::Command};

use super::{Facts, node::SYSCTLS, pinned_beside};
use crate::{
    datapath::{self, Features, HostRouting},
    node_maps::local_ports_overlap,
};

/// Gathers them.
///
/// # Errors
/// What cannot be told at all: `/proc` is not mounted, or the pins cannot be read.
pub async fn gather(bpf_root: &Path, cgroup: Option<&Path>) -> std::io::Result<Facts> {
    let links = datapath::links().await.map_err(|error| error.to_string());
    let cgroup = match cgroup {
        Some(path) => Ok(path.to_owned()),
        None => datapath::cgroup_root().map_err(|error| error.to_string()),
    };
    Ok(Facts {
        release: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        jit: sysctl("net.core.bpf_jit_enable"),
        bpffs: datapath::bpffs_state(bpf_root).map_err(|error| error.to_string()),
        cgroup,
        capabilities: effective(&fs::read_to_string("/proc/thread-self/status")?),
        features: Features::probe(HostRouting::Bpf),
        sysctls: SYSCTLS.map(|name| (name, sysctl(name))).into(),
        local_ports: local_ports_overlap().map_err(|error| error.to_string()),
        links,
        beside: pinned_beside(bpf_root)?,
        kube_proxy: kube_proxy(),
        other_schemas: datapath::other_schemas_at(bpf_root),
    })
}

fn sysctl(name: &str) -> Option<String> {
    let value = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    Some(value.trim().to_owned())
}

/// `CapEff` of proc(5), `status`; no rights where it is not there.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// What kube-proxy leaves in each of its modes. Programs that are not installed see nothing.
fn kube_proxy() -> Vec<String> {
    let says = |program: &str, arguments: &[&str], word: &str| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(word))
    };
    let mut found = Vec::new();
    for program in ["iptables-save", "ip6tables-save"] {
        if says(program, &["-t", "nat"], ":KUBE-SERVICES ") {
            found.push(format!("{program} shows the chain KUBE-SERVICES of kube-proxy"));
        }
    }
    if says("nft", &["list", "tables"], " kube-proxy") {
        found.push("nft shows the table kube-proxy".to_owned());
    }
    let ipvs = fs::read_to_string("/proc/thread-self/net/ip_vs").unwrap_or_default();
    if ipvs.lines().any(|line| ["TCP ", "UDP ", "SCTP "].iter().any(|protocol| line.starts_with(protocol))) {
        found.push("/proc/net/ip_vs lists virtual servers".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_are_read_as_bits() {
        assert_eq!(effective("Name:\tx\nCapPrm:\tffff\nCapEff:\t0000000000001000\n"), 1 << 12);
        assert_eq!(effective("Name:\tx\n"), 0);
    }
}
