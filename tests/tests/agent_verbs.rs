//! What users see of a running agent, and what they do not see any more after `cleanup`.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::process::{Command, Output};

use lb_tests::{
    agent::AgentNode,
    datapath::programs_at,
    manifests::{list, replace, web},
    netns::shapes::{Shape, routed},
};
use lb_userspace::datapath::Hook;
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

fn manifest(shape: &Shape, ready: [bool; 3]) -> TempDir {
    let folder = TempDir::new().unwrap();
    replace(&folder.path().join("web.json"), &list(web(shape, ready))).unwrap();
    folder
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn bpftool_prints_field_names_and_readable_addresses_and_ports() {
    let shape = routed().unwrap();
    let folder = manifest(&shape, [true, false, false]);
    let node =
        AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", folder.path().to_str().unwrap()]).unwrap();
    node.start().unwrap().settle().unwrap();
    let dump = |map: &str| {
        let pin = node.bpf_root().join(format!("v{}", lb_common::SCHEMA_VERSION)).join(map);
        let output = Command::new("bpftool").args(["map", "dump", "pinned"]).arg(pin).output().unwrap();
        // bpftool breaks lines within arrays as it likes.
        text(&output).split_whitespace().collect::<String>()
    };

    let services = dump("SERVICES");
    assert!(
        services.contains(
            r#""key":{"address":[0,0,0,0,0,0,0,0,0,0,255,255,10,96,0,50],"port":80,"proto":6,"scope":0}"#
        ),
        "{services}"
    );
    assert!(
        services.contains(r#""set":{"block":"#) && services.contains(r#""count":1,"local":0}"#),
        "{services}"
    );
    let backends = dump("BACKENDS");
    assert!(
        backends.contains(r#""value":{"address":[0,0,0,0,0,0,0,0,0,0,255,255,10,244,1,21],"port":8080,"#),
        "{backends}"
    );
    assert!(backends.contains(r#""key":{"block":"#) && backends.contains(r#""backend_id":"#), "{backends}");
}

#[test]
fn status_and_get_services_show_the_agent_and_what_the_maps_hold() {
    let shape = routed().unwrap();
    let folder = manifest(&shape, [true, true, false]);
    let node =
        AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", folder.path().to_str().unwrap()]).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();

    let status: Value = serde_json::from_str(&text(&node.verb("status", &["-o", "json"]).unwrap())).unwrap();
    assert_eq!(status["agent"]["reconciler"]["programmed"], 4);
    assert_eq!(status["agent"]["pid"], agent.pid());
    assert_eq!(status["maps"]["entries"]["SERVICES"]["entries"], 6, "with both ClusterIPs");
    assert_eq!(status["maps"]["entries"]["BACKENDS"]["entries"], 8);
    assert_eq!(status["maps"]["packets"]["NoBackend"], 0);

    let services = text(&node.verb("get services", &[]).unwrap());
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = services.lines().map(columns).collect();
    assert_eq!(lines[0], ["SERVICE", "PORT", "KIND", "FRONTEND", "BACKEND", "NOTE"]);
    let first = lines.iter().find(|line| line.iter().any(|cell| cell == "10.96.0.50:80/TCP")).unwrap();
    assert_eq!(first[..5], ["default/web", "tcp", "ClusterIP", "10.96.0.50:80/TCP", "10.244.1.21:8080"]);
    assert!(!services.contains("10.244.1.23"), "{services}");

    agent.kill();
    let output = node.verb("status", &["-o", "json"]).unwrap();
    assert_eq!(output.status.code(), Some(1), "no agent answers");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["agent"], Value::Null);
    assert_eq!(status["maps"]["entries"]["SERVICES"]["entries"], 6, "the datapath is still there");
}

#[test]
fn a_terminated_agent_ends_soon_and_leaves_its_datapath_and_no_socket() {
    let shape = routed().unwrap();
    let folder = manifest(&shape, [true; 3]);
    let arguments = ["--manifests", folder.path().to_str().unwrap(), "--map-size", "SERVICES=64"];
    let mut node = AgentNode::new(&shape.nodes[0], BINARY, &arguments).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();
    assert!(agent.terminate().unwrap().success());
    assert!(!node.socket().exists());
    let services = |output: &Output| {
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["maps"]["entries"]["SERVICES"].clone()
    };
    let held = services(&node.verb("status", &["-o", "json"]).unwrap());
    assert_eq!(held, json!({"entries": 6, "size": 64}));

    // The size that was chosen once holds without being said again.
    node.set_arguments(&arguments[..2]);
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();
    assert_eq!(services(&node.verb("status", &["-o", "json"]).unwrap()), held);
}

#[test]
fn a_second_agent_on_the_same_maps_is_refused_and_the_first_goes_on() {
    let shape = routed().unwrap();
    let folder = manifest(&shape, [true; 3]);
    let node =
        AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", folder.path().to_str().unwrap()]).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();
    let output = node.verb("run", &["--manifests", folder.path().to_str().unwrap()]).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(sentence.contains(&format!("{}", agent.pid())), "{sentence}");
    agent.settle().unwrap();
}

#[test]
fn cleanup_waits_for_the_agent_to_end_and_then_leaves_nothing() {
    let shape = routed().unwrap();
    let host = &shape.nodes[0];
    let traces = || {
        let hooks = [Hook::Ingress, Hook::Egress];
        let programs = hooks.map(|hook| programs_at(host, &shape.client.node_interface, hook).unwrap());
        (programs, host.sh("tc qdisc show").unwrap())
    };
    let before = traces();
    for mode in ["tcx", "clsact"] {
        let folder = manifest(&shape, [true; 3]);
        let arguments = ["--manifests", folder.path().to_str().unwrap(), "--tc-attach", mode];
        let node = AgentNode::new(host, BINARY, &arguments).unwrap();
        let mut agent = node.start().unwrap();
        agent.settle().unwrap();
        assert_ne!(traces(), before, "{mode}: the programs are there");
        let in_use = node.verb("cleanup", &[]).unwrap();
        assert_eq!(in_use.status.code(), Some(1), "{mode}: an agent is at work");
        agent.kill();

        text(&node.verb("cleanup", &[]).unwrap());
        assert_eq!(traces(), before, "{mode}");
        assert!(!node.bpf_root().exists(), "{mode}");
        let again = text(&node.verb("cleanup", &[]).unwrap());
        assert!(again.starts_with("nothing to remove"), "{mode}: {again}");
    }
}
