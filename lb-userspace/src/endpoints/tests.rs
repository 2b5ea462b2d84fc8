use std::net::SocketAddr;

use super::*;
use crate::model::{AddressType, Endpoint, Kind};
use crate::testing::{
    BACKEND_1, BACKEND_2, BACKEND_3, BACKEND_V6, NODE, OTHER_NODE, endpoint, slice, web, web_slice,
};

const NODE_ADDRESS: &str = "192.168.50.12";

/// Selects for the port `http` of `default/web`.
fn http(policy: Policy, slices: &[EndpointSlice]) -> Selection {
    let slices: Vec<_> = slices.iter().collect();
    select(&web().ports[0], Protocol::Tcp, Family::Ipv4, policy, &slices, NODE)
}

fn told(backends: &[Backend]) -> Vec<String> {
    backends.iter().map(|backend| SocketAddr::new(backend.address, backend.port).to_string()).collect()
}

fn usable(slices: &[EndpointSlice]) -> Vec<String> {
    told(&http(Policy::Cluster, slices).usable)
}

/// Address and reason of each endpoint left out.
fn excluded(selection: &Selection) -> Vec<(&str, Verdict)> {
    selection.excluded.iter().map(|excluded| (&*excluded.address, excluded.reason)).collect()
}

#[test]
fn b01_one_address_with_two_ports_is_two_backends() {
    let first = slice("default/web-1", "web").port("http", 8080).ready(&[NODE_ADDRESS]);
    let second = slice("default/web-2", "web").port("http", 8081).ready(&[NODE_ADDRESS]);
    assert_eq!(usable(&[first.clone(), second]), ["192.168.50.12:8080", "192.168.50.12:8081"]);
    assert_eq!(usable(&[first]), ["192.168.50.12:8080"]);
}

#[test]
fn b04_ready_by_default_counts_and_not_ready_does_not() {
    // The conditions that an endpoint without any gets when it is read.
    let slice = web_slice(&[BACKEND_1, BACKEND_2]).with(endpoint(BACKEND_3).not_ready());
    let selection = http(Policy::Cluster, &[slice]);
    assert_eq!(told(&selection.usable), ["10.244.1.21:8080", "10.244.2.22:8080"]);
    assert_eq!(excluded(&selection), [(BACKEND_3, Verdict::NotReady)]);
    assert_eq!(
        selection.excluded[0].message,
        "endpoint 10.244.2.23 has ready=false, serving=false, terminating=false in EndpointSlice default/web-1"
    );
}

#[test]
fn b08_a_port_number_belongs_to_its_slice_and_name() {
    let first = slice("default/web-1", "web").port("http", 8080).ready(&[BACKEND_1]);
    let second = slice("default/web-2", "web").port("http", 9090).ready(&[BACKEND_2]);
    assert_eq!(usable(&[first, second]), ["10.244.1.21:8080", "10.244.2.22:9090"]);

    let http_only = slice("default/web-1", "web").port("http", 3000).ready(&[BACKEND_1]);
    let admin_only = slice("default/web-2", "web").port("admin", 3000).ready(&[BACKEND_2]);
    let selection = http(Policy::Cluster, &[http_only, admin_only]);
    assert_eq!(told(&selection.usable), ["10.244.1.21:3000"]);
    assert_eq!(excluded(&selection), [(BACKEND_2, Verdict::PortNotInSlice)]);
}

#[test]
fn b09_the_port_is_the_slice_s() {
    let by_hand = slice("default/web-1", "web").port("http", 8443).ready(&[BACKEND_1]);
    assert_eq!(usable(&[by_hand]), ["10.244.1.21:8443"]);
}

