//! Numbers that were measured, and how things are compared.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Measurements of one thing, sorted.
#[derive(Clone, Debug)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    /// At least one.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        assert!(!values.is_empty(), "nothing was measured");
        Self(values)
    }

    pub(super) const fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// The value that this share of the samples does not exceed.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0[rank.max(1) - 1]
    }

    pub(super) fn min(&self) -> f64 {
        self.0[0]
    }
}

/// Two things measured in turns.
pub(super) struct Pair {
    pub(super) small: Samples,
    pub(super) large: Samples,
    /// Median of large through small, each with its neighbour in time: a machine that slows down in between does not
    /// show in it.
    pub(super) ratio: f64,
}

/// Measures two things in turns.
pub(super) fn interleaved(
    rounds: usize,
    mut small: impl FnMut() -> f64,
    mut large: impl FnMut() -> f64,
) -> Pair {
    let pairs: Vec<_> = (0..rounds).map(|_| (small(), large())).collect();
    Pair {
        small: Samples::of(pairs.iter().map(|pair| pair.0)),
        large: Samples::of(pairs.iter().map(|pair| pair.1)),
        ratio: Samples::of(pairs.iter().map(|(small, large)| large / small)).median(),
    }
}

/// How long a processor is busy with something, in microseconds. Not the time that passes: on a machine that others use
/// too, what takes long is interrupted more often than what is quick.
pub(super) fn microseconds(what: impl FnOnce()) -> f64 {
    let start = busy();
    what();
    (busy() - start).as_secs_f64() * 1e6
}

/// How long this thread has run.
fn busy() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every kernel has this clock").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let samples = Samples::of((1..=200).rev().map(f64::from));
        assert_eq!((samples.min(), samples.median(), samples.percentile(99)), (1.0, 100.0, 198.0));
        let one = Samples::of([7.0]);
        assert_eq!((one.median(), one.percentile(99), one.count()), (7.0, 7.0, 1));
    }

    #[test]
    fn a_ratio_is_one_of_neighbours() {
        // The machine gets ten times slower on the way.
        let (mut small, mut large) = ([1.0, 1.0, 10.0].into_iter(), [2.0, 2.0, 20.0].into_iter());
        let pair = interleaved(3, || small.next().unwrap(), || large.next().unwrap());
        assert_eq!((pair.ratio, pair.small.median(), pair.large.median()), (2.0, 1.0, 2.0));
    }
}
