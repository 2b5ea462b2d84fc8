//! Who there is: so few that ports are used again, backends are shared, and clients are backends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::seed::{Frontend, sctp, tcp, udp};

const fn v4(a: u8, b: u8, c: u8, d: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port)
}

const fn v6(subnet: u16, host: u16, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host)), port)
}

const fn v6_of(segments: [u16; 8]) -> SocketAddr {
    let [a, b, c, d, e, f, g, h] = segments;
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), 40_000)
}

/// Hosts that are reached by the interface that all packets come in by.
pub(super) const NEIGHBOURS: [SocketAddr; 2] = [v4(10, 244, 1, 6, 40_000), v6(1, 6, 40_000)];

/// The addresses and ports of one family.
pub(super) struct Family {
    /// Who talks to VIPs. Some are backends, with their service ports.
    pub(super) clients: &'static [SocketAddr],
    /// Addresses that no single host has, or that are left alone.
    pub(super) oddities: &'static [SocketAddr],
    /// What Services may listen on.
    pub(super) frontends: &'static [Frontend],
    /// Those who may be backends.
    pub(super) backends: &'static [SocketAddr],
    /// What no Service listens on.
    pub(super) strangers: &'static [SocketAddr],
}

/// IPv4 and IPv6.
pub(super) const FAMILIES: [Family; 2] = [
    Family {
        clients: &[
            v4(10, 244, 1, 5, 40_000),
            v4(10, 244, 1, 5, 40_001),
            NEIGHBOURS[0],
            v4(10, 244, 1, 21, 8080),
            v4(10, 244, 2, 22, 8080),
            v4(10, 244, 2, 22, 53),
        ],
        oddities: &[
            v4(224, 0, 0, 9, 40_000),
            v4(255, 255, 255, 255, 40_000),
            v4(0, 0, 0, 0, 40_000),
            v4(127, 0, 0, 1, 40_000),
            v4(223, 255, 255, 254, 40_000),
            v4(240, 0, 0, 1, 40_000),
        ],
        frontends: &[
            tcp(v4(10, 96, 0, 50, 80)),
            udp(v4(10, 96, 0, 50, 80)),
            udp(v4(10, 96, 0, 50, 53)),
            tcp(v4(10, 96, 0, 60, 80)),
            udp(v4(10, 96, 0, 60, 53)),
            sctp(v4(10, 96, 0, 50, 80)),
            tcp(v4(192, 0, 2, 10, 443)),
            udp(v4(192, 0, 2, 10, 443)),
        ],
        backends: &[
            v4(10, 244, 1, 21, 8080),
            v4(10, 244, 2, 22, 8080),
            v4(10, 244, 2, 23, 8080),
            v4(10, 244, 2, 22, 53),
            v4(10, 244, 2, 24, 80),
            // A VIP as a backend.
            v4(10, 96, 0, 60, 80),
        ],
        strangers: &[
            v4(10, 96, 0, 50, 81),
            v4(10, 96, 0, 60, 0),
            v4(10, 96, 0, 61, 80),
            v4(192, 0, 2, 10, 80),
            v4(198, 51, 100, 1, 443),
        ],
    },
    Family {
        clients: &[
            v6(1, 5, 40_000),
            v6(1, 5, 40_001),
            NEIGHBOURS[1],
            v6(1, 0x21, 8080),
            v6(2, 0x22, 8080),
            v6(2, 0x22, 53),
        ],
        oddities: &[
            v6_of([0xff02, 0, 0, 0, 0, 0, 0, 1]),
            v6_of([0; 8]),
            v6_of([0, 0, 0, 0, 0, 0, 0, 1]),
            v6_of([0, 0, 0, 0, 0, 0, 1, 0]),
            v6_of([0, 0, 0, 0, 0, 0xffff, 0x0af4, 0x0105]),
            v6_of([0xfe80, 0, 0, 0, 0, 0, 0, 5]),
        ],
        frontends: &[
            tcp(v6(0xf0, 0x50, 80)),
            udp(v6(0xf0, 0x50, 80)),
            udp(v6(0xf0, 0x50, 53)),
            tcp(v6(0xf0, 0x60, 80)),
            udp(v6(0xf0, 0x60, 53)),
            sctp(v6(0xf0, 0x50, 80)),
            tcp(v6(0xee, 0x10, 443)),
            udp(v6(0xee, 0x10, 443)),
        ],
        backends: &[
            v6(1, 0x21, 8080),
            v6(2, 0x22, 8080),
            v6(2, 0x23, 8080),
            v6(2, 0x22, 53),
            v6(2, 0x24, 80),
            v6(0xf0, 0x60, 80),
        ],
        strangers: &[
            v6(0xf0, 0x50, 81),
            v6(0xf0, 0x60, 0),
            v6(0xf0, 0x61, 80),
            v6(0xee, 0x10, 80),
            // The IPv4-mapped form of a VIP.
            SocketAddr::new(IpAddr::V6(Ipv4Addr::new(10, 96, 0, 50).to_ipv6_mapped()), 80),
        ],
    },
];

/// What may be a ClusterIP: the addresses of the first frontends of a family, but not of the last two.
pub(super) fn may_be_cluster_ip(frontend: &Frontend) -> bool {
    frontend.0.port() != 443
}
