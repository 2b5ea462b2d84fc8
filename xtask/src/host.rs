//! Cargo on everything that runs on this machine.

use std::process::Command;

use crate::bpf::{Places, command};

/// A cargo command on every package but lb-ebpf, which compiles for a BPF target only.
///
/// Always the whole workspace: a narrower choice changes the features of dependencies and compiles them anew.
pub(crate) fn cargo(places: &Places, verb: &str) -> Command {
    let mut cargo = command::cargo(&places.workspace, verb);
    cargo.args(["--locked", "--workspace", "--exclude=lb-ebpf"]);
    cargo
}
