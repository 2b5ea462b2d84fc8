//! An agent serves clients outside the cluster: Services of type LoadBalancer on all of their addresses.
//!
//! ```text
//!   outsider ─veth─ node-a ═VXLAN═ node-b
//!                   │    │           │
//!              client  backend-1   backend-2, backend-3
//! ```
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use lb_tests::{
    agent::{Agent, AgentNode, is_settled},
    manifests::{BACKEND_PORT, PORT, SERVICE, addresses, list, replace, service, web_slice},
    netns::{
        Namespace,
        outside::{OUTSIDER, UPLINK, outsider_of},
        shapes::{Shape, VIP, VIP_V6, vxlan},
    },
    traffic::{Answers, NameServer, ask_tcp, ask_udp},
};
use lb_userspace::model::Policy;
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const NODE_PORT: u16 = 30_080;

/// Of each family, an external address and one of a load balancer.
const EXTERNAL: [[&str; 2]; 2] =
    [["198.51.100.10", "198.51.100.20"], ["2001:db8:6000::10", "2001:db8:6000::20"]];

/// The addresses of node-a between the nodes.
const OVERLAY: [&str; 2] = ["10.244.255.1", "2001:db8:ff::1"];

/// How clients ask, over each transport.
const ASK: [fn(&Namespace, SocketAddr, usize) -> Answers; 2] = [ask_tcp, ask_udp];

struct World {
    shape: Shape,
    outsider: Namespace,
    folder: TempDir,
    _servers: Vec<NameServer>,
}

impl World {
    fn new() -> Self {
        let shape = vxlan().unwrap();
        let outsider = outsider_of(&shape.nodes[0]).unwrap();
        let start = |pod: &lb_tests::netns::shapes::Pod| {
            NameServer::start_naming_clients(&pod.host, BACKEND_PORT).unwrap()
        };
        let servers = shape.backends.iter().map(start).collect();
        let world = Self { shape, outsider, folder: TempDir::new().unwrap(), _servers: servers };
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node-a"},
            "status": {"addresses": UPLINK.map(|ip| json!({"type": "InternalIP", "address": ip}))},
        });
        replace(&world.folder.path().join("node.json"), &list([node])).unwrap();
        world.write("Cluster", &[]);
        world
    }

    /// Writes the Service with an external policy and source ranges; backend-1 is on node-a.
    fn write(&self, policy: &str, ranges: &[&str]) {
        let mut object = service("web", [VIP.into(), VIP_V6.into()]);
        let spec = &mut object["spec"];
        spec["type"] = json!("LoadBalancer");
        spec["externalTrafficPolicy"] = json!(policy);
        spec["externalIPs"] = json!(EXTERNAL.map(|[external, _]| external));
        spec["loadBalancerSourceRanges"] = json!(ranges);
        for port in spec["ports"].as_array_mut().unwrap() {
            port["nodePort"] = json!(NODE_PORT);
        }
        let ingress = EXTERNAL.map(|[_, balanced]| json!({"ip": balanced}));
        object["status"] = json!({"loadBalancer": {"ingress": ingress}});
        let slices = [IpAddr::from(VIP), VIP_V6.into()].map(|like| {
            let mut slice = web_slice(&self.shape, like, [true; 3]);
            for (endpoint, node) in slice["endpoints"].as_array_mut().unwrap().iter_mut().zip(["a", "b", "b"])
            {
                endpoint["nodeName"] = Value::from(format!("node-{node}"));
            }
            slice
        });
        let objects = [object].into_iter().chain(slices);
        replace(&self.folder.path().join("web.json"), &list(objects)).unwrap();
    }

    fn agents(&self) -> AgentNode<'_> {
        let arguments =
            ["--manifests", self.folder.path().to_str().unwrap(), "--hostname-override", "node-a"];
        AgentNode::new(&self.shape.nodes[0], BINARY, &arguments).unwrap()
    }
}

