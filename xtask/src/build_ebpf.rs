//! `cargo xtask build-ebpf`

use anyhow::Result;

use crate::{
    bpf::{self, Places},
    setup,
};

/// Compiles the eBPF programs, after bringing what that needs.
pub(crate) fn run() -> Result<()> {
    let places = Places::find()?;
    let object = bpf::build(&places, &setup::toolchain(&places)?)?;
    println!("build-ebpf: {}", object.display());
    Ok(())
}
