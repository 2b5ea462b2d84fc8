//! What Services mean depends on the node that they are served on.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;

use crate::model::{Host, Node, parse_address, parse_range, unfit};

/// Who we are, as far as Services are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of this node, as in `nodeName` of endpoints.
    pub node: Box<str>,
    /// Only Services whose label `service.kubernetes.io/service-proxy-name` is this are served; `None`: only those
    /// without the label.
    pub proxy_name: Option<Box<str>>,
    /// On which of the node's addresses NodePorts are served.
    pub nodeport_addresses: NodePortAddresses,
}

impl Identity {
    /// A node of this name that serves the Services without a proxy name, with the defaults of everything else.
    pub fn of(node: &str) -> Self {
        Self { node: node.into(), proxy_name: None, nodeport_addresses: NodePortAddresses::default() }
    }
}

/// `--nodeport-addresses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// The node's primary address of each family: the first of its Node's, else what the kernel prefers.
    #[default]
    Primary,
    /// Every address within one of these.
    Within(Vec<IpNet>),
}

/// Text that does not say on which addresses NodePorts are served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNodePortAddresses {
    /// It is no list of ranges.
    #[error("{0:?} is neither `primary` alone nor a comma-separated list of CIDRs")]
    Text(String),
    /// A range holds addresses that are never used.
    #[error("{0} holds loopback addresses only, on which no NodePort is served")]
    Loopback(IpNet),
}

impl FromStr for NodePortAddresses {
    type Err = InvalidNodePortAddresses;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "primary" {
            return Ok(Self::Primary);
        }
        let ranges = text.split(',').map(|range| parse_range(range.trim()));
        let ranges: Result<Vec<_>, _> = ranges.collect();
        let ranges = ranges.map_err(|_| InvalidNodePortAddresses::Text(text.to_owned()))?;
        let is_loopback = |range: &&IpNet| range.network().is_loopback() && range.broadcast().is_loopback();
        match ranges.iter().find(is_loopback) {
            Some(range) => Err(InvalidNodePortAddresses::Loopback(*range)),
            None => Ok(Self::Within(ranges)),
        }
    }
}

impl fmt::Display for NodePortAddresses {
    /// As the flag has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primary => f.write_str("primary"),
            Self::Within(ranges) => {
                let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
                f.write_str(&ranges.join(","))
            }
        }
    }
}

/// What is known of this node now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Its zone: the label `topology.kubernetes.io/zone` of its Node.
    pub zone: Option<Box<str>>,
    /// The addresses on which NodePorts are served. Sorted, each once; never a loopback address.
    pub nodeport_addresses: Vec<IpAddr>,
    /// Its own address of each family: the first of its Node's, else what the kernel prefers.
    pub own: Vec<IpAddr>,
}

/// From where a node is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeSources<'a> {
    /// The Node, if it is known.
    pub node: Option<&'a Node>,
    /// The machine, if it was asked.
    pub host: Option<&'a Host>,
    /// What an earlier agent has known the node by. It counts where the Node is not known, so that NodePorts do not move
    /// only because it cannot be read now, and only while the machine has it.
    pub remembered: &'a [IpAddr],
    /// The Node may still come: what the kernel prefers does not count yet.
    pub is_awaited: bool,
}

impl NodeSources<'_> {
    /// The node's own address of each family.
    fn own(&self) -> Vec<IpAddr> {
        let of_node = self.node_addresses();
        let has = |address: &&IpAddr| self.host.is_none_or(|host| host.addresses.contains(address));
        let remembered = self.remembered.iter().filter(has).copied();
        let preferred = self.host.into_iter().filter(|_| !self.is_awaited).flat_map(|host| &host.primary);
        // The first of each family, as the kubelet orders them.
        let mut own: Vec<IpAddr> = Vec::with_capacity(2);
        for address in of_node.chain(remembered).chain(preferred.copied()) {
            if unfit(address).is_none() && !own.iter().any(|known| known.is_ipv4() == address.is_ipv4()) {
                own.push(address);
            }
        }
        own
    }

    fn node_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let texts = self.node.into_iter().flat_map(|node| &node.ips);
        texts.filter_map(|text| parse_address(text).ok())
    }
}

