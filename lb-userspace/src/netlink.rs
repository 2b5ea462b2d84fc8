//! rtnetlink sockets: one kind to ask the kernel on, one to hear what it says of its own accord (rtnetlink(7)); and a kind to
//! ask about the sockets of processes.
//!
//! A socket is of the network namespace of the thread that opens it, and needs a tokio runtime.

mod filter;
pub(crate) mod sockets;

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use futures::{StreamExt, channel::mpsc::UnboundedReceiver};
use rtnetlink::{
    Handle, MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::RouteNetlinkMessage,
    sys::SocketAddr,
};
use tokio::task::JoinSet;

/// A socket to ask on. What the kernel says of its own accord does not come in here, so no answer is lost to it.
#[derive(Debug)]
pub(crate) struct Questions {
    handle: Handle,
    /// The task behind `handle`; ends with this.
    _connection: JoinSet<()>,
}

impl Questions {
    pub(crate) fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let mut task = JoinSet::new();
        task.spawn(connection);
        Ok(Self { handle, _connection: task })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// A socket that hears of changes.
#[derive(Debug)]
pub(crate) struct News {
    messages: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    /// The task behind `messages`; ends with this.
    _connection: JoinSet<()>,
}

/// Something heard.
#[derive(Debug)]
pub(crate) enum Heard {
    /// What the kernel said.
    Message(RouteNetlinkMessage),
    /// The socket's buffer was full (ENOBUFS), and the kernel has dropped what did not fit.
    Lost,
}

impl News {
    /// Hears of every change after this call: ask for what there is afterwards, and none falls in between. Of routes it
    /// hears of default ones alone.
    pub(crate) fn open(groups: &[MulticastGroup]) -> io::Result<Self> {
        let (mut connection, _, messages) = rtnetlink::new_multicast_connection(groups)?;
        let socket = connection.socket_mut().as_raw_fd();
        // SAFETY: the connection has it open.
        filter::default_routes_only(unsafe { BorrowedFd::borrow_raw(socket) })?;
        let mut task = JoinSet::new();
        task.spawn(connection);
        Ok(Self { messages, _connection: task })
    }

    /// The next of them; it is safe to drop the future and ask again.
    ///
    /// # Errors
    /// Where the socket is broken: open another one.
    pub(crate) async fn next(&mut self) -> io::Result<Heard> {
        let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "the netlink socket was closed");
        loop {
            let (message, _) = self.messages.next().await.ok_or_else(closed)?;
            match message.payload {
                NetlinkPayload::InnerMessage(message) => return Ok(Heard::Message(message)),
                NetlinkPayload::Overrun(_) => return Ok(Heard::Lost),
                _ => {}
            }
        }
    }
}

/// What the kernel said, where it said something.
pub(crate) fn into_io(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}
