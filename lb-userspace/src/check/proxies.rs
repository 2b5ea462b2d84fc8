//! Other proxies on this machine, found by what they leave.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Facts, Finding, Level};

/// A trace of an eBPF proxy of somebody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Whose it is.
    pub proxy: &'static str,
    /// The pin.
    pub pin: PathBuf,
}

/// How the pins of load balancing begin, and whose they are. Calico's other maps do not count: it also has some where
/// kube-proxy does the balancing.
const PINS: [(&str, &str); 4] = [
    ("cilium_lb4_", "Cilium"),
    ("cilium_lb6_", "Cilium"),
    ("cali_v4_nat_", "Calico"),
    ("cali_v6_nat_", "Calico"),
];

/// How deep pins are looked for: `tc/globals/NAME` is the deepest known.
const DEPTH: u8 = 4;

/// readylb would not be alone.
#[derive(Debug, thiserror::Error)]
#[error("{} has its eBPF proxy on this node ({} is pinned), and both would translate the same packets; {}", .0.proxy, .0.pin.display(), fix(.0))]
pub struct NotAlone(Beside);

fn fix(beside: &Beside) -> String {
    format!("turn that proxy off, or remove what it has left if it is gone: rm {}", beside.pin.display())
}

/// Whose pins a name is of.
fn proxy(name: &str) -> Option<&'static str> {
    PINS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, proxy)| *proxy)
}

/// The traces of other proxies on the BPF file system that holds `bpf_root`; sorted.
///
/// # Errors
/// What the kernel says.
pub fn pinned_beside(bpf_root: &Path) -> io::Result<Vec<Beside>> {
    let Some(top) = crate::datapath::bpffs_top(bpf_root) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let mut folders = vec![(top, DEPTH)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            if let Some(proxy) = entry.file_name().to_str().and_then(proxy) {
                found.push(Beside { proxy, pin: path });
            } else if depth > 0 && path != bpf_root && entry.file_type()?.is_dir() {
                folders.push((path, depth - 1));
            }
        }
    }
    found.sort_by(|a, b| a.pin.cmp(&b.pin));
    Ok(found)
}

/// Refuses to go on where another eBPF proxy has its maps.
///
/// # Errors
/// [`NotAlone`], with the first pin.
pub fn refuse_beside(found: &[Beside]) -> Result<(), NotAlone> {
    found.first().map_or(Ok(()), |beside| Err(NotAlone(beside.clone())))
}

/// One for each eBPF proxy, and one for kube-proxy.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for beside in &facts.beside {
        if findings.iter().any(|finding| finding.seen.starts_with(beside.proxy)) {
            continue;
        }
        let seen = format!("{} has pinned {}", beside.proxy, beside.pin.display());
        findings.push(Finding::bad(Level::Fail, "other proxies", seen, fix(beside)));
    }
    for seen in &facts.kube_proxy {
        let fix = "serve other Services than kube-proxy (--service-proxy-name), or stop it and run `kube-proxy --cleanup`";
        findings.push(Finding::bad(Level::Warn, "other proxies", seen, fix));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("other proxies", "none"));
    }
    findings
}
