//! The core without a kernel: from an event to the last operation that comes of it.

mod core;
mod memory;
mod part;
mod times;

use anyhow::Result;

use super::report::Row;
pub(super) use part::{PartArgs, run_part};

/// How much is measured.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of Services of the large cluster, with 10 endpoints each
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=400_000))]
    services: u32,
    /// A few measurements in a small cluster, which no target is for: shows that the benchmark works
    #[arg(long)]
    quick: bool,
}

/// Targets.
struct Limits {
    /// A change in the large cluster, against one in a cluster of 10 Services.
    flip: f64,
    /// All of the large cluster, against a tenth of it, a Service.
    full: f64,
    /// Resident memory, in bytes an endpoint.
    memory: f64,
}

const LIMITS: Limits = Limits { flip: 3.0, full: 1.3, memory: 1024.0 };

/// Measures all there is.
pub(super) fn run(args: &Args) -> Result<Vec<Row>> {
    let services = if args.quick { 200 } else { args.services as usize };
    // How often: changes are many and cheap, lists few and dear.
    let (changes, lists) = if args.quick { (25, 2) } else { (1_000, 9) };
    let limit = |limit| (!args.quick).then_some(limit);
    let mut rows = times::flip([10, services], changes, limit(LIMITS.flip))?;
    rows.extend(times::full([services / 10, services], lists, limit(LIMITS.full))?);
    rows.extend(times::resync_and_render(services, lists)?);
    rows.extend(memory::memory(services, limit(LIMITS.memory))?);
    Ok(rows)
}
