//! `cargo xtask demo`

use anyhow::Result;

use crate::{
    bpf::{self, Places, command},
    host, setup,
};

/// Builds everything and shows the main job, in network namespaces of its own.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    let places = Places::find()?;
    bpf::build(&places, &setup::toolchain(&places)?)?;
    command::run(host::cargo(&places, "build").arg("--bins"))?;
    // The eBPF build has a target folder of its own, inside that of the workspace.
    let binaries = places.objects.with_file_name("debug");
    command::run(std::process::Command::new(binaries.join("demo")).arg(binaries.join("readylb")))
}
