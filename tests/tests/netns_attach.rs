//! Programs on interfaces: one of ours at each hook, whatever happens to interfaces and to the agent.

use std::{collections::BTreeSet, net::SocketAddr, os::fd::AsFd};

use anyhow::{Result, ensure};
use lb_tests::{
    bpf_root::BpfRoot,
    datapath::{Life, config, links_at, live, programs_at},
    foreign::ForeignProgram,
    netns::{
        Namespace,
        shapes::{self, Shape},
    },
    traffic::{NameServer, ask_tcp, ask_udp},
};
use lb_userspace::{
    datapath::{Hook, TcAttach, schema_folder},
    sys::{TcxPlace, pin, tcx_link_create},
};

const PORT: u16 = 8080;

/// A node with one pod, and nothing of ours on it.
struct Fixture {
    node: Namespace,
    pod: Namespace,
    root: BpfRoot,
}

const POD: &str = "veth-pod";

impl Fixture {
    fn new() -> Result<Self> {
        let node = Namespace::new("node")?;
        let pod = Namespace::new("pod")?;
        node.join(POD, &pod, "eth0")?;
        node.ip(&format!("addr add 10.244.1.1/24 dev {POD}"))?;
        pod.ip("addr add 10.244.1.5/24 dev eth0")?;
        Ok(Self { node, pod, root: BpfRoot::new()? })
    }

    /// One life of the datapath on every `veth-*`, killed at its end.
    fn live<T: Send>(
        &self,
        tc_attach: TcAttach,
        during: impl AsyncFnOnce(&mut Life) -> Result<T> + Send,
    ) -> Result<T> {
        live(&self.node, &config(self.root.path(), tc_attach), &["veth-*"], true, during)
    }

    fn programs(&self, interface: &str) -> Result<[Vec<String>; 2]> {
        programs(&self.node, interface)
    }

    /// Datagrams from the pod to the node, each answered.
    fn exchange(&self, times: usize) -> Result<()> {
        let _server = NameServer::start(&self.node, PORT)?;
        let answers = ask_udp(&self.pod, SocketAddr::from(([10, 244, 1, 1], PORT)), times);
        ensure!(answers.failures.is_empty(), "{answers:?}");
        Ok(())
    }
}

/// The programs at ingress and egress.
fn programs(host: &Namespace, interface: &str) -> Result<[Vec<String>; 2]> {
    Ok([programs_at(host, interface, Hook::Ingress)?, programs_at(host, interface, Hook::Egress)?])
}

const OURS_BY_TCX: [[&str; 1]; 2] = [["tcx tc_ingress"], ["tcx tc_egress"]];
const OURS_BY_FILTER: [[&str; 1]; 2] = [["filter tc_ingress"], ["filter tc_egress"]];
const NONE: [[&str; 0]; 2] = [[], []];

#[test]
fn b62_after_any_number_of_starts_there_is_one_program_at_each_hook() {
    for (tc_attach, want) in [(TcAttach::Tcx, OURS_BY_TCX), (TcAttach::Clsact, OURS_BY_FILTER)] {
        let Shape { nodes, client, backends } = shapes::routed().unwrap();
        let (node, backend) = (&nodes[0], &backends[0]);
        let root = BpfRoot::new().unwrap();
        let _server = NameServer::start(&backend.host, PORT).unwrap();
        let mut links = BTreeSet::new();
        for killed in [false, true, true, false, true, true] {
            let everywhere = ["veth-backend-1", "veth-backend-2", "veth-backend-3", "veth-client"];
            let config = config(root.path(), tc_attach);
            live(node, &config, &[], killed, async |life| life.until_on(&everywhere).await).unwrap();
            for interface in everywhere {
                assert_eq!(programs(node, interface).unwrap(), want, "{interface}");
                for hook in [Hook::Ingress, Hook::Egress] {
                    links.extend(links_at(node, interface, hook).unwrap());
                }
            }
            let answers = ask_tcp(&client.host, SocketAddr::new(backend.v4.into(), PORT), 3);
            assert_eq!(answers.failures, [""; 0]);
        }
        let want_links = if tc_attach == TcAttach::Tcx { 8 } else { 0 };
        assert_eq!(links.len(), want_links, "the links of the first start are those of the last: {links:?}");
    }
}

