//! Links of a smaller MTU behind a VIP, on either side: who sends too much is told, and large datagrams arrive.
//!
//! ```text
//!   client, backends ─veth─ node ─A─ router-1 ─B─ router-2 ─veth─ far        A or B has the smaller MTU
//! ```
//!
//! What is too large for A is noticed by the node itself, what is too large for B by a router of another host.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use lb_common::{
    BackendSet, BackendState, BackendValue, ServiceKey, ServiceValue, SlotKey,
    addr::from_ip,
    backend::state,
    service::{flags, proto, scope},
};
use lb_tests::{
    bpf_root::BpfRoot,
    bulk::{echo, exchange, serve},
    datapath::{config, live},
    frames::FrameSocket,
    netns::{
        Namespace,
        shapes::{self, POD_INTERFACE, Shape, VIP, VIP_V6},
    },
};
use lb_userspace::{
    datapath::{Attachments, Config, HostRouting, TcAttach, schema_folder},
    maps::{BpfMaps, LbMaps, Op},
};
use nix::sys::socket::{setsockopt, sockopt};

const PORT: u16 = 80;
const BACKEND_PORT: u16 = 8080;
const VIPS: [IpAddr; 2] = [IpAddr::V4(VIP), IpAddr::V6(VIP_V6)];
const SMALL_MTU: u16 = 1400;
const BYTES: usize = 5_000_000;

/// Which link is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Small {
    OfTheNode,
    Beyond,
}

/// Who is at the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    Client,
    Backend,
}

struct World {
    shape: Shape,
    _routers: [Namespace; 2],
    far: Namespace,
    who: Far,
    _root: BpfRoot,
}

impl World {
    fn new(small: Small, who: Far, host_routing: HostRouting) -> Result<Self> {
        let shape = shapes::routed()?;
        let routers = [Namespace::new("router-1")?, Namespace::new("router-2")?];
        let far = Namespace::new("far")?;
        let hosts = [&shape.nodes[0], &routers[0], &routers[1], &far];
        for (link, pair) in (50..).zip(hosts.windows(2)) {
            let (near, beyond) = (pair[0], pair[1]);
            near.join("out", beyond, "in")?;
            for (host, interface, own) in [(near, "out", 1), (beyond, "in", 2)] {
                host.ip(&format!("addr add 192.168.{link}.{own}/24 dev {interface}"))?;
                host.ip(&format!("addr add 2001:db8:{link}::{own}/64 dev {interface} nodad"))?;
            }
            beyond.ip(&format!("route add default via 192.168.{link}.1"))?;
            beyond.ip(&format!("route add default via 2001:db8:{link}::1"))?;
            for further in link + 1..53 {
                near.ip(&format!("route add 192.168.{further}.0/24 via 192.168.{link}.2"))?;
                near.ip(&format!("route add 2001:db8:{further}::/64 via 2001:db8:{link}::2"))?;
            }
        }
        for host in &routers {
            host.sysctl("net.ipv4.ip_forward", "1")?;
            host.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        }
        let (near, beyond) = match small {
            Small::OfTheNode => (hosts[0], hosts[1]),
            Small::Beyond => (hosts[1], hosts[2]),
        };
        near.ip(&format!("link set out mtu {SMALL_MTU}"))?;
        beyond.ip(&format!("link set in mtu {SMALL_MTU}"))?;
        // Hosts that would find out on their own prove nothing.
        for host in [&shape.client.host, &shape.backends[0].host, &far] {
            host.sysctl("net.ipv4.tcp_mtu_probing", "0")?;
        }
        let root = BpfRoot::new()?;
        let config = Config { host_routing, ..config(root.path(), TcAttach::Auto) };
        live(&shape.nodes[0], &config, &[], true, async |life| {
            let attached = |now: &Attachments| now.interfaces.iter().all(|state| state.error.is_none());
            life.until("attached", |now| now.complete && attached(now)).await
        })?;
        let mut maps = BpfMaps::open(&schema_folder(root.path()))?;
        let world = Self { shape, _routers: routers, far, who, _root: root };
        world.write(&mut maps)?;
        Ok(world)
    }

    /// Serves TCP and UDP on both VIPs, by the one backend.
    fn write(&self, maps: &mut BpfMaps) -> Result<()> {
        for (block, vip) in (1..).zip(VIPS) {
            let address = from_ip(self.backend_address(vip));
            let value = BackendValue { address, port: BACKEND_PORT, pad: 0, backend_id: block };
            maps.apply(&Op::PutState(block, BackendState { flags: state::ACTIVE }))?;
            maps.apply(&Op::PutBackend(SlotKey { block, slot: 0, pad: 0 }, value))?;
            let set = BackendSet { block, count: 1, local: 0 };
            for proto in [proto::TCP, proto::UDP] {
                let key = ServiceKey { address: from_ip(vip), port: PORT, proto, scope: scope::ANY };
                let value = ServiceValue { set, service_id: block, ..ServiceValue::default() };
                maps.apply(&Op::PutService(key, value))?;
            }
            let value = ServiceValue { flags: flags::CLUSTER_IP | flags::USABLE, ..ServiceValue::default() };
            maps.apply(&Op::PutService(ServiceKey::whole(from_ip(vip)), value))?;
        }
        Ok(())
    }

