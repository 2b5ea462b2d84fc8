//! What the kernel says of addresses: read when asked, and a sign when it may have changed. (rtnetlink(7))

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures::TryStreamExt;
use rtnetlink::{
    MulticastGroup, RouteMessageBuilder,
    packet_route::{
        RouteNetlinkMessage,
        address::{AddressAttribute, AddressFlags, AddressMessage},
        link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage},
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteType},
    },
};

use super::view::{Address, IPVS_INTERFACE, Link, View, WayOut, may_count};
use crate::netlink::{Heard, News, Questions, into_io};

/// Any destination that only the default route leads to tells the way out: these are for documentation, so no machine has
/// them (RFC 5737, RFC 9637). Nothing is sent to them.
const ELSEWHERE_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const ELSEWHERE_V6: Ipv6Addr = Ipv6Addr::new(0x3fff, 0xfff, 0xffff, 0, 0, 0, 0, 1);

/// Where the kernel tells of what a reading depends on.
const GROUPS: [MulticastGroup; 7] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];

/// The addresses of one network namespace.
pub(super) struct Kernel {
    news: News,
    questions: Questions,
    /// What was read last.
    view: View,
}

impl Kernel {
    /// Looks at the network namespace of this thread. Call within a tokio runtime.
    pub(super) fn open() -> io::Result<Self> {
        let news = News::open(&GROUPS)?;
        Ok(Self { news, questions: Questions::open()?, view: View::default() })
    }

    /// Reads everything anew. Two lists and two questions, however many routes there are.
    pub(super) async fn read(&mut self) -> io::Result<&View> {
        let handle = self.questions.handle();
        let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await.map_err(into_io)?;
        let addresses: Vec<AddressMessage> =
            handle.address().get().execute().try_collect().await.map_err(into_io)?;
        self.view = View {
            links: links.iter().map(|message| (message.header.index, link(message))).collect(),
            addresses: addresses.iter().filter_map(address).collect(),
            v4: self.way_out(ELSEWHERE_V4.into()).await?,
            v6: self.way_out(ELSEWHERE_V6.into()).await?,
        };
        Ok(&self.view)
    }

    /// Waits for a sign that another reading would show something else. It is safe to drop the future and ask again.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        loop {
            match self.news.next().await? {
                Heard::Message(message) if !matters(&self.view, &message) => {}
                Heard::Message(_) | Heard::Lost => return Ok(()),
            }
        }
    }

    async fn way_out(&self, elsewhere: IpAddr) -> io::Result<Option<WayOut>> {
        let whole = if elsewhere.is_ipv4() { 32 } else { 128 };
        let question = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(elsewhere, whole)
            .map_err(io::Error::other)?
            .build();
        let answer = self.questions.handle().route().get(question).execute().try_next().await;
        match answer.map_err(into_io) {
            Ok(route) => Ok(route.as_ref().and_then(way_out)),
            Err(error) if is_no_way(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether the kernel says that there is no way, and not that it cannot say: no route, one that leads nowhere (blackhole,
/// prohibit), or a kernel without the family.
fn is_no_way(error: &io::Error) -> bool {
    let errors = [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::EINVAL,
        libc::EACCES,
        libc::EAFNOSUPPORT,
        libc::EOPNOTSUPP,
    ];
    error.raw_os_error().is_some_and(|error| errors.contains(&error))
}

/// Whether another reading may differ. The kernel removes routes without a word when an interface goes down or an address
/// goes, so these matter too.
fn matters(view: &View, message: &RouteNetlinkMessage) -> bool {
    match message {
        RouteNetlinkMessage::NewAddress(message) | RouteNetlinkMessage::DelAddress(message) => {
            address(message).is_some_and(|address| may_count(&address))
        }
        RouteNetlinkMessage::NewLink(message) => {
            let ifindex = message.header.index;
            view.uses(ifindex) && view.links.get(&ifindex) != Some(&link(message))
        }
        RouteNetlinkMessage::DelLink(message) => view.uses(message.header.index),
        // Default routes: of others nothing is heard.
        RouteNetlinkMessage::NewRoute(_)
        | RouteNetlinkMessage::DelRoute(_)
        | RouteNetlinkMessage::NewRule(_)
        | RouteNetlinkMessage::DelRule(_) => true,
        _ => false,
    }
}

fn link(message: &LinkMessage) -> Link {
    let named_ipvs = |it: &LinkAttribute| matches!(it, LinkAttribute::IfName(name) if name == IPVS_INTERFACE);
    Link {
        up: message.header.flags.contains(LinkFlags::Up),
        loopback: message.header.link_layer_type == LinkLayerType::Loopback,
        ipvs: message.attributes.iter().any(named_ipvs),
    }
}

/// `None` for what is not an IP address of the machine.
fn address(message: &AddressMessage) -> Option<Address> {
    let (mut local, mut other, mut flags) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            // On a point-to-point interface it is the peer's, and the machine's own is beside it.
            AddressAttribute::Address(ip) => other = Some(*ip),
            AddressAttribute::Flags(all) => flags = Some(*all),
            _ => {}
        }
    }
    let of_header = || AddressFlags::from_bits_retain(message.header.flags.bits().into());
    Some(Address {
        ifindex: message.header.index,
        ip: local.or(other)?,
        scope: message.header.scope,
        flags: flags.unwrap_or_else(of_header),
    })
}

/// `None` where the route does not lead to other machines.
fn way_out(message: &RouteMessage) -> Option<WayOut> {
    let (mut ifindex, mut source) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::PrefSource(RouteAddress::Inet(ip)) => source = Some(IpAddr::from(*ip)),
            RouteAttribute::PrefSource(RouteAddress::Inet6(ip)) => source = Some(IpAddr::from(*ip)),
            _ => {}
        }
    }
    let ifindex = ifindex.filter(|_| message.header.kind == RouteType::Unicast)?;
    Some(WayOut { ifindex, source })
}
