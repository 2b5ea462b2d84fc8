//! What is left of a datapath: nothing after `cleanup`, and everything where a start or a cleanup is refused.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use aya::maps::{MapInfo, loaded_maps};
use lb_common::maps;
use lb_tests::{
    bpf_root::BpfRoot,
    datapath::{DEADLINE, MAP_SIZE, config, live, programs_at},
    netns::Namespace,
};
use lb_userspace::{
    datapath::{Config, Datapath, Hook, Report, TcAttach, Trace, cleanup, schema_folder},
    object::OBJECT,
};

/// A node with two pods.
fn node() -> Result<(Namespace, Namespace)> {
    let node = Namespace::new("node")?;
    let pods = Namespace::new("pods")?;
    node.join("veth-1", &pods, "eth0")?;
    node.join("veth-2", &pods, "eth1")?;
    Ok((node, pods))
}

fn attach(node: &Namespace, config: &Config, interfaces: &[&str]) -> Result<()> {
    live(node, config, interfaces, false, async |life| life.until_on(interfaces).await).map(drop)
}

/// Everything about traffic control and links on a host, as people see it.
fn listing(node: &Namespace) -> Result<Vec<String>> {
    let mut lines = vec![node.sh("tc qdisc show")?];
    for interface in ["veth-1", "veth-2"] {
        for hook in [Hook::Ingress, Hook::Egress] {
            lines.extend(programs_at(node, interface, hook)?);
        }
    }
    Ok(lines)
}

fn clean(node: &Namespace, bpf_root: &Path, force: bool) -> Result<Report> {
    node.block_on(async || cleanup(bpf_root, force).await).map_err(Into::into)
}

fn count(report: &Report, trace: Trace) -> usize {
    report.removed.iter().filter(|(removed, _)| *removed == trace).count()
}

/// The ids of the maps pinned in a folder.
fn map_ids(folder: &Path) -> Result<BTreeSet<u32>> {
    let info = |map| Ok(MapInfo::from_pin(folder.join(map))?.id());
    maps::ALL.into_iter().map(info).collect()
}

