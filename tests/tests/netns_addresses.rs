//! The addresses of a machine as the kernel tells them, while they and the routes change.
//!
//! Readings that nothing calls for are an hour away, so what is seen was heard of.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails where its ground gives way, with the place in the panic"
)]

use std::{
    fmt::Write as _,
    io::Write as _,
    net::IpAddr,
    time::{Duration, Instant},
};

use lb_tests::{datapath::DEADLINE, netns::Namespace};
use lb_userspace::{
    model::{Host, Object},
    source::{
        Event, Feed, SourceEvent,
        host::{Timing, follow},
    },
};
use tempfile::NamedTempFile;
use tokio::{
    sync::mpsc::{self, Receiver},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

const FEED: Feed = Feed(7);

/// A machine with two interfaces, which lead to a neighbour.
struct Machine {
    node: Namespace,
    neighbour: Namespace,
}

const ETH0: &str = "192.168.50.11";
const ETH0_V6: &str = "2001:db8:50::11";
const ETH1: &str = "192.168.60.5";

impl Machine {
    /// Without default routes.
    fn new() -> Self {
        let node = Namespace::new("node").unwrap();
        let neighbour = Namespace::new("neighbour").unwrap();
        for interface in ["eth0", "eth1"] {
            node.join(interface, &neighbour, interface).unwrap();
        }
        node.ip(&format!("addr add {ETH0}/24 dev eth0")).unwrap();
        node.ip(&format!("addr add {ETH0_V6}/64 dev eth0 nodad")).unwrap();
        node.ip(&format!("addr add {ETH1}/24 dev eth1")).unwrap();
        Self { node, neighbour }
    }

    fn ip(&self, arguments: &str) {
        self.node.ip(arguments).unwrap();
    }

    /// Runs many `ip` commands at once.
    fn ip_batch(&self, commands: impl Iterator<Item = String>) {
        let text = commands.fold(String::new(), |mut text, command| {
            writeln!(text, "{command}").unwrap();
            text
        });
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        self.ip(&format!("-batch {}", file.path().display()));
    }

    /// Messages that the kernel could not deliver to the one socket of this namespace that listens.
    fn lost_messages(&self) -> u64 {
        let table = self.node.sh("cat /proc/thread-self/net/netlink").unwrap();
        let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        // sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
        let listening: Vec<_> = rows.filter(|row| row[3] != "00000000").collect();
        assert_eq!(listening.len(), 1, "{table}");
        listening[0][8].parse().unwrap()
    }
}

/// Believes what the source says.
struct Listener {
    events: Receiver<SourceEvent>,
    host: Host,
    /// How often it was said.
    said: usize,
}

impl Listener {
    /// Of a source on a thread of its own, which ends with this.
    async fn of(machine: &Machine) -> Self {
        Self::with(machine, unprompted_never()).await
    }

    async fn with(machine: &Machine, timing: Timing) -> Self {
        let (sender, events) = mpsc::channel(16);
        drop(machine.node.spawn(move || follow(FEED, sender, timing, CancellationToken::new())));
        Self::listed(events).await
    }

    /// Of a source on this thread, which has to be in the namespace. It stands still while this thread does.
    async fn here() -> Self {
        let (sender, events) = mpsc::channel(16);
        tokio::spawn(follow(FEED, sender, unprompted_never(), CancellationToken::new()));
        Self::listed(events).await
    }

    async fn listed(events: Receiver<SourceEvent>) -> Self {
        let mut listener = Self { events, host: Host::default(), said: 0 };
        assert_eq!(listener.event().await, Event::ListStarted);
        listener.next().await;
        assert_eq!(listener.event().await, Event::ListComplete);
        listener
    }

    async fn event(&mut self) -> Event {
        let heard = timeout(DEADLINE, self.events.recv()).await;
        let SourceEvent { feed, event } =
            heard.unwrap_or_else(|_| panic!("nothing after {:?}", self.host)).expect("the source goes on");
        assert_eq!(feed, FEED);
        event
    }

    async fn next(&mut self) {
        match self.event().await {
            Event::Apply(Object::Host(host)) => {
                assert_ne!((self.said > 0).then_some(&self.host), Some(&host), "said twice");
                self.host = host;
                self.said += 1;
            }
            other => panic!("{other:?}"),
        }
    }

    async fn until(&mut self, addresses: &[&str], primary: &[&str]) {
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let want = (ips(addresses), ips(primary));
        while (&self.host.addresses, &self.host.primary) != (&want.0, &want.1) {
            self.next().await;
        }
    }
}

fn unprompted_never() -> Timing {
    Timing { rescan: Duration::from_secs(3600), ..Timing::default() }
}

#[tokio::test]
async fn addresses_come_and_go() {
    let machine = Machine::new();
    machine.ip("route add default via 192.168.50.1");
    let mut listener = Listener::of(&machine).await;
    listener.until(&[ETH0, ETH1, ETH0_V6], &[ETH0, ETH0_V6]).await;
    assert_eq!(listener.said, 1, "the first list has everything");

    machine.ip("addr add 192.168.60.6/24 dev eth1");
    listener.until(&[ETH0, ETH1, "192.168.60.6", ETH0_V6], &[ETH0, ETH0_V6]).await;
    machine.ip("addr add fd00::60/64 dev eth1 nodad");
    listener.until(&[ETH0, ETH1, "192.168.60.6", ETH0_V6, "fd00::60"], &[ETH0, ETH0_V6]).await;
    machine.ip("addr del 192.168.60.6/24 dev eth1");
    machine.ip("addr del fd00::60/64 dev eth1");
    listener.until(&[ETH0, ETH1, ETH0_V6], &[ETH0, ETH0_V6]).await;

    // Secondary addresses go with the first one of their subnet, and so does the route; the kernel says the former only.
    machine.ip("addr add 192.168.50.12/24 dev eth0");
    listener.until(&[ETH0, "192.168.50.12", ETH1, ETH0_V6], &[ETH0, ETH0_V6]).await;
    machine.ip(&format!("addr del {ETH0}/24 dev eth0"));
    listener.until(&[ETH1, ETH0_V6], &[ETH1, ETH0_V6]).await;

    machine.ip("link del eth0");
    listener.until(&[ETH1], &[ETH1]).await;
    machine.ip("link del eth1");
    listener.until(&[], &[]).await;
}

#[tokio::test]
async fn what_no_other_machine_can_reach_is_not_said() {
    let machine = Machine::new();
    let mut listener = Listener::of(&machine).await;
    listener.until(&[ETH0, ETH1, ETH0_V6], &[ETH0, ETH0_V6]).await;

    machine.ip("addr add 127.0.0.53/8 dev lo");
    machine.ip("addr add 169.254.1.1/32 dev eth0");
    machine.ip("addr add 192.168.70.1/24 dev eth0 scope link");
    machine.ip("addr add fe80::50/64 dev eth0");
    machine.node.join("kube-ipvs0", &machine.neighbour, "ipvs").unwrap();
    machine.ip("addr add 10.96.0.10/32 dev kube-ipvs0");
    machine.ip("addr add 10.0.0.1/32 dev lo");
    listener.until(&["10.0.0.1", ETH0, ETH1, ETH0_V6], &[ETH0, ETH0_V6]).await;
    assert_eq!(listener.said, 2, "of all these only the address on lo");
}

#[tokio::test]
async fn the_primary_address_follows_the_routes_and_rules() {
    let machine = Machine::new();
    let mut listener = Listener::of(&machine).await;
    let all = [ETH0, ETH1, ETH0_V6];
    let steps = [
        ("route replace default via 192.168.60.1 metric 20", ETH1),
        ("route add default via 192.168.50.1 metric 10", ETH0),
        ("route del default via 192.168.50.1 metric 10", ETH1),
        // As a VPN takes over.
        ("-batch", ETH0),
        ("route del 128.0.0.0/1", ETH1),
        ("route add default via 192.168.50.1 table 100", ETH1),
        ("rule add to 203.0.113.0/24 lookup 100", ETH0),
        ("rule del to 203.0.113.0/24 lookup 100", ETH1),
        // The kernel removes the route without a word.
        ("link set eth1 down", ETH0),
        ("link set eth1 up", ETH0),
        ("route replace default via 192.168.60.1", ETH1),
        ("route replace blackhole default", ETH0),
    ];
    for (command, primary) in steps {
        if command == "-batch" {
            let halves = ["0.0.0.0/1", "128.0.0.0/1"];
            machine.ip_batch(halves.map(|half| format!("route add {half} via 192.168.50.1")).into_iter());
        } else {
            machine.ip(command);
        }
        listener.until(&all, &[primary, ETH0_V6]).await;
    }

    machine.ip("addr add 192.168.60.6/24 dev eth1");
    machine.ip("route replace default via 192.168.60.1 src 192.168.60.6");
    listener.until(&[ETH0, ETH1, "192.168.60.6", ETH0_V6], &["192.168.60.6", ETH0_V6]).await;
    machine.ip("addr add 2001:db8:60::5/64 dev eth1");
    machine.ip("-6 route add default via 2001:db8:60::1");
    let all = [ETH0, ETH1, "192.168.60.6", ETH0_V6, "2001:db8:60::5"];
    listener.until(&all, &["192.168.60.6", "2001:db8:60::5"]).await;
}

#[tokio::test]
async fn an_interface_that_is_down_keeps_its_ipv4_addresses_as_the_kernel_does() {
    let machine = Machine::new();
    machine.node.sysctl("net.ipv6.conf.eth1.keep_addr_on_down", "1").unwrap();
    machine.ip("addr add 2001:db8:60::5/64 dev eth1 nodad");
    let mut listener = Listener::of(&machine).await;
    let all = [ETH0, ETH1, ETH0_V6, "2001:db8:60::5"];
    listener.until(&all, &[ETH0, ETH0_V6]).await;

    machine.ip("link set eth1 down");
    listener.until(&[ETH0, ETH1, ETH0_V6], &[ETH0, ETH0_V6]).await;
    let local = machine.node.sh(&format!("ip route get {ETH1}")).unwrap();
    assert!(local.starts_with("local"), "{local}");
    machine.ip("link set eth1 up");
    listener.until(&all, &[ETH0, ETH0_V6]).await;

    // The kernel forgets these, unless it is told to keep them.
    machine.ip("link set eth0 down");
    listener.until(&[ETH0, ETH1, "2001:db8:60::5"], &[ETH1, "2001:db8:60::5"]).await;
    machine.ip("link set eth0 up");
    listener.until(&[ETH0, ETH1, "2001:db8:60::5"], &[ETH0, "2001:db8:60::5"]).await;
}

#[tokio::test]
async fn an_ipv6_address_counts_once_it_is_known_to_be_the_only_one() {
    let machine = Machine::new();
    machine.node.sysctl("net.ipv6.conf.eth0.accept_dad", "1").unwrap();
    machine.neighbour.ip("addr add 2001:db8:50::66/64 dev eth0").unwrap();
    let mut listener = Listener::of(&machine).await;
    machine.ip("addr add 2001:db8:50::12/64 dev eth0");
    machine.ip("addr add 2001:db8:50::66/64 dev eth0");
    machine.ip("addr add 2001:db8:60::13/64 dev eth1 nodad");
    listener.next().await;
    let seen = &listener.host.addresses;
    assert_eq!(*seen, [ETH0, ETH1, ETH0_V6, "2001:db8:60::13"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    listener.next().await;
    let want = [ETH0, ETH1, "2001:db8:50::11", "2001:db8:50::12", "2001:db8:60::13"];
    assert_eq!(listener.host.addresses, want.map(|ip| ip.parse::<IpAddr>().unwrap()));

    // The neighbour's own never counts.
    let failed = || machine.node.sh("ip -6 addr show dadfailed").unwrap().contains("2001:db8:50::66");
    let known = async {
        while !failed() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, known).await.unwrap();
    machine.ip(&format!("addr del {ETH1}/24 dev eth1"));
    listener.next().await;
    let want = [ETH0, "2001:db8:50::11", "2001:db8:50::12", "2001:db8:60::13"];
    assert_eq!(listener.host.addresses, want.map(|ip| ip.parse::<IpAddr>().unwrap()));
}

#[tokio::test]
async fn what_the_kernel_does_not_tell_is_found_by_looking() {
    let machine = Machine::new();
    machine.ip("route add default via 192.168.50.1");
    let timing = Timing { rescan: Duration::from_millis(20), ..Timing::default() };
    let mut listener = Listener::with(&machine, timing).await;
    listener.until(&[ETH0, ETH1, ETH0_V6], &[ETH0, ETH0_V6]).await;
    machine.ip("route add 203.0.113.0/24 via 192.168.60.1");
    listener.until(&[ETH0, ETH1, ETH0_V6], &[ETH1, ETH0_V6]).await;
}

/// So many different addresses.
fn many(count: u32) -> impl Iterator<Item = String> {
    (0..count).map(move |number| {
        let [_, a, b, c] = number.to_be_bytes();
        format!("10.{a}.{b}.{c}/32")
    })
}

#[tokio::test]
async fn a_thousand_new_addresses_are_a_few_events() {
    const MANY: u32 = 1000;
    let machine = Machine::new();
    let mut listener = Listener::of(&machine).await;
    let started = Instant::now();
    machine.ip_batch(many(MANY).map(|address| format!("addr add {address} dev eth0")));
    while listener.host.addresses.len() < MANY as usize + 3 {
        listener.next().await;
    }
    let pauses = started.elapsed().as_millis() / unprompted_never().pause.as_millis();
    // The list, the first addresses, then one after each pause at most.
    assert!(listener.said as u128 <= 3 + pauses, "{} events in {pauses} pauses", listener.said);
}

#[test]
fn what_is_lost_of_a_flood_is_read() {
    let machine = Machine::new();
    machine.node.block_on(|| async {
        let mut listener = Listener::here().await;
        // Nothing is heard meanwhile. None of these is of interest, and they leave no room for the one that is.
        machine.ip_batch(many(5000).map(|address| format!("addr add {address} dev eth0 scope link")));
        let before = machine.lost_messages();
        machine.ip("addr add 192.168.60.6/24 dev eth1");
        assert!(before > 0 && machine.lost_messages() > before, "{before} messages were lost");
        listener.until(&[ETH0, ETH1, "192.168.60.6", ETH0_V6], &[ETH0, ETH0_V6]).await;
    });
}

#[test]
fn routes_that_are_not_default_ones_are_not_even_heard_of() {
    let machine = Machine::new();
    machine.node.block_on(|| async {
        let mut listener = Listener::here().await;
        for verb in ["add", "del"] {
            // Without a filter these would not find room.
            machine.ip_batch(many(5000).map(|to| format!("route {verb} {to} via 192.168.50.1")));
            machine.ip_batch(
                (0..5000).map(|to| format!("route {verb} 2001:db8:a::{to:x} via fe80::1 dev eth0")),
            );
        }
        assert_eq!(machine.lost_messages(), 0);
        machine.ip("route add default via 192.168.60.1");
        listener.until(&[ETH0, ETH1, ETH0_V6], &[ETH1, ETH0_V6]).await;
        assert_eq!(listener.said, 2);
    });
}
