//! The ways in which pods are connected to nodes: a client and three backends on each of them, in IPv4 and IPv6.
//!
//! ```text
//!   routed   client ─veth─ node ─veth─ backend ×3        /32 and /128 routes, a link-local gateway
//!   bridge   client ─veth─ br0 (node) ─veth─ backend ×3  one subnet
//!   nodes    client, backend-1 ─veth─ node-a ─ node-b ─veth─ backend-2, backend-3, routed
//!   vxlan    client, backend-1 ─veth─ node-a ═VXLAN═ node-b ─veth─ backend-2, backend-3
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use super::Namespace;

/// The interface of a pod, inside.
pub const POD_INTERFACE: &str = "eth0";

/// A VIP that is on no interface.
pub const VIP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 50);

/// The same for IPv6.
pub const VIP_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf0, 0, 0, 0, 0, 0x50);

/// A pod and its addresses.
#[derive(Debug)]
pub struct Pod {
    /// Where it runs; its role is the pod's name.
    pub host: Namespace,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
    /// The node's end of its veth pair.
    pub node_interface: String,
}

impl Pod {
    /// Its address of the same family as `like`.
    pub fn address(&self, like: IpAddr) -> IpAddr {
        match like {
            IpAddr::V4(_) => self.v4.into(),
            IpAddr::V6(_) => self.v6.into(),
        }
    }
}

/// Nodes with pods on them.
#[derive(Debug)]
pub struct Shape {
    /// The first is the client's; only there a load balancer is needed.
    pub nodes: Vec<Namespace>,
    /// The client.
    pub client: Pod,
    /// Three backends.
    pub backends: [Pod; 3],
}

/// A function that makes a shape.
pub type Make = fn() -> Result<Shape>;

/// How to make each shape, by name.
pub const ALL: [(&str, Make); 3] = [("routed", routed), ("bridge", bridge), ("vxlan", vxlan)];

/// Pods as /32 routes, as Calico and many cloud CNIs do it.
///
/// # Errors
/// What the kernel or `ip` says.
pub fn routed() -> Result<Shape> {
    let node = new_node("node")?;
    let client = pod("client", 1, 5, &node, routed_pod)?;
    let backends = [
        pod("backend-1", 1, 21, &node, routed_pod)?,
        pod("backend-2", 1, 22, &node, routed_pod)?,
        pod("backend-3", 1, 23, &node, routed_pod)?,
    ];
    Ok(Shape { nodes: vec![node], client, backends })
}

/// Two nodes with routed pods and plain routes between them, as Calico does it without an overlay. It is not in [`ALL`].
///
/// # Errors
/// What the kernel or `ip` says.
pub fn two_nodes() -> Result<Shape> {
    let node_a = new_node("node-a")?;
    let node_b = new_node("node-b")?;
    node_a.join("eth0", &node_b, "eth0")?;
    for (node, subnet, other) in [(&node_a, 1, 2), (&node_b, 2, 1)] {
        node.ip(&format!("addr add 192.168.50.{subnet}/24 dev eth0"))?;
        node.ip(&format!("addr add 2001:db8:ff::{subnet}/64 dev eth0 nodad"))?;
        node.ip(&format!("route add 10.244.{other}.0/24 via 192.168.50.{other}"))?;
        node.ip(&format!("route add 2001:db8:{other}::/64 via 2001:db8:ff::{other}"))?;
    }
    let client = pod("client", 1, 5, &node_a, routed_pod)?;
    let backends = [
        pod("backend-1", 1, 21, &node_a, routed_pod)?,
        pod("backend-2", 2, 22, &node_b, routed_pod)?,
        pod("backend-3", 2, 23, &node_b, routed_pod)?,
    ];
    Ok(Shape { nodes: vec![node_a, node_b], client, backends })
}

/// Pods of one subnet on a bridge, as the bridge CNI does it: replies cross the ports of the bridge and nothing else.
///
/// # Errors
/// What the kernel or `ip` says.
pub fn bridge() -> Result<Shape> {
    let node = new_node("node")?;
    new_bridge(&node, 1)?;
    let client = pod("client", 1, 5, &node, bridged_pod)?;
    let backends = [
        pod("backend-1", 1, 21, &node, bridged_pod)?,
        pod("backend-2", 1, 22, &node, bridged_pod)?,
        pod("backend-3", 1, 23, &node, bridged_pod)?,
    ];
    Ok(Shape { nodes: vec![node], client, backends })
}

