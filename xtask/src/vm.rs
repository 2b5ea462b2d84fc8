//! `cargo xtask vm`: the same binary on older and newer kernels, each in a virtual machine of software emulation.

mod boot;
mod image;
mod modules;
mod report;

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    bpf::{self, Places, command},
    host, setup,
};
use report::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which kernels (repeatable); default: all
    #[arg(long = "kernel", value_name = "VERSION")]
    kernels: Vec<Kernel>,
}

/// A kernel that Debian maintains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kernel {
    /// Debian 11
    #[value(name = "5.10")]
    Linux5_10,
    /// Debian 12
    #[value(name = "6.1")]
    Linux6_1,
    /// Debian 13
    #[value(name = "6.12")]
    Linux6_12,
    /// The newest that is packaged
    Newest,
}

impl Kernel {
    /// The suite in which it is.
    const fn suite(self) -> &'static str {
        match self {
            Self::Linux5_10 => "bullseye-security",
            Self::Linux6_1 => "bookworm-security",
            Self::Linux6_12 => "trixie",
            Self::Newest => "sid",
        }
    }
}

/// What the host needs: an emulator, a shell for the guest, and programs that prepare files for it.
const TOOLS: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("xz", "xz-utils"),
    ("strip", "binutils"),
    ("ip", "iproute2"),
];

/// Boots the kernels one after the other and prints what became of each. Exit code 1 if anything was not so.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::bring_tools(&TOOLS)?;
    let places = Places::find()?;
    bpf::build(&places, &setup::toolchain(&places)?)?;
    command::run(host::cargo(&places, "build").arg("--bins"))?;
    let binaries = places.objects.with_file_name("debug");
    let cache = places.objects.with_file_name("vm");
    let kernels = if args.kernels.is_empty() { Kernel::value_variants() } else { &args.kernels };
    let mut outcomes = Vec::new();
    for kernel in kernels {
        let suite = kernel.suite();
        println!("vm: the kernel of {suite}");
        let outcome = setup::unpack_kernel(&cache, suite)
            .and_then(|unpacked| image::Image::make(&cache, suite, &unpacked, &binaries))
            .and_then(|image| boot::boot(&image));
        outcomes.push(Outcome::of(suite, outcome));
    }
    print!("{}", report::table(&outcomes));
    Ok(if outcomes.iter().all(Outcome::is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
