//! The main job in a cluster: what the API server says reaches the datapath.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
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
        let kubeconfig = self.folder.path().join("kubeconfig");
        AgentNode::new(&self.shape.nodes[0], BINARY, &["--kubeconfig", kubeconfig.to_str().unwrap()]).unwrap()
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
            let answers = ask(cluster.client(), vip, 300);
            assert!(answers.failures.is_empty(), "{vip}: {answers:?}");
            for (name, count) in &answers.by_name {
                assert!((75..=126).contains(count), "{vip}: {name} of {answers:?}");
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
