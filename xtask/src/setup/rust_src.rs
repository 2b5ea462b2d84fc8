//! The sources of the core library, for exactly the compiler in use.

use std::process::Command;

use anyhow::{Result, bail};

use super::debian;
use crate::bpf::{
    Places,
    command::output,
    toolchain::{RustSrc, Rustc, rust_src},
};

/// One way to get the sources.
type Way = fn(&Places, &Rustc) -> Result<()>;

/// From the usual one to the one for machines that reach a Debian mirror and nothing else.
const WAYS: [(&str, Way); 2] =
    [("rustup component add rust-src", from_rustup), ("Debian's package rust-src", debian::rust_src)];

/// Brings rust-src, unless it is there.
pub(super) fn ensure(places: &Places) -> Result<()> {
    let rustc = Rustc::find()?;
    let name = format!("rust-src {}", rustc.release);
    if said(&name, rust_src(places, &rustc)?) {
        return Ok(());
    }
    for (way, bring) in WAYS {
        println!("setup: {name}: trying {way}");
        if let Err(error) = bring(places, &rustc) {
            println!("setup: {name}: not from there: {error:#}");
        } else if said(&name, rust_src(places, &rustc)?) {
            return Ok(());
        }
    }
    bail!(
        "there is no rust-src for rustc {0}; run `rustup component add rust-src`, or unpack the source of rust {0} \
         and set RUST_SRC_DIR to the folder that has `library` and `src/version` in it",
        rustc.release
    )
}

/// Says where the sources are, if they are anywhere.
fn said(name: &str, found: Option<RustSrc>) -> bool {
    match &found {
        Some(RustSrc::Component) => println!("setup: {name}: component of the toolchain"),
        Some(RustSrc::Library(folder)) => println!("setup: {name}: {}", folder.display()),
        None => {}
    }
    found.is_some()
}

fn from_rustup(_: &Places, _: &Rustc) -> Result<()> {
    output(Command::new("rustup").args(["component", "add", "rust-src"])).map(drop)
}
