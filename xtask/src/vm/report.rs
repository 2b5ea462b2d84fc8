//! What became of each kernel, as a table.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

/// The object that the guest prints: `{"kernel": "6.1.0-…", "checks": [{"name": …, "says": …, "error": …}]}`.
pub(super) type Results = Value;

/// The columns: what the guest checks.
const CHECKS: [&str; 9] =
    ["programs", "attach", "tcp4", "tcp6", "udp", "not-ready", "sockets", "takeover", "cleanup"];

/// A kernel and its results.
pub(super) struct Outcome {
    kernel: String,
    /// A cell for each of [`CHECKS`]: what was seen, or what is wrong.
    cells: Vec<Result<String, String>>,
}

impl Outcome {
    /// Of a boot of the kernel of a suite.
    pub(super) fn of(suite: &str, boot: Result<Results>) -> Self {
        let results = match boot {
            Ok(results) => results,
            Err(error) => {
                let cells = CHECKS.map(|_| Err(format!("{error:#}"))).into();
                return Self { kernel: suite.to_owned(), cells };
            }
        };
        let checks = results["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let cell = |name: &str| {
            let check = checks.iter().find(|check| check["name"] == *name).ok_or("it was not checked")?;
            match check["error"].as_str() {
                Some(error) => Err(error.to_owned()),
                None => Ok(check["says"].as_str().unwrap_or("ok").to_owned()),
            }
        };
        let kernel = results["kernel"].as_str().unwrap_or(suite).to_owned();
        Self { kernel, cells: CHECKS.iter().map(|name| cell(name)).collect() }
    }

    /// Whether everything was checked and is so.
    pub(super) fn is_good(&self) -> bool {
        self.cells.iter().all(Result::is_ok)
    }
}

/// A table in Markdown, and below it every failure once.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!("| kernel | {} |\n|---|{}\n", CHECKS.join(" | "), "---|".repeat(CHECKS.len()));
    let mut failures: Vec<String> = Vec::new();
    for Outcome { kernel, cells } in outcomes {
        let shown: Vec<_> = cells.iter().map(|cell| cell.as_deref().unwrap_or("FAILED")).collect();
        let _ = writeln!(text, "| {kernel} | {} |", shown.join(" | "));
        for (name, cell) in CHECKS.iter().zip(cells) {
            let Err(error) = cell else { continue };
            if !failures.iter().any(|failure| failure.ends_with(error)) {
                failures.push(format!("{kernel}: {name}: {error}"));
            }
        }
    }
    failures.into_iter().fold(text, |text, failure| text + &failure + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kernel_is_good_only_if_everything_was_checked_and_is_so() {
        let all = |error: Value| {
            let check = |name: &&str| json!({"name": name, "says": "ok", "error": if *name == "udp" { error.clone() } else { Value::Null }});
            json!({"kernel": "6.1.0", "checks": CHECKS.iter().map(check).collect::<Vec<_>>()})
        };
        assert!(Outcome::of("x", Ok(all(Value::Null))).is_good());
        let failed = Outcome::of("x", Ok(all(json!("timed out"))));
        assert!(!failed.is_good());
        assert!(!Outcome::of("x", Ok(json!({"kernel": "6.1.0", "checks": []}))).is_good());
        let none = Outcome::of("sid", Err(anyhow::anyhow!("no results")));
        assert!(!none.is_good());
        let text = table(&[failed, none]);
        assert!(text.contains("| 6.1.0 | ok | ok | ok | ok | FAILED | ok |"), "{text}");
        assert!(text.ends_with("6.1.0: udp: timed out\nsid: programs: no results\n"), "{text}");
    }
}
