//! A host outside the cluster, behind a node's uplink.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use super::Namespace;

/// Addresses of the host, IPv4 and IPv6.
pub const OUTSIDER: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x9999, 0, 0, 0, 0, 9)),
];

/// Addresses of the node towards it.
pub const UPLINK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x9999, 0, 0, 0, 0, 1)),
];

/// Joins a host to the interface `eth1` of a node, which leads everywhere for it.
///
/// # Errors
/// What `ip` says.
pub fn outsider_of(node: &Namespace) -> Result<Namespace> {
    let outsider = Namespace::new("outsider")?;
    node.join("eth1", &outsider, "eth0")?;
    for (host, interface, [v4, v6]) in [(node, "eth1", UPLINK), (&outsider, "eth0", OUTSIDER)] {
        host.ip(&format!("addr add {v4}/24 dev {interface}"))?;
        host.ip(&format!("addr add {v6}/64 dev {interface} nodad"))?;
    }
    for gateway in UPLINK {
        outsider.ip(&format!("route add default via {gateway}"))?;
    }
    Ok(outsider)
}
