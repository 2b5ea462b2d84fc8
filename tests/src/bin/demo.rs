//! The main job, to look at: traffic through a VIP follows the readiness of its backends.
//!
//! `cargo xtask demo` builds the agent and runs this. Everything happens in network namespaces that exist as long as this
//! process. It fails if anything that it shows is not so.

use std::{
    collections::BTreeMap,
    env,
    io::{IsTerminal, stdout},
    net::SocketAddr,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use lb_tests::{
    agent::AgentNode,
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, replace},
    netns::shapes::{self, Shape, VIP, VIP_V6},
    traffic::{Answers, Connection, NameServer, ask_tcp, ask_udp},
};
use tempfile::TempDir;

/// The manifest that the agent is started on.
const MANIFEST: &str = include_str!("../../../deploy/demo/web.yaml");

/// Connections, and as many datagrams, to each VIP.
const TIMES: usize = 300;

fn main() -> ExitCode {
    match demo() {
        Ok(()) => {
            say(GREEN, "everything shown was so");
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(RED, &format!("not so: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

const GREEN: &str = "32";
const RED: &str = "31";
const BLUE: &str = "34";

/// Prints a line, in colour on a terminal.
fn say(colour: &str, text: &str) {
    if stdout().is_terminal() && env::var_os("NO_COLOR").is_none() {
        println!("\x1b[1;{colour}m{text}\x1b[0m");
    } else {
        println!("{text}");
    }
}

fn step(text: &str) {
    say(BLUE, &format!("\n── {text}"));
}

fn demo() -> Result<()> {
    let binary = env::args().nth(1).context("usage: demo PATH-OF-READYLB")?;
    let vips = [SocketAddr::new(VIP.into(), PORT), SocketAddr::new(VIP_V6.into(), PORT)];

    step("a node, a client and three backends, each a network namespace");
    let shape = shapes::routed()?;
    let mut servers = Vec::new();
    for backend in &shape.backends {
        servers.push(NameServer::start(&backend.host, BACKEND_PORT)?);
        println!(
            "   {} listens on {} and {}, port {BACKEND_PORT}, TCP and UDP",
            backend.host.role(),
            backend.v4,
            backend.v6
        );
    }
    println!(
        "   client has {} and {}; no interface has the VIPs {VIP} and {VIP_V6}",
        shape.client.v4, shape.client.v6
    );

    step("readylb run --manifests web.yaml, on the node");
    let folder = TempDir::new()?;
    let file = folder.path().join("web.yaml");
    replace(&file, MANIFEST)?;
    let node = AgentNode::new(&shape.nodes[0], &binary, &["--manifests", &file.to_string_lossy()])?;
    let mut agent = node.start()?;
    let status = agent.settle_on(SERVICE, &addresses(&shape.backends))?;
    println!(
        "   {} frontends in the maps, programs on {} interfaces",
        status.reconciler.programmed,
        status.attachments.interfaces.len()
    );

    step(&format!("{TIMES} connections and {TIMES} datagrams to each VIP"));
    for (name, share) in everyone(&shape, &vips)? {
        ensure!((25..=42).contains(&share), "{name} answered {share} % of the time");
    }

    let [leaving, staying @ ..] = &shape.backends;
    let name = leaving.host.role();
    step(&format!("a connection is held open to {name}; then {name} is not ready any more"));
    let mut held = Connection::open_with(&shape.client.host, vips[0], name)?;
    replace(
        &file,
        &MANIFEST.replacen("ready: true", "ready: false", 1).replace(
            &format!("{}\"], conditions: {{ready: true", leaving.v6),
            &format!("{}\"], conditions: {{ready: false", leaving.v6),
        ),
    )?;
    agent.settle_on(SERVICE, &addresses(staying))?;
    let shares = everyone(&shape, &vips)?;
    ensure!(!shares.contains_key(name), "{name} got a new connection");
    println!("   {name} got no new connection");
    ensure!(held.ask()? == name, "the connection to {name} was moved");
    println!("   its open connection lives on");

    step(&format!("{name} is ready again"));
    replace(&file, MANIFEST)?;
    agent.settle_on(SERVICE, &addresses(&shape.backends))?;
    ensure!(everyone(&shape, &vips)?.contains_key(name), "{name} got no connection");

    step("the agent is killed; the datapath does not notice");
    agent.kill();
    everyone(&shape, &vips)?;

    step("what the maps hold");
    dump(&node.bpf_root().join(format!("v{}", lb_common::SCHEMA_VERSION)), "SERVICES")?;

    step("readylb cleanup");
    let output = node.verb("cleanup", &[])?;
    print!("{}", indented(&String::from_utf8_lossy(&output.stdout)));
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(!node.bpf_root().exists(), "{} is still there", node.bpf_root().display());
    let answers = ask_tcp(&shape.client.host, vips[0], 1);
    ensure!(answers.by_name.is_empty(), "somebody still answers for {VIP}");
    println!("   nobody answers for {VIP} any more");
    Ok(())
}

/// Asks through every VIP, prints who answered, and returns each one's share in per cent.
fn everyone(shape: &Shape, vips: &[SocketAddr]) -> Result<BTreeMap<String, usize>> {
    let mut total: BTreeMap<String, usize> = BTreeMap::new();
    let names: Vec<_> = shape.backends.iter().map(|backend| backend.host.role()).collect();
    println!("   {:<24}{}", "", names.iter().map(|name| format!("{name:>12}")).collect::<String>());
    for &vip in vips {
        for (transport, ask) in [("TCP", ask_tcp as fn(_, _, _) -> Answers), ("UDP", ask_udp)] {
            let answers = ask(&shape.client.host, vip, TIMES);
            let count =
                |name: &&str| format!("{:>12}", answers.by_name.get(*name).copied().unwrap_or_default());
            println!(
                "   {:<24}{}",
                format!("{transport} {vip}"),
                names.iter().map(count).collect::<String>()
            );
            ensure!(answers.failures.is_empty(), "{transport} to {vip}: {}", answers.failures.join(", "));
            for (name, count) in answers.by_name {
                *total.entry(name).or_default() += count;
            }
        }
    }
    let all: usize = total.values().sum();
    Ok(total.into_iter().map(|(name, count)| (name, count * 100 / all)).collect())
}

/// Shows a map with bpftool, if there is one.
fn dump(folder: &Path, map: &str) -> Result<()> {
    let pin = folder.join(map);
    match Command::new("bpftool").args(["map", "dump", "pinned"]).arg(&pin).output() {
        Ok(output) if output.status.success() => {
            println!("   bpftool map dump pinned …/v{}/{map}", lb_common::SCHEMA_VERSION);
            print!("{}", indented(&String::from_utf8_lossy(&output.stdout)));
        }
        Ok(output) => anyhow::bail!("bpftool: {}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => println!("   (bpftool is not installed)"),
    }
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("   {line}\n")).collect()
}
