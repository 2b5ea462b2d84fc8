//! What the agent holds in memory, and where.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use lb_userspace::{
    desired::Identity,
    maps::{Record, fake::FakeMaps},
    model::Store,
    state::State,
};
use serde::{Deserialize, Serialize};

use super::{
    super::{
        cluster::{Cluster, ENDPOINTS},
        report::Row,
    },
    core::{Core, NODE, lists, stream},
    part::{self, Part},
};

/// In bytes. The parts are what the allocator has given out, with its own overhead; `resident` is what the system
/// says of the process, and has what the allocator holds free as well.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The whole, more than before.
    resident: u64,
    /// The same, as the allocator counts it.
    allocated: u64,
    /// The objects.
    store: u64,
    /// Frontends and backends.
    desired: u64,
    /// What the maps hold.
    record: u64,
}

/// Measures in a process of its own, where nothing else counts.
pub(super) fn memory(services: usize, limit: Option<f64>) -> Result<Vec<Row>> {
    let Memory { resident, allocated, store, desired, record } = part::measure(Part::Memory, services)?;
    let rest = allocated.saturating_sub(store + desired + record);
    #[expect(clippy::cast_precision_loss, reason = "no process has 2^52 bytes")]
    let row = |what: &str, bytes: u64| {
        Row::single(what, services, "bytes an endpoint", bytes as f64 / (services * ENDPOINTS) as f64)
    };
    Ok(vec![
        row("plan/memory", resident).limit(limit),
        row("plan/memory allocated", allocated),
        row("plan/memory in the store", store),
        row("plan/memory in desired", desired),
        row("plan/memory in the record", record),
        row("plan/memory in ids and queue", rest),
    ])
}

/// The work of the process of its own.
pub(super) fn measure(services: usize) -> Result<Memory> {
    let cluster = Cluster::of(services);
    // Nothing was freed yet that could be used again without showing.
    let (resident, allocated) = (resident()?, allocated());
    let mut core = Core::start();
    core.hear(lists(stream(cluster)));
    core.settle();
    ensure!(core.programmed() == services, "not everything is in the maps");
    let whole = (self::resident()?.saturating_sub(resident), self::allocated() - allocated);
    drop(core);

    let store = held(|| {
        let mut store = Store::new(2);
        lists(stream(cluster)).for_each(|event| store.handle(event));
        store
    });
    let state = held(|| {
        let mut state = State::new(Identity::of(NODE), 2, &[]);
        lists(stream(cluster)).for_each(|event| state.handle(event));
        state.refresh();
        state
    });
    let maps = FakeMaps::new(1);
    maps.fail(0.0);
    let mut core = Core::over(Box::new(maps.clone()));
    core.hear(lists(stream(cluster)));
    core.settle();
    drop(core);
    let operations = maps.take_log();
    let record = held(|| {
        let mut record = Record::default();
        operations.iter().for_each(|operation| record.apply(operation));
        record
    });
    Ok(Memory { resident: whole.0, allocated: whole.1, store, desired: state.saturating_sub(store), record })
}

/// How much memory something holds.
fn held<T>(make: impl FnOnce() -> T) -> u64 {
    let before = allocated();
    let made = make();
    let after = allocated();
    drop(made);
    after.saturating_sub(before)
}

/// Bytes of this process that are in memory.
fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmRSS in /proc/self/status")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// Bytes that the allocator has given out.
fn allocated() -> u64 {
    // SAFETY: takes nothing, returns a plain value, and may be called at any time.
    let info = unsafe { libc::mallinfo2() };
    // Large pieces are mapped one by one, and counted apart.
    (info.uordblks + info.hblkhd) as u64
}
