//! Clients on the node itself: real sockets, the compiled programs on a cgroup of the test's own, and maps as the agent
//! writes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
};

use anyhow::{Result, ensure};
use lb_common::{
    BackendSet, BackendState, BackendValue, Prefix, ServiceKey, ServiceValue, Settings, SlotKey, Verdict,
    addr::from_ip,
    backend::state,
    service::{flags, proto, scope},
};
use lb_tests::{
    bpf_root::BpfRoot,
    cgroup::{Cgroup, links_on, programs_on},
    datapath::{config, live},
    netns::Namespace,
    traffic::{NameServer, TIMEOUT},
};
use lb_userspace::{
    datapath::{Attachments, Config, SocketLb, TcAttach, Trace, cleanup, schema_folder},
    maps::{BpfMaps, LbMaps, Op, PinnedMaps},
    sock_gc::SockGc,
};

const PORT: u16 = 80;
const BACKEND_PORT: u16 = 8080;

/// The addresses of one role, in both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Both(Ipv4Addr, Ipv6Addr);

const fn both(v4: [u8; 4], subnet: u16, host: u16) -> Both {
    let [a, b, c, d] = v4;
    Both(Ipv4Addr::new(a, b, c, d), Ipv6Addr::new(0x2001, 0xdb8, subnet, 0, 0, 0, 0, host))
}

const NODE: Both = both([192, 168, 50, 11], 0x50, 0x11);
const REMOTE: Both = both([10, 244, 2, 22], 2, 0x22);
const VIP: Both = both([10, 96, 0, 50], 0xf0, 0x50);
const OTHER_VIP: Both = both([10, 96, 0, 60], 0xf0, 0x60);

/// How a client writes an address.
#[derive(Clone, Copy, Debug)]
enum Form {
    V4,
    V6,
    /// IPv4, by an IPv6 socket.
    Mapped,
}

const FORMS: [Form; 3] = [Form::V4, Form::V6, Form::Mapped];

impl Form {
    fn of(self, role: Both) -> IpAddr {
        match self {
            Self::V4 => role.0.into(),
            Self::V6 => role.1.into(),
            Self::Mapped => role.0.to_ipv6_mapped().into(),
        }
    }

