//! `readylb check` on nodes of the test's own, and what `run` refuses by the same code.

use std::{fs, path::Path, process::Output};

use lb_tests::{
    bpf_root::BpfRoot,
    cgroup::Cgroup,
    netns::{Namespace, shapes::routed},
};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

/// Runs `readylb check -o json`, by way of `wrapper`.
fn check(host: &Namespace, wrapper: &[&str], root: &Path, cgroup: &Cgroup) -> (Output, Vec<Value>) {
    let words = [wrapper, &[BINARY, "check", "-o", "json"]].concat();
    let mut command = host.command(words[0]);
    command.args(&words[1..]).arg("--bpf-root").arg(root).arg("--cgroup").arg(cgroup.path());
    let output = command.output().unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let findings = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (output, findings)
}

/// What has status fail.
fn failed(findings: &[Value]) -> Vec<&str> {
    let failed = findings.iter().filter(|finding| finding["status"] == "fail");
    failed.filter_map(|finding| finding["check"].as_str()).collect()
}

#[test]
fn a_node_is_good_and_a_missing_capability_or_forwarding_is_told() {
    let shape = routed().unwrap();
    let host = &shape.nodes[0];
    let (root, cgroup) = (BpfRoot::new().unwrap(), Cgroup::new().unwrap());
    let (output, findings) = check(host, &[], root.path(), &cgroup);
    assert_eq!(failed(&findings), [""; 0]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let taken = findings.iter().find(|finding| finding["check"] == "interfaces").unwrap();
    assert!(taken["seen"].as_str().unwrap().contains(&shape.client.node_interface), "{taken}");
    assert!(!root.path().exists(), "it changes nothing");

    let without = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let (output, findings) = check(host, &without, root.path(), &cgroup);
    assert_eq!((failed(&findings), output.status.code()), (vec!["capabilities"], Some(1)));

    host.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let (output, findings) = check(host, &[], root.path(), &cgroup);
    assert_eq!((failed(&findings), output.status.code()), (vec!["sysctl"], Some(1)));
}

#[test]
fn a_proxy_of_cilium_fails_the_check_and_the_agent_does_not_start_beside_it() {
    let shape = routed().unwrap();
    let host = &shape.nodes[0];
    let (root, cgroup) = (BpfRoot::new().unwrap(), Cgroup::new().unwrap());
    let globals = root.beside("tc").join("globals");
    fs::create_dir_all(&globals).unwrap();
    // Every pin has to be of something in the kernel.
    let pin = globals.join("cilium_lb4_services_v2");
    let map =
        ["map", "create", pin.to_str().unwrap(), "type", "array", "key", "4", "value", "4", "entries", "1"];
    let made = host.command("bpftool").args(map).args(["name", "fake"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let (output, findings) = check(host, &[], root.path(), &cgroup);
    assert_eq!((failed(&findings), output.status.code()), (vec!["other proxies"], Some(1)));

    let folder = tempfile::tempdir().unwrap();
    let mut run = host.command(BINARY);
    run.args(["run", "--socket-lb", "off", "--manifests"])
        .arg(folder.path())
        .arg("--bpf-root")
        .arg(root.path());
    let output = run.arg("--admin-socket").arg(folder.path().join("s")).output().unwrap();
    let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{sentence}");
    assert!(
        sentence.contains("Cilium has its eBPF proxy") && sentence.contains(pin.to_str().unwrap()),
        "{sentence}"
    );
    assert!(!root.path().exists(), "nothing was made");
}
