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
}

impl NodeView {
    /// Puts together what the Node says, if it is known, and what the machine says, if it was asked.
    pub fn new(wanted: &NodePortAddresses, node: Option<&Node>, host: Option<&Host>) -> Self {
        let internal = node.into_iter().flat_map(|node| &node.ips);
        let internal: Vec<_> = internal.filter_map(|text| parse_address(text).ok()).collect();
        let mut addresses: Vec<IpAddr> = match wanted {
            NodePortAddresses::Primary => {
                // The first of each family, as the kubelet orders them.
                let of_host = host.into_iter().flat_map(|host| &host.primary);
                let mut primary: Vec<IpAddr> = Vec::with_capacity(2);
                for address in internal.iter().chain(of_host) {
                    if !primary.iter().any(|known| known.is_ipv4() == address.is_ipv4()) {
                        primary.push(*address);
                    }
                }
                primary
            }
            NodePortAddresses::Within(ranges) => {
                // The machine knows what it has now; without its word, the Node's has to do.
                let has = host.map_or(&internal, |host| &host.addresses);
                has.iter()
                    .copied()
                    .filter(|address| ranges.iter().any(|range| range.contains(address)))
                    .collect()
            }
        };
        addresses.retain(|address| unfit(*address).is_none());
        addresses.sort_unstable();
        addresses.dedup();
        Self { zone: node.and_then(|node| node.zone.clone()), nodeport_addresses: addresses }
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
        Host { addresses: ips(addresses), primary: ips(primary) }
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
            let view = NodeView::new(&NodePortAddresses::Primary, node.as_ref(), host);
            assert_eq!(view.nodeport_addresses, ips(want), "{node:?}, {host:?}");
        }
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
            let view = NodeView::new(&within(text), Some(&node), Some(&machine));
            assert_eq!(view.nodeport_addresses, want, "{text}");
        }
        // As in `render`, which asks no kernel.
        let view = NodeView::new(&within("192.168.0.0/16"), Some(&node), None);
        assert_eq!(view.nodeport_addresses, ips(&["192.168.50.11"]));
    }

    #[test]
    fn the_zone_is_the_node_s() {
        let view = |node: Option<&Node>| NodeView::new(&NodePortAddresses::Primary, node, None);
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
