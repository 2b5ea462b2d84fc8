//! The agent's own network namespace, as programs know it.

use std::{
    io,
    os::{fd::AsRawFd, unix::net::UnixDatagram},
    path::Path,
};

/// The cookie of the network namespace of this thread; 0 stands for the initial one.
///
/// # Errors
/// A sentence: the kernel does not tell.
pub(super) fn cookie() -> Result<u64, String> {
    // Before Linux 5.14 only the initial namespace had this sysctl.
    let is_initial = || Path::new("/proc/sys/net/core/netdev_max_backlog").exists();
    known(ask_kernel(), is_initial)
}

/// The kernel tells a program the cookie of any socket's namespace and that of the initial one; user space it tells since
/// Linux 5.14 only.
fn known(answer: io::Result<u64>, is_initial: impl FnOnce() -> bool) -> Result<u64, String> {
    match answer {
        Ok(cookie) => Ok(cookie),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            const SENTENCE: &str = "the kernel does not tell which network namespace the agent is in, which came with Linux \
                                    5.14, and it is not the initial one";
            if is_initial() { Ok(0) } else { Err(SENTENCE.to_owned()) }
        }
        Err(error) => Err(format!("the kernel does not tell the network namespace of the agent: {error}")),
    }
}

fn ask_kernel() -> io::Result<u64> {
    let socket = UnixDatagram::unbound()?;
    let mut cookie = 0_u64;
    #[expect(clippy::cast_possible_truncation, reason = "eight bytes")]
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `cookie`, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_tell_leaves_the_initial_namespace_only() {
        let unknown = || Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT));
        assert_eq!(known(Ok(4_711), || false), Ok(4_711));
        assert_eq!(known(unknown(), || true), Ok(0));
        assert!(known(unknown(), || false).is_err_and(|error| error.contains("5.14")));
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        assert!(known(Err(denied), || true).is_err_and(|error| error.contains("not permitted")));
    }
}
