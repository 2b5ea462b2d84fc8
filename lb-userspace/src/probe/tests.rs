//! Workers, with the time handed in.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    check::{Answer, Outcome, ProberError},
    worker::{Worker, WorkerId},
};
use crate::model::{Handler, Probe, ProbeKind};

const SECOND: Duration = Duration::from_secs(1);

fn probe(kind: ProbeKind) -> Probe {
    Probe {
        kind,
        handler: Handler::Unknown,
        initial_delay_seconds: 0,
        period_seconds: 10,
        timeout_seconds: 1,
        success_threshold: 1,
        failure_threshold: 3,
    }
}

fn worker(probe: Probe, now: Instant) -> Worker {
    Worker::new(WorkerId(1), probe, Arc::new(Err(String::new())), now, now)
}

fn run(worker: &mut Worker, success: bool, now: Instant) -> Option<Outcome> {
    worker.begin(now);
    worker.end(Ok(Answer { success, message: String::new() }), now)
}

#[test]
fn before_the_first_result_only_liveness_is_well() {
    let now = Instant::now();
    for (kind, result) in [
        (ProbeKind::Startup, Outcome::Unknown),
        (ProbeKind::Readiness, Outcome::Failure),
        (ProbeKind::Liveness, Outcome::Success),
    ] {
        assert_eq!(worker(probe(kind), now).result(), result, "{kind:?}");
    }
}

#[test]
fn b16_the_first_run_is_the_first_tick_after_the_delay_and_then_one_a_period() {
    let start = Instant::now();
    for (delay, first) in [(0, 0), (1, 10), (10, 10), (30, 30), (31, 40), (60, 60)] {
        let mut worker = worker(Probe { initial_delay_seconds: delay, ..probe(ProbeKind::Readiness) }, start);
        let due = start + SECOND * first;
        assert_eq!(worker.next(start), Some(due), "delay {delay}");
        run(&mut worker, true, due);
        assert_eq!(worker.next(start), Some(due + SECOND * 10), "delay {delay}");
    }
}

#[test]
fn a_slow_run_makes_one_tick_wait_and_none_pile_up() {
    let start = Instant::now();
    let mut worker = worker(probe(ProbeKind::Readiness), start);
    worker.begin(start);
    assert_eq!(worker.next(start), None);
    worker.end(Ok(Answer::failure("slow")), start + SECOND * 35);
    assert_eq!(worker.next(start), Some(start + SECOND * 10), "the tick that waited is overdue");
    run(&mut worker, true, start + SECOND * 35);
    assert_eq!(worker.next(start), Some(start + SECOND * 40), "in step with its own start");
}

#[test]
fn b16_a_result_changes_at_its_threshold_of_equal_results_in_a_row() {
    let now = Instant::now();
    let mut worker =
        worker(Probe { success_threshold: 2, failure_threshold: 3, ..probe(ProbeKind::Readiness) }, now);
    // What the run finds, what holds after it, how many successes are still needed.
    let (good, bad) = (Outcome::Success, Outcome::Failure);
    for (row, (success, result, needed)) in [
        (true, bad, 1),
        (false, bad, 2),
        (true, bad, 1),
        (true, good, 0),
        (false, good, 0),
        (false, good, 0),
        (true, good, 0),
        (false, good, 0),
        (false, good, 0),
        (false, bad, 2),
    ]
    .into_iter()
    .enumerate()
    {
        run(&mut worker, success, now);
        assert_eq!((worker.result(), worker.needed()), (result, needed), "row {row}");
    }
}

#[test]
fn an_error_of_the_prober_does_not_count_and_is_remembered() {
    let now = Instant::now();
    let mut worker = worker(Probe { success_threshold: 2, ..probe(ProbeKind::Readiness) }, now);
    run(&mut worker, true, now);
    worker.begin(now);
    assert_eq!(worker.end(Err(ProberError("no such namespace".to_owned())), now), None);
    assert_eq!(worker.count(), (Outcome::Success, 1));
    assert_eq!(
        worker.runs.back().map(|run| (run.outcome, &*run.message)),
        Some((Outcome::Unknown, "no such namespace"))
    );
    assert_eq!(run(&mut worker, true, now), Some(Outcome::Success));
}

#[test]
fn a_trigger_is_obeyed_once_and_only_after_the_delay() {
    let start = Instant::now();
    let mut worker = worker(Probe { initial_delay_seconds: 12, ..probe(ProbeKind::Readiness) }, start);
    worker.trigger(start, start + SECOND * 11);
    assert_eq!(worker.next(start), Some(start + SECOND * 20), "too early: the ticks will do");
    worker.trigger(start, start + SECOND * 13);
    assert_eq!(worker.next(start), Some(start + SECOND * 13));
    run(&mut worker, false, start + SECOND * 13);
    worker.trigger(start, start + SECOND * 14);
    assert_eq!(worker.next(start), Some(start + SECOND * 20), "it has run already");
}

#[test]
fn on_hold_nothing_runs_until_the_container_is_a_new_one() {
    let start = Instant::now();
    let mut worker = worker(Probe { failure_threshold: 1, ..probe(ProbeKind::Liveness) }, start);
    assert_eq!(run(&mut worker, false, start), Some(Outcome::Failure));
    worker.hold();
    assert_eq!(worker.next(start), None);
    let again = start + SECOND * 25;
    worker.reset(again);
    assert_eq!((worker.result(), worker.count()), (Outcome::Success, (Outcome::Unknown, 0)));
    assert_eq!(worker.next(again), Some(start + SECOND * 30));
}
