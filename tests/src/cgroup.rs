//! A cgroup of a test's own, so that its programs meet nobody else's sockets.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use lb_userspace::datapath::cgroup_root;
use nix::unistd::gettid;
use serde_json::Value;

use crate::{datapath::DEADLINE, netns::Namespace};

/// A cgroup below that of this process. Single threads can be in it. Gone when dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes one.
    ///
    /// # Errors
    /// Where the rights or cgroup v2 are missing.
    pub fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = own_cgroup()?.join(format!("readylb-test-{}-{number}", process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let cgroup = Self { path };
        // A thread may then be somewhere else than its process.
        fs::write(cgroup.path.join("cgroup.type"), "threaded")
            .with_context(|| format!("{} cannot hold threads", cgroup.path.display()))?;
        Ok(cgroup)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` on a thread that is in this cgroup and on a host. Sockets that it makes belong to the cgroup for as long as
    /// they are open.
    pub fn run<T: Send>(&self, host: &Namespace, work: impl FnOnce() -> T + Send) -> T {
        host.run(|| {
            self.enter();
            work()
        })
    }

    #[expect(clippy::expect_used, reason = "whoever has made the cgroup can put a thread into it")]
    fn enter(&self) {
        let mut threads = File::options()
            .write(true)
            .open(self.path.join("cgroup.threads"))
            .expect("a cgroup has a list of its threads");
        threads.write_all(gettid().to_string().as_bytes()).expect("a thread can be put into a cgroup");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A thread leaves its cgroup some time after it was joined.
        let deadline = Instant::now() + DEADLINE;
        while let Err(error) = fs::remove_dir(&self.path) {
            if Instant::now() > deadline {
                eprintln!("cannot remove {}: {error}", self.path.display());
                return;
            }
            sleep(Duration::from_millis(1));
        }
    }
}

/// The folder of the cgroup (version 2) of this process.
fn own_cgroup() -> Result<PathBuf> {
    let cgroups = fs::read_to_string("/proc/self/cgroup")?;
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(cgroup_root()?.join(own.context("this process is in no cgroup of version 2")?))
}

/// The names of the programs on a cgroup itself, sorted.
///
/// # Errors
/// What bpftool says.
pub fn programs_on(cgroup: &Path) -> Result<Vec<String>> {
    let listed = bpftool(&["cgroup", "show", &cgroup.to_string_lossy()])?;
    let names = listed.as_array().into_iter().flatten().filter_map(|program| program["name"].as_str());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

/// The ids of the links on a cgroup itself.
///
/// # Errors
/// What bpftool says.
pub fn links_on(cgroup: &Path) -> Result<BTreeSet<u64>> {
    let id = fs::metadata(cgroup)?.ino();
    let listed = bpftool(&["link", "show"])?;
    let links = listed.as_array().into_iter().flatten().filter(|link| link["cgroup_id"] == id);
    Ok(links.filter_map(|link| link["id"].as_u64()).collect())
}

fn bpftool(arguments: &[&str]) -> Result<Value> {
    let output = Command::new("bpftool").arg("--json").args(arguments).output().context("bpftool")?;
    if output.stdout.trim_ascii().is_empty() && output.status.success() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("bpftool {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
}