#[test]
fn b10_e02_e03_a_port_matches_by_exact_name_and_protocol_and_the_mismatch_names_both() {
    let rows = [
        ("http", Ok(Protocol::Tcp), None),
        ("https", Ok(Protocol::Tcp), Some(r#""https"/TCP"#)),
        ("", Ok(Protocol::Tcp), Some(r#"""/TCP"#)),
        ("HTTP", Ok(Protocol::Tcp), Some(r#""HTTP"/TCP"#)),
        ("http", Ok(Protocol::Udp), Some(r#""http"/UDP"#)),
        ("http", Err("tcp".into()), Some(r#""http"/tcp (no such protocol)"#)),
    ];
    for (name, protocol, there) in rows {
        let slice = slice("default/web-1", "web").port_of(name, Some(8080), protocol).ready(&[BACKEND_1]);
        let selection = http(Policy::Cluster, &[slice]);
        let message = selection.excluded.first().map(|excluded| excluded.message.clone());
        let wanted = there.map(|there| {
            format!(
                "the Service port \"http\"/TCP is not among the ports of EndpointSlice default/web-1: {there}"
            )
        });
        assert_eq!(message, wanted);
        assert_eq!(selection.usable.len(), usize::from(there.is_none()), "{name}");
    }
    let without_ports = slice("default/web-1", "web").ready(&[BACKEND_1]);
    assert!(http(Policy::Cluster, &[without_ports]).excluded[0].message.ends_with(": none"));
}

#[test]
fn a_slice_port_without_a_number_is_of_no_use() {
    let slice = slice("default/web-1", "web").port_of("http", None, Ok(Protocol::Tcp)).ready(&[BACKEND_1]);
    let selection = http(Policy::Cluster, &[slice]);
    assert_eq!(excluded(&selection), [(BACKEND_1, Verdict::PortWithoutNumber)]);
    assert_eq!(selection.excluded[0].message, "port \"http\" of EndpointSlice default/web-1 has no number");
}

#[test]
fn b13_e11_a_set_is_the_union_of_its_slices_whatever_their_kind_and_number() {
    let addresses: Vec<_> = (0..1050).map(|n| format!("10.244.{}.{}", n / 250, n % 250)).collect();
    let texts: Vec<_> = addresses.iter().map(String::as_str).collect();
    let of_hundred = |(n, addresses): (usize, &[&str])| {
        slice(&format!("default/web-{n}"), "web").port("http", 8080).ready(addresses)
    };
    let mut slices: Vec<_> = texts.chunks(100).enumerate().map(of_hundred).collect();
    assert_eq!(slices.len(), 11);
    assert_eq!(usable(&slices).len(), 1050);
    // The Endpoints object of the same Service, cut at a thousand.
    let cut = EndpointSlice { kind: Kind::Endpoints, ..of_hundred((0, &texts[..1000])) };
    slices.push(cut);
    assert_eq!(usable(&slices).len(), 1050, "no backend appears twice");
}

#[test]
fn b17_b39_who_is_chosen_by_its_conditions() {
    let stopped = |address| endpoint(address).when(false, false, true);
    let unknown = |address| endpoint(address).when(false, true, false);
    let unpublished = |address| endpoint(address).when(true, false, false);
    let rows = [
        ("ready though not serving", vec![unpublished(BACKEND_1)], vec![BACKEND_1], vec![], vec![]),
        (
            "ready though terminating",
            vec![endpoint(BACKEND_1).when(true, true, true)],
            vec![BACKEND_1],
            vec![],
            vec![],
        ),
        (
            "none ready: those that serve while terminating",
            vec![endpoint(BACKEND_1).leaving(), endpoint(BACKEND_2).leaving(), stopped(BACKEND_3)],
            vec![BACKEND_1, BACKEND_2],
            vec![],
            vec![(BACKEND_3, Verdict::Terminating)],
        ),
        (
            "one ready: that one, and those that serve only drain",
            vec![endpoint(BACKEND_1).leaving(), endpoint(BACKEND_2), stopped(BACKEND_3)],
            vec![BACKEND_2],
            vec![BACKEND_1],
            vec![(BACKEND_1, Verdict::Terminating), (BACKEND_3, Verdict::Terminating)],
        ),
        (
            "not ready and not terminating is never used, serving or not",
            vec![unknown(BACKEND_1), endpoint(BACKEND_2).not_ready()],
            vec![],
            vec![],
            vec![(BACKEND_1, Verdict::NotReady), (BACKEND_2, Verdict::NotReady)],
        ),
    ];
    for (name, endpoints, usable, draining, left_out) in rows {
        let slice = endpoints.into_iter().fold(web_slice(&[]), EndpointSlice::with);
        let selection = http(Policy::Cluster, &[slice]);
        let addresses =
            |of: &[Backend]| of.iter().map(|backend| backend.address.to_string()).collect::<Vec<_>>();
        assert_eq!(addresses(&selection.usable), usable, "{name}");
        assert_eq!(addresses(&selection.draining), draining, "{name}");
        assert_eq!(excluded(&selection), left_out, "{name}");
    }
}

#[test]
fn a_backend_used_while_terminating_is_marked_as_draining() {
    let selection = http(Policy::Cluster, &[web_slice(&[]).with(endpoint(BACKEND_1).leaving())]);
    assert!(selection.usable[0].draining);
    let selection = http(Policy::Cluster, &[web_slice(&[BACKEND_1])]);
    assert!(!selection.usable[0].draining);
}

#[test]
fn an_address_both_ready_and_not_ready_is_ready_once() {
    let not_ready = slice("default/web-1", "web").port("http", 8080).with(endpoint(BACKEND_1).not_ready());
    let ready = slice("default/web-2", "web").port("http", 8080).ready(&[BACKEND_1]);
    let selection = http(Policy::Cluster, &[not_ready, ready]);
    assert_eq!(told(&selection.usable), ["10.244.1.21:8080"]);
    assert_eq!(excluded(&selection), [(BACKEND_1, Verdict::DuplicateEndpoint)]);
    assert_eq!(
        selection.excluded[0].message,
        "endpoint 10.244.1.21 is listed in EndpointSlice default/web-2 as well"
    );
}

#[test]
fn e05_slices_of_the_other_family_are_not_looked_at() {
    let v6 = slice("default/web-6", "web").of(AddressType::Ipv6).port("http", 8080).ready(&[BACKEND_V6]);
    let slices = [&web_slice(&[BACKEND_1]), &v6];
    for (family, want) in [(Family::Ipv4, "10.244.1.21:8080"), (Family::Ipv6, "[2001:db8:2::22]:8080")] {
        let selection = select(&web().ports[0], Protocol::Tcp, family, Policy::Cluster, &slices, NODE);
        assert_eq!(told(&selection.usable), [want]);
        assert!(selection.excluded.is_empty());
    }
}

#[test]
fn b12_host_names_are_in_no_set() {
    let names =
        slice("default/web-2", "web").of(AddressType::Fqdn).port("http", 8080).ready(&["example.test"]);
    assert_eq!(usable(&[web_slice(&[BACKEND_1]), names]), ["10.244.1.21:8080"]);
}

#[test]
fn e12_without_node_zone_and_target_it_is_still_a_backend() {
    let full = Endpoint {
        zone: Some("zone-1".into()),
        target: Some("default/web-7d4b9".into()),
        ..endpoint(BACKEND_1).on(NODE)
    };
    let selection = http(Policy::Cluster, &[web_slice(&[BACKEND_2]).with(full)]);
    assert_eq!(told(&selection.usable), ["10.244.1.21:8080", "10.244.2.22:8080"]);
    let [local, bare] = &selection.usable[..] else { panic!("{selection:?}") };
    assert_eq!(local.target.as_deref(), Some("default/web-7d4b9"));
    assert_eq!((local.local, local.zone.as_deref()), (true, Some("zone-1")));
    assert_eq!((bare.local, &bare.node, &bare.zone, &bare.target), (false, &None, &None, &None));
}

#[test]
fn b71_e14_addresses_that_no_endpoint_can_have_are_left_out_and_the_others_kept() {
    let rows = [
        (
            "127.0.0.1",
            "EndpointSlice default/web-1: 127.0.0.1 is a loopback address, which no endpoint can have",
        ),
        (
            "169.254.1.1",
            "EndpointSlice default/web-1: 169.254.1.1 is a link-local address, which no endpoint can have",
        ),
        (
            "224.0.0.1",
            "EndpointSlice default/web-1: 224.0.0.1 is a multicast address, which no endpoint can have",
        ),
        (
            "0.0.0.0",
            "EndpointSlice default/web-1: 0.0.0.0 is the unspecified address, which no endpoint can have",
        ),
        (
            "255.255.255.255",
            "EndpointSlice default/web-1: 255.255.255.255 is the broadcast address, which no endpoint can have",
        ),
        ("10.96.0.300", "EndpointSlice default/web-1: \"10.96.0.300\" is not an IP address"),
    ];
    for (text, message) in rows {
        let selection = http(Policy::Cluster, &[web_slice(&[text, BACKEND_2])]);
        assert_eq!(told(&selection.usable), ["10.244.2.22:8080"]);
        assert_eq!(excluded(&selection), [(text, Verdict::InvalidAddress)]);
        assert_eq!(selection.excluded[0].message, message);
    }
    for text in ["::1", "fe80::1", "ff02::1", "::"] {
        let slice = slice("default/web-6", "web").of(AddressType::Ipv6).port("http", 8080).ready(&[text]);
        let selection =
            select(&web().ports[0], Protocol::Tcp, Family::Ipv6, Policy::Cluster, &[&slice], NODE);
        assert_eq!(excluded(&selection), [(text, Verdict::InvalidAddress)]);
    }
    let mut none = endpoint(BACKEND_1);
    none.addresses.clear();
    assert_eq!(
        excluded(&http(Policy::Cluster, &[web_slice(&[]).with(none)])),
        [("", Verdict::InvalidAddress)]
    );
    assert_eq!(
        excluded(&http(Policy::Cluster, &[web_slice(&[BACKEND_V6])])),
        [(BACKEND_V6, Verdict::WrongFamily)]
    );
}

#[test]
fn local_ones_come_first_then_by_address_and_port() {
    let slices = [
        slice("default/web-2", "web").port("http", 9090).with(endpoint("10.244.2.9").on(OTHER_NODE)),
        slice("default/web-1", "web")
            .port("http", 8080)
            .with(endpoint("10.244.2.22").on(OTHER_NODE))
            .with(endpoint("10.244.2.9").on(OTHER_NODE))
            .with(endpoint("10.244.9.9").on(NODE)),
    ];
    let want = ["10.244.9.9:8080", "10.244.2.9:8080", "10.244.2.9:9090", "10.244.2.22:8080"];
    assert_eq!(usable(&slices), want);
    let [first, mut second] = slices;
    second.endpoints.reverse();
    assert_eq!(usable(&[second, first]), want);
}

#[test]
fn b27_a_local_policy_uses_the_endpoints_of_this_node_only() {
    let here = |address| endpoint(address).on(NODE);
    let there = |address| endpoint(address).on(OTHER_NODE);
    type Row<'a> = (&'a str, Vec<Endpoint>, Vec<&'a str>, Vec<(&'a str, Verdict)>, bool);
    let rows: [Row<'_>; 6] = [
        (
            "some here",
            vec![here(BACKEND_1), there(BACKEND_2)],
            vec![BACKEND_1],
            vec![(BACKEND_2, Verdict::NotLocal)],
            true,
        ),
        (
            "none here",
            vec![there(BACKEND_2), endpoint(BACKEND_3)],
            vec![],
            vec![(BACKEND_2, Verdict::NotLocal), (BACKEND_3, Verdict::NotLocal)],
            true,
        ),
        (
            "none anywhere",
            vec![there(BACKEND_2).not_ready()],
            vec![],
            vec![(BACKEND_2, Verdict::NotReady)],
            false,
        ),
        (
            "here only terminating, ready elsewhere: it falls back on its own",
            vec![here(BACKEND_1).leaving(), there(BACKEND_2)],
            vec![BACKEND_1],
            vec![(BACKEND_2, Verdict::NotLocal)],
            true,
        ),
        (
            "ready here, terminating elsewhere",
            vec![here(BACKEND_1), there(BACKEND_2).leaving()],
            vec![BACKEND_1],
            vec![(BACKEND_2, Verdict::Terminating)],
            false,
        ),
        (
            "only terminating, and elsewhere: the cluster would use it",
            vec![there(BACKEND_2).leaving()],
            vec![],
            vec![(BACKEND_2, Verdict::NotLocal)],
            true,
        ),
    ];
    for (name, endpoints, want, left_out, elsewhere) in rows {
        let slice = endpoints.into_iter().fold(web_slice(&[]), EndpointSlice::with);
        let selection = http(Policy::Local, &[slice]);
        let addresses: Vec<_> = selection.usable.iter().map(|backend| backend.address.to_string()).collect();
        assert_eq!(addresses, want, "{name}");
        assert_eq!(excluded(&selection), left_out, "{name}");
        assert_eq!(selection.is_usable_elsewhere(), elsewhere, "{name}");
        assert!(selection.draining.is_empty(), "{name}: nothing of another node keeps flows here");
    }
}
