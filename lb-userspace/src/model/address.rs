//! Addresses as text in objects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