impl NodeView {
    /// Puts together what is known.
    pub fn new(wanted: &NodePortAddresses, sources: NodeSources<'_>) -> Self {
        let own = sources.own();
        let mut addresses: Vec<IpAddr> = match wanted {
            NodePortAddresses::Primary => own.clone(),
            NodePortAddresses::Within(ranges) => {
                // The machine knows what it has now; without its word, the Node's has to do.
                let has = sources
                    .host
                    .map_or_else(|| sources.node_addresses().collect(), |host| host.addresses.clone());
                let is_within = |address: &IpAddr| ranges.iter().any(|range| range.contains(address));
                has.into_iter().filter(is_within).collect()
            }
        };
        addresses.retain(|address| unfit(*address).is_none());
        addresses.sort_unstable();
        addresses.dedup();
        Self { zone: sources.node.and_then(|node| node.zone.clone()), nodeport_addresses: addresses, own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NODE, node};

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn host(addresses: &[&str], primary: &[&str]) -> Host {
        Host { addresses: ips(addresses), primary: ips(primary), ..Host::default() }
    }

    fn sources<'a>(node: Option<&'a Node>, host: Option<&'a Host>) -> NodeSources<'a> {
        NodeSources { node, host, ..NodeSources::default() }
    }

    #[test]
    fn the_primary_addresses_are_the_node_s_and_without_a_node_the_kernel_s() {
        let host =
            host(&["192.168.50.11", "192.168.60.5", "2001:db8::11"], &["192.168.60.5", "2001:db8::11"]);
        let of = |internal: &[&str]| node(NODE, "", internal);
        type Row<'a> = (Option<Node>, Option<&'a Host>, &'a [&'a str]);
        let rows: [Row<'_>; 7] = [
            (None, None, &[]),
            (None, Some(&host), &["192.168.60.5", "2001:db8::11"]),
            (Some(of(&["192.168.50.11"])), None, &["192.168.50.11"]),
            // A family that the Node does not name is the kernel's to say.
            (Some(of(&["192.168.50.11"])), Some(&host), &["192.168.50.11", "2001:db8::11"]),
            (Some(of(&["192.168.50.11", "192.168.70.1"])), None, &["192.168.50.11"]),
            (Some(of(&["2001:db8::12", "192.168.50.11"])), Some(&host), &["192.168.50.11", "2001:db8::12"]),
            (Some(of(&["nonsense", "127.0.0.1"])), None, &[]),
        ];
        for (node, host, want) in rows {
            let view = NodeView::new(&NodePortAddresses::Primary, sources(node.as_ref(), host));
            assert_eq!(view.nodeport_addresses, ips(want), "{node:?}, {host:?}");
        }
    }

    #[test]
    fn while_the_node_is_not_known_its_address_is_what_it_was_and_not_what_the_kernel_prefers() {
        let machine =
            host(&["192.168.50.11", "192.168.60.5", "2001:db8::11"], &["192.168.60.5", "2001:db8::11"]);
        let remembered = ips(&["192.168.50.11"]);
        let known = node(NODE, "", &["192.168.70.1"]);
        type Row<'a> = (Option<&'a Node>, bool, &'a [&'a str]);
        let rows: [Row<'_>; 3] = [
            (None, true, &["192.168.50.11"]),
            (None, false, &["192.168.50.11", "2001:db8::11"]),
            (Some(&known), false, &["192.168.70.1", "2001:db8::11"]),
        ];
        for (node, is_awaited, want) in rows {
            let sources = NodeSources { node, host: Some(&machine), remembered: &remembered, is_awaited };
            let view = NodeView::new(&NodePortAddresses::Primary, sources);
            assert_eq!((view.nodeport_addresses, view.own), (ips(want), ips(want)), "{node:?}, {is_awaited}");
        }
        // The machine has it no longer, so nobody can ask there.
        let moved = host(&["192.168.60.5"], &["192.168.60.5"]);
        let sources = NodeSources { host: Some(&moved), remembered: &remembered, ..NodeSources::default() };
        assert_eq!(NodeView::new(&NodePortAddresses::Primary, sources).own, ips(&["192.168.60.5"]));
    }

    #[test]
    fn ranges_choose_among_what_the_machine_has_and_loopback_is_never_chosen() {
        let within = |text: &str| text.parse::<NodePortAddresses>().unwrap();
        let machine = host(&["127.0.0.1", "192.168.50.11", "192.168.60.5", "2001:db8::11"], &[]);
        let rows = [
            ("192.168.0.0/16", ips(&["192.168.50.11", "192.168.60.5"])),
            ("192.168.60.0/24, 2001:db8::/64", ips(&["192.168.60.5", "2001:db8::11"])),
            ("0.0.0.0/0", ips(&["192.168.50.11", "192.168.60.5"])),
        ];
        let node = node(NODE, "", &["192.168.50.11"]);
        for (text, want) in rows {
            let view = NodeView::new(&within(text), sources(Some(&node), Some(&machine)));
            assert_eq!(view.nodeport_addresses, want, "{text}");
        }
        // As in `render`, which asks no kernel.
        let view = NodeView::new(&within("192.168.0.0/16"), sources(Some(&node), None));
        assert_eq!(view.nodeport_addresses, ips(&["192.168.50.11"]));
    }

    #[test]
    fn the_zone_is_the_node_s() {
        let view = |node: Option<&Node>| NodeView::new(&NodePortAddresses::Primary, sources(node, None));
        assert_eq!(view(Some(&node(NODE, "zone-1", &[]))).zone.as_deref(), Some("zone-1"));
        assert_eq!(view(Some(&node(NODE, "", &[]))).zone, None);
        assert_eq!(view(None).zone, None);
    }

    #[test]
    fn the_flag_is_primary_or_ranges() {
        for text in ["primary", "10.0.0.0/8", "10.0.0.0/8,2001:db8::/32"] {
            assert_eq!(text.parse::<NodePortAddresses>().unwrap().to_string(), text);
        }
        for text in ["", "secondary", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/8,", "primary,10.0.0.0/8"] {
            let want = format!("{text:?} is neither `primary` alone nor a comma-separated list of CIDRs");
            assert_eq!(text.parse::<NodePortAddresses>().unwrap_err().to_string(), want);
        }
        for range in ["127.0.0.0/8", "127.0.0.1/32", "::1/128"] {
            let want = format!("{range} holds loopback addresses only, on which no NodePort is served");
            let text = format!("10.0.0.0/8,{range}");
            assert_eq!(text.parse::<NodePortAddresses>().unwrap_err().to_string(), want);
        }
    }
}
