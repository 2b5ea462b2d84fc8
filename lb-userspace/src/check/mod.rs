//! Whether this machine can run readylb, and what is in the way: `readylb check`.
//!
//! [`Facts`] are gathered at the edge (`gather.rs`); what follows from them is decided here and in `node.rs` and `proxies.rs`,
//! without a kernel. `readylb run` refuses by the same code ([`refuse_beside`]).

mod gather;
mod node;
mod proxies;

use std::path::PathBuf;

pub use gather::gather;
pub use proxies::{Beside, NotAlone, pinned_beside, refuse_beside};
use serde::Serialize;

use crate::datapath::{Features, Link};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// readylb runs, and something does not work or costs more.
    Warn,
    /// readylb does not run, or must not.
    Fail,
}

impl Level {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub status: Level,
    /// What was seen.
    pub seen: String,
    /// What to do about it; `None` where nothing is to be done.
    pub fix: Option<String>,
}

impl Finding {
    fn ok(check: &str, seen: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status: Level::Ok, seen: seen.into(), fix: None }
    }

    fn bad(status: Level, check: &str, seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status, seen: seen.into(), fix: Some(fix.into()) }
    }
}

/// What was seen of a machine. An `Err` is why it could not be seen, one sentence.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// Whether the kernel describes its types (`/sys/kernel/btf/vmlinux`).
    pub btf: bool,
    /// `net.core.bpf_jit_enable`; `None` where it is not shown (it is in the initial network namespace only).
    pub jit: Option<String>,
    /// Whether `--bpf-root` is on a BPF file system or can be, as [`crate::datapath::bpffs_state`] says.
    pub bpffs: Result<bool, String>,
    /// The cgroup whose sockets would be served.
    pub cgroup: Result<PathBuf, String>,
    /// The effective capabilities of this process, a bit each (capabilities(7)).
    pub capabilities: u64,
    /// What the kernel can do.
    pub features: Features,
    /// Sysctls by name; `None` where there is no such one.
    pub sysctls: Vec<(&'static str, Option<String>)>,
    /// What is wrong with the range of local ports, if something is.
    pub local_ports: Result<Option<String>, String>,
    /// Every interface of this network namespace.
    pub links: Result<Vec<Link>, String>,
    /// Traces of other eBPF proxies among the pins.
    pub beside: Vec<Beside>,
    /// Traces of kube-proxy: sentences.
    pub kube_proxy: Vec<String>,
    /// Pins of another schema under `--bpf-root`.
    pub other_schemas: Vec<PathBuf>,
}

/// What follows from the facts, in the order in which they are best put right.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = node::kernel(facts);
    findings.extend(node::surroundings(facts));
    findings.extend(proxies::findings(facts));
    findings.extend(node::interfaces(facts));
    findings
}

#[cfg(test)]
mod tests;
