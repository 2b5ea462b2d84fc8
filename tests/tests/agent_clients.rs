//! Programs that people use, as clients and servers of a Service: what they do with sockets is theirs, not this suite's.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use lb_tests::{
    agent::AgentNode,
    daemon::Daemon,
    manifests::{BACKEND_PORT, PORT, list, replace, web},
    netns::shapes::{Pod, Shape, VIP, VIP_V6, routed, vxlan},
};
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_agent-under-test");

const VIPS: [IpAddr; 2] = [IpAddr::V4(VIP), IpAddr::V6(VIP_V6)];

/// Runs `work` while an agent serves these objects on the client's node.
fn serving(shape: &Shape, objects: impl IntoIterator<Item = Value>, work: impl FnOnce()) {
    let folder = TempDir::new().unwrap();
    replace(&folder.path().join("services.json"), &list(objects)).unwrap();
    let node =
        AgentNode::new(&shape.nodes[0], BINARY, &["--manifests", folder.path().to_str().unwrap()]).unwrap();
    let mut agent = node.start().unwrap();
    agent.settle().unwrap();
    work();
}

/// Where a server in a pod is waited for: on a loopback address, which no program of readylb sees.
fn loopback(port: u16) -> SocketAddr {
    (Ipv6Addr::LOCALHOST, port).into()
}

/// A server in each backend, of whose arguments `{}` becomes the name of the pod.
fn start_in_each(backends: &[Pod], program: &str, port: u16, arguments: &[&str]) -> Vec<Daemon> {
    let start = |pod: &Pod| {
        let arguments: Vec<_> = arguments.iter().map(|it| it.replace("{}", pod.host.role())).collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        Daemon::start(&pod.host, program, &arguments, loopback(port)).unwrap()
    };
    backends.iter().map(start).collect()
}

#[test]
fn curl_and_ncat_reach_every_backend() {
    let shape = vxlan().unwrap();
    let answer = "printf 'HTTP/1.0 200 OK\\r\\n\\r\\n{}'";
    let port = BACKEND_PORT.to_string();
    let _servers = start_in_each(&shape.backends, "ncat", BACKEND_PORT, &["-lk", &port, "--sh-exec", answer]);
    let want: BTreeSet<_> = shape.backends.iter().map(|pod| pod.host.role().to_owned()).collect();
    serving(&shape, web(&shape, [true; 3]), || {
        for vip in VIPS {
            let url = format!("http://{}/", SocketAddr::new(vip, PORT));
            let mut told = BTreeSet::new();
            for _ in 0..40 {
                told.insert(
                    shape.client.host.sh(&format!("curl --silent --show-error --max-time 3 {url}")).unwrap(),
                );
            }
            assert_eq!(told, want, "curl {url}");
            let heard = shape.client.host.sh(&format!("ncat --recv-only -w 3 {vip} {PORT}")).unwrap();
            let name = heard.strip_prefix("HTTP/1.0 200 OK\r\n\r\n").unwrap_or(&heard);
            assert!(want.contains(name), "ncat {vip}: {heard:?}");
        }
    });
}

/// iperf3 opens a connection for control and others for data, and has to find the same server with all of them.
#[test]
fn iperf3_measures_one_backend_of_three_by_session_affinity() {
    let shape = routed().unwrap();
    let port = BACKEND_PORT.to_string();
    let _servers = start_in_each(&shape.backends, "iperf3", BACKEND_PORT, &["--server", "--port", &port]);
    let mut objects = web(&shape, [true; 3]);
    objects[0]["spec"]["sessionAffinity"] = json!("ClientIP");
    serving(&shape, objects, || {
        for vip in VIPS {
            for direction in ["", "--reverse"] {
                let line = format!(
                    "iperf3 --client {vip} --port {PORT} --parallel 4 --bytes 5M --json --connect-timeout 3000 {direction}"
                );
                let report: Value = serde_json::from_str(&shape.client.host.sh(&line).unwrap()).unwrap();
                assert_eq!(report["error"], Value::Null, "{line}");
                // What is still on its way when the sender has sent it all is not counted as received.
                let [sent, received] =
                    ["sum_sent", "sum_received"].map(|sum| report["end"][sum]["bytes"].as_u64());
                assert!(sent >= Some(5 << 20) && received > Some(0), "{line}: {sent:?}, {received:?}");
            }
        }
    });
}