#[test]
fn an_interface_that_comes_late_or_comes_back_under_its_name_gets_the_programs() {
    for (tc_attach, want) in [(TcAttach::Tcx, OURS_BY_TCX), (TcAttach::Clsact, OURS_BY_FILTER)] {
        let fixture = Fixture::new().unwrap();
        let Fixture { node, pod, .. } = &fixture;
        fixture
            .live(tc_attach, async |life| {
                let first = life.until_on(&[POD]).await?.interfaces[0].ifindex;
                node.join("veth-late", pod, "eth1")?;
                life.until_on(&["veth-late", POD]).await?;

                node.ip(&format!("link del {POD}"))?;
                life.until_on(&["veth-late"]).await?;
                node.join(POD, pod, "eth0")?;
                let now = life.until_on(&["veth-late", POD]).await?;
                assert!(now.interfaces.iter().all(|state| state.ifindex != first), "{now:?}");

                node.ip(&format!("link set {POD} name other"))?;
                life.until_on(&["veth-late"]).await?;
                node.ip(&format!("link set other name {POD}"))?;
                life.until_on(&["veth-late", POD]).await
            })
            .unwrap();
        for interface in [POD, "veth-late"] {
            assert_eq!(fixture.programs(interface).unwrap(), want);
        }
    }
}

#[test]
fn an_interface_that_went_while_no_agent_ran_leaves_nothing_behind() {
    let fixture = Fixture::new().unwrap();
    fixture.live(TcAttach::Tcx, async |life| life.until_on(&[POD]).await).unwrap();
    for same_index in [false, true] {
        let before = fixture.node.ifindex(POD).unwrap();
        let back_as = if same_index { format!("{POD} index {before}") } else { POD.to_owned() };
        fixture.node.ip(&format!("link del {POD}")).unwrap();
        fixture.node.join(&back_as, &fixture.pod, "eth0").unwrap();
        fixture.live(TcAttach::Tcx, async |life| life.until_on(&[POD]).await).unwrap();
        assert_eq!(fixture.programs(POD).unwrap(), OURS_BY_TCX, "{back_as}");
        let pins = std::fs::read_dir(schema_folder(fixture.root.path()).join("links")).unwrap();
        assert_eq!(pins.count(), 2, "the pins of the incarnation before are gone");
    }
}

#[test]
fn an_interface_that_moves_into_a_pod_leaves_the_programs_at_the_node() {
    let fixture = Fixture::new().unwrap();
    let Fixture { node, pod, .. } = &fixture;
    fixture
        .live(TcAttach::Tcx, async |life| {
            // As a CNI does it: both ends are made on the node, and one is moved.
            node.ip("link add veth-new type veth peer name veth-tmp")?;
            life.until_on(&["veth-new", POD, "veth-tmp"]).await?;
            node.ip(&format!("link set veth-tmp netns {} name eth1", pod.path()))?;
            life.until_on(&["veth-new", POD]).await
        })
        .unwrap();
    assert_eq!(programs_at(pod, "eth1", Hook::Ingress).unwrap(), [""; 0]);
    assert_eq!(programs_at(pod, "eth1", Hook::Egress).unwrap(), [""; 0]);
    assert_eq!(fixture.programs("veth-new").unwrap(), OURS_BY_TCX);
}