/// The addresses of a family that clients outside ask: a NodePort, an external address, and one of a load balancer.
fn fronts(family: usize) -> [SocketAddr; 3] {
    let [external, balanced] =
        EXTERNAL[family].map(|address| SocketAddr::new(address.parse().unwrap(), PORT));
    [SocketAddr::new(UPLINK[family], NODE_PORT), external, balanced]
}

/// Whom the answers name, and whom these have seen as their client. Every question has to be answered.
fn answers(from: &Namespace, to: SocketAddr, times: usize) -> BTreeSet<String> {
    ASK.iter()
        .flat_map(|ask| {
            let answers = ask(from, to, times);
            assert!(answers.failures.is_empty(), "{to}: {answers:?}");
            answers.by_name.into_keys()
        })
        .collect()
}

fn named<const N: usize>(names: [(&str, &dyn ToString); N]) -> BTreeSet<String> {
    names.map(|(name, client)| format!("{name} {}", client.to_string())).into()
}

/// Waits until the agent has obeyed what was written last.
fn settle(agent: &mut Agent<'_>, policy: Policy, ranges: usize) {
    agent
        .wait("settled on the new policy", |status, document| {
            is_settled(status)
                && document
                    .frontends
                    .iter()
                    .filter(|it| it.address.to_string() == EXTERNAL[0][1])
                    .all(|it| it.policy == policy && it.source_ranges.len() == ranges)
        })
        .unwrap();
}

#[test]
fn b27_clients_outside_and_inside_reach_what_the_policy_gives_them() {
    let world = World::new();
    let agents = world.agents();
    let mut agent = agents.start().unwrap();
    agent.settle_on(SERVICE, &addresses(&world.shape.backends)).unwrap();
    for (family, (own, node)) in OUTSIDER.iter().zip(&OVERLAY).enumerate() {
        for front in fronts(family) {
            let want = named([("backend-1", own), ("backend-2", node), ("backend-3", node)]);
            assert_eq!(answers(&world.outsider, front, 40), want, "Cluster, {front}");
        }
    }

    world.write("Local", &[]);
    settle(&mut agent, Policy::Local, 0);
    for (family, own) in OUTSIDER.iter().enumerate() {
        for front in fronts(family) {
            let want = named([("backend-1", own)]);
            assert_eq!(answers(&world.outsider, front, 20), want, "Local, {front}");
            let names: BTreeSet<_> = answers(&world.shape.client.host, front, 40)
                .into_iter()
                .map(|answer| answer.split(' ').next().unwrap_or_default().to_owned())
                .collect();
            assert_eq!(names.len(), 3, "a pod has all endpoints, {front}: {names:?}");
        }
    }
}

#[test]
fn source_ranges_guard_the_addresses_of_load_balancers_only_and_cluster_ips_are_not_for_the_outside() {
    let world = World::new();
    let agents = world.agents();
    let mut agent = agents.start().unwrap();
    agent.settle_on(SERVICE, &addresses(&world.shape.backends)).unwrap();
    let ask = |to| ASK[0](&world.outsider, to, 1);
    for vip in [IpAddr::from(VIP), VIP_V6.into()] {
        assert_eq!(ask(SocketAddr::new(vip, PORT)).failures.len(), 1, "{vip} from outside");
    }

    world.write("Cluster", &["192.0.2.0/24"]);
    settle(&mut agent, Policy::Cluster, 1);
    for family in 0..2 {
        let [node_port, external, balanced] = fronts(family);
        assert_eq!(answers(&world.outsider, node_port, 20).len(), 3);
        assert_eq!(answers(&world.outsider, external, 20).len(), 3);
        assert_eq!(ask(balanced).failures.len(), 1, "{balanced}");
    }

    world.write("Cluster", &["203.0.113.0/28", "2001:db8:9999::/64"]);
    settle(&mut agent, Policy::Cluster, 2);
    for family in 0..2 {
        let [.., balanced] = fronts(family);
        assert_eq!(answers(&world.outsider, balanced, 20).len(), 3, "{balanced}");
    }
}
