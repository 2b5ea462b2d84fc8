//! The clock that the programs read.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of [`lb_common::FlowValue::last_seen`] and of
/// [`lb_common::Settings::migration_until`].
#[expect(clippy::expect_used, reason = "clock_gettime fails only for a clock that the kernel does not have")]
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every kernel has CLOCK_MONOTONIC");
    nanoseconds(Duration::from(now))
}

/// A duration in nanoseconds; longer ones than 584 years become that.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