#[test]
fn an_agent_that_starts_in_another_network_namespace_takes_its_programs_there() {
    let fixture = Fixture::new().unwrap();
    fixture.live(TcAttach::Tcx, async |life| life.until_on(&[POD]).await).unwrap();
    let ifindex = fixture.node.ifindex(POD).unwrap();
    let elsewhere = Namespace::new("elsewhere").unwrap();
    elsewhere.join(&format!("{POD} index {ifindex}"), &fixture.pod, "eth1").unwrap();

    let config = config(fixture.root.path(), TcAttach::Tcx);
    live(&elsewhere, &config, &[POD], true, async |life| life.until_on(&[POD]).await).unwrap();
    assert_eq!(programs(&elsewhere, POD).unwrap(), OURS_BY_TCX);
    assert_eq!(fixture.programs(POD).unwrap(), NONE);
}

#[test]
fn a_port_that_leaves_its_bridge_keeps_the_programs_that_it_has() {
    let fixture = Fixture::new().unwrap();
    let node = &fixture.node;
    node.ip("link add br0 type bridge").unwrap();
    node.ip(&format!("link set {POD} master br0")).unwrap();
    fixture
        .live(TcAttach::Tcx, async |life| {
            life.until_on(&[POD]).await?;
            let before = links_at(node, POD, Hook::Ingress)?;
            node.ip(&format!("link set {POD} nomaster"))?;
            // Once this has been seen to, the news from the bridge has been as well.
            node.join("veth-late", &fixture.pod, "eth1")?;
            life.until_on(&["veth-late", POD]).await?;
            assert_eq!(links_at(node, POD, Hook::Ingress)?, before);
            Ok(())
        })
        .unwrap();
}

#[test]
fn changes_that_the_kernel_could_not_tell_are_found_by_a_new_list() {
    let fixture = Fixture::new().unwrap();
    let Fixture { node, pod, .. } = &fixture;
    fixture
        .live(TcAttach::Tcx, async |life| {
            life.until_on(&[POD]).await?;
            // Nothing reads the socket meanwhile, since all of this is one step of one thread; it overflows after some
            // hundred messages.
            let flaps = format!("link set {POD} alias a\nlink set {POD} alias b\n").repeat(1000);
            node.join("veth-late", pod, "eth1")?;
            let batch = tempfile::NamedTempFile::new()?;
            std::fs::write(batch.path(), flaps)?;
            node.ip(&format!("-batch {}", batch.path().display()))?;
            node.ip(&format!("link del {POD}"))?;
            life.until_on(&["veth-late"]).await
        })
        .unwrap();
}

#[test]
fn an_agent_that_starts_with_other_patterns_takes_the_programs_off_the_rest() {
    for tc_attach in [TcAttach::Tcx, TcAttach::Clsact] {
        let fixture = Fixture::new().unwrap();
        fixture.node.join("other", &fixture.pod, "eth1").unwrap();
        let config = config(fixture.root.path(), tc_attach);
        live(&fixture.node, &config, &["*"], true, async |life| life.until_on(&["other", POD]).await)
            .unwrap();
        live(&fixture.node, &config, &["other"], true, async |life| life.until_on(&["other"]).await).unwrap();
        assert_eq!(fixture.programs(POD).unwrap(), NONE);
        assert_eq!(
            fixture.node.sh(&format!("tc qdisc show dev {POD} clsact")).unwrap(),
            "",
            "the qdisc is gone"
        );
    }
}

#[test]
fn a_change_of_the_way_of_attaching_leaves_one_program_at_each_hook() {
    let fixture = Fixture::new().unwrap();
    for (tc_attach, want) in
        [(TcAttach::Tcx, OURS_BY_TCX), (TcAttach::Clsact, OURS_BY_FILTER), (TcAttach::Auto, OURS_BY_TCX)]
    {
        fixture.live(tc_attach, async |life| life.until_on(&[POD]).await).unwrap();
        assert_eq!(fixture.programs(POD).unwrap(), want);
    }
}

