//! Programs that are not readylb's, as a CNI has them: they must stay where they are and still see every packet.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use anyhow::{Context, Result};
use aya::programs::loaded_programs;

/// Name of the program in the kernel.
pub const NAME: &str = "foreign";

/// A classifier that lets every packet go on to the next program and does nothing else.
#[derive(Debug)]
pub struct ForeignProgram {
    program: OwnedFd,
    /// While this is open, the kernel counts how often each program runs.
    _statistics: OwnedFd,
}

impl ForeignProgram {
    /// Loads one.
    ///
    /// # Errors
    /// Where the rights are missing.
    pub fn load() -> Result<Self> {
        let statistics = aya::sys::enable_stats(aya::sys::Stats::RunTime)?;
        /// `r0 = TC_ACT_UNSPEC` and `exit`.
        const CODE: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], [0x95, 0, 0, 0, 0, 0, 0, 0]];
        let program = load(NAME, &CODE).context("cannot load a program (CAP_BPF)")?;
        Ok(Self { program, _statistics: statistics })
    }

    /// Its id in the kernel.
    ///
    /// # Errors
    /// Where programs cannot be listed.
    pub fn id(&self) -> Result<u32> {
        let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.program.as_raw_fd()))?;
        let id = fdinfo.lines().find_map(|line| line.strip_prefix("prog_id:"));
        Ok(id.context("the kernel does not say the id of a program")?.trim().parse()?)
    }

    /// How often it has run.
    ///
    /// # Errors
    /// Where programs cannot be listed.
    pub fn runs(&self) -> Result<u64> {
        let id = self.id()?;
        let found = loaded_programs().flatten().find(|program| program.id() == id);
        Ok(found.context("the program has been unloaded")?.run_count())
    }
}

impl AsFd for ForeignProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// Loads a classifier from its instructions, each a `struct bpf_insn`.
pub(crate) fn load(program_name: &str, code: &[[u8; 8]]) -> io::Result<OwnedFd> {
    /// The part of `union bpf_attr` that BPF_PROG_LOAD needs here.
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
    }
    const BPF_PROG_LOAD: libc::c_long = 5;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    let mut name = [0; 16];
    name[..program_name.len()].copy_from_slice(program_name.as_bytes());
    let attr = Attr {
        prog_type: BPF_PROG_TYPE_SCHED_CLS,
        insn_cnt: u32::try_from(code.len()).expect("a short program"),
        insns: code.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: name,
    };
    // SAFETY: the kernel reads the attribute, and code and licence through it; all outlive the call.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attr, size_of::<Attr>()) };
    match i32::try_from(descriptor) {
        // SAFETY: the kernel has just made the descriptor for us.
        Ok(descriptor @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
