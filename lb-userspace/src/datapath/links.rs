//! What the kernel says about links: all of them first, then every change. (rtnetlink(7))

use std::io;

use futures::{StreamExt, TryStreamExt, channel::mpsc::UnboundedReceiver};
use rtnetlink::{
    Handle, MulticastGroup,
    packet_core::{NetlinkMessage, NetlinkPayload},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        link::{LinkAttribute, LinkInfo, LinkLayerType, LinkMessage},
    },
    sys::SocketAddr,
};
use tokio::task::JoinSet;

use super::interfaces::Link;

/// Something heard about links.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// These are all links: at the beginning, and whenever changes were lost.
    Listed(Vec<Link>),
    /// A link is new or has changed.
    Seen(Link),
    /// The link with this index has gone, from this network namespace at least.
    Gone(u32),
}

/// The links of one network namespace.
pub(super) struct LinkWatch {
    netlink: Handle,
    messages: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    /// The next answer is a whole list.
    list_due: bool,
    /// The task behind `netlink` and `messages`; ends with this.
    _connection: JoinSet<()>,
}

impl LinkWatch {
    /// Listens in the network namespace of this thread. Call within a tokio runtime.
    pub(super) fn open() -> io::Result<Self> {
        let (connection, netlink, messages) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])?;
        let mut task = JoinSet::new();
        task.spawn(connection);
        // The list is asked for after the subscription, so a change is in the list or heard of later, or both.
        Ok(Self { netlink, messages, list_due: true, _connection: task })
    }

    /// The next event; it is safe to drop the future and ask again.
    ///
    /// # Errors
    /// Where the socket is broken: open another one.
    pub(super) async fn next(&mut self) -> io::Result<LinkEvent> {
        loop {
            if self.list_due {
                let links: Vec<LinkMessage> =
                    self.netlink.link().get().execute().try_collect().await.map_err(io::Error::other)?;
                self.list_due = false;
                return Ok(LinkEvent::Listed(links.iter().map(link).collect()));
            }
            let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "the netlink socket was closed");
            let (message, _) = self.messages.next().await.ok_or_else(closed)?;
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) if is_whole(&message) => {
                    return Ok(LinkEvent::Seen(link(&message)));
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(message)) if is_whole(&message) => {
                    return Ok(LinkEvent::Gone(message.header.index));
                }
                // The socket's buffer was full (ENOBUFS), and the kernel has dropped what did not fit.
                NetlinkPayload::Overrun(_) => self.list_due = true,
                _ => {}
            }
        }
    }
}

/// Whether the message is about the link itself. A bridge speaks of its ports with the same messages (family
/// `AF_BRIDGE`): without the link's kind, and with `RTM_DELLINK` for one that only leaves the bridge.
fn is_whole(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

fn link(message: &LinkMessage) -> Link {
    let mut link = Link {
        ifindex: message.header.index,
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        loopback: message.header.link_layer_type == LinkLayerType::Loopback,
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| match info {
                LinkInfo::Kind(kind) => link.kind = Some(kind.to_string()),
                LinkInfo::PortKind(kind) => link.port_of = Some(kind.to_string()),
                _ => {}
            }),
            _ => {}
        }
    }
    link
}
