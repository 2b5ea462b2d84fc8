use super::*;

const LO: u32 = 1;
const ETH0: u32 = 2;
const ETH1: u32 = 3;
const DOWN: u32 = 4;
const IPVS: u32 = 5;
/// An interface that the list of interfaces did not have yet.
const NEWER: u32 = 6;

const NONE: AddressFlags = AddressFlags::empty();
const SECONDARY: AddressFlags = AddressFlags::Secondary;
const DEPRECATED: AddressFlags = AddressFlags::Deprecated;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn address(ifindex: u32, text: &str, flags: AddressFlags) -> Address {
    Address { ifindex, ip: ip(text), scope: AddressScope::Universe, flags }
}

fn way(ifindex: u32, source: &str) -> Option<WayOut> {
    Some(WayOut { ifindex, source: Some(ip(source)) })
}

fn view(addresses: &[Address]) -> View {
    let up = Link { up: true, ..Link::default() };
    let links = [
        (LO, Link { loopback: true, ..up }),
        (ETH0, up),
        (ETH1, up),
        (DOWN, Link::default()),
        (IPVS, Link { ipvs: true, ..up }),
    ];
    View { links: links.into(), addresses: addresses.to_vec(), v4: None, v6: None }
}

#[test]
fn what_other_machines_can_reach_counts() {
    let at = |ifindex, text| address(ifindex, text, NONE);
    let flagged = |text, flags| address(ETH0, text, flags);
    let scoped = |text, scope| Address { scope, ..at(ETH0, text) };
    let rows = [
        (true, at(ETH0, "192.168.50.11")),
        (true, at(ETH0, "2001:db8::11")),
        (true, at(ETH0, "fd00::11")),
        (false, scoped("192.168.50.11", AddressScope::Link)),
        (false, scoped("192.168.50.11", AddressScope::Host)),
        (false, scoped("fec0::11", AddressScope::Site)),
        (false, scoped("fe80::11", AddressScope::Link)),
        // The scope of an IPv4 address is whatever its administrator says.
        (false, at(ETH0, "169.254.1.1")),
        (false, at(LO, "127.0.0.53")),
        (false, at(ETH0, "224.0.0.1")),
        (true, flagged("192.168.50.12", SECONDARY)),
        (true, flagged("192.168.50.12", DEPRECATED)),
        (true, flagged("2001:db8::12", TEMPORARY)),
        (true, flagged("2001:db8::12", DEPRECATED)),
        (false, flagged("2001:db8::12", AddressFlags::Tentative)),
        (false, flagged("2001:db8::12", AddressFlags::Tentative | AddressFlags::Optimistic)),
        (false, flagged("2001:db8::12", AddressFlags::Dadfailed | AddressFlags::Tentative)),
        (true, at(LO, "10.0.0.1")),
        (true, at(LO, "2001:db8:1::1")),
        (false, at(LO, "::1")),
        (true, at(DOWN, "192.168.60.5")),
        (false, at(DOWN, "2001:db8::5")),
        (false, at(IPVS, "10.96.0.10")),
        (false, at(NEWER, "192.168.70.5")),
    ];
    for (counts, address) in rows {
        let want: Vec<IpAddr> = counts.then_some(address.ip).into_iter().collect();
        assert_eq!(view(&[address]).host().addresses, want, "{address:?}");
    }
}

#[test]
fn addresses_are_sorted_and_each_is_there_once() {
    let shown = view(&[
        address(ETH1, "2001:db8::11", NONE),
        address(ETH1, "192.168.60.5", NONE),
        address(ETH0, "192.168.50.11", NONE),
        address(LO, "192.168.60.5", NONE),
    ]);
    assert_eq!(shown.host().addresses, ["192.168.50.11", "192.168.60.5", "2001:db8::11"].map(ip));
}

