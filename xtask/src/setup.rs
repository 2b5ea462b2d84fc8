//! `cargo xtask setup`

mod apt;
mod apt_sources;
mod debian;
mod kernel;
mod linker;
mod rust_src;
mod tools;

use anyhow::Result;

use crate::bpf::{Places, Toolchain};

pub(crate) use kernel::unpack as unpack_kernel;
pub(crate) use tools::{bring as bring_tools, missing as missing_tools, uid};

/// Brings everything that the build and the tests need. Only the tools go into the system, and only as root.
pub(crate) fn run() -> Result<()> {
    let places = Places::find()?;
    rust_src::ensure(&places)?;
    linker::ensure(&places)?;
    tools::ensure()
}

/// The toolchain for the eBPF programs, for the verbs that compile them. Silent when it is there.
pub(crate) fn toolchain(places: &Places) -> Result<Toolchain> {
    if let Ok(found) = Toolchain::find(places) {
        return Ok(found);
    }
    rust_src::ensure(places)?;
    linker::ensure(places)?;
    Toolchain::find(places)
}