    fn any(self) -> SocketAddr {
        match self {
            Self::V4 => (Ipv4Addr::UNSPECIFIED, 0).into(),
            Self::V6 | Self::Mapped => (Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }
}

/// A node, a host beyond its uplink, a server on each, and a cgroup for clients.
struct Fixture {
    node: Namespace,
    remote: Namespace,
    cgroup: Cgroup,
    root: BpfRoot,
    _servers: [NameServer; 2],
    blocks: u32,
}

impl Fixture {
    fn new() -> Result<Self> {
        let node = Namespace::new("node")?;
        let remote = Namespace::new("remote")?;
        node.join("eth0", &remote, "eth0")?;
        for (host, own, other) in [(&node, NODE, REMOTE), (&remote, REMOTE, NODE)] {
            host.ip(&format!("addr add {}/32 dev eth0", own.0))?;
            host.ip(&format!("addr add {}/128 dev eth0 nodad", own.1))?;
            host.ip(&format!("route add {}/32 dev eth0", other.0))?;
            host.ip(&format!("route add {}/128 dev eth0", other.1))?;
        }
        let servers = [NameServer::start(&node, BACKEND_PORT)?, NameServer::start(&remote, BACKEND_PORT)?];
        Ok(Self { node, remote, cgroup: Cgroup::new()?, root: BpfRoot::new()?, _servers: servers, blocks: 0 })
    }

    fn config(&self, socket_lb: SocketLb) -> Config {
        let cgroup = Some(self.cgroup.path().to_owned());
        Config { socket_lb, cgroup, ..config(self.root.path(), TcAttach::Auto) }
    }

    /// One life of the datapath, on the uplink too, killed at its end.
    fn live(&self, config: &Config) -> Result<Attachments> {
        live(&self.node, config, &["eth0"], true, async |life| life.until_on(&["eth0"]).await)
    }

    /// A life in which nothing is missing.
    fn serve_sockets(&self, socket_lb: SocketLb) -> Result<()> {
        let now = self.live(&self.config(socket_lb))?;
        ensure!(now.sockets.error.is_none() && now.sockets.hooks.len() == 8, "{:?}", now.sockets);
        Ok(())
    }

    fn maps(&self) -> Result<BpfMaps> {
        Ok(BpfMaps::open(&schema_folder(self.root.path()))?)
    }

    /// Gives a VIP these backends, in both families, for TCP and UDP.
    fn serve(&mut self, vip: Both, backends: &[Both], service_flags: u32) -> Result<()> {
        let value = ServiceValue { flags: service_flags, ..ServiceValue::default() };
        self.serve_as(vip, backends, scope::ANY, value)
    }

    /// The same for clients of a scope, with what is in `like` beside the set and the id.
    fn serve_as(&mut self, vip: Both, backends: &[Both], scope: u8, like: ServiceValue) -> Result<()> {
        let mut maps = self.maps()?;
        for proto in [proto::TCP, proto::UDP] {
            for (vip, v6) in [(IpAddr::from(vip.0), false), (vip.1.into(), true)] {
                self.blocks += 1;
                let block = self.blocks;
                for (slot, &backend) in (0..).zip(backends) {
                    let address = if v6 { backend.1.into() } else { IpAddr::from(backend.0) };
                    let backend_id = id(vip, proto, address);
                    let value =
                        BackendValue { address: from_ip(address), port: BACKEND_PORT, pad: 0, backend_id };
                    maps.apply(&Op::PutBackend(SlotKey { block, slot, pad: 0 }, value))?;
                    maps.apply(&Op::PutState(backend_id, BackendState { flags: state::ACTIVE }))?;
                }
                let set = BackendSet { block, count: u16::try_from(backends.len())?, local: 0 };
                let value = ServiceValue { set, service_id: id(vip, proto, vip), ..like };
                maps.apply(&Op::PutService(ServiceKey { scope, ..key(vip, proto) }, value))?;
            }
        }
        Ok(())
    }

    /// What was counted since everything began; what was not is left out.
    fn counted(&self) -> Result<BTreeMap<Verdict, u64>> {
        let mut counters = PinnedMaps::open(&schema_folder(self.root.path()))?.counters()?;
        counters.retain(|_, count| *count != 0);
        Ok(counters)
    }

    /// Runs a client on the node.
    fn client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.cgroup.run(&self.node, work)
    }
}

fn key(vip: IpAddr, proto: u8) -> ServiceKey {
    ServiceKey { address: from_ip(vip), port: PORT, proto, scope: scope::ANY }
}

/// An id for a member of a service port: the last parts of both addresses and the protocol.
fn id(vip: IpAddr, proto: u8, member: IpAddr) -> u32 {
    let last = |ip: IpAddr| u32::from(from_ip(ip)[15]);
    let family = u32::from(vip.is_ipv6()) << 24;
    family | u32::from(proto) << 16 | last(vip) << 8 | last(member)
}

/// What a client finds out.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    peer: SocketAddr,
    local: IpAddr,
}

fn tcp(to: SocketAddr) -> io::Result<Seen> {
    let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"who?")?;
    let mut name = [0; 64];
    let length = stream.read(&mut name)?;
    Ok(Seen { name: text(&name[..length]), peer: stream.peer_addr()?, local: stream.local_addr()?.ip() })
}

fn connected_udp(to: SocketAddr, from: SocketAddr) -> io::Result<Seen> {
    let socket = UdpSocket::bind(from)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.connect(to)?;
    socket.send(b"who?")?;
    let mut name = [0; 64];
    let (length, source) = socket.recv_from(&mut name)?;
    assert_eq!(source, to, "the source of the answer");
    Ok(Seen { name: text(&name[..length]), peer: socket.peer_addr()?, local: socket.local_addr()?.ip() })
}

/// Asks with a destination, and tells who answered, and as whom.
fn ask(socket: &UdpSocket, to: SocketAddr) -> io::Result<(String, SocketAddr)> {
    socket.send_to(b"who?", to)?;
    let mut name = [0; 64];
    let (length, source) = socket.recv_from(&mut name)?;
    Ok((text(&name[..length]), source))
}

fn unconnected(form: Form) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(form.any())?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

/// Asks whom the socket is connected to.
fn question(socket: &UdpSocket) -> io::Result<String> {
    socket.send(b"who?")?;
    let mut name = [0; 64];
    let length = socket.recv(&mut name)?;
    Ok(text(&name[..length]))
}

