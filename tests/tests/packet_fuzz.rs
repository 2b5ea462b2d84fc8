//! A million packets, whole and broken, through the programs and through the model.

use std::env;

use lb_common::Verdict;
use lb_tests::fuzz;

/// What is set in the environment, or else this.
fn set_or(name: &str, or: u64) -> u64 {
    env::var(name)
        .map_or(or, |value| value.parse().unwrap_or_else(|_| panic!("{name}: {value} is no number")))
}

#[test]
fn programs_and_model_agree_on_every_packet() {
    const PACKETS: u64 = 1_000_000;
    let seed = set_or("READYLB_FUZZ_SEED", 1);
    let packets = set_or("READYLB_FUZZ_PACKETS", PACKETS);
    let tally = fuzz::run(seed, packets).unwrap_or_else(|difference| panic!("{difference}"));
    println!("{tally:#?}");
    assert!(tally.packets >= packets);

    // Whoever shortens the run, or breaks the generator, sees no difference either.
    let of_packets =
        Verdict::ALL.iter().filter(|verdict| (**verdict as usize) < lb_common::maps::COUNTERS_SIZE);
    for verdict in of_packets.filter(|verdict| packets >= PACKETS && !fuzz::NOT_FUZZED.contains(verdict)) {
        assert!(tally.verdicts.contains_key(verdict), "no packet was {verdict}");
    }
}

#[test]
fn programs_and_model_agree_on_every_cut_and_every_byte_of_the_headers() {
    let tally = fuzz::sweep().unwrap_or_else(|difference| panic!("{difference}"));
    println!("{tally:#?}");
    for verdict in fuzz::SWEPT {
        assert!(tally.verdicts.contains_key(&verdict), "no packet was {verdict}");
    }
}
