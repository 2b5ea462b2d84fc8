//! Runs a packet as one whose sum the receiving hardware has made (`CHECKSUM_COMPLETE`), and lets the kernel compare that
//! sum with the packet afterwards. aya's own test run has no flag for it.

use std::{
    io, mem,
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::programs::SchedClassifier;
use aya_obj::generated::{bpf_attr, bpf_cmd};

use crate::prog::{Datapath, Hook};

/// `BPF_F_TEST_SKB_CHECKSUM_COMPLETE`.
const CHECKSUM_COMPLETE: u32 = 1 << 2;

/// Runs a packet through a program and gives what comes out.
///
/// # Errors
///
/// `EBADMSG`: the packet no longer has the sum that goes with it. `EINVAL`: the kernel is too old for the
/// flag; 6.18 has it.
pub fn run_with_received_sum(datapath: &Datapath, hook: Hook, packet: &[u8]) -> io::Result<Vec<u8>> {
    let program: &SchedClassifier =
        datapath.ebpf().program(hook.program()).expect("it is loaded").try_into().expect("of this type");
    let mut out = vec![0u8; packet.len()];
    let len = u32::try_from(packet.len()).expect("a small packet");
    // SAFETY: zero is a value of every member.
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    attr.test.prog_fd = program.fd().expect("it is loaded").as_fd().as_raw_fd().cast_unsigned();
    attr.test.data_in = packet.as_ptr() as u64;
    attr.test.data_size_in = len;
    attr.test.data_out = out.as_mut_ptr() as u64;
    attr.test.data_size_out = len;
    attr.test.flags = CHECKSUM_COMPLETE;
    // SAFETY: the attribute is of this command, and both buffers live longer than the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, bpf_cmd::BPF_PROG_TEST_RUN, &raw mut attr, size_of::<bpf_attr>())
    };
    if result == 0 { Ok(out) } else { Err(io::Error::last_os_error()) }
}