    fn far_address(like: IpAddr) -> IpAddr {
        match like {
            IpAddr::V4(_) => Ipv4Addr::new(192, 168, 52, 2).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0x52, 0, 0, 0, 0, 2).into(),
        }
    }

    fn client(&self) -> &Namespace {
        match self.who {
            Far::Client => &self.far,
            Far::Backend => &self.shape.client.host,
        }
    }

    fn backend(&self) -> &Namespace {
        match self.who {
            Far::Client => &self.shape.backends[0].host,
            Far::Backend => &self.far,
        }
    }

    fn backend_address(&self, like: IpAddr) -> IpAddr {
        match self.who {
            Far::Client => self.shape.backends[0].address(like),
            Far::Backend => Self::far_address(like),
        }
    }

    fn client_address(&self, like: IpAddr) -> IpAddr {
        match self.who {
            Far::Client => Self::far_address(like),
            Far::Backend => self.shape.client.address(like),
        }
    }
}

/// Whether a host has been told of the small link on the way to an address.
fn knows(host: &Namespace, address: IpAddr) -> Result<bool> {
    Ok(host.sh(&format!("ip route get {address}"))?.contains(&format!("mtu {SMALL_MTU}")))
}

#[test]
fn both_ends_learn_the_mtu_of_the_path_and_everything_arrives() {
    everything_arrives(HostRouting::Stack);
}

/// What is too long for an interface is left to the stack, which tells the sender; the rest goes past it.
#[test]
fn past_the_stack_too_both_ends_learn_the_mtu_of_the_path_and_everything_arrives() {
    everything_arrives(HostRouting::Bpf);
}

fn everything_arrives(host_routing: HostRouting) {
    for (small, who) in [
        (Small::OfTheNode, Far::Backend),
        (Small::Beyond, Far::Backend),
        (Small::OfTheNode, Far::Client),
        (Small::Beyond, Far::Client),
    ] {
        let world = World::new(small, who, host_routing).unwrap();
        let _server = serve(world.backend(), BACKEND_PORT).unwrap();
        for vip in VIPS {
            let to = SocketAddr::new(vip, PORT);
            let case = format!("{small:?}, far {who:?}, {vip}");
            // In one connection: at the next one, who knows the MTU would tell the other.
            exchange(world.client(), to, BYTES).with_context(|| case.clone()).unwrap();
            assert!(knows(world.client(), vip).unwrap(), "{case}: the client has learnt it");
            let client = world.client_address(vip);
            assert!(knows(world.backend(), client).unwrap(), "{case}: the backend has learnt it");
        }
    }
}

#[test]
fn b49_large_datagrams_go_both_ways_whoever_cuts_them_up() {
    for (small, who) in [(Small::OfTheNode, Far::Backend), (Small::Beyond, Far::Client)] {
        let world = World::new(small, who, HostRouting::Stack).unwrap();
        let _server = serve(world.backend(), BACKEND_PORT).unwrap();
        for vip in VIPS {
            let to = SocketAddr::new(vip, PORT);
            // Whoever sends learns the MTU of the path; the datagrams that tell it are lost in IPv6.
            exchange(world.client(), to, BYTES).unwrap();
            for len in [3000, 60_000, 1473, 1474, 1475, 1476] {
                echo(world.client(), to, len).with_context(|| format!("{small:?} {who:?} {vip}")).unwrap();
            }
        }
    }
}

/// As traceroute does: a datagram whose time to live runs out behind the node, on its way to the backend.
#[test]
fn time_exceeded_quotes_the_packet_to_the_vip() {
    let world = World::new(Small::Beyond, Far::Backend, HostRouting::Stack).unwrap();
    let client = &world.shape.client;
    for (vip, router) in VIPS.into_iter().zip(["192.168.50.2", "2001:db8:50::2"]) {
        let router: IpAddr = router.parse().unwrap();
        let seen = FrameSocket::open(&client.host, POD_INTERFACE).unwrap();
        client.host.run(|| {
            let any = if vip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).unwrap();
            set_hops(&socket, vip, 2).unwrap();
            socket.send_to(b"where?", (vip, PORT)).unwrap();
        });
        let error = seen.receive(Duration::from_secs(3), |frame| quoted(frame, router).is_some()).unwrap();
        assert_eq!(quoted(&error, router), Some((world.client_address(vip), vip)), "{error:02x?}");
    }
}

fn set_hops(socket: &UdpSocket, vip: IpAddr, hops: u32) -> Result<()> {
    match vip {
        IpAddr::V4(_) => socket.set_ttl(hops)?,
        IpAddr::V6(_) => setsockopt(socket, sockopt::Ipv6Ttl, &hops.cast_signed())?,
    }
    Ok(())
}

/// Source and destination of the packet that an ICMP error from a router quotes.
fn quoted(frame: &[u8], router: IpAddr) -> Option<(IpAddr, IpAddr)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let source: IpAddr = match packet.net? {
        NetSlice::Ipv4(ip) => ip.header().source_addr().into(),
        NetSlice::Ipv6(ip) => ip.header().source_addr().into(),
        NetSlice::Arp(_) => return None,
    };
    let payload = match packet.transport? {
        TransportSlice::Icmpv4(icmp) => icmp.payload().to_vec(),
        TransportSlice::Icmpv6(icmp) => icmp.payload().to_vec(),
        _ => return None,
    };
    if source != router {
        return None;
    }
    match etherparse::LaxSlicedPacket::from_ip(&payload).ok()?.net? {
        etherparse::LaxNetSlice::Ipv4(ip) => {
            Some((ip.header().source_addr().into(), ip.header().destination_addr().into()))
        }
        etherparse::LaxNetSlice::Ipv6(ip) => {
            Some((ip.header().source_addr().into(), ip.header().destination_addr().into()))
        }
        etherparse::LaxNetSlice::Arp(_) => None,
    }
}
