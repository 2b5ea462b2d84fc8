//! The main job in a cluster: what the API server says reaches the datapath.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    process::Command,
    time::{Duration, Instant},
};

use lb_tests::{
    agent::{Agent, AgentNode},
    apiserver::{ApiServer, Cut, Fault, Resource, Times, Verb},
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, service, web, web_slice},
    netns::{
        Namespace,
        shapes::{Shape, VIP, VIP_V6, routed},
    },
    traffic::{Connection, NameServer, ask_tcp, ask_udp},
};
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const WEB: SocketAddr = SocketAddr::new(IpAddr::V4(VIP), PORT);
const WEB_V6: SocketAddr = SocketAddr::new(IpAddr::V6(VIP_V6), PORT);
const OTHER_VIP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 51);

/// A cluster: three backends behind `default/web`, and an API server that the node reaches.
struct Cluster {
    shape: Shape,
    api: ApiServer,
    folder: TempDir,
    _servers: [NameServer; 3],
}

impl Cluster {
    fn new() -> Self {
        let shape = routed().unwrap();
        let servers =
            shape.backends.each_ref().map(|pod| NameServer::start(&pod.host, BACKEND_PORT).unwrap());
        let listener = shape.nodes[0].run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let api = ApiServer::start_on(listener);
        for object in web(&shape, [true; 3]) {
            api.apply(object);
        }
        let folder = TempDir::new().unwrap();
        api.kubeconfig(&folder.path().join("kubeconfig")).unwrap();
        Self { shape, api, folder, _servers: servers }
    }

