//! Addresses as text in objects.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

/// An IP address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

impl fmt::Display for Family {
    /// As in `addressType` of a slice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// Text that is not an IP address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an IP address")]
pub struct InvalidAddress {
    /// The text as it stands in the object.
    pub text: Box<str>,
}

/// Reads an address as Kubernetes does.
///
/// Leading zeros in IPv4 are decimal, never octal: objects stored before Kubernetes 1.22 may have them, and Rust's own
/// parser refuses them. Spaces, zones and IPv4-mapped IPv6 text are refused; the last because packets to such an
/// address are never matched.
///
/// # Errors
/// [`InvalidAddress`] with the text.
pub fn parse_address(text: &str) -> Result<IpAddr, InvalidAddress> {
    let parsed = if text.contains(':') {
        text.parse::<Ipv6Addr>().ok().filter(|v6| v6.to_ipv4_mapped().is_none()).map(IpAddr::V6)
    } else {
        parse_v4(text).map(IpAddr::V4)
    };
    parsed.ok_or_else(|| InvalidAddress { text: text.into() })
}

/// Text that is not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a CIDR")]
pub struct InvalidRange {
    /// The text as it stands in the object.
    pub text: Box<str>,
}

/// Reads a range of addresses in CIDR notation, as Kubernetes does: bits after the prefix are dropped, and leading zeros
/// are as in [`parse_address`]. A bare address is none.
///
/// # Errors
/// [`InvalidRange`] with the text.
pub fn parse_range(text: &str) -> Result<IpNet, InvalidRange> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|_| digits)?;
        IpNet::new(parse_address(address).ok()?, prefix).ok()
    });
    parsed.map(|range| range.trunc()).ok_or_else(|| InvalidRange { text: text.into() })
}

/// What makes an address unfit for a Service or an endpoint, if something does.
///
/// The API forbids most of these for endpoints; a frontend or a backend at one would capture or misdirect traffic that
/// is none of a Service's.
pub fn unfit(address: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let rows = [
        (address.is_unspecified(), "the unspecified address"),
        (address.is_loopback(), "a loopback address"),
        (link_local, "a link-local address"),
        (address.is_multicast(), "a multicast address"),
        (address == IpAddr::V4(Ipv4Addr::BROADCAST), "the broadcast address"),
    ];
    rows.into_iter().find_map(|(is, what)| is.then_some(what))
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        // `u8::from_str` also takes a sign.
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_without_what_comes_after_its_prefix() {
        let rows = [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("010.0.0.0/8", Some("10.0.0.0/8")),
            ("2001:db8::1/32", Some("2001:db8::/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0", None),
            ("/8", None),
            ("", None),
        ];
        for (text, want) in rows {
            assert_eq!(parse_range(text).ok().map(|range| range.to_string()).as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn b71_leading_zeros_are_decimal_and_the_rest_is_refused() {
        let rows: &[(&str, Option<&str>)] = &[
            ("10.96.0.50", Some("10.96.0.50")),
            ("10.96.011.012", Some("10.96.11.12")),
            ("010.244.002.022", Some("10.244.2.22")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("10.96.0.300", None),
            ("", None),
            (" 10.96.0.1", None),
            ("10.96.0.1 ", None),
            ("10.96.0", None),
            ("10.96.0.1.2", None),
            ("10.96.+0.1", None),
            ("::ffff:10.96.0.50", None),
            ("fe80::1%eth0", None),
            ("example.test", None),
        ];
        for (text, want) in rows {
            let got = parse_address(text).ok().map(|ip| ip.to_string());
            assert_eq!(got.as_deref(), *want, "{text:?}");
        }
    }
}
