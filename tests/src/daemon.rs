//! Programs of others that serve while a test runs.

use std::{
    net::{SocketAddr, TcpStream},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::netns::Namespace;

/// How long a program may take until it listens. Only a failure takes so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program on a host that listens on a TCP port. Killed when dropped.
#[derive(Debug)]
pub struct Daemon(Child);

impl Daemon {
    /// Starts one, and waits until it takes connections to `address`.
    ///
    /// # Errors
    /// Where it cannot be run, ends, or does not listen.
    pub fn start(host: &Namespace, program: &str, arguments: &[&str], address: SocketAddr) -> Result<Self> {
        let mut command = host.command(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let mut daemon = Self(command.spawn()?);
        let deadline = Instant::now() + PATIENCE;
        while host.run(|| TcpStream::connect(address)).is_err() {
            if let Some(status) = daemon.0.try_wait()? {
                bail!("{}: {program} has ended: {status}", host.role());
            }
            if Instant::now() > deadline {
                bail!("{}: {program} does not listen on {address}", host.role());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; its clients have seen that where it matters.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
