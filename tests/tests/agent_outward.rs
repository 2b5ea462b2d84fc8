//! What the agent makes of addresses that clients outside the cluster use: frontends, ranges, what the programs know of the
//! node, and the ports where load balancers ask.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use lb_common::{
    NodeValue, SCHEMA_VERSION, addr,
    node::flags as node_flags,
    service::{
        flags::{CLUSTER_IP, DROP_WHEN_EMPTY, EXTERNAL, INSIDE_APART, SOURCE_RANGES},
        proto, scope,
    },
};
use lb_tests::{
    agent::{Agent, AgentNode},
    manifests::{list, replace},
    netns::Namespace,
};
use lb_userspace::maps::{NodeMap, PinnedMaps};
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const NODE_IP: &str = "192.168.50.11";
const NODE_PORT: u16 = 30080;
const HEALTH_PORT: u16 = 31000;
/// On this node, and on another one.
const HERE: &str = "10.244.1.21";
const THERE: &str = "10.244.2.22";

/// Within so long the maps follow a change of the node. It takes a fraction of a second where the machine is not busy.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(5);

/// A node that is itself a container, with a pod; a router beyond it; and the objects that its agents read.
struct Site {
    node: Namespace,
    router: Namespace,
    pod: Namespace,
    folder: TempDir,
}

impl Site {
    fn new() -> Self {
        let [node, router, pod] = ["node", "router", "pod"].map(|role| Namespace::new(role).unwrap());
        node.join("eth0", &router, "eth0").unwrap();
        node.join("veth-pod", &pod, "eth0").unwrap();
        node.ip(&format!("addr add {NODE_IP}/24 dev eth0")).unwrap();
        router.ip("addr add 192.168.50.1/24 dev eth0").unwrap();
        node.ip("route add default via 192.168.50.1").unwrap();
        // As some CNIs give every pod a gateway.
        node.ip("addr add 10.244.1.1/32 dev veth-pod").unwrap();
        Self { node, router, pod, folder: TempDir::new().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, objects: impl IntoIterator<Item = Value>) {
        replace(&self.path().join(name), &list(objects)).unwrap();
    }

    fn agents(&self, more: &[&str]) -> AgentNode<'_> {
        let arguments = ["--manifests", self.path().to_str().unwrap(), "--hostname-override", "node-a"];
        AgentNode::new(&self.node, BINARY, &[&arguments[..], more].concat()).unwrap()
    }

    /// What the health-check node port answers to the router: its code, and the body.
    fn ask(&self) -> Result<(u16, Value)> {
        let answer = self.router.run(|| -> Result<String> {
            let address: SocketAddr = format!("{NODE_IP}:{HEALTH_PORT}").parse()?;
            let mut stream = TcpStream::connect_timeout(&address, FOLLOWS_WITHIN)?;
            stream.set_read_timeout(Some(FOLLOWS_WITHIN))?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer of HTTP")?;
        let code = head.split(' ').nth(1).context("a status line")?.parse()?;
        Ok((code, serde_json::from_str(body)?))
    }

    fn ask_until(&self, want: (u16, u64, bool)) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let got = self.ask();
            let is_so = |(code, body): &(u16, Value)| {
                (*code, &body["localEndpoints"], &body["serviceProxyHealthy"])
                    == (want.0, &json!(want.1), &json!(want.2))
            };
            if got.as_ref().is_ok_and(is_so) {
                return;
            }
            assert!(Instant::now() < deadline, "{got:?} and not {want:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn service(policy: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.50",
            "externalIPs": ["203.0.113.10"],
            "externalTrafficPolicy": policy,
            "healthCheckNodePort": HEALTH_PORT,
            "loadBalancerSourceRanges": ["198.51.100.0/24", "2001:db8:c::/48"],
            "sessionAffinity": "ClientIP",
            "ports": [
                {"name": "http", "port": 80, "nodePort": NODE_PORT},
                {"name": "dns", "port": 80, "protocol": "UDP", "nodePort": NODE_PORT},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.20"}, {"ip": "203.0.113.21", "ipMode": "Proxy"}]}},
    })
}

/// Endpoints with their nodes, ready or serving while they terminate.
fn slice(endpoints: &[(&str, &str, bool)]) -> Value {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|(address, node, ready)| {
            let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
            json!({"addresses": [address], "nodeName": node, "conditions": conditions})
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}, {"name": "dns", "port": 5353, "protocol": "UDP"}],
        "endpoints": endpoints,
    })
}

/// What the maps of an agent hold.
fn pinned(agents: &AgentNode<'_>) -> PinnedMaps {
    PinnedMaps::open(&agents.bpf_root().join(format!("v{SCHEMA_VERSION}"))).unwrap()
}

