//! The benchmarks still run, and say what they measured in a form that can be read. How fast it was is no test.

use std::{collections::BTreeMap, fs, process::Command};

use serde_json::Value;

#[test]
fn the_plan_benchmark_runs_and_a_list_of_the_same_objects_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.json");
    let bench = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["plan", "--quick", "--json"])
        .arg(&file)
        .output()
        .unwrap();
    let table = String::from_utf8(bench.stdout).unwrap();
    assert!(bench.status.success(), "{table}{}", String::from_utf8_lossy(&bench.stderr));

    let rows: Vec<Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let mut medians = BTreeMap::<(&str, u64), f64>::new();
    for row in &rows {
        let key = (row["benchmark"].as_str().unwrap(), row["services"].as_u64().unwrap());
        medians.insert(key, row["median"].as_f64().unwrap());
    }
    // The header, and a line for each row.
    assert_eq!(table.lines().count(), rows.len() + 1, "{table}");
    for key in [("plan/flip", 10), ("plan/flip", 200), ("plan/full", 20), ("plan/full", 200)] {
        assert!(medians[&key] > 0.0, "{table}");
    }
    assert_eq!(medians[&("plan/resync operations", 200)], 0.0, "{table}");
    assert!(medians[&("plan/memory", 200)] > 0.0, "{table}");
}
