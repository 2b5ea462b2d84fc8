//! What lists cost an agent in memory.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    time::{Duration, Instant},
};

use lb_tests::{
    agent::{Agent, AgentNode},
    apiserver::{ApiServer, Cut, Resource, Verb},
    netns::Namespace,
};
use lb_userspace::admin::status::AgentStatus;
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const SERVICES: usize = 10_000;
const SLICES: usize = 5_000;
const ENDPOINTS: usize = 100;
const RELISTS: usize = 6;

fn address(net: u8, number: usize) -> Ipv4Addr {
    let [_, a, b, c] = u32::try_from(number + 1).unwrap().to_be_bytes();
    Ipv4Addr::new(net, a, b, c)
}

/// As servers keep them: beside what the agent reads, who wrote which field.
fn metadata(name: &str, labels: &Value) -> Value {
    let fields: Value =
        (0..20).map(|field| (format!("f:field-{field}"), json!({".": {}, "f:value": {}}))).collect();
    let written = json!({
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "time": "2026-11-30T14:23:07Z", "fieldsV1": {"f:metadata": fields},
    });
    json!({"namespace": "default", "name": name, "labels": labels, "managedFields": [written]})
}

fn service(number: usize) -> Value {
    let name = format!("service-{number}");
    let vip = address(11, number);
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(&name, &json!({"app": name})),
        "spec": {
            "type": "ClusterIP", "clusterIP": vip, "clusterIPs": [vip], "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
        },
    })
}

fn slice(number: usize) -> Value {
    let service = format!("service-{number}");
    let name = format!("{service}-abcde");
    let endpoint = |at| {
        let pod = json!({
            "kind": "Pod", "namespace": "default", "name": format!("{service}-7d4b9c6f5-{at}"),
            "uid": "00000000-0000-4000-8000-000000000001",
        });
        json!({
            "addresses": [address(10, number * ENDPOINTS + at)], "nodeName": format!("node-{}", at % 10), "zone": "zone-a",
            "conditions": {"ready": true, "serving": true, "terminating": false}, "targetRef": pod,
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": metadata(&name, &json!({"kubernetes.io/service-name": service})),
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": (0..ENDPOINTS).map(endpoint).collect::<Value>(),
    })
}

/// A line of `/proc/<pid>/status`, in KiB.
fn memory(agent: &Agent<'_>, line: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let line = text.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    line.trim_matches([':', '\t', ' ']).trim_end_matches(" kB").parse().unwrap()
}

/// From now on the peak counts anew (proc(5)).
fn reset_peak(agent: &Agent<'_>) {
    fs::write(format!("/proc/{}/clear_refs", agent.pid()), "5").unwrap();
}

/// Asks for the status only: the desired state of the whole is a document of its own, and of that size.
fn wait(node: &AgentNode<'_>, agent: &Agent<'_>, holds: impl Fn(&AgentStatus) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let status = agent.status();
        if status.as_ref().is_ok_and(&holds) {
            return;
        }
        assert!(Instant::now() < deadline, "{status:#?}\n{}", node.log_text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn b68_a_list_of_a_big_cluster_takes_less_than_as_much_memory_again_and_leaves_none_behind() {
    let host = Namespace::new("memory").unwrap();
    let api = ApiServer::start_on(host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap());
    for number in 0..SERVICES {
        api.apply(service(number));
    }
    for number in 0..SLICES {
        api.apply(slice(number));
    }
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    api.kubeconfig(&kubeconfig).unwrap();
    let arguments = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--map-size", "BACKEND_STATE=524288"];
    let node = AgentNode::new(&host, BINARY, &arguments).unwrap();
    let agent = node.start().unwrap();
    let settled_with = |services: usize| {
        wait(&node, &agent, |status| {
            let reconciled = &status.reconciler;
            reconciled.complete
                && reconciled.services == services
                && reconciled.applied == reconciled.generation
        });
    };
    settled_with(SERVICES);
    let requests = |resource: Resource, verb| api.requests(resource.plural(), verb).len();
    let watched = |times| {
        wait(&node, &agent, |_| {
            [Resource::Services, Resource::EndpointSlices]
                .iter()
                .all(|it| requests(*it, Verb::Watch) == times)
        });
    };
    watched(1);
    let steady = memory(&agent, "VmRSS");
    let mut rows = Vec::new();
    for relist in 1..=RELISTS {
        reset_peak(&agent);
        let before = requests(Resource::EndpointSlices, Verb::List);
        for resource in [Resource::Services, Resource::EndpointSlices] {
            api.cut(resource, Cut::GoneEvent);
        }
        watched(1 + relist);
        assert!(requests(Resource::EndpointSlices, Verb::List) > before, "there was no list");
        // What is said now comes after everything that the lists have said.
        api.apply(service(SERVICES + relist));
        settled_with(SERVICES + relist);
        rows.push((memory(&agent, "VmHWM"), memory(&agent, "VmRSS")));
    }
    println!("steady {steady} KiB, then (peak, steady) {rows:?}");
    for (peak, _) in &rows {
        assert!(*peak < 2 * steady, "steady {steady} KiB, then (peak, steady) {rows:?}");
    }
    // A tenth is the noise of the allocator, where pages that are to be given back are so by and by: what is left behind is in
    // every later figure, so the smaller of the last two shows it.
    let (second, [before_last, last]) = (rows[1], [rows[RELISTS - 2], rows[RELISTS - 1]]);
    let (peak, rest) = (last.0.min(before_last.0), last.1.min(before_last.1));
    assert!(peak * 10 <= second.0 * 11 && rest * 10 <= second.1 * 11, "it grows: {rows:?}");
}