/// Two nodes with a subnet each and VXLAN between them, as flannel does it.
///
/// # Errors
/// What the kernel or `ip` says.
pub fn vxlan() -> Result<Shape> {
    let node_a = new_node("node-a")?;
    let node_b = new_node("node-b")?;
    node_a.join("eth0", &node_b, "eth0")?;
    for (node, subnet, other) in [(&node_a, 1, 2), (&node_b, 2, 1)] {
        let (own, remote) = (10 + subnet, 10 + other);
        node.ip(&format!("addr add 192.168.50.{own}/24 dev eth0"))?;
        node.ip(&format!(
            "link add vxlan0 type vxlan id 1 dstport 4789 dev eth0 local 192.168.50.{own} remote 192.168.50.{remote}"
        ))?;
        node.ip(&format!("addr add 10.244.255.{subnet}/24 dev vxlan0"))?;
        node.ip(&format!("addr add 2001:db8:ff::{subnet}/64 dev vxlan0 nodad"))?;
        node.ip("link set vxlan0 up")?;
        node.ip(&format!("route add 10.244.{other}.0/24 via 10.244.255.{other}"))?;
        node.ip(&format!("route add 2001:db8:{other}::/64 via 2001:db8:ff::{other}"))?;
        new_bridge(node, subnet)?;
    }
    let client = pod("client", 1, 5, &node_a, bridged_pod)?;
    let backends = [
        pod("backend-1", 1, 21, &node_a, bridged_pod)?,
        pod("backend-2", 2, 22, &node_b, bridged_pod)?,
        pod("backend-3", 2, 23, &node_b, bridged_pod)?,
    ];
    Ok(Shape { nodes: vec![node_a, node_b], client, backends })
}

fn new_node(role: &str) -> Result<Namespace> {
    let node = Namespace::new(role)?;
    node.sysctl("net.ipv4.ip_forward", "1")?;
    node.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    // The strictest that distributions choose.
    node.sysctl("net.ipv4.conf.all.rp_filter", "1")?;
    Ok(node)
}

/// A bridge with the first address of the node's subnet.
fn new_bridge(node: &Namespace, subnet: u8) -> Result<()> {
    node.ip("link add br0 type bridge")?;
    node.ip(&format!("addr add 10.244.{subnet}.1/24 dev br0"))?;
    node.ip(&format!("addr add 2001:db8:{subnet}::1/64 dev br0 nodad"))?;
    node.ip("link set br0 up")
}

fn pod(
    name: &str,
    subnet: u8,
    host: u8,
    node: &Namespace,
    connect: fn(&Pod, &Namespace) -> Result<()>,
) -> Result<Pod> {
    let pod = Pod {
        host: Namespace::new(name)?,
        v4: Ipv4Addr::new(10, 244, subnet, host),
        v6: Ipv6Addr::new(0x2001, 0xdb8, subnet.into(), 0, 0, 0, 0, host.into()),
        node_interface: format!("veth-{name}"),
    };
    node.join(&pod.node_interface, &pod.host, POD_INTERFACE)?;
    connect(&pod, node)?;
    Ok(pod)
}

fn routed_pod(pod: &Pod, node: &Namespace) -> Result<()> {
    let (v4, v6, veth) = (pod.v4, pod.v6, &pod.node_interface);
    node.ip(&format!("addr add 169.254.1.1/32 dev {veth}"))?;
    node.ip(&format!("addr add fe80::1/64 dev {veth} nodad"))?;
    node.ip(&format!("route add {v4}/32 dev {veth}"))?;
    node.ip(&format!("route add {v6}/128 dev {veth}"))?;
    pod.host.ip(&format!("addr add {v4}/32 dev {POD_INTERFACE}"))?;
    pod.host.ip(&format!("addr add {v6}/128 dev {POD_INTERFACE} nodad"))?;
    pod.host.ip(&format!("route add 169.254.1.1/32 dev {POD_INTERFACE}"))?;
    pod.host.ip("route add default via 169.254.1.1")?;
    pod.host.ip(&format!("route add default via fe80::1 dev {POD_INTERFACE}"))
}

fn bridged_pod(pod: &Pod, node: &Namespace) -> Result<()> {
    let (v4, v6, veth) = (pod.v4, pod.v6, &pod.node_interface);
    let [_, _, subnet, _] = v4.octets();
    node.ip(&format!("link set {veth} master br0"))?;
    pod.host.ip(&format!("addr add {v4}/24 dev {POD_INTERFACE}"))?;
    pod.host.ip(&format!("addr add {v6}/64 dev {POD_INTERFACE} nodad"))?;
    pod.host.ip(&format!("route add default via 10.244.{subnet}.1"))?;
    pod.host.ip(&format!("route add default via 2001:db8:{subnet}::1"))
}
