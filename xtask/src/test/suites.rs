//! Which test binaries belong to which kind of test.

use anyhow::Result;
use serde_json::Value;

use super::Kind;
use crate::bpf::{Places, places::metadata};

/// The test binaries of one kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// One call of `cargo test` each, by the arguments that choose its binaries.
    pub(super) selections: Vec<Vec<String>>,
}

/// The suites of `kind`, in the order in which they run.
pub(super) fn find(places: &Places, kind: Kind) -> Result<Vec<Suite>> {
    let metadata = metadata(&places.workspace)?;
    Ok(group(&test_targets(&metadata), kind))
}

/// Package and name of every integration test.
fn test_targets(metadata: &Value) -> Vec<(&str, &str)> {
    fn list(value: &Value) -> &[Value] {
        value.as_array().map(Vec::as_slice).unwrap_or_default()
    }
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            if list(&target["kind"]).iter().any(|kind| kind == "test") {
                found.extend(package["name"].as_str().zip(target["name"].as_str()));
            }
        }
    }
    found
}

/// Sorts the integration tests of lb-tests by the first word of their names. What is called otherwise, and the tests
/// of other packages, need nothing from the machine and are unit tests.
fn group(targets: &[(&str, &str)], kind: Kind) -> Vec<Suite> {
    let mut unit = vec!["--lib".to_owned(), "--bins".to_owned()];
    let (mut packet, mut netns, mut agent) = (Vec::new(), Vec::new(), Vec::new());
    for (package, target) in targets {
        let members = match (*package, target.split_once('_')) {
            ("lb-tests", Some(("packet", _))) => &mut packet,
            ("lb-tests", Some(("netns", _))) => &mut netns,
            ("lb-tests", Some(("agent", _))) => &mut agent,
            _ => &mut unit,
        };
        members.push(format!("--test={target}"));
    }
    let suites = [
        (Kind::Unit, "unit", vec![unit, vec!["--doc".to_owned()]]),
        (Kind::Packet, "packet", vec![packet]),
        (Kind::Netns, "netns", vec![netns]),
        (Kind::Agent, "agent", vec![agent]),
    ];
    let chosen = suites.into_iter().filter(|(of, ..)| kind == *of || kind == Kind::All);
    chosen
        .map(|(_, name, mut selections)| {
            // `cargo test` without a selection would run everything.
            selections.retain(|selection| !selection.is_empty());
            Suite { name, selections }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [(&str, &str); 5] = [
        ("lb-userspace", "scenarios"),
        ("lb-tests", "packet_tcp"),
        ("lb-tests", "apiserver"),
        ("lb-tests", "packet_icmp"),
        ("lb-tests", "agent_watch"),
    ];

    fn suite(name: &'static str, selections: &[&[&str]]) -> Suite {
        let owned = |words: &&[&str]| words.iter().copied().map(str::to_owned).collect();
        Suite { name, selections: selections.iter().map(owned).collect() }
    }

    #[test]
    fn the_first_word_of_a_test_file_is_its_suite() {
        assert_eq!(
            group(&TARGETS, Kind::All),
            [
                suite("unit", &[&["--lib", "--bins", "--test=scenarios", "--test=apiserver"], &["--doc"]]),
                suite("packet", &[&["--test=packet_tcp", "--test=packet_icmp"]]),
                suite("netns", &[]),
                suite("agent", &[&["--test=agent_watch"]]),
            ]
        );
    }

    #[test]
    fn one_kind_is_one_suite() {
        let packet = suite("packet", &[&["--test=packet_tcp", "--test=packet_icmp"]]);
        assert_eq!(group(&TARGETS, Kind::Packet), [packet]);
        assert_eq!(group(&TARGETS, Kind::Netns), [suite("netns", &[])]);
    }

    #[test]
    fn integration_tests_are_found_in_the_description_of_the_workspace() {
        let metadata = serde_json::json!({"packages": [
            {"name": "lb-tests", "targets": [
                {"kind": ["lib"], "name": "lb_tests"}, {"kind": ["test"], "name": "packet_tcp"}]},
            {"name": "xtask", "targets": [{"kind": ["bin"], "name": "xtask"}]},
        ]});
        assert_eq!(test_targets(&metadata), [("lb-tests", "packet_tcp")]);
    }
}
