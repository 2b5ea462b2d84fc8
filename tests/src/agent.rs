//! Agents as processes of a test's own, on nodes of its own.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::IpAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use lb_userspace::{
    admin::{client, status::AgentStatus},
    render::Document,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::{bpf_root::BpfRoot, netns::Namespace};

/// How long an agent may take for anything. Only a failure takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node on which agents are started, one after the other: what they pin, their socket and their log.
pub struct AgentNode<'a> {
    node: &'a Namespace,
    binary: PathBuf,
    arguments: Vec<String>,
    root: BpfRoot,
    folder: TempDir,
}

impl<'a> AgentNode<'a> {
    /// Agents will run on `node` with these arguments after `run`. `binary` is the command to run.
    ///
    /// # Errors
    /// Where the rights are missing.
    pub fn new(node: &'a Namespace, binary: &str, arguments: &[&str]) -> Result<Self> {
        Ok(Self {
            node,
            binary: binary.into(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            root: BpfRoot::new()?,
            folder: tempfile::Builder::new().prefix("readylb-agent-").tempdir()?,
        })
    }

    /// Where the agents pin.
    pub fn bpf_root(&self) -> &Path {
        self.root.path()
    }

    /// Other arguments for agents that start from now on.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }

    /// Starts an agent.
    ///
    /// # Errors
    /// Where the command cannot be run.
    pub fn start(&self) -> Result<Agent<'_>> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = self.command("run");
        command.args(&self.arguments);
        if !self.arguments.iter().any(|argument| argument == "--cgroup") {
            // By default it would be on the cgroup of every process of the machine.
            command.args(["--socket-lb", "off"]);
        }
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| self.binary.display().to_string())?;
        Ok(Agent { node: self, child })
    }

    /// Runs another verb on the node, which finds the agent and its maps.
    ///
    /// # Errors
    /// Where the command cannot be run.
    pub fn verb(&self, verb: &str, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(verb).args(arguments).output()?)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = self.node.command(&self.binary.to_string_lossy());
        command.args(verb.split(' '));
        command.arg("--bpf-root").arg(self.root.path()).arg("--admin-socket").arg(self.socket());
        command
    }

    /// Where they answer.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("agent.log")
    }

    fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(client::get(&self.socket(), path))?)
    }

    /// What the agents have written to their log.
    pub fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

/// A running agent. Killed, with SIGKILL, when dropped.
pub struct Agent<'a> {
    node: &'a AgentNode<'a>,
    child: Child,
}

impl Agent<'_> {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it says about itself.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn status(&self) -> Result<AgentStatus> {
        self.node.ask("/v1/status")
    }

    /// The desired state.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn document(&self) -> Result<Document> {
        self.node.ask("/v1/render")
    }

    /// Whether it is ready: the code of `GET /readyz`, and the text.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn readyz(&self) -> Result<(u16, String)> {
        let mut stream = UnixStream::connect(self.node.socket())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer of HTTP")?;
        let code = head.split(' ').nth(1).context("a status line")?.parse()?;
        Ok((code, body.to_owned()))
    }

    /// Waits until everything that its sources say is in the maps, and the programs are where they belong.
    ///
    /// # Errors
    /// With its log, if that takes too long.
    pub fn settle(&mut self) -> Result<AgentStatus> {
        self.wait("settled", |status, _| is_settled(status))
    }

    /// Waits until the frontends of `service` have exactly these backends, in the maps too.
    ///
    /// # Errors
    /// With its log, if that takes too long.
    pub fn settle_on(&mut self, service: &str, backends: &[IpAddr]) -> Result<AgentStatus> {
        let mut want = backends.to_vec();
        want.sort_unstable();
        self.wait(&format!("settled on {service} with {want:?}"), |status, document| {
            let frontends = document.frontends.iter().filter(|frontend| frontend.service == service);
            let mut all: Vec<_> =
                frontends.flat_map(|frontend| &frontend.backends).map(|it| it.address).collect();
            all.sort_unstable();
            all.dedup();
            is_settled(status) && all == want
        })
    }

    /// Waits until `holds`, of the status and the desired state.
    ///
    /// # Errors
    /// With its log, if that takes too long, or if it ends.
    pub fn wait(
        &mut self,
        what: &str,
        holds: impl Fn(&AgentStatus, &Document) -> bool,
    ) -> Result<AgentStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let last = self.at_one_time();
            if let Ok(Some((status, document))) = &last
                && holds(status, document)
            {
                return Ok(status.clone());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the agent ended ({status}) before it was {what}; its log:\n{}", self.node.log_text());
            }
            if Instant::now() > deadline {
                bail!("the agent is not {what} in time: {last:#?}\nits log:\n{}", self.node.log_text());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The status and the desired state that it speaks of; `None` where that has changed in between. A change may have to wait
    /// for the one before it, so a document can be ahead of the maps that an older status calls settled.
    fn at_one_time(&self) -> Result<Option<(AgentStatus, Document)>> {
        let before = self.status()?.reconciler.generation;
        let (document, status) = (self.document()?, self.status()?);
        Ok((status.reconciler.generation == before).then_some((status, document)))
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to end, with SIGTERM, and waits until it has.
    ///
    /// # Errors
    /// With its log, if that takes too long.
    pub fn terminate(mut self) -> Result<ExitStatus> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGTERM)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("the agent does not end; its log:\n{}", self.node.log_text());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) {
        // It may have ended by itself; its test has seen that where it matters.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether everything that its sources say is in the maps, and the programs are where they belong.
pub fn is_settled(status: &AgentStatus) -> bool {
    let reconciled = &status.reconciler;
    reconciled.complete && reconciled.applied == reconciled.generation && status.attachments.complete
}
