//! `cargo xtask test`

mod preflight;
mod suites;
mod summary;

use std::{
    io::{BufRead as _, BufReader},
    process::{ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::{
    bpf::{self, Places, command},
    host, lint, setup,
};
use suites::Suite;
use summary::Summary;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which tests
    #[arg(value_enum, default_value = "all")]
    kind: Kind,
    /// Passed to the test binaries: part of a name, --exact, --nocapture
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// From the least powerful to the most.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Everything that needs no privilege: functions, examples, the sources
    Unit,
    /// The compiled programs, packet by packet (BPF_PROG_TEST_RUN)
    Packet,
    /// Real sockets between network namespaces
    Netns,
    /// The whole agent against files and a fake API server
    Agent,
    /// Every kind, after `cargo xtask lint`
    All,
}

/// Runs the tests. The last line of standard output is `N passed, M failed`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::run()?;
    let places = Places::find()?;
    let toolchain = setup::toolchain(&places)?;
    bpf::build(&places, &toolchain)?;
    let suites = suites::find(&places, args.kind)?;
    if args.kind != Kind::Unit {
        preflight::check()?;
        // The tests of lb-tests run this binary, and cargo builds only those of their own package for them.
        command::run(host::cargo(&places, "build").arg("--bins"))?;
    }

    let lint_failures = match args.kind {
        Kind::All if args.arguments.is_empty() => lint::failures(&places, &toolchain),
        _ => Vec::new(),
    };
    let mut total = Summary::default();
    let mut rows = Vec::new();
    for suite in &suites {
        let start = Instant::now();
        let summary = run_suite(&places, suite, &args.arguments)?;
        rows.push(format!("{:<8} {summary} in {:.1} s", suite.name, start.elapsed().as_secs_f64()));
        total += summary;
    }

    println!();
    for row in rows {
        println!("{row}");
    }
    if !lint_failures.is_empty() {
        println!("lint     failed: {}", lint_failures.join(", "));
    }
    if total.passed + total.failed == 0 {
        println!("no test ran, which proves nothing");
    }
    // Counted, so that the last line does not look good beside a bad exit status.
    total.failed += lint_failures.len();
    println!("{total}");
    Ok(if total.passed > 0 && total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the commands of one suite, to the end also after a failure, and adds up what they say.
fn run_suite(places: &Places, suite: &Suite, arguments: &[String]) -> Result<Summary> {
    println!("test: {}", suite.name);
    let mut total = Summary::default();
    for selection in &suite.selections {
        let mut cargo = host::cargo(places, "test");
        cargo.arg("--no-fail-fast").args(selection).arg("--").args(arguments).stdout(Stdio::piped());
        let mut child = cargo.spawn().context("`cargo test` cannot be started")?;
        let mut summary = Summary::default();
        for line in BufReader::new(child.stdout.take().context("`cargo test` has no output")?).lines() {
            let line = line.context("the output of `cargo test` cannot be read")?;
            println!("{line}");
            summary += Summary::of_line(&line).unwrap_or_default();
        }
        let status = child.wait().context("`cargo test` cannot be waited for")?;
        if !status.success() && summary.failed == 0 {
            println!("test: {}: did not compile or did not finish ({status})", suite.name);
            summary.failed = 1;
        }
        total += summary;
    }
    Ok(total)
}
