//! A filter on a socket that hears of routes: with full BGP tables they change by the thousand, and each would be copied,
//! decoded and thrown away. (socket(7), `SO_ATTACH_FILTER`; `linux/filter.h`.)

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_RET, RTM_DELROUTE, RTM_NEWROUTE,
    sock_filter, sock_fprog, socklen_t,
};

/// The longest prefix that counts as a default route: a VPN lays 0.0.0.0/1 and 128.0.0.0/1 over the one that is there.
const LONGEST_DEFAULT: u32 = 1;

/// Lets the socket hear of default routes alone, and of everything that is not a route.
///
/// # Errors
/// What the kernel says.
#[expect(clippy::cast_possible_truncation, reason = "seven instructions, and a structure of a few bytes")]
pub(super) fn default_routes_only(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut program = program();
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies `filter` and the instructions that it points to.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<sock_fprog>() as socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sees each message as `struct nlmsghdr` and what follows it, for routes `struct rtmsg`.
#[expect(clippy::cast_possible_truncation, reason = "the codes of instructions have 16 bits")]
fn program() -> [sock_filter; 7] {
    const TYPE: u32 = 4;
    const PREFIX_LENGTH: u32 = 16 + 1;
    const EVERYTHING: u32 = u32::MAX;
    const NOTHING: u32 = 0;
    let statement = |code: u32, k| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |size, offset| statement(BPF_LD | size | BPF_ABS, offset);
    let pass = |bytes| statement(BPF_RET | BPF_K, bytes);
    let jump = |when, k, jt, jf| sock_filter { jt, jf, ..statement(BPF_JMP | when | BPF_K, k) };
    // A half word is taken for network byte order, and netlink has the machine's.
    let is_type = |of: u16, then, otherwise| jump(BPF_JEQ, of.to_be().into(), then, otherwise);
    [
        load(BPF_H, TYPE),
        is_type(RTM_NEWROUTE, 1, 0),
        is_type(RTM_DELROUTE, 0, 2),
        load(BPF_B, PREFIX_LENGTH),
        jump(BPF_JGT, LONGEST_DEFAULT, 1, 0),
        pass(EVERYTHING),
        pass(NOTHING),
    ]
}