/// What becomes of a connection, a connected socket of UDP and a datagram that names its destination.
fn every_call(form: Form, to: SocketAddr) -> io::Result<[Result<(), io::ErrorKind>; 3]> {
    let connected = TcpStream::connect(to).map(drop);
    let socket = unconnected(form)?;
    let sent = socket.send_to(b"who?", to).map(drop);
    Ok([connected, socket.connect(to), sent].map(|result| result.map_err(|error| error.kind())))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// getsockname says the node's own address and port, as for a connection to the backend itself.
#[test]
fn b29_a_client_on_the_node_reaches_every_kind_of_backend_from_the_nodes_address_and_is_told_the_vip() {
    for (name, backend, lo) in [
        ("a remote backend", REMOTE, None),
        ("a backend on the host network of this node", NODE, None),
        ("with another address on lo", REMOTE, Some("10.1.1.1/32")),
    ] {
        let mut fixture = Fixture::new().unwrap();
        if let Some(address) = lo {
            fixture.node.ip(&format!("addr add {address} dev lo")).unwrap();
        }
        fixture.serve_sockets(SocketLb::Host).unwrap();
        fixture.serve(VIP, &[backend], 0).unwrap();
        for form in FORMS {
            let vip = SocketAddr::new(form.of(VIP), PORT);
            let role = if backend == NODE { "node" } else { "remote" };
            let want = || Seen { name: role.to_owned(), peer: vip, local: form.of(NODE) };
            let asked = fixture.client(|| (tcp(vip), connected_udp(vip, form.any())));
            assert_eq!(asked.0.unwrap(), want(), "{name}, TCP, {form:?}");
            assert_eq!(asked.1.unwrap(), want(), "{name}, UDP, {form:?}");
        }
        // Nothing else: the programs on the uplink have found nothing to translate.
        assert_eq!(fixture.counted().unwrap(), BTreeMap::from([(Verdict::SocketBound, 6)]), "{name}");
    }
}

#[test]
fn what_is_no_frontend_and_who_is_in_another_cgroup_is_left_alone() {
    let mut fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::Host).unwrap();
    fixture.serve(VIP, &[REMOTE], 0).unwrap();
    for form in FORMS {
        let direct = SocketAddr::new(form.of(REMOTE), BACKEND_PORT);
        let want = || Seen { name: "remote".to_owned(), peer: direct, local: form.of(NODE) };
        let asked = fixture.client(|| (tcp(direct), connected_udp(direct, form.any())));
        assert_eq!((asked.0.unwrap(), asked.1.unwrap()), (want(), want()), "{form:?}");
        let other_port = SocketAddr::new(form.of(VIP), PORT + 1);
        let refused = fixture.client(|| tcp(other_port)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NetworkUnreachable, "{form:?}");
        let vip = SocketAddr::new(form.of(VIP), PORT);
        let outside = fixture.node.run(|| tcp(vip)).unwrap_err();
        assert_eq!(outside.kind(), io::ErrorKind::NetworkUnreachable, "{form:?}");
    }
    assert_eq!(fixture.counted().unwrap(), BTreeMap::new());
}

#[test]
fn one_socket_hears_each_of_two_vips_by_its_own_name_also_where_they_share_backends() {
    for (name, other_backends) in
        [("apart", [NODE].as_slice()), ("shared", &[REMOTE, NODE]), ("the same one", &[REMOTE])]
    {
        let mut fixture = Fixture::new().unwrap();
        fixture.serve_sockets(SocketLb::Host).unwrap();
        fixture.serve(VIP, &[REMOTE], 0).unwrap();
        fixture.serve(OTHER_VIP, other_backends, 0).unwrap();
        for form in FORMS {
            let vips = [VIP, OTHER_VIP].map(|vip| SocketAddr::new(form.of(vip), PORT));
            let answers = fixture.client(|| {
                let socket = unconnected(form)?;
                (0..6).map(|round| ask(&socket, vips[round % 2])).collect::<io::Result<Vec<_>>>()
            });
            // A backend that speaks for the first VIP already is taken only where there is no other.
            let other = if name == "the same one" { "remote" } else { "node" };
            let want = (0..6).map(|round| (["remote", other][round % 2].to_owned(), vips[round % 2]));
            assert_eq!(answers.unwrap(), want.collect::<Vec<_>>(), "{name}, {form:?}");
        }
        let counted = fixture.counted().unwrap();
        let want = BTreeMap::from([(Verdict::SocketBound, 6), (Verdict::SocketContinued, 12)]);
        assert_eq!(counted, want, "{name}");
    }
}

