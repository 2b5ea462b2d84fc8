use std::net::SocketAddr;

use super::*;
use crate::model::{AddressType, Endpoint, Hints, Kind, Service, TrafficDistribution};
use crate::testing::{
    BACKEND_1, BACKEND_2, BACKEND_3, BACKEND_V6, NODE, OTHER_NODE, endpoint, slice, web, web_slice,
};

const NODE_ADDRESS: &str = "192.168.50.12";

/// Asks for the first port of a Service, from [`NODE`], whose zone is not known.
fn query(service: &Service) -> Query<'_> {
    Query {
        port: &service.ports[0],
        protocol: Protocol::Tcp,
        family: Family::Ipv4,
        policy: Policy::Cluster,
        wish: None,
        node: NODE,
        zone: None,
    }
}

/// Selects for the port `http` of `default/web`.
fn http(policy: Policy, slices: &[EndpointSlice]) -> Selection {
    let slices: Vec<_> = slices.iter().collect();
    select(&Query { policy, ..query(&web()) }, &slices)
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
        &*selection.excluded[0].message,
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
        let message = selection.excluded.first().map(|excluded| excluded.message.to_string());
        let wanted = there.map(|there| {
            format!(
                "the Service port \"http\"/TCP is not among the ports of EndpointSlice default/web-1: {there}"
            )
        });
        assert_eq!(message, wanted);
        assert_eq!(selection.usable.len(), usize::from(there.is_none()), "{name}");
    }
    let many = (0..1000).fold(slice("default/web-1", "web"), |slice, n| slice.port(&format!("p{n}"), 8080));
    let selection = http(Policy::Cluster, &[many.ready(&[BACKEND_1, BACKEND_2])]);
    assert!(
        selection.excluded[0]
            .message
            .ends_with(r#": "p0"/TCP, "p1"/TCP, "p2"/TCP, "p3"/TCP, "p4"/TCP, and 995 more"#)
    );
    assert!(Arc::ptr_eq(&selection.excluded[0].message, &selection.excluded[1].message));

    let without_ports = slice("default/web-1", "web").ready(&[BACKEND_1]);
    assert!(http(Policy::Cluster, &[without_ports]).excluded[0].message.ends_with(": none"));
}

#[test]
fn a_slice_port_without_a_number_is_of_no_use() {
    let slice = slice("default/web-1", "web").port_of("http", None, Ok(Protocol::Tcp)).ready(&[BACKEND_1]);
    let selection = http(Policy::Cluster, &[slice]);
    assert_eq!(excluded(&selection), [(BACKEND_1, Verdict::PortWithoutNumber)]);
    assert_eq!(&*selection.excluded[0].message, "port \"http\" of EndpointSlice default/web-1 has no number");
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
    let mirrored = EndpointSlice { kind: Kind::Endpoints, ..of_hundred((0, &texts[..1000])) };
    slices.push(mirrored);
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
        &*selection.excluded[0].message,
        "endpoint 10.244.1.21 is listed in EndpointSlice default/web-2 as well"
    );
}

