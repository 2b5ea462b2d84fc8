//! Adding up the results of many test binaries.

use std::{fmt, ops::AddAssign};

/// How many tests passed and failed. An ignored test counts as failed: it shows nothing, and would look as if it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) passed: usize,
    pub(super) failed: usize,
}

impl Summary {
    /// Reads the line that a test binary ends with:
    /// `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |name: &str| {
            let text = counts.split("; ").find_map(|part| part.strip_suffix(name))?;
            text.trim_end().parse::<usize>().ok()
        };
        Some(Self { passed: count("passed")?, failed: count("failed")? + count("ignored")? })
    }
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_test_binary_is_counted() {
        let ok =
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s";
        assert_eq!(Summary::of_line(ok), Some(Summary { passed: 12, failed: 0 }));
        let bad = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(Summary::of_line(bad), Some(Summary { passed: 1, failed: 2 }));
    }

    #[test]
    fn an_ignored_test_is_a_failure() {
        let line =
            "test result: ok. 1 passed; 0 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(Summary::of_line(line), Some(Summary { passed: 1, failed: 4 }));
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in
            ["", "running 12 tests", "test a::b ... ok", "  test result: ok. 1 passed; 0 failed; 0 ignored"]
        {
            assert_eq!(Summary::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn sums_are_printed_in_one_plain_line() {
        let mut total = Summary { passed: 3, failed: 0 };
        total += Summary { passed: 4, failed: 1 };
        assert_eq!(total.to_string(), "7 passed, 1 failed");
    }
}