    fn node(&self) -> AgentNode<'_> {
        self.node_with(&[])
    }

    fn node_with(&self, more: &[&str]) -> AgentNode<'_> {
        let kubeconfig = self.folder.path().join("kubeconfig");
        let arguments = [&["--kubeconfig", kubeconfig.to_str().unwrap()], more].concat();
        AgentNode::new(&self.shape.nodes[0], BINARY, &arguments).unwrap()
    }

    fn client(&self) -> &Namespace {
        &self.shape.client.host
    }

    fn set_ready(&self, ready: [bool; 3]) {
        for vip in [WEB.ip(), WEB_V6.ip()] {
            self.api.apply(web_slice(&self.shape, vip, ready));
        }
    }

    /// Waits until more watches of a resource have been asked for than there were.
    fn wait_for_requests(&self, resource: &str, verb: Verb, more_than: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.api.requests(resource, verb).len() <= more_than {
            assert!(Instant::now() < deadline, "no {verb:?} of {resource} after {more_than}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn settle_on_all(cluster: &Cluster, agent: &mut Agent<'_>) {
    agent.settle_on(SERVICE, &addresses(&cluster.shape.backends)).unwrap();
}

#[test]
fn watch_events_reach_the_datapath() {
    let cluster = Cluster::new();
    let node = cluster.node();
    let mut agent = node.start().unwrap();
    settle_on_all(&cluster, &mut agent);
    for vip in [WEB, WEB_V6] {
        for ask in [ask_tcp, ask_udp] {
            let answers = ask(cluster.client(), vip, 600);
            assert!(answers.failures.is_empty(), "{vip}: {answers:?}");
            for (name, count) in &answers.by_name {
                assert!((150..=252).contains(count), "{vip}: {name} of {answers:?}");
            }
            assert_eq!(answers.by_name.len(), 3, "{vip}: {answers:?}");
        }
    }

    let mut held = Connection::open(cluster.client(), WEB).unwrap();
    let holder = held.ask().unwrap();
    let ready = cluster.shape.backends.each_ref().map(|pod| pod.host.role() != holder);
    cluster.set_ready(ready);
    let others = cluster.shape.backends.iter().filter(|pod| pod.host.role() != holder);
    agent.settle_on(SERVICE, &addresses(others)).unwrap();
    let answers = ask_tcp(cluster.client(), WEB, 300);
    assert!(answers.failures.is_empty(), "{answers:?}");
    assert_eq!(answers.by_name.get(&holder), None, "a backend that is not ready got a connection");
    assert_eq!(held.ask().unwrap(), holder, "its open connection goes on");
}

#[test]
fn b55_a_relist_that_lacks_an_object_removes_it() {
    let cluster = Cluster::new();
    let other = service("other", [OTHER_VIP.into(), "2001:db8:f0::51".parse().unwrap()]);
    cluster.api.apply(other);
    let node = cluster.node();
    let mut agent = node.start().unwrap();
    settle_on_all(&cluster, &mut agent);
    let frontends = |agent: &Agent<'_>| agent.document().unwrap().frontends.len();
    assert_eq!(frontends(&agent), 8);

    // Behind the agent's back: nothing is said on a watch, and the versions in between are forgotten.
    for resource in [Resource::Services, Resource::EndpointSlices] {
        cluster.api.fail(resource.plural(), Verb::Watch, Fault::Hold, Times::Always);
        cluster.api.fail(resource.plural(), Verb::List, Fault::Hold, Times::Always);
        cluster.api.cut(resource, Cut::ResetMidLine);
    }
    cluster.api.delete(Resource::Services, "default", "other");
    cluster.set_ready([true, false, false]);
    cluster.api.compact();
    cluster.api.heal();

    let [stays, ..] = &cluster.shape.backends;
    agent.settle_on(SERVICE, &addresses([stays])).unwrap();
    agent
        .wait("without default/other", |status, document| {
            document.frontends.len() == 4 && status.reconciler.programmed == 4
        })
        .unwrap();
    let answers = ask_tcp(cluster.client(), WEB, 50);
    assert_eq!(answers.by_name.keys().collect::<Vec<_>>(), [stays.host.role()], "{answers:?}");
}

#[test]
fn b66_a_version_that_is_gone_is_listed_anew_once_and_traffic_does_not_notice() {
    let cluster = Cluster::new();
    let node = cluster.node();
    let mut agent = node.start().unwrap();
    settle_on_all(&cluster, &mut agent);
    let lists = || cluster.api.requests("endpointslices", Verb::List).len();
    let before = lists();

    cluster.api.compact();
    cluster.api.cut(Resource::EndpointSlices, Cut::GoneEvent);
    let answers = ask_tcp(cluster.client(), WEB, 100);
    assert!(answers.failures.is_empty(), "{answers:?}");
    cluster.wait_for_requests("endpointslices", Verb::List, before);
    cluster.set_ready([false, true, true]);
    agent.settle_on(SERVICE, &addresses(&cluster.shape.backends[1..])).unwrap();
    assert_eq!(lists(), before + 1);
}

#[test]
fn b32_until_both_lists_are_complete_a_new_agent_takes_nothing_away() {
    let cluster = Cluster::new();
    let node = cluster.node();
    let mut agent = node.start().unwrap();
    settle_on_all(&cluster, &mut agent);
    agent.kill();

    cluster.api.fail("endpointslices", Verb::List, Fault::Hold, Times::Always);
    let mut agent = node.start().unwrap();
    agent
        .wait("told of the Services", |status, document| {
            status.reconciler.feeds[0].synced && !document.frontends.is_empty()
        })
        .unwrap();
    for vip in [WEB, WEB_V6] {
        let answers = ask_tcp(cluster.client(), vip, 100);
        assert!(answers.failures.is_empty(), "{vip}: {answers:?}");
        assert_eq!(answers.by_name.len(), 3, "{vip}: {answers:?}");
    }
    assert!(!agent.status().unwrap().reconciler.complete);
    cluster.api.heal();
    settle_on_all(&cluster, &mut agent);
}

/// Everything that the agent has written for frontends.
fn dump(node: &AgentNode<'_>) -> [Vec<u8>; 3] {
    ["SERVICES", "BACKENDS", "BACKEND_STATE"].map(|map| {
        let pin = node.bpf_root().join(format!("v{}", lb_common::SCHEMA_VERSION)).join(map);
        let output = Command::new("bpftool").args(["map", "dump", "pinned"]).arg(pin).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    })
}

/// `readylb status -o json`: its exit code, what it says to standard error, and the data.
fn status_verb(node: &AgentNode<'_>) -> (Option<i32>, String, Value) {
    let output = node.verb("status", &["-o", "json"]).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), error, serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn b69_who_may_not_read_slices_is_not_ready_and_writes_nothing() {
    const USER: &str = "system:serviceaccount:kube-system:readylb";
    let cluster = Cluster::new();
    for resource in ["endpointslices", "nodes"] {
        cluster.api.fail(resource, Verb::List, Fault::Forbidden { user: USER }, Times::Always);
    }
    let node = cluster.node();
    let mut agent = node.start().unwrap();
    let forbidden = |agent: &mut Agent<'_>| {
        agent
            .wait("told of the Services and refused the rest", |status, document| {
                let feeds = &status.reconciler.feeds;
                !document.frontends.is_empty()
                    && feeds[0].synced
                    && feeds[1..=2].iter().all(|it| it.failing.is_some())
                    && feeds[3].synced
            })
            .unwrap()
    };
    let status = forbidden(&mut agent);
    assert_eq!((status.reconciler.operations, status.reconciler.programmed), (0, 0));
    assert!(!status.reconciler.complete);

    let url = cluster.api.url();
    let cause = |resource: &str, group: &str, full: &str| {
        format!(
            "cannot list {resource} at {url}/: {full} is forbidden: User {USER:?} cannot list resource {resource:?} in API \
             group {group:?} at the cluster scope (403)"
        )
    };
    let full = "endpointslices.discovery.k8s.io";
    let of_slices = format!("{full} at {url}/: {}", cause("endpointslices", "discovery.k8s.io", full));
    let of_node = format!("optional: node {} at {url}/: {}", status.node, cause("nodes", "", "nodes"));
    assert_eq!(agent.readyz().unwrap(), (503, format!("{of_slices}\n{of_node}\n")));
    let (code, error, data) = status_verb(&node);
    assert_eq!((code, error), (Some(1), format!("readylb: the agent is not ready: {of_slices}\n")));
    assert_eq!(data["agent"]["reconciler"]["feeds"][1]["synced"], false);
    assert_eq!(data["maps"]["entries"]["SERVICES"]["entries"], 0);

    // The Node may still not be read.
    cluster.api.heal();
    cluster.api.fail("nodes", Verb::List, Fault::Forbidden { user: USER }, Times::Always);
    settle_on_all(&cluster, &mut agent);
    let deadline = Instant::now() + Duration::from_secs(20);
    while agent.readyz().unwrap() != (200, format!("ok\n{of_node}\n")) {
        assert!(Instant::now() < deadline, "{:?}", agent.readyz());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, error, data) = status_verb(&node);
    assert_eq!((code, error), (Some(0), String::new()));
    assert_eq!(data["agent"]["sources"][2]["required"], false);
    assert!(data["agent"]["sources"][1]["heard_seconds_ago"].as_u64().unwrap() < 20, "{data:#}");

    // An agent that takes over finds all of it in the maps, and leaves it there.
    agent.kill();
    let before = dump(&node);
    cluster.api.fail("endpointslices", Verb::List, Fault::Forbidden { user: USER }, Times::Always);
    let mut agent = node.start().unwrap();
    let status = forbidden(&mut agent);
    assert_eq!((status.reconciler.operations, status.reconciler.programmed), (0, 4));
    assert_eq!(agent.readyz().unwrap().0, 503);
    assert_eq!(dump(&node), before);
    let answers = ask_tcp(cluster.client(), WEB, 100);
    assert!(answers.failures.is_empty(), "{answers:?}");
    assert_eq!(answers.by_name.len(), 3, "{answers:?}");
    cluster.api.heal();
    settle_on_all(&cluster, &mut agent);
}

#[test]
fn b69_a_list_that_is_refused_half_way_adds_what_it_has_said_and_takes_nothing_away() {
    let cluster = Cluster::new();
    let [one, two, _] = &cluster.shape.backends;
    let apply = |vip: SocketAddr, ready| cluster.api.apply(web_slice(&cluster.shape, vip.ip(), ready));
    apply(WEB, [true, false, false]);
    apply(WEB_V6, [true, true, false]);
    let node = cluster.node();
    let mut agent = node.start().unwrap();
    agent.settle_on(SERVICE, &[one.v4.into(), one.v6.into(), two.v6.into()]).unwrap();
    agent.kill();

    // Of IPv4 one more, of IPv6 one less, and both on the first page.
    apply(WEB, [true, true, false]);
    apply(WEB_V6, [true, false, false]);
    for number in 0..500 {
        let metadata = json!({"name": format!("z-{number}"), "namespace": "default"});
        cluster.api.apply(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
            "endpoints": [], "ports": [],
        }));
    }
    cluster.api.fail("endpointslices", Verb::List, Fault::None, Times::Count(1));
    cluster.api.fail("endpointslices", Verb::List, Fault::Forbidden { user: "readylb" }, Times::Always);
    let mut agent = node.start().unwrap();
    agent
        .wait("refused with half of it", |status, _| {
            let reconciled = &status.reconciler;
            reconciled.feeds[1].failing.is_some() && reconciled.applied == reconciled.generation
        })
        .unwrap();
    let held = |node: &AgentNode<'_>, vip: SocketAddr| {
        let output = node.verb("get services", &["-o", "json"]).unwrap();
        let data: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = data["frontends"].as_array().unwrap();
        let row =
            rows.iter().find(|row| row["address"] == json!(vip.ip()) && row["protocol"] == "TCP").unwrap();
        row["backends"].as_array().unwrap().len()
    };
    assert_eq!((held(&node, WEB), held(&node, WEB_V6)), (2, 2));
    assert!(!agent.status().unwrap().reconciler.complete);
    cluster.api.heal();
    agent.settle_on(SERVICE, &[one.v4.into(), two.v4.into(), one.v6.into()]).unwrap();
    assert_eq!((held(&node, WEB), held(&node, WEB_V6)), (2, 1));
}

