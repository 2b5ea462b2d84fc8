//! What was measured, as a table and as JSON.

use lb_userspace::table;
use serde::{Deserialize, Serialize};

use super::samples::Samples;

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    /// As in `plan/flip`.
    pub(super) benchmark: String,
    /// How many Services there were.
    pub(super) services: usize,
    /// Of `min`, `median` and `p99`.
    pub(super) unit: String,
    /// How often it was measured.
    pub(super) samples: usize,
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) p99: f64,
    /// Against the row before it; for what should grow with the Services, both a Service.
    pub(super) ratio: Option<f64>,
    /// What the ratio, or the median where there is none, must not exceed.
    pub(super) limit: Option<f64>,
}

impl Row {
    pub(super) fn new(benchmark: &str, services: usize, unit: &str, samples: &Samples) -> Self {
        Self {
            benchmark: benchmark.to_owned(),
            services,
            unit: unit.to_owned(),
            samples: samples.count(),
            min: samples.min(),
            median: samples.median(),
            p99: samples.percentile(99),
            ratio: None,
            limit: None,
        }
    }

    /// Of something that does not vary.
    pub(super) fn single(benchmark: &str, services: usize, unit: &str, value: f64) -> Self {
        Self::new(benchmark, services, unit, &Samples::of([value]))
    }

    pub(super) fn ratio(self, ratio: f64) -> Self {
        Self { ratio: Some(ratio), ..self }
    }

    pub(super) fn limit(self, limit: Option<f64>) -> Self {
        Self { limit, ..self }
    }

    pub(super) fn holds(&self) -> bool {
        self.limit.is_none_or(|limit| self.ratio.unwrap_or(self.median) <= limit)
    }

    /// As in `plan/flip at 10000 Services`.
    pub(super) fn name(&self) -> String {
        format!("{} at {} Services", self.benchmark, self.services)
    }
}

/// The rows for people.
pub(super) fn table(rows: &[Row]) -> String {
    let header = ["BENCHMARK", "SERVICES", "SAMPLES", "MIN", "MEDIAN", "P99", "UNIT", "RATIO", "LIMIT", ""];
    let optional = |value: Option<f64>| table::or_dash(&value.map(number).unwrap_or_default());
    let lines = rows.iter().map(|row| {
        let verdict = match (row.limit, row.holds()) {
            (None, _) => "-",
            (Some(_), true) => "holds",
            (Some(_), false) => "missed",
        };
        [
            row.benchmark.clone(),
            row.services.to_string(),
            row.samples.to_string(),
            number(row.min),
            number(row.median),
            number(row.p99),
            row.unit.clone(),
            optional(row.ratio),
            optional(row.limit),
            verdict.to_owned(),
        ]
    });
    table::columns(header, lines)
}

/// With as many digits as mean something.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_one_of_the_ratio_or_of_the_median() {
        let row = |limit| Row::single("plan/flip", 10, "us", 5.0).limit(limit);
        for (row, want) in [
            (row(None), true),
            (row(Some(5.0)), true),
            (row(Some(4.9)), false),
            (row(Some(4.9)).ratio(2.0), true),
            (row(Some(3.0)).ratio(3.1), false),
        ] {
            assert_eq!(row.holds(), want, "{row:?}");
        }
    }

    #[test]
    fn the_table_says_what_missed_its_target() {
        let rows = [
            Row::single("plan/flip", 10, "us", 20.5),
            Row::single("plan/flip", 10_000, "us", 80.0).ratio(3.9024).limit(Some(3.0)),
        ];
        let want = "\
BENCHMARK  SERVICES  SAMPLES  MIN    MEDIAN  P99    UNIT  RATIO  LIMIT
plan/flip  10        1        20.50  20.50   20.50  us    -      -      -
plan/flip  10000     1        80     80      80     us    3.90   3      missed
";
        assert_eq!(table(&rows), want);
    }
}
