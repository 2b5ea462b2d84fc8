//! Sockets of the network namespace, as the kernel lists and closes them. (sock_diag(7))

use std::{fmt::Debug, io, net::IpAddr};

use futures::StreamExt;
use netlink_packet_sock_diag::{
    SockDiagDestroy, SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_UDP},
    inet::{ExtensionFlags, InetRequest, SocketId, StateFlags},
};
use rtnetlink::{
    packet_core::{
        NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
        NetlinkSerializable,
    },
    proto::{ConnectionHandle, new_connection},
    sys::{SocketAddr, protocols::NETLINK_SOCK_DIAG},
};
use tokio::task::JoinSet;

/// A connected UDP socket of any process.
#[derive(Clone, Debug)]
pub(crate) struct UdpSocket {
    family: u8,
    id: SocketId,
}

impl UdpSocket {
    /// The kernel's number of it, the same as programs get.
    pub(crate) fn cookie(&self) -> u64 {
        let [a, b, c, d, e, f, g, h] = self.id.cookie;
        u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(u32::from_ne_bytes([e, f, g, h])) << 32
    }

    /// Whom it is connected to: address, and port in host byte order.
    pub(crate) const fn peer(&self) -> (IpAddr, u16) {
        (self.id.destination_address, self.id.destination_port)
    }

    fn request(&self) -> SockDiagMessage {
        request(self.family, self.id.clone())
    }
}

/// To ask about sockets, and to close them.
#[derive(Debug)]
pub(crate) struct Sockets {
    list: ConnectionHandle<SockDiagMessage>,
    close: ConnectionHandle<SockDiagDestroy>,
    /// The tasks behind both; end with this.
    _connections: JoinSet<()>,
}

impl Sockets {
    /// Those of the network namespace of this thread. Call within a tokio runtime.
    pub(crate) fn open() -> io::Result<Self> {
        let mut connections = JoinSet::new();
        let (connection, list, _) = new_connection(NETLINK_SOCK_DIAG)?;
        connections.spawn(connection);
        let (connection, close, _) = new_connection(NETLINK_SOCK_DIAG)?;
        connections.spawn(connection);
        Ok(Self { list, close, _connections: connections })
    }

    /// Every UDP socket that is connected.
    ///
    /// # Errors
    /// What the kernel says: `ENOENT` where it cannot list sockets (`CONFIG_INET_UDP_DIAG`).
    pub(crate) async fn connected_udp(&self) -> io::Result<Vec<UdpSocket>> {
        let mut sockets = Vec::new();
        for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let found = ask(&self.list, NLM_F_DUMP, request(family, any)).await?;
            sockets.extend(found.into_iter().filter_map(|message| match message {
                SockDiagMessage::InetResponse(socket) => {
                    Some(UdpSocket { family, id: socket.header.socket_id })
                }
                _ => None,
            }));
        }
        Ok(sockets)
    }

    /// Closes a socket from outside: whoever waits on it gets ECONNABORTED, and it is connected to nobody (Linux 4.9).
    /// `false`: it has gone, or is connected to somebody else by now.
    ///
    /// # Errors
    /// What the kernel says: `EOPNOTSUPP` where it cannot do it (`CONFIG_INET_DIAG_DESTROY`).
    pub(crate) async fn close(&self, socket: &UdpSocket) -> io::Result<bool> {
        match ask(&self.close, NLM_F_ACK, SockDiagDestroy::new(socket.request())).await {
            Ok(_) => Ok(true),
            // The one with these addresses has another cookie (ESTALE).
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn request(family: u8, socket_id: SocketId) -> SockDiagMessage {
    SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_UDP,
        extensions: ExtensionFlags::empty(),
        // What a connected socket of UDP is in.
        states: StateFlags::ESTABLISHED,
        socket_id,
    })
}

/// Everything that the kernel answers.
async fn ask<T>(to: &ConnectionHandle<T>, flags: u16, request: T) -> io::Result<Vec<T>>
where
    T: NetlinkSerializable + NetlinkDeserializable + Into<NetlinkPayload<T>> + Debug,
{
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | flags;
    let mut answers = to.request(message, SocketAddr::new(0, 0)).map_err(io::Error::other)?;
    let mut heard = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => heard.push(message),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Overrun(_) => return Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
            _ => {}
        }
    }
    Ok(heard)
}