/// Address, port, protocol and scope.
type Entry = (IpAddr, u16, u8, u8);

/// The entries of SERVICES: flags, and how many backends, and how many of those on this node.
fn services(agents: &AgentNode<'_>) -> BTreeMap<Entry, (u32, u16, u16)> {
    let entries = pinned(agents).services.iter().map(|entry| entry.unwrap()).collect::<Vec<_>>();
    let frontends = entries.into_iter().filter(|(key, _)| !key.is_whole());
    frontends
        .map(|(key, value)| {
            let entry = (addr::to_ip(&key.address), key.port, key.proto, key.scope);
            (entry, (value.flags, value.set.count, value.set.local))
        })
        .collect()
}

/// Service ids of frontends by address, over TCP.
fn service_id(agents: &AgentNode<'_>, address: &str) -> BTreeSet<u32> {
    let entries = pinned(agents).services.iter().map(|entry| entry.unwrap()).collect::<Vec<_>>();
    let address: IpAddr = address.parse().unwrap();
    let of_it =
        entries.iter().filter(|(key, _)| addr::to_ip(&key.address) == address && key.proto == proto::TCP);
    of_it.map(|(_, value)| value.service_id).collect()
}

fn node_value(agents: &AgentNode<'_>) -> NodeValue {
    NodeMap::open(&agents.bpf_root().join(format!("v{SCHEMA_VERSION}"))).unwrap().get().unwrap()
}

/// The interfaces of LINKS by name, as the agent tells: outside or not, and their addresses.
fn links(status: &lb_userspace::admin::status::AgentStatus) -> BTreeMap<String, (bool, Vec<String>)> {
    let name = |index: &u32| {
        let known = status.attachments.interfaces.iter().find(|it| it.ifindex == *index);
        known.map_or_else(|| format!("gone {index}"), |it| it.name.clone())
    };
    let links = status.surroundings.links.iter();
    links
        .map(|(index, link)| {
            (name(index), (link.outside, link.addresses.iter().map(ToString::to_string).collect()))
        })
        .collect()
}

#[test]
fn b44_b47_every_kind_of_frontend_is_in_the_maps_with_its_flags_and_ranges() {
    let site = Site::new();
    site.write("web.json", [service("Local"), slice(&[(HERE, "node-a", true), (THERE, "node-b", true)])]);
    let agents = site.agents(&[]);
    let mut agent = agents.start().unwrap();
    agent.settle().unwrap();
    let mut want = BTreeMap::new();
    for proto in [proto::TCP, proto::UDP] {
        let mut add = |address: &str, port, scope, flags, count| {
            want.insert((address.parse::<IpAddr>().unwrap(), port, proto, scope), (flags, count, 1));
        };
        add("10.96.0.50", 80, scope::ANY, CLUSTER_IP, 2);
        for (address, port, guard) in
            [(NODE_IP, NODE_PORT, 0), ("203.0.113.10", 80, 0), ("203.0.113.20", 80, SOURCE_RANGES)]
        {
            add(address, port, scope::ANY, EXTERNAL | INSIDE_APART | DROP_WHEN_EMPTY | guard, 1);
            add(address, port, scope::INSIDE, EXTERNAL | guard, 2);
        }
    }
    assert_eq!(services(&agents), want);
    let ids = service_id(&agents, "203.0.113.20");
    assert_eq!((ids.len(), &ids), (1, &service_id(&agents, NODE_IP)));
    let ranges: Vec<_> = pinned(&agents).ranges.iter().map(|range| range.unwrap()).collect();
    assert_eq!(ranges.len(), 4, "two for each port: {ranges:?}");
    let of_tcp = ranges.iter().filter(|range| ids.contains(&range.service_id));
    let of_tcp: BTreeSet<_> =
        of_tcp.map(|range| (addr::to_ip(&range.client).to_string(), range.bits)).collect();
    assert_eq!(of_tcp, [("198.51.100.0".to_owned(), 120), ("2001:db8:c::".to_owned(), 48)].into());

    let shown = agents.verb("get services", &[]).unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let of_node_port = shown.lines().find(|line| line.contains("192.168.50.11:30080/TCP")).unwrap();
    assert!(of_node_port.ends_with("policy Local, 2 backends for clients of the cluster"), "{shown}");

    // Nobody here: who is outside is dropped, who is inside is not. The Service without ranges is open again.
    let mut open = service("Local");
    open["spec"]["loadBalancerSourceRanges"] = json!([]);
    site.write("web.json", [open, slice(&[(THERE, "node-b", true)])]);
    let balanced: IpAddr = "203.0.113.20".parse().unwrap();
    let wanted = |scope, flags, count| ((balanced, 80, proto::TCP, scope), (flags, count, 0));
    agent
        .wait("open", |_, _| {
            let services = services(&agents);
            let of_it = services
                .into_iter()
                .filter(|((address, _, proto, _), _)| *address == balanced && *proto == proto::TCP);
            of_it.collect::<Vec<_>>()
                == [
                    wanted(scope::ANY, EXTERNAL | INSIDE_APART | DROP_WHEN_EMPTY, 0),
                    wanted(scope::INSIDE, EXTERNAL, 1),
                ]
                && pinned(&agents).ranges.iter().count() == 0
        })
        .unwrap();

    // The policy is Cluster: nobody is apart, also for an agent that takes over.
    site.write("web.json", [service("Cluster"), slice(&[(HERE, "node-a", true)])]);
    agent.kill();
    let mut agent = agents.start().unwrap();
    agent
        .wait("of policy Cluster", |status, _| {
            status.reconciler.complete && services(&agents).keys().all(|(.., scope)| *scope == scope::ANY)
        })
        .unwrap();
    assert_eq!(services(&agents).len(), 8);
    site.write("web.json", []);
    agent
        .wait("empty", |_, _| services(&agents).is_empty() && pinned(&agents).ranges.iter().count() == 0)
        .unwrap();
}