#[test]
fn datagrams_of_a_socket_stay_with_a_backend_that_serves_and_leave_one_that_does_not() {
    let mut fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::Host).unwrap();
    for form in FORMS {
        let vip = SocketAddr::new(form.of(VIP), PORT);
        fixture.serve(VIP, &[REMOTE], 0).unwrap();
        let socket = fixture.client(|| unconnected(form)).unwrap();
        assert_eq!(ask(&socket, vip).unwrap(), ("remote".to_owned(), vip));

        // It is terminating: the set is another one, and who is there stays.
        let member = id(vip.ip().to_canonical(), proto::UDP, form.of(REMOTE).to_canonical());
        let mut maps = fixture.maps().unwrap();
        fixture.serve(VIP, &[NODE], 0).unwrap();
        maps.apply(&Op::PutState(member, BackendState { flags: state::DRAINING })).unwrap();
        assert_eq!(ask(&socket, vip).unwrap(), ("remote".to_owned(), vip), "{form:?}");

        maps.apply(&Op::DeleteState(member)).unwrap();
        assert_eq!(ask(&socket, vip).unwrap(), ("node".to_owned(), vip), "{form:?}");
    }
    let want = BTreeMap::from([(Verdict::SocketBound, 6), (Verdict::SocketContinued, 3)]);
    assert_eq!(fixture.counted().unwrap(), want);
}

/// The kernel delivers answers of its peer only, so a connected socket that names the VIP once more must not get another
/// backend.
#[test]
fn a_connected_socket_that_names_its_vip_again_stays_with_its_backend() {
    let mut fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::Host).unwrap();
    fixture.serve(VIP, &[REMOTE, NODE], 0).unwrap();
    let vip = SocketAddr::new(Form::V4.of(VIP), PORT);
    let answers = fixture.client(|| {
        let ten = 0..10;
        ten.map(|_| {
            let socket = unconnected(Form::V4)?;
            socket.connect(vip)?;
            ask(&socket, vip)
        })
        .collect::<io::Result<Vec<_>>>()
    });
    assert!(answers.unwrap().iter().all(|(_, source)| *source == vip));
    let want = BTreeMap::from([(Verdict::SocketBound, 10), (Verdict::SocketContinued, 10)]);
    assert_eq!(fixture.counted().unwrap(), want);
}

#[test]
fn a_service_without_endpoints_fails_a_call_at_once_with_the_error_that_says_so() {
    for (service_flags, kind, verdict) in [
        (0, io::ErrorKind::ConnectionRefused, Verdict::SocketRefused),
        (flags::DROP_WHEN_EMPTY, io::ErrorKind::TimedOut, Verdict::SocketTimedOut),
    ] {
        let mut fixture = Fixture::new().unwrap();
        fixture.serve_sockets(SocketLb::Host).unwrap();
        fixture.serve(VIP, &[], service_flags).unwrap();
        for form in FORMS {
            let vip = SocketAddr::new(form.of(VIP), PORT);
            assert_eq!(fixture.client(|| every_call(form, vip)).unwrap(), [Err(kind); 3], "{form:?}");
        }
        assert_eq!(fixture.counted().unwrap(), BTreeMap::from([(verdict, 9)]));
    }
}

