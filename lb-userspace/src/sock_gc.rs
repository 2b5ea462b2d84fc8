//! Closes UDP sockets whose backend has gone.
//!
//! A client on the node that has connected a UDP socket to a VIP is connected to a backend, and no program sees what it sends
//! from then on. When that backend has gone its datagrams would be lost for as long as it likes. So the socket is closed from
//! outside, as the kernel closes one whose route fails: the client gets an error, connects again, and has another backend.
//! Sockets that name their destination with each datagram move by themselves, and TCP goes on to its backend until it ends.

use std::{path::Path, time::Duration};

use lb_common::{BackendState, Direction, SocketKey, SocketValue, addr::from_ip, maps, sock::keeps_backend};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{info, warn};

use crate::{
    maps::{MapError, Table},
    netlink::sockets::{Sockets, UdpSocket},
    reconcile::Status,
};

/// Time between two looks when nothing has changed: a client may have connected while a change was on its way.
const PASS_INTERVAL: Duration = Duration::from_secs(10);

/// The least time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// What became of sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// UDP sockets closed since the agent started, because their backend had gone.
    pub sockets: u64,
    /// Why such sockets are not closed now, in one sentence.
    pub error: Option<String>,
}

/// Why sockets are not closed.
#[derive(Debug, thiserror::Error)]
pub enum SockGcError {
    /// The kernel does not list them.
    #[error("the kernel does not list UDP sockets (CONFIG_INET_UDP_DIAG): {0}")]
    List(std::io::Error),
    /// The kernel does not close them.
    #[error("the kernel does not close sockets (CONFIG_INET_DIAG_DESTROY): {0}")]
    Close(std::io::Error),
    /// A map does not answer.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// The collector of one network namespace.
#[derive(Debug)]
pub struct SockGc {
    remembered: Table<SocketKey, SocketValue>,
    states: Table<u32, BackendState>,
    sockets: Sockets,
}

impl SockGc {
    /// Over the maps that are pinned in `folder` ([`crate::datapath::Datapath::folder`]) and the sockets of this thread's
    /// network namespace. Call within a tokio runtime.
    ///
    /// # Errors
    /// [`MapError::Kernel`] where a map is not there, [`SockGcError::List`] without netlink sockets.
    pub fn open(folder: &Path) -> Result<Self, SockGcError> {
        Ok(Self {
            remembered: Table::open(folder, maps::SOCKETS)?,
            states: Table::open(folder, maps::BACKEND_STATE)?,
            sockets: Sockets::open().map_err(SockGcError::List)?,
        })
    }

    /// Closes every connected UDP socket that a program has sent to a backend which has gone since. Returns how many.
    ///
    /// The sockets are listed, not SOCKETS: a node has few that are connected, and of the map anything may be a socket's that
    /// has long been closed.
    ///
    /// # Errors
    /// [`SockGcError`]; those before stay closed.
    pub async fn pass(&self) -> Result<u64, SockGcError> {
        let mut closed = 0;
        for socket in self.sockets.connected_udp().await.map_err(SockGcError::List)? {
            if self.is_stranded(&socket)? {
                closed += u64::from(self.sockets.close(&socket).await.map_err(SockGcError::Close)?);
            }
        }
        Ok(closed)
    }

    fn is_stranded(&self, socket: &UdpSocket) -> Result<bool, MapError> {
        let (address, port) = socket.peer();
        let key = SocketKey::new(socket.cookie(), from_ip(address), port, Direction::Reply);
        let Some(entry) = self.remembered.get(&key)? else { return Ok(false) };
        let state = self.states.get(&entry.backend_id)?.map_or(0, |state| state.flags);
        Ok(!keeps_backend(entry.service_id, entry.service_id, state))
    }
}

/// Looks whenever something was written to the maps, until it is dropped or `status` ends, and reports what it did.
pub async fn run(gc: SockGc, mut status: watch::Receiver<Status>, report: watch::Sender<Closed>) {
    loop {
        let written = status.borrow_and_update().operations;
        let pass = gc.pass().await;
        report.send_if_modified(|told| {
            let before = told.clone();
            note(told, pass);
            *told != before
        });
        sleep(PAUSE).await;
        let news = timeout(PASS_INTERVAL, status.wait_for(|now| now.operations != written)).await;
        if matches!(news, Ok(Err(_))) {
            return;
        }
    }
}

fn note(told: &mut Closed, pass: Result<u64, SockGcError>) {
    let error = match pass {
        Ok(0) => None,
        Ok(closed) => {
            info!(closed, "UDP sockets closed whose backend had gone");
            told.sockets += closed;
            None
        }
        Err(error) => Some(error.to_string()),
    };
    if let Some(error) = error.as_ref().filter(|error| told.error.as_ref() != Some(*error)) {
        warn!("UDP sockets whose backend has gone stay connected to it: {error}");
    }
    told.error = error;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_until_a_look_succeeds_and_what_was_closed_adds_up() {
        let mut told = Closed::default();
        note(&mut told, Ok(2));
        let denied = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        note(&mut told, Err(SockGcError::Close(denied)));
        assert_eq!(told.sockets, 2);
        assert!(told.error.as_ref().is_some_and(|error| error.contains("CONFIG_INET_DIAG_DESTROY")));
        note(&mut told, Ok(1));
        assert_eq!(told, Closed { sockets: 3, error: None });
    }
}