#[test]
fn b45_what_the_programs_know_of_the_node_follows_its_addresses_and_interfaces() {
    let site = Site::new();
    let agents = site.agents(&["--cluster-cidr", "10.244.0.0/16,2001:db8:42::/56", "--external-clusterip"]);
    let mut agent = agents.start().unwrap();
    let status = agent.wait("known", |status, _| !status.surroundings.links.is_empty()).unwrap();
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let eth0 = |addresses: &[&str]| ("eth0".to_owned(), (true, texts(addresses)));
    let pod = || ("veth-pod".to_owned(), (false, texts(&["10.244.1.1"])));
    assert_eq!(links(&status), [eth0(&[NODE_IP]), pod()].into());
    let node = node_value(&agents);
    assert_eq!(node.addresses, [addr::from_ip(NODE_IP.parse().unwrap()), [0; 16]]);
    assert_eq!(node.flags, node_flags::HAS_CLUSTER | node_flags::EXTERNAL_CLUSTER_IPS);
    assert!(node.is_of_cluster(addr::from_v4([10, 244, 7, 9])));
    assert!(!node.is_of_cluster(addr::from_v4([203, 0, 113, 9])));

    let v6 = "2001:db8:50::11";
    let follow =
        |agent: &mut Agent<'_>, change: &dyn Fn(), what: &str, addresses: &[&str], want: BTreeMap<_, _>| {
            change();
            let changed = Instant::now();
            agent
                .wait(what, |status, _| {
                    let shown: Vec<_> =
                        status.surroundings.addresses.iter().map(ToString::to_string).collect();
                    links(status) == want && shown == texts(addresses)
                })
                .unwrap();
            assert!(changed.elapsed() < FOLLOWS_WITHIN, "{what}: {:?}", changed.elapsed());
        };
    let ip = |command: String| {
        let node = &site.node;
        move || node.ip(&command).unwrap()
    };
    let add_v6 = ip(format!("addr add {v6}/64 dev eth0 nodad"));
    follow(&mut agent, &add_v6, "an IPv6 address", &[NODE_IP, v6], [eth0(&[NODE_IP, v6]), pod()].into());
    let join = || site.node.join("eth1", &site.router, "eth1").unwrap();
    follow(&mut agent, &join, "an interface", &[NODE_IP, v6], [eth0(&[NODE_IP, v6]), pod()].into());
    let eth1 = ("eth1".to_owned(), (false, texts(&["192.168.60.5"])));
    let add = ip("addr add 192.168.60.5/24 dev eth1".to_owned());
    follow(&mut agent, &add, "its address", &[NODE_IP, v6], [eth0(&[NODE_IP, v6]), eth1, pod()].into());
    // The way out leads over it now, and so it leads out, and has the node's own address.
    let other_way = ip("route replace default via 192.168.60.1".to_owned());
    let eth1 = ("eth1".to_owned(), (true, texts(&["192.168.60.5"])));
    follow(
        &mut agent,
        &other_way,
        "another way out",
        &["192.168.60.5", v6],
        [eth0(&[NODE_IP, v6]), eth1, pod()].into(),
    );
    let gone = ip("link del eth1".to_owned());
    follow(&mut agent, &gone, "an interface less", &[NODE_IP, v6], [eth0(&[NODE_IP, v6]), pod()].into());

    let shown = agents.verb("status", &[]).unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let side = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!((side("eth0 ").as_str(), side("veth-pod ").as_str()), ("outside", "inside"), "{shown}");
    assert!(
        shown.contains(&format!("node addresses: {NODE_IP}, {v6}; NodePorts on: {NODE_IP}, {v6}\n")),
        "{shown}"
    );

    // What a restarted agent finds there goes where it is not so any more.
    agent.kill();
    site.node.ip("link del veth-pod").unwrap();
    let mut agent = agents.start().unwrap();
    agent
        .wait("without the pod", |status, _| {
            status.attachments.complete && links(status) == [eth0(&[NODE_IP, v6])].into()
        })
        .unwrap();
    assert!(site.pod.sh("ip -o link show").is_ok());
}