#[test]
fn b26_an_unknown_port_of_a_cluster_ip_fails_a_call_at_once() {
    let mut fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::Host).unwrap();
    fixture.serve(VIP, &[REMOTE], flags::CLUSTER_IP).unwrap();
    let mut maps = fixture.maps().unwrap();
    let nothing = Settings { cluster_ips: [Prefix::NOTHING; 2], ..Settings::default() };
    let mut settings = nothing;
    for vip in [VIP, OTHER_VIP].into_iter().flat_map(|vip| [IpAddr::from(vip.0), vip.1.into()]) {
        let value = ServiceValue { flags: flags::CLUSTER_IP | flags::USABLE, ..ServiceValue::default() };
        maps.apply(&Op::PutService(ServiceKey::whole(from_ip(vip)), value)).unwrap();
        if VIP.0 == vip || VIP.1 == vip {
            settings = settings.with_cluster_ip(from_ip(vip));
        }
    }
    maps.apply(&Op::PutSettings(settings)).unwrap();
    for (name, vip, want) in [
        ("a ClusterIP", VIP, io::ErrorKind::ConnectionRefused),
        ("outside the prefixes that hold every ClusterIP", OTHER_VIP, io::ErrorKind::NetworkUnreachable),
    ] {
        for form in FORMS {
            let to = SocketAddr::new(form.of(vip), PORT + 1);
            assert_eq!(fixture.client(|| every_call(form, to)).unwrap(), [Err(want); 3], "{name}, {form:?}");
        }
    }
    assert_eq!(fixture.counted().unwrap(), BTreeMap::from([(Verdict::SocketRefused, 9)]));
    let served = SocketAddr::new(Form::V4.of(VIP), PORT);
    assert_eq!(fixture.client(|| tcp(served)).unwrap().name, "remote");
}

/// The node is a client inside the cluster: a policy Local and source ranges are for those outside.
#[test]
fn an_external_address_is_reached_as_from_inside_the_cluster() {
    let external = flags::EXTERNAL | flags::SOURCE_RANGES;
    for (name, service_flags, outside, want) in [
        ("with an entry of its own", external | flags::INSIDE_APART, [REMOTE].as_slice(), "node"),
        (
            "where those outside have nobody",
            external | flags::INSIDE_APART | flags::DROP_WHEN_EMPTY,
            &[],
            "node",
        ),
        ("without one", external, &[REMOTE], "remote"),
    ] {
        let mut fixture = Fixture::new().unwrap();
        fixture.serve_sockets(SocketLb::Host).unwrap();
        let like = ServiceValue { flags: external, ..ServiceValue::default() };
        fixture.serve_as(VIP, &[NODE], scope::INSIDE, like).unwrap();
        fixture.serve(VIP, outside, service_flags).unwrap();
        for form in FORMS {
            let vip = SocketAddr::new(form.of(VIP), PORT);
            let asked = fixture.client(|| {
                let names = [tcp(vip)?.name, connected_udp(vip, form.any())?.name];
                io::Result::Ok((names, ask(&unconnected(form)?, vip)?.0))
            });
            let want = want.to_owned();
            assert_eq!(asked.unwrap(), ([want.clone(), want.clone()], want), "{name}, {form:?}");
        }
    }
}

#[test]
fn with_affinity_all_sockets_of_a_namespace_are_one_client_of_a_service_port() {
    let mut fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::All).unwrap();
    let like = ServiceValue { affinity_seconds: 3600, ..ServiceValue::default() };
    fixture.serve_as(VIP, &[REMOTE, NODE], scope::ANY, like).unwrap();
    let ask_all = |fixture: &Fixture, form: Form| {
        let vip = SocketAddr::new(form.of(VIP), PORT);
        fixture.client(|| {
            let (mut by_tcp, mut by_udp) = (BTreeSet::new(), BTreeSet::new());
            for _ in 0..20 {
                by_tcp.insert(tcp(vip)?.name);
                by_udp.insert(connected_udp(vip, form.any())?.name);
                by_udp.insert(ask(&unconnected(form)?, vip)?.0);
            }
            io::Result::Ok([by_tcp, by_udp])
        })
    };
    let records = |fixture: &Fixture| {
        PinnedMaps::open(&schema_folder(fixture.root.path())).unwrap().affinity.count().unwrap()
    };
    let [v4, v6, mapped] = FORMS.map(|form| ask_all(&fixture, form).unwrap());
    for names in v4.iter().chain(&v6) {
        assert_eq!(names.len(), 1, "{names:?}");
    }
    assert_eq!(mapped, v4, "the same Service by the same client");
    assert_eq!(records(&fixture), 2 * 2, "of each protocol and family");

    let vip = SocketAddr::new(Form::V4.of(VIP), PORT);
    fixture.cgroup.run(&fixture.remote, || tcp(vip)).unwrap();
    assert_eq!(records(&fixture), 2 * 2 + 1, "another namespace is another client");

    // The one that it had is in the set no more.
    for stays in [NODE, REMOTE] {
        fixture.serve_as(VIP, &[stays], scope::ANY, like).unwrap();
        let role = if stays == NODE { "node" } else { "remote" };
        let want = || [BTreeSet::from([role.to_owned()]), BTreeSet::from([role.to_owned()])];
        assert_eq!(FORMS.map(|form| ask_all(&fixture, form).unwrap()), [want(), want(), want()]);
    }
    assert_eq!(records(&fixture), 2 * 2 + 1);
}

