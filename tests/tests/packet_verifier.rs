//! How far the programs are from what the verifier takes.

use lb_tests::verifier::{PROCESSED_LIMIT, STACK_LIMIT, Table, costs};

#[test]
fn every_program_stays_below_half_of_what_the_verifier_follows_and_within_the_stack_of_every_kernel() {
    for host_routing in [0, 1] {
        let costs = costs(&[("HOST_ROUTING", host_routing)]);
        println!("HOST_ROUTING {host_routing}\n\n{}", Table(&costs));
        assert!(costs.len() >= 2, "{costs:?}");
        for cost in &costs {
            assert!(cost.processed < PROCESSED_LIMIT / 2, "{cost:?}");
            assert!((1..=STACK_LIMIT).contains(&cost.stack), "{cost:?}");
        }
    }
}