#[test]
fn b48_the_health_check_node_port_tells_whether_this_node_is_to_get_traffic() {
    let site = Site::new();
    let here = |ready| slice(&[(HERE, "node-a", ready), (THERE, "node-b", true)]);
    site.write("web.json", [service("Local"), here(true)]);
    let agents = site.agents(&["--map-size", "SERVICES=20"]);
    let mut agent = agents.start().unwrap();
    agent.settle().unwrap();
    site.ask_until((200, 1, true));
    site.write("web.json", [service("Local"), slice(&[(THERE, "node-b", true)])]);
    site.ask_until((503, 0, true));
    site.write("web.json", [service("Local"), here(false)]);
    site.ask_until((503, 0, true));
    site.write("web.json", [service("Local"), here(true)]);
    site.ask_until((200, 1, true));

    // The map has no room for another Service: what the node does is not what it should do.
    let ports: Vec<_> = (1..20).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    let more = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "more"},
        "spec": {"clusterIP": "10.96.0.51", "ports": ports},
    });
    site.write("more.json", [more]);
    site.ask_until((503, 1, false));
    let (code, text) = agent.readyz().unwrap();
    assert_eq!((code, text.as_str()), (503, "maps: 1 changes cannot be written, see `readylb status`\n"));
    assert_eq!(agents.verb("status", &[]).unwrap().status.code(), Some(1));
    site.write("more.json", []);
    site.ask_until((200, 1, true));
    assert_eq!(agent.readyz().unwrap().0, 200);

    // Nobody asks there any more.
    site.write("web.json", [service("Cluster"), here(true)]);
    agent.wait("closed", |status, _| status.health_checks.is_empty()).unwrap();
    assert!(site.ask().is_err());

    // Somebody else has the port: that is told, with the Service.
    let somebody = site.node.run(|| TcpListener::bind((NODE_IP, HEALTH_PORT)).unwrap());
    site.write("web.json", [service("Local"), here(true)]);
    let is_told = |states: &[lb_userspace::health_check::HealthCheckState]| {
        states.iter().any(|state| state.service == "default/web" && state.error.is_some())
    };
    agent.wait("told", |status, _| is_told(&status.health_checks)).unwrap();
    assert!(
        agents.log_text().contains(
            "health-check node port of Service default/web: cannot listen on 192.168.50.11:31000: Address already in use"
        ),
        "{}",
        agents.log_text()
    );
    drop(somebody);
    site.ask_until((200, 1, true));
}

#[test]
fn what_is_wrong_with_the_arguments_or_the_machine_is_told() {
    let site = Site::new();
    let agents = site.agents(&[]);
    for (cidrs, sentence) in [
        ("10.244.0.0", "\"10.244.0.0\" is not a CIDR"),
        ("1.0.0.0/8,2.0.0.0/8,3.0.0.0/8,4.0.0.0/8,5.0.0.0/8", "5 ranges are given, and 4 are the most"),
        ("::/0", "::/0 is too wide to be where pods are"),
    ] {
        let refused = agents.verb("run", &["--cluster-cidr", cidrs]).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{cidrs}");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains("--cluster-cidr") && told.contains(sentence), "{told}");
    }
    let before = agents.verb("status", &[]).unwrap();
    assert_eq!(before.status.code(), Some(1), "neither an agent nor maps");

    site.node.sysctl("net.ipv4.ip_local_port_range", "1024 65535").unwrap();
    let mut agent = agents.start().unwrap();
    agent.settle().unwrap();
    let sentence =
        "net.ipv4.ip_local_port_range is 1024 65535, and ports 61000 to 65535 are those of source NAT";
    assert!(agents.log_text().contains(sentence), "{}", agents.log_text());
    let shown = agents.verb("status", &[]).unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&format!("warning: {sentence}")));
    assert_eq!(
        site.node.sh("sysctl -n net.ipv4.ip_local_port_range").unwrap().trim(),
        "1024\t65535",
        "it is left so"
    );
}
