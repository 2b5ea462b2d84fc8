//! `--cluster-cidr`.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use lb_common::{Prefix, addr, node::CLUSTER_PREFIXES};

use crate::model::parse_range;

/// Where the pods of the cluster are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterCidrs(Vec<IpNet>);

/// Text that does not say where pods are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClusterCidrs {
    /// A part of it is no range.
    #[error("{0:?} is not a CIDR, as in 10.244.0.0/16,2001:db8:42::/56")]
    Text(String),
    /// A range of IPv6 addresses that would hold every IPv4 address too, as maps have them.
    #[error("{0} is too wide to be where pods are")]
    TooWide(IpNet),
    /// More ranges than the programs look at.
    #[error("{0} ranges are given, and {CLUSTER_PREFIXES} are the most")]
    TooMany(usize),
}

impl ClusterCidrs {
    /// Whether nobody has said where they are.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same as NODE has it.
    pub(super) fn prefixes(&self) -> [Prefix; CLUSTER_PREFIXES] {
        let mut prefixes = [Prefix::NOTHING; CLUSTER_PREFIXES];
        prefixes.iter_mut().zip(&self.0).for_each(|(prefix, range)| *prefix = as_prefix(range));
        prefixes
    }
}

fn as_prefix(range: &IpNet) -> Prefix {
    let of_family = if range.network().is_ipv4() { 96 } else { 0 };
    let bits = of_family + u32::from(range.prefix_len());
    let mask = !u128::MAX.checked_shr(bits).unwrap_or(0);
    Prefix { address: addr::from_ip(range.network()), mask: mask.to_be_bytes() }
}

impl FromStr for ClusterCidrs {
    type Err = InvalidClusterCidrs;

    /// From a comma-separated list.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read =
            |text: &str| parse_range(text.trim()).map_err(|_| InvalidClusterCidrs::Text(text.to_owned()));
        let ranges = text.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
        let v4 = IpAddr::from(addr::from_v4([0; 4]));
        if let Some(range) = ranges.iter().find(|range| range.contains(&v4)) {
            return Err(InvalidClusterCidrs::TooWide(*range));
        }
        if ranges.len() > CLUSTER_PREFIXES {
            return Err(InvalidClusterCidrs::TooMany(ranges.len()));
        }
        Ok(Self(ranges))
    }
}

impl fmt::Display for ClusterCidrs {
    /// As the flag has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&ranges.join(","))
    }
}

#[cfg(test)]
mod tests {
    use lb_common::NodeValue;

    use super::*;

    fn error(text: &str) -> String {
        text.parse::<ClusterCidrs>().unwrap_err().to_string()
    }

    #[test]
    fn the_flag_is_a_list_of_at_most_four_ranges() {
        for text in
            ["10.244.0.0/16", "10.244.0.0/16,2001:db8:42::/56", "10.0.0.0/8,10.1.0.0/16,fd00::/8,0.0.0.0/0"]
        {
            assert_eq!(text.parse::<ClusterCidrs>().unwrap().to_string(), text);
        }
        let spaced: ClusterCidrs = "10.244.1.5/16, 2001:db8::/32".parse().unwrap();
        assert_eq!(spaced.to_string(), "10.244.0.0/16,2001:db8::/32");
        let sentence = "is not a CIDR, as in 10.244.0.0/16,2001:db8:42::/56";
        for (text, part) in
            [("", ""), ("10.244.0.0", "10.244.0.0"), ("10.244.0.0/16,", ""), ("a/8,10.0.0.0/8", "a/8")]
        {
            assert_eq!(error(text), format!("{part:?} {sentence}"));
        }
        assert_eq!(error("10.0.0.0/8,::/0"), "::/0 is too wide to be where pods are");
        assert_eq!(
            error("1.0.0.0/8,2.0.0.0/8,3.0.0.0/8,4.0.0.0/8,fd00::/8"),
            "5 ranges are given, and 4 are the most"
        );
    }

    #[test]
    fn prefixes_hold_the_pods_of_their_ranges_and_nobody_else() {
        let cidrs: ClusterCidrs = "10.244.0.0/16,192.168.7.7/32,2001:db8:42::/56".parse().unwrap();
        let node = NodeValue {
            cluster: cidrs.prefixes(),
            flags: lb_common::node::flags::HAS_CLUSTER,
            ..NodeValue::default()
        };
        for (text, want) in [
            ("10.244.255.255", true),
            ("10.245.0.0", false),
            ("192.168.7.7", true),
            ("192.168.7.6", false),
            ("2001:db8:42:ff::1", true),
            ("2001:db8:42:100::1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(node.is_of_cluster(addr::from_ip(text.parse().unwrap())), want, "{text}");
        }
    }
}
