//! The one way in which the eBPF object is built.
//!
//! `cargo xtask` and the build script of lb-userspace both include this module, so an agent never embeds an
//! object that is older than its sources, whichever of the two commands was typed.

pub(crate) mod command;
pub(crate) mod compile;
pub(crate) mod places;
pub(crate) mod toolchain;

pub(crate) use compile::build;
pub(crate) use places::Places;
pub(crate) use toolchain::Toolchain;