#[test]
fn b34_a_connected_udp_socket_is_closed_when_its_backend_has_gone_and_no_other_socket_is() {
    let mut fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::Host).unwrap();
    let folder = schema_folder(fixture.root.path());
    let pass = |fixture: &Fixture| {
        fixture.node.block_on(async || SockGc::open(&folder).unwrap().pass().await.unwrap())
    };
    for form in FORMS {
        fixture.serve(VIP, &[REMOTE], 0).unwrap();
        let vip = SocketAddr::new(form.of(VIP), PORT);
        let direct = SocketAddr::new(form.of(REMOTE), BACKEND_PORT);
        let sockets = fixture.client(|| {
            let connected = |to: SocketAddr| {
                let socket = unconnected(form)?;
                socket.connect(to)?;
                io::Result::Ok(socket)
            };
            // The third is connected to the backend itself in the end, whatever it was before.
            let went_over = connected(vip)?;
            went_over.connect(direct)?;
            assert_eq!(went_over.peer_addr()?, direct);
            io::Result::Ok((connected(vip)?, connected(direct)?, went_over, TcpStream::connect(vip)?))
        });
        let (socket, other, went_over, mut stream) = sockets.unwrap();
        assert_eq!(pass(&fixture), 0, "ready, {form:?}");
        let member = id(vip.ip().to_canonical(), proto::UDP, direct.ip().to_canonical());
        let mut maps = fixture.maps().unwrap();
        fixture.serve(VIP, &[NODE], 0).unwrap();
        maps.apply(&Op::PutState(member, BackendState { flags: state::DRAINING })).unwrap();
        assert_eq!(pass(&fixture), 0, "terminating, {form:?}");
        assert_eq!(question(&socket).unwrap(), "remote", "{form:?}");

        for proto in [proto::UDP, proto::TCP] {
            let member = id(vip.ip().to_canonical(), proto, direct.ip().to_canonical());
            maps.apply(&Op::DeleteState(member)).unwrap();
        }
        assert_eq!(pass(&fixture), 1, "gone, {form:?}");
        let error = socket.recv(&mut [0; 64]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{form:?}");
        assert_eq!(socket.peer_addr().unwrap_err().kind(), io::ErrorKind::NotConnected, "{form:?}");
        assert_eq!(question(&other).unwrap(), "remote", "not by way of the VIP, {form:?}");
        assert_eq!(question(&went_over).unwrap(), "remote", "not by way of the VIP any more, {form:?}");
        stream.write_all(b"who?").unwrap();
        let mut name = [0; 64];
        let length = stream.read(&mut name).unwrap();
        assert_eq!(text(&name[..length]), "remote", "TCP goes on, {form:?}");

        fixture.client(|| socket.connect(vip)).unwrap();
        assert_eq!(question(&socket).unwrap(), "node", "{form:?}");
        assert_eq!(pass(&fixture), 0, "{form:?}");
    }
}

#[test]
fn two_datapaths_on_cgroups_of_their_own_serve_their_own_clients() {
    let mut fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::Host).unwrap();
    fixture.serve(VIP, &[REMOTE], 0).unwrap();
    let (root, cgroup) = (BpfRoot::new().unwrap(), Cgroup::new().unwrap());
    let config = Config {
        bpf_root: root.path().to_owned(),
        cgroup: Some(cgroup.path().to_owned()),
        ..fixture.config(SocketLb::Host)
    };
    // On no interface, where the first is.
    live(&fixture.node, &config, &["none"], true, async |life| life.until_on(&[]).await).unwrap();
    let vip = SocketAddr::new(Form::V4.of(VIP), PORT);
    let unknown = || cgroup.run(&fixture.node, || tcp(vip)).unwrap_err().kind();
    assert_eq!(programs_on(cgroup.path()).unwrap(), ALL_CALLS);
    assert_eq!(programs_on(fixture.cgroup.path()).unwrap(), ALL_CALLS);
    assert_eq!(fixture.client(|| tcp(vip)).unwrap().name, "remote");
    assert_eq!(unknown(), io::ErrorKind::NetworkUnreachable, "its own maps are empty");
    fixture.node.block_on(async || cleanup(root.path(), false).await).unwrap();
    assert_eq!(programs_on(cgroup.path()).unwrap(), [""; 0]);
    assert_eq!(fixture.client(|| tcp(vip)).unwrap().name, "remote");
}