#[test]
fn the_primary_addresses_are_those_that_the_kernel_prefers() {
    let eth0 = address(ETH0, "192.168.50.11", NONE);
    let eth0_v6 = address(ETH0, "2001:db8::11", NONE);
    let second = address(ETH0, "192.168.50.12", SECONDARY);
    let temporary = address(ETH0, "2001:db8::aaaa", TEMPORARY);
    let eth1 = address(ETH1, "192.168.60.5", NONE);
    let eth1_v6 = address(ETH1, "2001:db8:60::5", NONE);
    let loopback = address(LO, "10.0.0.1", NONE);
    let down = address(DOWN, "192.168.70.5", NONE);
    let old = address(ETH0, "192.168.50.10", DEPRECATED);
    type Row<'a> = (&'a str, &'a [Address], Option<WayOut>, Option<WayOut>, &'a [&'a str]);
    let rows: [Row<'_>; 15] = [
        ("nothing", &[], None, None, &[]),
        ("the source", &[eth0, eth1], way(ETH1, "192.168.60.5"), None, &["192.168.60.5"]),
        (
            "one of each family, on different interfaces",
            &[eth0, eth0_v6, eth1, eth1_v6],
            way(ETH0, "192.168.50.11"),
            way(ETH1, "2001:db8:60::5"),
            &["192.168.50.11", "2001:db8:60::5"],
        ),
        ("a source on lo", &[loopback, eth0], way(ETH0, "10.0.0.1"), None, &["10.0.0.1"]),
        ("a secondary source", &[eth0, second], way(ETH0, "192.168.50.12"), None, &["192.168.50.12"]),
        ("a deprecated source", &[old, eth0], way(ETH0, "192.168.50.10"), None, &["192.168.50.10"]),
        ("no temporary source", &[temporary, eth0_v6], None, way(ETH0, "2001:db8::aaaa"), &["2001:db8::11"]),
        (
            "a temporary source where its interface has nothing else",
            &[temporary, eth1_v6],
            None,
            way(ETH0, "2001:db8::aaaa"),
            &["2001:db8::aaaa"],
        ),
        ("a source that does not count", &[eth1, eth0], way(ETH0, "169.254.1.1"), None, &["192.168.50.11"]),
        ("no source", &[eth0, eth1], Some(WayOut { ifindex: ETH1, source: None }), None, &["192.168.60.5"]),
        ("a way out without addresses", &[eth0, eth1], way(NEWER, "169.254.1.1"), None, &["192.168.50.11"]),
        (
            "no way out: the first interface",
            &[eth1, eth1_v6, eth0],
            None,
            None,
            &["192.168.50.11", "2001:db8:60::5"],
        ),
        (
            "no way out: neither lo nor one that is down",
            &[loopback, down, eth1],
            None,
            None,
            &["192.168.60.5"],
        ),
        ("no way out: neither deprecated nor secondary", &[old, second, eth1], None, None, &["192.168.60.5"]),
        ("only lo", &[loopback], None, None, &[]),
    ];
    for (name, addresses, v4, v6, want) in rows {
        let host = View { v4, v6, ..view(addresses) }.host();
        assert_eq!(host.primary, want.iter().copied().map(ip).collect::<Vec<_>>(), "{name}");
        assert!(host.primary.iter().all(|primary| host.addresses.contains(primary)), "{name}");
    }
}

#[test]
fn an_interface_matters_where_addresses_are_or_the_way_out_is() {
    let shown = View {
        v6: way(ETH1, "2001:db8::11"),
        ..view(&[
            address(LO, "127.0.0.1", NONE),
            address(ETH0, "192.168.50.11", NONE),
            Address { scope: AddressScope::Link, ..address(DOWN, "fe80::1", NONE) },
        ])
    };
    let used: Vec<u32> = [LO, ETH0, ETH1, DOWN, NEWER].into_iter().filter(|it| shown.uses(*it)).collect();
    assert_eq!(used, [ETH0, ETH1]);
}

#[test]
fn an_interface_is_known_by_its_lasting_addresses_first_and_leads_out_where_the_way_does() {
    let shown = View {
        v4: way(ETH1, "192.168.50.11"),
        ..view(&[
            address(LO, "127.0.0.1", NONE),
            address(ETH0, "2001:db8::aaaa", TEMPORARY),
            address(ETH0, "2001:db8::11", NONE),
            address(ETH0, "192.168.50.12", SECONDARY),
            address(ETH0, "192.168.50.11", NONE),
            address(IPVS, "10.96.0.10", NONE),
            address(NEWER, "192.168.70.5", NONE),
        ])
    };
    let interface = |index, addresses: &[&str], leads_out| Interface {
        index,
        addresses: addresses.iter().copied().map(ip).collect(),
        leads_out,
    };
    let eth0 = ["2001:db8::11", "192.168.50.11", "2001:db8::aaaa", "192.168.50.12"];
    assert_eq!(shown.host().interfaces, [interface(ETH0, &eth0, false), interface(ETH1, &[], true)]);
}
