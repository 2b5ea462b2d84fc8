//! A ClusterIP on the wire: real sockets, the compiled programs, and maps as the agent writes them.

use std::ops::RangeInclusive;

use lb_tests::{
    balanced::{ask_every_way, balance, fill_in_sums, start_servers},
    bpf_root::BpfRoot,
    datapath::default_config,
    netns::shapes::{self, ALL},
};
use lb_userspace::datapath::TcAttach;

/// How often the client asks, and what each of three backends may answer of that: 25 to 42 %, which an even choice
/// misses once in ten million times.
const ROUNDS: [(TcAttach, usize, RangeInclusive<usize>); 2] =
    [(TcAttach::Tcx, 1000, 250..=420), (TcAttach::Clsact, 100, 1..=100)];

#[test]
fn every_backend_answers_its_share_on_every_shape_in_both_families_and_ways_of_attaching() {
    for (name, make) in ALL {
        for (tc_attach, times, share) in ROUNDS {
            let shape = make().unwrap();
            let root = BpfRoot::new().unwrap();
            let _servers = start_servers(&shape).unwrap();
            balance(&shape, &default_config(root.path(), tc_attach)).unwrap();
            for (how, answers) in ask_every_way(&shape, times).unwrap() {
                let counts: Vec<usize> = answers.by_name.values().copied().collect();
                let fair = counts.len() == shape.backends.len() && counts.iter().all(|n| share.contains(n));
                assert!(fair, "{name} {tc_attach:?} {how}: {answers:?}");
            }
        }
    }
}

/// veth carries packets whose checksum nobody has filled in yet, which hides a wrong one. With complete sums from the
/// senders, a rewrite that forgets the sum fails; with sums that are filled in when the packet leaves the node, one that
/// corrects it in the wrong way does.
#[test]
fn checksums_are_right_whoever_fills_them_in() {
    for complete_at_sender in [true, false] {
        let shape = shapes::routed().unwrap();
        let root = BpfRoot::new().unwrap();
        let _servers = start_servers(&shape).unwrap();
        fill_in_sums(&shape, complete_at_sender).unwrap();
        balance(&shape, &default_config(root.path(), TcAttach::Auto)).unwrap();
        ask_every_way(&shape, 20).unwrap();
    }
}
