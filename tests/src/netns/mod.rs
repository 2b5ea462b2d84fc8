//! Hosts as network namespaces.
//!
//! A namespace has no name in the file system: it lives as long as its descriptor, a thread or a socket in it, so nothing
//! is left when a test ends, panics or is killed. Nothing here enters a namespace with the test's own thread.

pub mod outside;
pub mod shapes;

use std::{
    fs::{self, File},
    future::Future,
    io,
    os::{fd::AsRawFd, unix::process::CommandExt},
    panic::resume_unwind,
    process::{self, Command},
    sync::Arc,
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, setns, unshare},
};

/// A host: a network namespace of its own, with loopback up.
#[derive(Debug)]
pub struct Namespace {
    role: String,
    handle: Arc<File>,
}

impl Namespace {
    /// Makes one. `role` is its name in messages.
    ///
    /// # Errors
    /// Where the rights are missing.
    pub fn new(role: &str) -> Result<Self> {
        let make = || -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace (CAP_SYS_ADMIN)")?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        };
        let handle = thread::scope(|scope| join(scope.spawn(make)))?;
        let namespace = Self { role: role.to_owned(), handle: Arc::new(handle) };
        namespace.ip("link set lo up")?;
        // Addresses are there at once, not after a second of looking for duplicates.
        namespace.sysctl("net.ipv6.conf.all.accept_dad", "0")?;
        namespace.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        Ok(namespace)
    }

    /// Its name in messages.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Runs `work` on a thread inside.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            join(scope.spawn(|| {
                enter(&self.handle);
                work()
            }))
        })
    }

    /// Runs a future to its end on a thread inside, which is a tokio runtime of its own.
    pub fn block_on<T: Send, F: Future<Output = T>>(&self, work: impl FnOnce() -> F + Send) -> T {
        self.run(|| runtime().block_on(work()))
    }

    /// Starts a thread inside that outlives the call, a tokio runtime of its own. It keeps the namespace alive.
    pub fn spawn<F: Future<Output = ()>>(
        &self,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let handle = Arc::clone(&self.handle);
        thread::spawn(move || {
            enter(&handle);
            runtime().block_on(work());
        })
    }

    /// A command that will run inside.
    ///
    /// `/sys/class/net` still shows the outside to it: find interfaces through netlink.
    pub fn command(&self, program: &str) -> Command {
        let handle = Arc::clone(&self.handle);
        let mut command = Command::new(program);
        let enter = move || setns(&*handle, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
        // SAFETY: between fork and exec only setns(2) is called, which is async-signal-safe.
        unsafe { command.pre_exec(enter) };
        command
    }

    /// Runs a command line inside, split at spaces, and returns what it prints.
    ///
    /// # Errors
    /// What it wrote to standard error, if it fails.
    pub fn sh(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().context("an empty command line")?;
        let output = self
            .command(program)
            .args(words)
            .output()
            .with_context(|| format!("{}: {program} cannot be run", self.role))?;
        if !output.status.success() {
            bail!("{}: {line}: {}", self.role, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `ip` inside.
    ///
    /// # Errors
    /// What it says.
    pub fn ip(&self, arguments: &str) -> Result<()> {
        self.sh(&format!("ip {arguments}")).map(drop)
    }

    /// Writes a sysctl (`net.ipv4.ip_forward`) of the namespace.
    ///
    /// # Errors
    /// Where there is no such sysctl.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run(|| fs::write(&path, value)).with_context(|| format!("{}: {path} = {value}", self.role))
    }

    /// Index of an interface.
    ///
    /// # Errors
    /// Where there is no such interface.
    pub fn ifindex(&self, interface: &str) -> Result<u32> {
        self.run(|| if_nametoindex(interface)).with_context(|| format!("{}: {interface}", self.role))
    }

    /// Link-layer address of an interface.
    ///
    /// # Errors
    /// Where there is no such interface, or it has none.
    pub fn mac(&self, interface: &str) -> Result<[u8; 6]> {
        let shown = self.sh(&format!("ip -o link show dev {interface}"))?;
        let (_, rest) = shown.split_once("link/ether ").context("it has no link-layer address")?;
        let text = rest.split(' ').next().unwrap_or(rest);
        let bytes: Vec<_> =
            text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>()?;
        bytes.try_into().map_err(|_| anyhow!("{}: {interface}: {text:?} is of another length", self.role))
    }

    /// Turns an offload of an interface on or off (`ethtool -K`): `offload("eth0", "tx", false)`.
    ///
    /// # Errors
    /// What ethtool says.
    pub fn offload(&self, interface: &str, feature: &str, on: bool) -> Result<()> {
        let on = if on { "on" } else { "off" };
        self.sh(&format!("ethtool -K {interface} {feature} {on}")).map(drop)
    }

    /// Joins two hosts by a veth pair, both ends up. `interface` is a name, or a name and more that `ip link add` takes
    /// before the type (`veth0 index 7`).
    ///
    /// # Errors
    /// What `ip` says.
    pub fn join(&self, interface: &str, other: &Self, other_interface: &str) -> Result<()> {
        let peer = format!("peer name {other_interface} netns {}", other.path());
        self.ip(&format!("link add {interface} type veth {peer}"))?;
        let interface = interface.split(' ').next().unwrap_or(interface);
        self.ip(&format!("link set {interface} up"))?;
        other.ip(&format!("link set {other_interface} up"))
    }

    /// The namespace as a path that other processes can open while this value lives, for `ip link set … netns PATH`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.handle.as_raw_fd())
    }
}

#[expect(clippy::expect_used, reason = "a namespace that is open can be entered by whoever made it")]
fn enter(handle: &File) {
    setns(handle, CloneFlags::CLONE_NEWNET).expect("a namespace can be entered");
}

#[expect(clippy::expect_used, reason = "only descriptors can be missing, and then every test fails")]
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
