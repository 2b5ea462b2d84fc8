//! The kernel, the rights, sysctls and interfaces.

use super::{Facts, Finding, Level};
use crate::datapath::{Decision, Selection};

/// The oldest kernel on which the programs were run (`cargo xtask vm`).
const OLDEST: (u32, u32) = (5, 10);

/// Since then CAP_BPF and CAP_PERFMON stand for the part of CAP_SYS_ADMIN that programs need.
const CAP_BPF_SINCE: (u32, u32) = (5, 8);

const NET_ADMIN: (&str, u32) = ("CAP_NET_ADMIN", 12);
const SYS_ADMIN: (&str, u32) = ("CAP_SYS_ADMIN", 21);
const PERFMON: (&str, u32) = ("CAP_PERFMON", 38);
const BPF: (&str, u32) = ("CAP_BPF", 39);

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The kernel and the rights to use it.
pub(super) fn kernel(facts: &Facts) -> Vec<Finding> {
    let version = version(&facts.release);
    let mut findings = vec![match version {
        Some(version) if version >= OLDEST => Finding::ok("kernel", &facts.release),
        _ => Finding::bad(Level::Fail, "kernel", &facts.release, "boot Linux 5.10 or later"),
    }];
    findings.push(if facts.btf {
        Finding::ok("BTF", "the kernel describes its types")
    } else {
        let fix = "only `bpftool` misses it; use a kernel with CONFIG_DEBUG_INFO_BTF";
        Finding::bad(Level::Warn, "BTF", "no /sys/kernel/btf/vmlinux", fix)
    });
    findings.push(match facts.jit.as_deref() {
        Some("0") => Finding::bad(
            Level::Warn,
            "JIT",
            "net.core.bpf_jit_enable is 0: every packet is interpreted",
            "sysctl net.core.bpf_jit_enable=1",
        ),
        Some(value) => Finding::ok("JIT", format!("net.core.bpf_jit_enable is {value}")),
        None => Finding::ok("JIT", "not shown in this network namespace"),
    });
    findings.push(capabilities(facts.capabilities, version.is_some_and(|version| version < CAP_BPF_SINCE)));
    for (check, Decision { used, reason }) in [
        ("TCX", &facts.features.tcx),
        ("errors of sockets' calls", &facts.features.socket_errors),
        ("coarse clock", &facts.features.coarse_clock),
        ("host routing", &facts.features.host_routing),
    ] {
        let without = match check {
            "TCX" => "nothing has to be done: filters of a clsact qdisc are used",
            "errors of sockets' calls" => "nothing has to be done: a refused connect(2) fails with EPERM",
            "coarse clock" => "nothing has to be done: the exact clock is used, which costs more",
            _ => "do not use --host-routing bpf",
        };
        findings.push(if *used {
            Finding::ok(check, reason)
        } else {
            Finding::bad(Level::Warn, check, reason, without)
        });
    }
    findings
}

fn capabilities(effective: u64, before_cap_bpf: bool) -> Finding {
    let has = |(_, bit): (&str, u32)| effective >> bit & 1 == 1;
    let programs: &[(&str, u32)] = if before_cap_bpf { &[SYS_ADMIN] } else { &[BPF, PERFMON] };
    let needed = [&[NET_ADMIN], programs].concat();
    let stands_in = |it| it != NET_ADMIN && has(SYS_ADMIN);
    let missing: Vec<_> =
        needed.into_iter().filter(|&it| !has(it) && !stands_in(it)).map(|(name, _)| name).collect();
    if !missing.is_empty() {
        let names = missing.join(", ");
        let fix = format!("run as root, or add {names} to the container's securityContext.capabilities");
        return Finding::bad(Level::Fail, "capabilities", format!("{names} missing"), fix);
    }
    if !has(SYS_ADMIN) {
        return Finding::bad(
            Level::Warn,
            "capabilities",
            "no CAP_SYS_ADMIN: no BPF file system can be mounted, and programs cannot be listed",
            "mount one on /sys/fs/bpf before the agent starts; run `readylb cleanup` as root",
        );
    }
    Finding::ok("capabilities", "everything that is needed")
}