#[test]
fn e05_slices_of_the_other_family_are_not_looked_at() {
    let v6 = slice("default/web-6", "web").of(AddressType::Ipv6).port("http", 8080).ready(&[BACKEND_V6]);
    let slices = [&web_slice(&[BACKEND_1]), &v6];
    for (family, want) in [(Family::Ipv4, "10.244.1.21:8080"), (Family::Ipv6, "[2001:db8:2::22]:8080")] {
        let selection = select(&Query { family, ..query(&web()) }, &slices);
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
        assert_eq!(&*selection.excluded[0].message, message);
    }
    for text in ["::1", "fe80::1", "ff02::1", "::"] {
        let slice = slice("default/web-6", "web").of(AddressType::Ipv6).port("http", 8080).ready(&[text]);
        let selection = select(&Query { family: Family::Ipv6, ..query(&web()) }, &[&slice]);
        assert_eq!(excluded(&selection), [(text, Verdict::InvalidAddress)]);
    }
    let mut none = endpoint(BACKEND_1);
    none.address = None;
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

// Topology.

const ZONE: &str = "zone-1";
const OTHER_ZONE: &str = "zone-2";

fn hinted(address: &str, nodes: &[&str], zones: &[&str]) -> Endpoint {
    let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    let hints = Hints { nodes: names(nodes), zones: names(zones) };
    Endpoint { hints: Some(hints.into()), ..endpoint(address) }
}

#[test]
fn hints_are_followed_only_if_every_ready_endpoint_has_one_and_one_matches() {
    let zoned = |address, zone| hinted(address, &[], &[zone]);
    let noded = |address, node| hinted(address, &[node], &[]);
    let zone = Some(ZONE);
    type Row<'a> = (&'a str, Option<&'a str>, Vec<Endpoint>, Vec<&'a str>, &'a str);
    let rows: [Row<'_>; 12] = [
        ("no hints", zone, vec![endpoint(BACKEND_1)], vec![BACKEND_1], "no endpoint has hints"),
        (
            "a zone hint each, one matches",
            zone,
            vec![zoned(BACKEND_1, ZONE), zoned(BACKEND_2, OTHER_ZONE)],
            vec![BACKEND_1],
            "the endpoints hinted for zone zone-1",
        ),
        (
            "several zones in one hint",
            zone,
            vec![hinted(BACKEND_1, &[], &[OTHER_ZONE, ZONE]), zoned(BACKEND_2, OTHER_ZONE)],
            vec![BACKEND_1],
            "the endpoints hinted for zone zone-1",
        ),
        (
            "none matches",
            zone,
            vec![zoned(BACKEND_1, OTHER_ZONE), zoned(BACKEND_2, "zone-3")],
            vec![BACKEND_1, BACKEND_2],
            "every endpoint: none is hinted for zone zone-1",
        ),
        (
            "one without",
            zone,
            vec![zoned(BACKEND_1, ZONE), endpoint(BACKEND_2)],
            vec![BACKEND_1, BACKEND_2],
            "every endpoint: only 1 of 2 ready ones have a zone hint",
        ),
        (
            "hints that name nothing are none",
            zone,
            vec![zoned(BACKEND_1, ZONE), hinted(BACKEND_2, &[], &[])],
            vec![BACKEND_1, BACKEND_2],
            "every endpoint: only 1 of 2 ready ones have a zone hint",
        ),
        (
            "our zone is not known",
            None,
            vec![zoned(BACKEND_1, ZONE)],
            vec![BACKEND_1],
            "every endpoint: the zone of node node-a is not known",
        ),
        (
            "one that is not ready needs no hint",
            zone,
            vec![zoned(BACKEND_1, ZONE), zoned(BACKEND_2, OTHER_ZONE), endpoint(BACKEND_3).not_ready()],
            vec![BACKEND_1],
            "the endpoints hinted for zone zone-1",
        ),
        (
            "node hints come first",
            zone,
            vec![hinted(BACKEND_1, &[NODE], &[ZONE]), hinted(BACKEND_2, &[OTHER_NODE], &[ZONE])],
            vec![BACKEND_1],
            "the endpoints hinted for node node-a",
        ),
        (
            "no node hint for us: the zone hints",
            zone,
            vec![hinted(BACKEND_1, &[OTHER_NODE], &[ZONE]), hinted(BACKEND_2, &[OTHER_NODE], &[OTHER_ZONE])],
            vec![BACKEND_1],
            "the endpoints hinted for zone zone-1",
        ),
        (
            "node hints only, and none for us",
            None,
            vec![noded(BACKEND_1, OTHER_NODE), noded(BACKEND_2, OTHER_NODE)],
            vec![BACKEND_1, BACKEND_2],
            "every endpoint: none is hinted for node node-a",
        ),
        (
            "node hints of some",
            None,
            vec![noded(BACKEND_1, NODE), endpoint(BACKEND_2)],
            vec![BACKEND_1, BACKEND_2],
            "every endpoint: only 1 of 2 ready ones have a node hint",
        ),
    ];
    for (name, zone, endpoints, want, why) in rows {
        let slice = endpoints.into_iter().fold(web_slice(&[]), EndpointSlice::with);
        let selection = select(&Query { zone, ..query(&web()) }, &[&slice]);
        let addresses: Vec<_> = selection.usable.iter().map(|backend| backend.address.to_string()).collect();
        assert_eq!(addresses, want, "{name}");
        assert_eq!(selection.topology.to_string(), why, "{name}");
    }
}

#[test]
fn a_wish_without_hints_is_explained_and_decides_nothing() {
    let web = web();
    let wishing = Query { wish: Some(TrafficDistribution::SameNode), zone: Some(ZONE), ..query(&web) };
    let selection = select(&wishing, &[&web_slice(&[BACKEND_1, BACKEND_2])]);
    assert_eq!(selection.usable.len(), 2);
    let why = "every endpoint: the Service asks for PreferSameNode, and none has a hint";
    assert_eq!(selection.topology.to_string(), why);
    assert_eq!(select(&wishing, &[&web_slice(&[])]).topology, Topology::Unhinted);
}

#[test]
fn of_two_entries_the_one_of_this_node_counts() {
    let there = slice("default/web-1", "web").port("http", 8080).with(endpoint(BACKEND_1).on(OTHER_NODE));
    let here = slice("default/web-2", "web").port("http", 8080).with(endpoint(BACKEND_1).on(NODE));
    let selection = http(Policy::Local, &[there, here]);
    assert_eq!(told(&selection.usable), ["10.244.1.21:8080"]);
    assert_eq!(excluded(&selection), [(BACKEND_1, Verdict::DuplicateEndpoint)]);
}

#[test]
fn entries_that_differ_in_their_hints_only_do_not_depend_on_their_order() {
    let here = hinted(BACKEND_1, &[], &[ZONE]);
    let there = hinted(BACKEND_1, &[], &[OTHER_ZONE]);
    let in_order = |first: &Endpoint, second: &Endpoint| {
        let slice = web_slice(&[]).with(first.clone()).with(second.clone());
        select(&Query { zone: Some(ZONE), ..query(&web()) }, &[&slice])
    };
    assert_eq!(in_order(&here, &there), in_order(&there, &here));
}

#[test]
fn an_endpoint_for_others_says_whose_it_is() {
    let slice = web_slice(&[]).with(hinted(BACKEND_1, &[], &[ZONE])).with(hinted(
        BACKEND_2,
        &[],
        &[OTHER_ZONE, "zone-3"],
    ));
    let selection = select(&Query { zone: Some(ZONE), ..query(&web()) }, &[&slice]);
    assert_eq!(excluded(&selection), [(BACKEND_2, Verdict::HintedElsewhere)]);
    let why = "endpoint 10.244.2.22 is hinted for zone zone-2, zone-3, and this is zone zone-1";
    assert_eq!(&*selection.excluded[0].message, why);
    assert!(selection.draining.is_empty(), "it is another node's to keep flows to");
}

#[test]
fn hints_say_nothing_to_a_local_policy_nor_to_endpoints_that_terminate() {
    let web = web();
    let here = hinted(BACKEND_1, &[], &[OTHER_ZONE]).on(NODE);
    let there = hinted(BACKEND_2, &[], &[ZONE]).on(OTHER_NODE);
    let slice = web_slice(&[]).with(here).with(there);
    let local = Query { zone: Some(ZONE), policy: Policy::Local, ..query(&web) };
    assert_eq!(told(&select(&local, &[&slice]).usable), ["10.244.1.21:8080"]);
    assert_eq!(select(&local, &[&slice]).topology, Topology::Unhinted);

    let leaving = web_slice(&[])
        .with(hinted(BACKEND_1, &[], &[ZONE]).leaving())
        .with(hinted(BACKEND_2, &[], &[OTHER_ZONE]).leaving());
    let cluster = Query { zone: Some(ZONE), ..query(&web) };
    assert_eq!(told(&select(&cluster, &[&leaving]).usable), ["10.244.1.21:8080", "10.244.2.22:8080"]);
}

#[test]
fn b21_every_endpoint_that_is_listed_is_judged_with_where_it_is_listed() {
    let first = web_slice(&[BACKEND_1]).with(endpoint(BACKEND_2).not_ready());
    let second = slice("default/web-2", "web").port("http", 8080).ready(&[BACKEND_1]);
    let slices = [&first, &second];
    let web = web();
    let (judged, _) = judge(&query(&web), &slices);
    let mut told: Vec<_> = judged
        .iter()
        .map(|it| {
            let outcome = match &it.outcome {
                Outcome::Usable(backend) => format!("usable {}", backend.address),
                Outcome::Draining(_, reason) | Outcome::Excluded(reason) => reason.verdict.to_string(),
            };
            (it.slice.key.to_string(), it.endpoint.address_text().to_string(), outcome)
        })
        .collect();
    told.sort();
    let row = |slice: &str, address: &str, outcome: &str| (slice.into(), address.into(), outcome.into());
    assert_eq!(
        told,
        [
            row("default/web-1", BACKEND_1, "usable 10.244.1.21"),
            row("default/web-1", BACKEND_2, "NotReady"),
            row("default/web-2", BACKEND_1, "DuplicateEndpoint"),
        ]
    );
}