/// Waits until the kernel has freed the maps, which it does some time after the last user has gone.
fn wait_until_freed(ids: &BTreeSet<u32>) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    while loaded_maps().flatten().any(|map| ids.contains(&map.id())) {
        ensure!(Instant::now() < deadline, "maps {ids:?} are still there");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn a_cleanup_leaves_no_program_link_qdisc_map_or_folder() {
    for (tc_attach, want_links, want_filters, want_qdiscs) in
        [(TcAttach::Tcx, 4, 0, 0), (TcAttach::Clsact, 0, 4, 2)]
    {
        let (node, _pods) = node().unwrap();
        let root = BpfRoot::new().unwrap();
        let before = listing(&node).unwrap();
        attach(&node, &config(root.path(), tc_attach), &["veth-1", "veth-2"]).unwrap();
        assert_ne!(listing(&node).unwrap(), before);
        let maps = map_ids(&schema_folder(root.path())).unwrap();

        let report = clean(&node, root.path(), false).unwrap();
        assert_eq!(count(&report, Trace::Link), want_links);
        assert_eq!(count(&report, Trace::Filter), want_filters);
        assert_eq!(count(&report, Trace::Qdisc), want_qdiscs);
        assert_eq!(count(&report, Trace::Map), maps.len());
        assert_eq!(report.left, BTreeSet::new());
        assert_eq!(listing(&node).unwrap(), before);
        assert!(!root.path().exists());
        // Maps live as long as a program uses them, so no program of ours is left either.
        wait_until_freed(&maps).unwrap();

        assert_eq!(clean(&node, root.path(), false).unwrap(), Report::default(), "nothing is left to remove");
    }
}

#[test]
fn a_cleanup_removes_links_of_interfaces_that_have_gone_and_folders_of_other_schemas() {
    let (node, _pods) = node().unwrap();
    let root = BpfRoot::new().unwrap();
    attach(&node, &config(root.path(), TcAttach::Tcx), &["veth-1", "veth-2"]).unwrap();
    node.ip("link del veth-1").unwrap();
    // As an older version would have left it.
    fs::rename(schema_folder(root.path()), root.path().join("v0")).unwrap();

    let report = clean(&node, root.path(), false).unwrap();
    assert_eq!(count(&report, Trace::Link), 4);
    assert_eq!(programs_at(&node, "veth-2", Hook::Ingress).unwrap(), [""; 0]);
    assert!(!root.path().exists());
}

#[test]
fn a_cleanup_leaves_alone_what_another_agent_of_the_same_node_has() {
    for (tc_attach, want_left) in [(TcAttach::Tcx, 0), (TcAttach::Clsact, 2)] {
        let (node, _pods) = node().unwrap();
        let root = BpfRoot::new().unwrap();
        let other = root.beside("other");
        attach(&node, &config(root.path(), tc_attach), &["veth-1"]).unwrap();
        let before = listing(&node).unwrap();
        attach(&node, &config(&other, tc_attach), &["veth-2"]).unwrap();
        let both = listing(&node).unwrap();

        let report = clean(&node, &other, false).unwrap();
        assert_eq!(listing(&node).unwrap(), before);
        assert_eq!(report.left.len(), want_left, "{:?}", report.left);
        assert!(report.left.iter().all(|left| left.contains("veth-1")), "{:?}", report.left);
        assert_ne!(before, both);
        assert!(root.path().exists() && !other.exists());
    }
}

#[test]
fn a_clsact_qdisc_that_somebody_else_uses_stays() {
    let (node, _pods) = node().unwrap();
    let root = BpfRoot::new().unwrap();
    node.sh("tc qdisc add dev veth-1 clsact").unwrap();
    let before = listing(&node).unwrap();
    attach(&node, &config(root.path(), TcAttach::Clsact), &["veth-1", "veth-2"]).unwrap();
    let classifier = "u32 match u32 0 0 classid 1:1";
    node.sh(&format!("tc filter add dev veth-2 ingress prio 1 protocol ip {classifier}")).unwrap();
    let report = clean(&node, root.path(), false).unwrap();
    assert_eq!(count(&report, Trace::Filter), 4);
    assert_eq!(count(&report, Trace::Qdisc), 0);
    // The one that we made has got a user, and stays for it.
    node.sh("tc qdisc del dev veth-2 clsact").unwrap();
    assert_eq!(listing(&node).unwrap(), before);
}

#[test]
fn an_agent_at_work_keeps_others_out_and_is_named() {
    let (node, _pods) = node().unwrap();
    let root = BpfRoot::new().unwrap();
    let config = config(root.path(), TcAttach::Tcx);
    let agent = Datapath::open(OBJECT, &config).unwrap();
    let own = std::process::id().to_string();

    let second = Datapath::open(OBJECT, &config).unwrap_err().to_string();
    assert!(second.contains(&own) && second.contains(root.path().to_str().unwrap()), "{second}");
    let refused = clean(&node, root.path(), false).unwrap_err().to_string();
    assert!(refused.contains(&own) && refused.contains("--force"), "{refused}");
    assert!(schema_folder(root.path()).join(maps::FLOWS).exists());

    clean(&node, root.path(), true).unwrap();
    assert!(!root.path().exists());
    drop(agent);
}

#[test]
fn a_pinned_map_of_another_size_is_refused_with_both_sizes_and_the_datapath_works_on() {
    let (node, _pods) = node().unwrap();
    let root = BpfRoot::new().unwrap();
    let mut config = config(root.path(), TcAttach::Tcx);
    attach(&node, &config, &["veth-1"]).unwrap();
    let before = listing(&node).unwrap();
    let maps = map_ids(&schema_folder(root.path())).unwrap();

    config.map_sizes.insert(maps::FLOWS.to_owned(), MAP_SIZE / 2);
    let error = Datapath::open(OBJECT, &config).unwrap_err().to_string();
    for part in [maps::FLOWS, &MAP_SIZE.to_string(), &(MAP_SIZE / 2).to_string()] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(listing(&node).unwrap(), before);
    assert_eq!(map_ids(&schema_folder(root.path())).unwrap(), maps);
}

#[test]
fn a_pinned_map_of_another_layout_is_refused_before_anything_is_made() {
    for (name, create, want) in [
        ("value size", "type hash key 40 value 8 entries 1024", "a value size of 8"),
        ("key size", "type hash key 4 value 56 entries 1024", "a key size of 4"),
        ("type", "type lru_hash key 40 value 56 entries 1024", "type"),
        ("flags", "type hash key 40 value 56 entries 1024 flags 1", "flags 1"),
    ] {
        let host = Namespace::new("host").unwrap();
        let root = BpfRoot::new().unwrap();
        let folder = schema_folder(root.path());
        fs::create_dir_all(&folder).unwrap();
        let pin = folder.join(maps::FLOWS);
        host.sh(&format!("bpftool map create {} {create} name FLOWS", pin.display())).unwrap();

        let error = Datapath::open(OBJECT, &config(root.path(), TcAttach::Tcx)).unwrap_err().to_string();
        assert!(error.contains(maps::FLOWS) && error.contains(want), "{name}: {error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "{name}: only the strange map is there");
    }
}

#[test]
fn a_size_is_taken_only_for_a_map_that_has_one_to_choose() {
    let root = BpfRoot::new().unwrap();
    for name in [maps::SETTINGS, "FLOW"] {
        let mut config = config(root.path(), TcAttach::Tcx);
        config.map_sizes.insert(name.to_owned(), 2);
        let error = Datapath::open(OBJECT, &config).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(maps::FLOWS_NEW), "{error}");
    }
}

#[test]
fn pins_of_another_schema_are_noticed() {
    let root = BpfRoot::new().unwrap();
    let other = root.path().join("v7");
    fs::create_dir_all(&other).unwrap();
    fs::create_dir(root.path().join("views")).unwrap();
    let datapath = Datapath::open(OBJECT, &config(root.path(), TcAttach::Tcx)).unwrap();
    assert_eq!(datapath.other_schemas(), [other]);
}

#[test]
fn a_folder_whose_name_is_not_possible_there_is_named() {
    let root = BpfRoot::new().unwrap();
    let dotted = root.beside("ready.lb");
    let error = Datapath::open(OBJECT, &config(&dotted, TcAttach::Tcx)).unwrap_err().to_string();
    assert!(error.contains(dotted.to_str().unwrap()) && error.contains("no dots"), "{error}");
}

#[test]
fn a_folder_that_is_on_no_bpf_file_system_is_named() {
    let ordinary = tempfile::tempdir().unwrap();
    let root = ordinary.path().join("readylb");
    let error = Datapath::open(OBJECT, &config(&root, TcAttach::Tcx)).unwrap_err().to_string();
    assert!(error.contains(root.to_str().unwrap()) && error.contains("mount -t bpf"), "{error}");
    assert!(!root.exists());
}