#[test]
fn b13_endpoints_that_were_cut_off_are_served_and_users_are_told() {
    let cluster = Cluster::new();
    let [one, two, three] = &cluster.shape.backends;
    let subset = |ips: &[IpAddr]| {
        let port = |name, protocol| json!({"name": name, "port": BACKEND_PORT, "protocol": protocol});
        let addresses: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"addresses": addresses, "ports": [port("tcp", "TCP"), port("udp", "UDP")]})
    };
    let endpoints = |subsets: &[Value]| {
        let annotations = json!({"endpoints.kubernetes.io/over-capacity": "truncated"});
        let metadata = json!({"name": "web", "namespace": "default", "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
    };
    cluster.api.apply(endpoints(&[
        subset(&[one.v4.into(), one.v6.into()]),
        subset(&[two.v4.into()]),
        subset(&[three.v4.into()]),
    ]));
    let node = cluster.node_with(&["--endpoints-api", "endpoints"]);
    let mut agent = node.start().unwrap();
    let status = agent
        .settle_on(
            SERVICE,
            &[one.v4, two.v4, three.v4]
                .map(IpAddr::from)
                .into_iter()
                .chain([one.v6.into()])
                .collect::<Vec<_>>(),
        )
        .unwrap();
    assert_eq!(status.reconciler.warnings, 1);
    let shown = node.verb("get services", &[]).unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("the object holds only the first 1,000 addresses of its Service"), "{shown}");

    cluster.api.apply(endpoints(&[subset(&[two.v4.into()])]));
    agent.settle_on(SERVICE, &[two.v4.into()]).unwrap();
    let answers = ask_tcp(cluster.client(), WEB, 50);
    assert_eq!(answers.by_name.keys().collect::<Vec<_>>(), [two.host.role()], "{answers:?}");
    assert!(cluster.api.requests("endpointslices", Verb::List).is_empty());
}