#[test]
fn host_leaves_a_process_of_another_namespace_in_the_same_cgroup_alone_and_all_does_not() {
    let mut fixture = Fixture::new().unwrap();
    let vip = SocketAddr::new(Form::V4.of(VIP), PORT);
    for (socket_lb, want) in
        [(SocketLb::Host, Err(io::ErrorKind::NetworkUnreachable)), (SocketLb::All, Ok("node".to_owned()))]
    {
        fixture.serve_sockets(socket_lb).unwrap();
        fixture.serve(VIP, &[NODE], 0).unwrap();
        let asked = fixture.cgroup.run(&fixture.remote, || tcp(vip));
        assert_eq!(asked.map(|seen| seen.name).map_err(|error| error.kind()), want, "{socket_lb:?}");
        assert_eq!(fixture.client(|| tcp(vip)).unwrap().name, "node", "{socket_lb:?}");
    }
}

const ALL_CALLS: [&str; 8] =
    ["connect4", "connect6", "getpeername4", "getpeername6", "recvmsg4", "recvmsg6", "sendmsg4", "sendmsg6"];

#[test]
fn after_any_number_of_starts_there_is_one_program_at_each_call_on_the_links_of_the_first() {
    let mut fixture = Fixture::new().unwrap();
    let vip = SocketAddr::new(Form::V4.of(VIP), PORT);
    let on = |path: &Path| programs_on(path).unwrap();
    assert_eq!(on(fixture.cgroup.path()), [""; 0]);
    fixture.serve_sockets(SocketLb::Host).unwrap();
    fixture.serve(VIP, &[REMOTE], 0).unwrap();
    let links = links_on(fixture.cgroup.path()).unwrap();
    assert_eq!(links.len(), 8);
    for _ in 0..3 {
        fixture.serve_sockets(SocketLb::Host).unwrap();
        assert_eq!(on(fixture.cgroup.path()), ALL_CALLS);
        assert_eq!(links_on(fixture.cgroup.path()).unwrap(), links);
        // Nobody keeps the datapath any more.
        assert_eq!(fixture.client(|| tcp(vip)).unwrap().peer, vip);
    }

    // Another cgroup is another place, and a start without any leaves none.
    let other = Cgroup::new().unwrap();
    let elsewhere = Config { cgroup: Some(other.path().to_owned()), ..fixture.config(SocketLb::Host) };
    fixture.live(&elsewhere).unwrap();
    assert_eq!((on(fixture.cgroup.path()).len(), on(other.path()).len()), (0, 8));
    fixture.live(&fixture.config(SocketLb::Off)).unwrap();
    assert_eq!(on(other.path()), [""; 0]);
}

#[test]
fn a_cleanup_takes_every_program_off_the_cgroup() {
    let fixture = Fixture::new().unwrap();
    fixture.serve_sockets(SocketLb::Host).unwrap();
    let report = fixture.node.block_on(async || cleanup(fixture.root.path(), false).await).unwrap();
    let links = report.removed.iter().filter(|(trace, _)| *trace == Trace::Link).count();
    assert_eq!(links, 8 + 2, "{report:?}");
    assert_eq!(programs_on(fixture.cgroup.path()).unwrap(), [""; 0]);
    assert!(!fixture.root.path().exists());
}

#[test]
fn without_a_cgroup_the_interfaces_are_served_and_one_sentence_says_what_is_not() {
    let fixture = Fixture::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = Config { cgroup: Some(folder.path().to_owned()), ..fixture.config(SocketLb::Host) };
    let now = fixture.live(&config).unwrap();
    assert_eq!(now.sockets.error, Some(format!("{} is not a cgroup of version 2", folder.path().display())));
    assert_eq!(now.sockets.hooks, []);
}
