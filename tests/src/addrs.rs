//! Who is who in the tests: the addresses and ports of every role.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const fn v4(a: u8, b: u8, c: u8, d: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port)
}

const fn v6(subnet: u16, host: u16, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host)), port)
}

/// The client pod, with the port that it uses for TCP.
pub const CLIENT: SocketAddr = v4(10, 244, 1, 5, 40_000);
/// The same pod, with the port that it uses for UDP.
pub const CLIENT_UDP: SocketAddr = v4(10, 244, 1, 5, 40_001);
/// ClusterIP and port of the Service `default/web`.
pub const VIP: SocketAddr = v4(10, 96, 0, 50, 80);
/// The address of [`VIP`] at the port of a name server.
pub const VIP_DNS: SocketAddr = v4(10, 96, 0, 50, 53);
/// ClusterIP and port of a second Service.
pub const OTHER_VIP: SocketAddr = v4(10, 96, 0, 60, 80);
/// Backends of `default/web`.
pub const BACKEND_1: SocketAddr = v4(10, 244, 1, 21, 8080);
/// See [`BACKEND_1`].
pub const BACKEND_2: SocketAddr = v4(10, 244, 2, 22, 8080);
/// See [`BACKEND_1`].
pub const BACKEND_3: SocketAddr = v4(10, 244, 2, 23, 8080);
/// The pod of [`BACKEND_1`] as a name server.
pub const BACKEND_1_DNS: SocketAddr = v4(10, 244, 1, 21, 5353);
/// The pod of [`BACKEND_2`] as a name server.
pub const BACKEND_2_DNS: SocketAddr = v4(10, 244, 2, 22, 5353);
/// No Service's address.
pub const STRANGER: SocketAddr = v4(10, 96, 200, 1, 80);

/// The client pod's IPv6 end.
pub const CLIENT_V6: SocketAddr = v6(1, 5, 40_000);
/// The IPv6 ClusterIP of `default/web`.
pub const VIP_V6: SocketAddr = v6(0xf0, 0x50, 80);
/// A backend of [`VIP_V6`].
pub const BACKEND_V6: SocketAddr = v6(2, 0x22, 8080);

/// A client outside the cluster.
pub const OUTSIDER: SocketAddr = v4(203, 0, 113, 9, 40_000);
/// This node, at a NodePort.
pub const NODE_PORT: SocketAddr = v4(192, 168, 50, 11, 30_080);
/// A load-balancer address.
pub const BALANCED: SocketAddr = v4(198, 51, 100, 20, 80);

/// [`OUTSIDER`] in IPv6.
pub const OUTSIDER_V6: SocketAddr = v6(0x9999, 9, 40_000);
/// [`NODE_PORT`] in IPv6.
pub const NODE_PORT_V6: SocketAddr = v6(0x5000, 11, 30_080);
/// [`BALANCED`] in IPv6.
pub const BALANCED_V6: SocketAddr = v6(0x6000, 0x20, 80);