#[test]
fn what_failed_is_tried_again_and_what_somebody_removed_comes_back() {
    let fixture = Fixture::new().unwrap();
    let node = &fixture.node;
    node.sh(&format!("tc qdisc add dev {POD} ingress")).unwrap();
    fixture
        .live(TcAttach::Clsact, async |life| {
            life.until("failed", |now| now.interfaces.iter().any(|state| state.error.is_some())).await?;
            node.sh(&format!("tc qdisc del dev {POD} ingress"))?;
            a_minute_later().await;
            life.until_on(&[POD]).await?;

            node.sh(&format!("tc qdisc del dev {POD} clsact"))?;
            a_minute_later().await;
            life.until_true("back", || Ok(fixture.programs(POD)? == OURS_BY_FILTER)).await
        })
        .unwrap();
}

/// Lets the clock of the runtime jump, and go on from there.
async fn a_minute_later() {
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    tokio::time::resume();
}

#[test]
fn foreign_tcx_programs_stay_and_see_every_packet() {
    const PACKETS: usize = 5;
    let fixture = Fixture::new().unwrap();
    let foreign = ForeignProgram::load().unwrap();
    let ifindex = fixture.node.ifindex(POD).unwrap();
    let _link =
        fixture.node.run(|| tcx_link_create(foreign.as_fd(), ifindex, TcxPlace::IngressFirst)).unwrap();
    fixture.live(TcAttach::Tcx, async |life| life.until_on(&[POD]).await).unwrap();
    let want = [vec!["tcx tc_ingress", "tcx foreign"], vec!["tcx tc_egress"]];
    assert_eq!(fixture.programs(POD).unwrap(), want, "ours is first at ingress");

    let before = foreign.runs().unwrap();
    fixture.exchange(PACKETS).unwrap();
    assert!(foreign.runs().unwrap() >= before + PACKETS as u64);
}

#[test]
fn b61_a_clsact_qdisc_of_somebody_else_is_shared_and_its_filter_sees_every_packet() {
    const PACKETS: usize = 5;
    let fixture = Fixture::new().unwrap();
    let foreign = ForeignProgram::load().unwrap();
    let pinned = fixture.root.beside("foreign");
    pin(foreign.as_fd(), &pinned).unwrap();
    fixture.node.sh(&format!("tc qdisc add dev {POD} clsact")).unwrap();
    let filter = format!("bpf direct-action object-pinned {}", pinned.display());
    fixture.node.sh(&format!("tc filter add dev {POD} ingress prio 1 {filter}")).unwrap();
    for _ in 0..2 {
        fixture.live(TcAttach::Clsact, async |life| life.until_on(&[POD]).await).unwrap();
        let want = [vec!["filter foreign", "filter tc_ingress"], vec!["filter tc_egress"]];
        assert_eq!(fixture.programs(POD).unwrap(), want);
    }
    let before = foreign.runs().unwrap();
    fixture.exchange(PACKETS).unwrap();
    assert!(foreign.runs().unwrap() >= before + PACKETS as u64);
}

#[test]
fn b61_an_ingress_qdisc_is_named_as_the_reason_and_does_not_matter_to_tcx() {
    let fixture = Fixture::new().unwrap();
    fixture.node.sh(&format!("tc qdisc add dev {POD} ingress")).unwrap();
    let failed =
        fixture.live(TcAttach::Clsact, async |life| life.until("seen to", |now| now.complete).await).unwrap();
    let [state] = &failed.interfaces[..] else { panic!("{failed:?}") };
    let error = state.error.as_deref().unwrap();
    assert!(error.contains(POD) && error.contains("`ingress` qdisc"), "{error}");
    assert_eq!(state.hooks, []);
    assert_eq!(fixture.programs(POD).unwrap(), NONE);

    fixture.live(TcAttach::Tcx, async |life| life.until_on(&[POD]).await).unwrap();
    assert_eq!(fixture.programs(POD).unwrap(), OURS_BY_TCX);
}
