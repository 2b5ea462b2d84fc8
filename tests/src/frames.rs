//! Frames as they are on an interface, in and out (packet(7)).

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::netns::Namespace;

/// A packet socket on one interface of a host.
#[derive(Debug)]
pub struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Opens one that sees every frame of the interface from now on.
    ///
    /// # Errors
    /// Where the rights are missing (CAP_NET_RAW).
    pub fn open(host: &Namespace, interface: &str) -> Result<Self> {
        let ifindex = host.ifindex(interface)?;
        host.run(|| open(ifindex)).with_context(|| format!("{}: {interface}", host.role()))
    }

    /// Sends a frame as it is, from the Ethernet header on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the kernel reads `frame.len()` bytes of a slice that outlives the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next frame that is `wanted`; others are passed over.
    ///
    /// # Errors
    /// That none came in `patience`.
    pub fn receive(&self, patience: Duration, wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + patience;
        let mut frame = vec![0; 65_536];
        while Instant::now() < deadline {
            // SAFETY: the kernel writes at most `frame.len()` bytes to a buffer that outlives the call.
            let received =
                unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
            match usize::try_from(received) {
                Ok(length) if wanted(&frame[..length]) => return Ok(frame[..length].to_vec()),
                Ok(_) => {}
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// How long one look for a frame takes at most.
static LOOK: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 50_000 };

fn open(ifindex: u32) -> Result<FrameSocket> {
    let all = libc::c_int::from(ETH_P_ALL.to_be());
    // SAFETY: no pointer is passed.
    let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, all) };
    if raw < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the kernel has just given us this descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: every field of the structure may be zero.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET)?;
    address.sll_protocol = ETH_P_ALL.to_be();
    address.sll_ifindex = i32::try_from(ifindex)?;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>())?;
    // SAFETY: the kernel reads `length` bytes of a structure that outlives the call.
    if unsafe { libc::bind(raw, (&raw const address).cast(), length) } < 0 {
        return Err(io::Error::last_os_error().into());
    }
    let length = libc::socklen_t::try_from(size_of::<libc::timeval>())?;
    // SAFETY: as above.
    let set = unsafe {
        libc::setsockopt(raw, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const LOOK).cast(), length)
    };
    if set < 0 {
        return Err(io::Error::last_os_error().into());
    }
    Ok(FrameSocket(socket))
}

/// `ETH_P_ALL` as a number of 16 bits.
const ETH_P_ALL: u16 = 3;
