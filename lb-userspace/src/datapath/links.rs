//! What the kernel says about links: all of them first, then every change. (rtnetlink(7))

use std::io;

use futures::TryStreamExt;
use rtnetlink::{
    MulticastGroup,
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        link::{LinkAttribute, LinkInfo, LinkLayerType, LinkMessage},
    },
};

use super::interfaces::Link;
use crate::netlink::{Heard, News, Questions, into_io};

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
    questions: Questions,
    news: News,
    /// The next answer is a whole list.
    list_due: bool,
}

impl LinkWatch {
    /// Listens in the network namespace of this thread. Call within a tokio runtime.
    pub(super) fn open() -> io::Result<Self> {
        let news = News::open(&[MulticastGroup::Link])?;
        // The list is asked for after the subscription, so a change is in the list or heard of later, or both.
        Ok(Self { questions: Questions::open()?, news, list_due: true })
    }

    /// The next event; it is safe to drop the future and ask again.
    ///
    /// # Errors
    /// Where the socket is broken: open another one.
    pub(super) async fn next(&mut self) -> io::Result<LinkEvent> {
        loop {
            if self.list_due {
                let request = self.questions.handle().link().get().execute();
                let links: Vec<LinkMessage> = request.try_collect().await.map_err(into_io)?;
                self.list_due = false;
                return Ok(LinkEvent::Listed(links.iter().map(link).collect()));
            }
            match self.news.next().await? {
                Heard::Message(RouteNetlinkMessage::NewLink(message)) if is_whole(&message) => {
                    return Ok(LinkEvent::Seen(link(&message)));
                }
                Heard::Message(RouteNetlinkMessage::DelLink(message)) if is_whole(&message) => {
                    return Ok(LinkEvent::Gone(message.header.index));
                }
                Heard::Message(_) => {}
                Heard::Lost => self.list_due = true,
            }
        }
    }
}

/// All links of the network namespace of this thread. Call within a tokio runtime.
///
/// # Errors
/// Where netlink does not answer.
pub async fn list() -> io::Result<Vec<Link>> {
    loop {
        if let LinkEvent::Listed(links) = LinkWatch::open()?.next().await? {
            return Ok(links);
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
