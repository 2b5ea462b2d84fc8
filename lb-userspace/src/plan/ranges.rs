//! Source ranges as the entries of a trie.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use lb_common::addr;

use crate::maps::SourceRange;

/// How many leading bits every IPv4 address has in common, as maps have it.
const V4_BITS: u32 = 96;

/// The entries that let the clients of these ranges in, and nobody else.
///
/// A short IPv6 prefix, such as `::/0`, holds IPv4 addresses too as maps have them, and does not mean them. Then its other
/// parts are the entries, one a bit; not so where every IPv4 address is let in anyway.
pub(super) fn entries(service_id: u32, ranges: &[IpNet]) -> BTreeSet<SourceRange> {
    let v4 = addr::from_v4([0; 4]);
    let every_v4 = ranges.iter().any(|range| matches!(range, IpNet::V4(range) if range.prefix_len() == 0));
    let mut entries = BTreeSet::new();
    let entry = |client, bits| SourceRange { service_id, client, bits };
    for range in ranges {
        let client = addr::from_ip(range.network());
        let bits = u32::from(range.prefix_len());
        match range.network() {
            IpAddr::V4(_) => {
                entries.insert(entry(client, V4_BITS + bits));
            }
            IpAddr::V6(_) if every_v4 || !range.contains(&IpAddr::from(v4)) => {
                entries.insert(entry(client, bits));
            }
            IpAddr::V6(_) => entries.extend((bits..V4_BITS).map(|bit| {
                let differing = 1u128 << (u128::BITS - 1 - bit);
                let client = (u128::from_be_bytes(v4) ^ differing) & !(differing - 1);
                entry(client.to_be_bytes(), bit + 1)
            })),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    /// As the trie looks a client up.
    fn lets_in(entries: &BTreeSet<SourceRange>, client: IpAddr) -> bool {
        let client = u128::from_be_bytes(addr::from_ip(client));
        entries.iter().any(|entry| {
            let differing = client ^ u128::from_be_bytes(entry.client);
            differing.leading_zeros() >= entry.bits
        })
    }

    /// Ranges and clients that are close to each other, and to what IPv4 is in maps.
    fn address() -> impl Strategy<Value = IpAddr> {
        let v4 = (select(vec![0u8, 10, 203]), 0u8..3).prop_map(|(a, d)| Ipv4Addr::new(a, 0, 0, d).into());
        let v6 = (select(vec![0u16, 0x2001, 0x64]), select(vec![0u16, 0xfffe, 0xffff, 0xff9b]), 0u16..3)
            .prop_map(|(first, fifth, last)| Ipv6Addr::new(first, 0, 0, 0, 0, fifth, 0, last))
            .prop_filter("IPv6 packets with such addresses are nobody's", |ip: &Ipv6Addr| {
                ip.to_ipv4_mapped().is_none()
            })
            .prop_map(IpAddr::V6);
        prop_oneof![v4, v6]
    }

    fn range() -> impl Strategy<Value = IpNet> {
        (address(), select(vec![0u8, 1, 8, 31, 32, 80, 95, 96, 127, 128])).prop_map(|(address, bits)| {
            let most = if address.is_ipv4() { 32 } else { 128 };
            IpNet::new(address, bits.min(most)).unwrap().trunc()
        })
    }

    proptest! {
        #[test]
        fn exactly_the_clients_of_the_ranges_are_let_in(ranges in vec(range(), 0..4), clients in vec(address(), 1..20)) {
            let entries = entries(7, &ranges);
            for client in clients {
                let want = ranges.iter().any(|range| range.contains(&client));
                prop_assert_eq!(lets_in(&entries, client), want, "{} in {:?}", client, ranges);
            }
        }
    }

    #[test]
    fn a_range_is_one_entry_and_only_what_holds_ipv4_beside_ipv6_is_more() {
        let entries = |texts: &[&str]| {
            let ranges: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
            entries(7, &ranges)
        };
        let v4 = entries(&["192.0.2.0/24"]);
        let want = SourceRange { service_id: 7, client: addr::from_v4([192, 0, 2, 0]), bits: 120 };
        assert_eq!(v4.into_iter().collect::<Vec<_>>(), [want]);
        for (texts, want) in [
            (&[][..], 0),
            (&["2001:db8::/32"], 1),
            (&["0.0.0.0/0", "::/0"], 2),
            (&["::/0"], 96),
            (&["::/64"], 32),
            (&["::/96"], 1),
        ] {
            assert_eq!(entries(texts).len(), want, "{texts:?}");
        }
    }
}
