//! What is checked on each kernel of `cargo xtask vm`: the agent on a node with pods, from loading to cleaning up.

use std::{
    env, fs,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    agent::{Agent, AgentNode},
    cgroup::Cgroup,
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, list, replace, web},
    netns::shapes::{Shape, VIP, VIP_V6, bridge},
    traffic::{Answers, Connection, NameServer, ask_tcp, ask_udp},
    verifier::costs,
};

/// Connections, and as many datagrams, to each VIP.
const TIMES: usize = 30;

/// Which backends are ready. The last one listens as the others do and is never to be asked.
const READY: [bool; 3] = [true, true, false];

const VIPS: [SocketAddr; 2] =
    [SocketAddr::new(std::net::IpAddr::V4(VIP), PORT), SocketAddr::new(std::net::IpAddr::V6(VIP_V6), PORT)];

/// Checks everything and prints one line. Usage: `vm-guest PATH-OF-READYLB`.
pub fn main() {
    let mut checks = Checks::default();
    if let Err(error) = all(&mut checks) {
        // What was not reached is missing from the line, and the host takes that as a failure.
        eprintln!("not checked further: {error:#}");
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("\nREADYLB-VM {}", json!({"kernel": kernel.trim(), "checks": checks.0}));
}

/// What was checked, in order: name, what was seen, and what is wrong.
#[derive(Default)]
struct Checks(Vec<Value>);

impl Checks {
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<String>) {
        // Helpers of tests panic where a test would fail.
        let seen = catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| Err(anyhow!(said(&panic))));
        self.0.push(match seen {
            Ok(says) => json!({"name": name, "says": says}),
            Err(error) => json!({"name": name, "error": format!("{error:#}")}),
        });
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

fn all(checks: &mut Checks) -> Result<()> {
    let binary = env::args().nth(1).context("usage: vm-guest PATH-OF-READYLB")?;
    checks.check("programs", || Ok(costs(&[]).len().to_string()));

    let shape = bridge()?;
    let cgroup = Cgroup::new()?;
    let _servers: Vec<_> =
        shape.backends.iter().map(|pod| NameServer::start(&pod.host, BACKEND_PORT)).collect::<Result<_>>()?;
    let folder = TempDir::new()?;
    let file = folder.path().join("web.json");
    replace(&file, &list(web(&shape, READY)))?;
    let (manifest, group) = (file.to_string_lossy(), cgroup.path().to_string_lossy());
    let served_namespaces = served_namespaces()?;
    let arguments = ["--manifests", &manifest, "--cgroup", &group, "--socket-lb", served_namespaces];
    let node = AgentNode::new(&shape.nodes[0], &binary, &arguments)?;
    let mut agent = node.start()?;
    checks.check("attach", || attached(&mut agent));

    let client = &shape.client.host;
    let [v4, v6] = VIPS;
    let tcp = [v4, v6].map(|vip| ask_tcp(client, vip, TIMES));
    let udp = [v4, v6].map(|vip| ask_udp(client, vip, TIMES));
    checks.check("tcp4", || served(&tcp[..1]));
    checks.check("tcp6", || served(&tcp[1..]));
    checks.check("udp", || served(&udp));
    checks.check("not-ready", || {
        let mut asked = tcp.iter().chain(&udp).flat_map(|answers| answers.by_name.keys());
        let name = shape.backends[2].host.role();
        ensure!(asked.all(|asked| asked != name), "{name} is not ready and was asked");
        Ok("ok".to_owned())
    });
    checks.check("sockets", || {
        let host = &shape.nodes[0];
        served(&cgroup.run(host, || [ask_tcp(host, v4, TIMES), ask_udp(host, v6, TIMES)]))?;
        Ok(served_namespaces.to_owned())
    });
    checks.check("takeover", || takeover(&shape, &node, agent));
    checks.check("cleanup", || cleanup(&shape, &node));
    Ok(())
}

/// Whose sockets the agent serves (`--socket-lb`). The node of this test is not the initial network namespace, and before
/// Linux 5.14 an agent serves the sockets of its own namespace only there.
fn served_namespaces() -> Result<&'static str> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("the kernel's release is {release:?}")
    };
    Ok(if (major, minor) < (5, 14) { "all" } else { "host" })
}

/// How the programs are on the interfaces.
fn attached(agent: &mut Agent<'_>) -> Result<String> {
    // Emulated processors are slow where the machine does something else too: three times the patience of other tests.
    let status = agent.settle().or_else(|_| agent.settle()).or_else(|_| agent.settle())?;
    if let Some(error) = status.attachments.sockets.error {
        return Err(anyhow!(error));
    }
    let mut modes: Vec<_> = status.attachments.interfaces.iter().map(|it| it.mode.name()).collect();
    modes.sort_unstable();
    modes.dedup();
    ensure!(!modes.is_empty(), "no interface has the programs");
    Ok(modes.join("+"))
}

/// Every question was answered, and both of the ready backends have answered.
fn served(answers: &[Answers]) -> Result<String> {
    for answers in answers {
        ensure!(answers.failures.is_empty(), "{answers:?}");
        ensure!(answers.by_name.len() == 2, "{answers:?}");
    }
    Ok("ok".to_owned())
}

/// An agent is killed: what it served goes on, and the next one takes over with a change made meanwhile.
fn takeover(shape: &Shape, node: &AgentNode<'_>, agent: Agent<'_>) -> Result<String> {
    let client = &shape.client.host;
    let mut held = Connection::open(client, VIPS[0])?;
    let holder = held.ask()?;
    agent.kill();
    served(&VIPS.map(|vip| ask_tcp(client, vip, TIMES))).context("without an agent")?;
    let mut agent = node.start()?;
    agent.settle_on(SERVICE, &addresses(&shape.backends[..2]))?;
    ensure!(held.ask()? == holder, "the connection from before was moved");
    served(&VIPS.map(|vip| ask_tcp(client, vip, TIMES))).context("with the next agent")?;
    agent.kill();
    Ok("ok".to_owned())
}

/// Nothing is left, and nobody answers at the VIP.
fn cleanup(shape: &Shape, node: &AgentNode<'_>) -> Result<String> {
    let output = node.verb("cleanup", &[])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    ensure!(!node.bpf_root().exists(), "{} is still there", node.bpf_root().display());
    ensure!(
        ask_tcp(&shape.client.host, VIPS[0], 1).by_name.is_empty(),
        "somebody still answers at {}",
        VIPS[0]
    );
    Ok("ok".to_owned())
}