/// With one backend ready, control goes by TCP and data by UDP to the same server.
#[test]
fn iperf3_sends_datagrams_through_the_vip() {
    let shape = routed().unwrap();
    let port = BACKEND_PORT.to_string();
    let _servers =
        start_in_each(&shape.backends[..1], "iperf3", BACKEND_PORT, &["--server", "--port", &port]);
    serving(&shape, web(&shape, [true, false, false]), || {
        for vip in VIPS {
            let line = format!(
                "iperf3 --client {vip} --port {PORT} --udp --length 1200 --bitrate 20M --bytes 1M --json --connect-timeout 3000"
            );
            let report: Value = serde_json::from_str(&shape.client.host.sh(&line).unwrap()).unwrap();
            assert_eq!(report["error"], Value::Null, "{line}");
            let sum = &report["end"]["sum"];
            assert!(sum["packets"].as_u64().unwrap() >= 800, "{line}: {sum}");
            assert_eq!(sum["lost_packets"], json!(0), "{line}: {sum}");
        }
    });
}

/// The Service of a DNS server on port 53, TCP and UDP, at the address that kubelets give to pods by custom.
fn dns(shape: &Shape) -> [Value; 2] {
    const DNS_PORT: u16 = 5353;
    let port = |name, protocol, port| json!({"name": name, "protocol": protocol, "port": port});
    let endpoints: Vec<_> = shape.backends.iter().map(|pod| json!({"addresses": [pod.v4]})).collect();
    [
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {
                "clusterIP": "10.96.0.10",
                "ports": [port("dns", "UDP", 53), port("dns-tcp", "TCP", 53)],
            },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-1",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "ports": [port("dns", "UDP", DNS_PORT), port("dns-tcp", "TCP", DNS_PORT)],
            "endpoints": endpoints,
        }),
    ]
}

#[test]
fn a_real_dns_server_answers_on_port_53_over_udp_and_tcp() {
    let shape = routed().unwrap();
    let long = "x".repeat(250);
    let text = format!("--txt-record=long.test,{long},{long},{long},{long}");
    let arguments = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--user=root",
        "--no-resolv",
        "--no-hosts",
        "--port=5353",
        "--txt-record=who.test,{}",
        "--host-record=web.test,10.96.0.50,2001:db8:f0::50",
        &text,
    ];
    let _servers = start_in_each(&shape.backends, "dnsmasq", 5353, &arguments);
    serving(&shape, dns(&shape), || {
        let dig = |question: &str| {
            let line = format!("dig @10.96.0.10 +short +tries=1 +timeout=3 {question}");
            shape.client.host.sh(&line).unwrap()
        };
        for transport in ["+notcp", "+tcp"] {
            assert_eq!(dig(&format!("{transport} web.test A")), "10.96.0.50\n");
            assert_eq!(dig(&format!("{transport} web.test AAAA")), "2001:db8:f0::50\n");
            let told: BTreeSet<_> = (0..40).map(|_| dig(&format!("{transport} who.test TXT"))).collect();
            let want: BTreeSet<_> =
                shape.backends.iter().map(|pod| format!("\"{}\"\n", pod.host.role())).collect();
            assert_eq!(told, want, "{transport}");
        }
        // More than the 512 bytes of old: dig takes 1,232 by default, and goes over to TCP beyond what it takes.
        for size in ["+bufsize=1232", "+bufsize=512"] {
            assert_eq!(dig(&format!("{size} long.test TXT")).matches(&long).count(), 4, "{size}");
        }
    });
}