/// File systems and sysctls.
pub(super) fn surroundings(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![match &facts.bpffs {
        Ok(true) => Finding::ok("BPF file system", "mounted"),
        Ok(false) => Finding::ok("BPF file system", "not mounted on /sys/fs/bpf; `readylb run` mounts it"),
        Err(error) => Finding::bad(Level::Fail, "BPF file system", error, "mount -t bpf bpf /sys/fs/bpf"),
    }];
    findings.push(match &facts.cgroup {
        Ok(path) => Finding::ok("cgroup v2", path.display().to_string()),
        Err(error) => {
            let fix = "mount the host's cgroup v2 root, or name it with --cgroup: clients on the node are not served else";
            Finding::bad(Level::Warn, "cgroup v2", error, fix)
        }
    });
    for other in &facts.other_schemas {
        let seen = format!("{} is of another version of readylb", other.display());
        findings.push(Finding::bad(
            Level::Warn,
            "pins",
            seen,
            "readylb cleanup, once that version has ended",
        ));
    }
    findings.extend(facts.sysctls.iter().filter_map(|(name, value)| sysctl(name, value.as_deref())));
    findings.push(match &facts.local_ports {
        Ok(None) => Finding::ok("local ports", "apart from those of source NAT"),
        Ok(Some(sentence)) => {
            let fix = "sysctl net.ipv4.ip_local_reserved_ports=61000-65535";
            Finding::bad(Level::Warn, "local ports", sentence, fix)
        }
        Err(error) => Finding::bad(Level::Warn, "local ports", error, "make /proc/sys/net/ipv4 readable"),
    });
    findings
}

/// The sysctls that are looked at.
pub(super) const SYSCTLS: [&str; 4] = [
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.bridge.bridge-nf-call-iptables",
    "net.netfilter.nf_conntrack_tcp_be_liberal",
];

fn sysctl(name: &str, value: Option<&str>) -> Option<Finding> {
    let seen = |value| format!("{name} is {value}");
    match (name, value) {
        ("net.ipv4.ip_forward", Some("0")) => {
            let fix = "sysctl net.ipv4.ip_forward=1: pods' packets do not reach other pods else";
            Some(Finding::bad(Level::Fail, "sysctl", seen("0"), fix))
        }
        ("net.ipv6.conf.all.forwarding", Some("0")) => {
            let fix = "sysctl net.ipv6.conf.all.forwarding=1, where there are IPv6 Services";
            Some(Finding::bad(Level::Warn, "sysctl", seen("0"), fix))
        }
        ("net.bridge.bridge-nf-call-iptables", Some("1")) => {
            let fix = "nothing has to be done; netfilter's rules also see bridged packets, with the backend's address";
            Some(Finding::bad(Level::Warn, "sysctl", seen("1"), fix))
        }
        ("net.netfilter.nf_conntrack_tcp_be_liberal", Some("0")) => {
            let fix = "sysctl net.netfilter.nf_conntrack_tcp_be_liberal=1, where rules drop what is INVALID";
            Some(Finding::bad(Level::Warn, "sysctl", seen("0"), fix))
        }
        (_, Some(value)) => Some(Finding::ok("sysctl", seen(value))),
        (_, None) => None,
    }
}

/// The interfaces that would be taken, and those whose pods cannot be served.
pub(super) fn interfaces(facts: &Facts) -> Vec<Finding> {
    let links = match &facts.links {
        Ok(links) => links,
        Err(error) => {
            return vec![Finding::bad(Level::Fail, "interfaces", error, "allow netlink sockets")];
        }
    };
    let taken: Vec<_> = links
        .iter()
        .filter(|link| Selection::Standard.role(link).is_ok())
        .map(|link| link.name.as_str())
        .collect();
    let mut findings = vec![if taken.is_empty() {
        let fix = "run readylb in the node's own network namespace (hostNetwork: true)";
        Finding::bad(Level::Warn, "interfaces", "no veth, tunnel or uplink", fix)
    } else {
        Finding::ok("interfaces", format!("the programs go on {}", taken.join(", ")))
    }];
    for link in links {
        if let Some(kind @ ("ipvlan" | "macvlan" | "ipvtap" | "macvtap")) = link.kind.as_deref() {
            let seen = format!("{} is of kind {kind}: pods behind such interfaces are not served", link.name);
            findings.push(Finding::bad(
                Level::Warn,
                "interfaces",
                seen,
                "use a CNI that connects pods by veth pairs",
            ));
        }
    }
    findings
}
