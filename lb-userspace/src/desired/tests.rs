use lb_common::{ServiceKey, Verdict};

use super::*;
use crate::{
    endpoints::Backend,
    model::{AddressType, EndpointSlice, Kind, ObjectKey, Protocol, Service, ServiceType, SessionAffinity},
    testing::{
        BACKEND_1, BACKEND_2, BACKEND_V6, NODE, OTHER_NODE, VIP, VIP_V6, balanced, endpoint, key, service,
        slice, web, web_slice,
    },
};

/// An address that only Endpoints still name.
const BACKEND_V4_GONE: &str = "10.244.9.9";

fn identity() -> Identity {
    Identity::of(NODE)
}

fn of(service: &Service, slices: &[EndpointSlice]) -> ServiceDesired {
    compile(service, &slices.iter().collect::<Vec<_>>(), &identity(), &NodeView::default())
}

/// The frontends that belong into the datapath, each with the addresses of its backends.
fn served(desired: &ServiceDesired) -> Vec<String> {
    let socket = |backend: &Backend| std::net::SocketAddr::new(backend.address, backend.port).to_string();
    let frontends = &desired.frontends;
    frontends
        .iter()
        .map(|frontend| {
            let usable = desired.sets[frontend.set].selection.usable.iter().map(socket).collect::<Vec<_>>();
            format!("{frontend} -> {}", usable.join(" "))
        })
        .collect()
}

fn skipped(desired: &ServiceDesired) -> Vec<(Verdict, &str)> {
    desired.skipped.iter().map(|skipped| (skipped.reason, skipped.message.as_str())).collect()
}

#[test]
fn b22_protocols_on_one_address_and_port_are_frontends_of_their_own() {
    let udp = |name, port| (name, port, Ok(Protocol::Udp));
    let dns = service("kube-system/kube-dns", &["10.96.0.10"])
        .port_of("dns", 53, Ok(Protocol::Udp))
        .port("dns-tcp", 53)
        .port("metrics", 9153);
    let (name, port, protocol) = udp("dns", 5353);
    let of_udp =
        slice("kube-system/dns-1", "kube-dns").port_of(name, Some(port), protocol).ready(&[BACKEND_1]);
    let of_tcp = slice("kube-system/dns-2", "kube-dns").port("dns-tcp", 5454).ready(&[BACKEND_2]);
    let slices = [of_udp, of_tcp];
    assert_eq!(
        served(&of(&dns, &slices)),
        [
            "ClusterIP 10.96.0.10:53/UDP -> 10.244.1.21:5353",
            "ClusterIP 10.96.0.10:53/TCP -> 10.244.2.22:5454",
            "ClusterIP 10.96.0.10:9153/TCP -> ",
        ]
    );
    let mut without_udp = dns;
    without_udp.ports.remove(0);
    assert_eq!(served(&of(&without_udp, &slices))[0], "ClusterIP 10.96.0.10:53/TCP -> 10.244.2.22:5454");
}

#[test]
fn b24_a_service_without_a_cluster_ip_of_its_own_has_no_frontend_of_any_kind() {
    let slices = [web_slice(&[BACKEND_1])];
    let at = |ips: &[&str]| Service {
        external_ips: vec!["203.0.113.10".into()],
        ..service("default/web", ips).port("http", 80)
    };
    let with_node_port = |mut service: Service| {
        service.ports[0].node_port = Some(30080);
        service.of_type(ServiceType::NodePort)
    };
    let rows = [
        (at(&[]).of_type(ServiceType::ExternalName), Some(Verdict::ExternalName)),
        (web(), None),
        (at(&[VIP]).of_type(ServiceType::ExternalName), Some(Verdict::ExternalName)),
        (at(&["None"]), Some(Verdict::Headless)),
        (at(&[""]), Some(Verdict::NoClusterIP)),
        (at(&[]), Some(Verdict::NoClusterIP)),
        (with_node_port(at(&["None"])), Some(Verdict::Headless)),
        // As kube-proxy does, which does not even ask for such Services.
        (Service { headless: true, ..at(&[VIP]) }, Some(Verdict::Headless)),
    ];
    for (service, reason) in rows {
        let desired = of(&service, &slices);
        assert_eq!(desired.frontends.len(), usize::from(reason.is_none()), "{service:?}");
        let reasons: Vec<_> = desired.skipped.iter().map(|skipped| skipped.reason).collect();
        assert_eq!(reasons, Vec::from_iter(reason), "{service:?}");
    }
}

#[test]
fn only_services_of_our_proxy_name_are_served() {
    let rows = [
        (None, None, true),
        (Some("other"), None, false),
        (None, Some("readylb"), false),
        (Some("readylb"), Some("readylb"), true),
        (Some("other"), Some("readylb"), false),
    ];
    for (label, ours, is_served) in rows {
        let text = |text: Option<&str>| text.map(Into::into);
        let service = Service { proxy_name: text(label), ..web() };
        let desired =
            compile(&service, &[], &Identity { proxy_name: text(ours), ..identity() }, &NodeView::default());
        assert_eq!(desired.frontends.len(), usize::from(is_served), "{label:?}, {ours:?}");
        assert_eq!(desired.skipped.iter().any(|it| it.reason == Verdict::OtherProxy), !is_served);
    }
}

#[test]
fn e05_each_family_has_its_own_slices_in_either_order() {
    let v6 = slice("default/web-6", "web").of(AddressType::Ipv6).port("http", 8080).ready(&[BACKEND_V6]);
    let slices = [web_slice(&[BACKEND_1]), v6];
    let v4_frontend = "ClusterIP 10.96.0.50:80/TCP -> 10.244.1.21:8080";
    let v6_frontend = "ClusterIP [2001:db8:f0::50]:80/TCP -> [2001:db8:2::22]:8080";
    let at = |ips: &[&str]| of(&service("default/web", ips).port("http", 80), &slices);
    assert_eq!(served(&at(&[VIP, VIP_V6])), [v4_frontend, v6_frontend]);
    assert_eq!(served(&at(&[VIP_V6, VIP])), [v6_frontend, v4_frontend]);

    let v4_only = at(&[VIP]);
    assert_eq!(served(&v4_only), [v4_frontend]);
    let why = "EndpointSlice default/web-6 holds IPv6 addresses, and the Service has none of that family";
    assert_eq!(skipped(&v4_only), [(Verdict::FamilyNotServed, why)]);
}

#[test]
fn b13_e11_slices_of_any_manager_count_and_come_before_endpoints() {
    let addresses: Vec<_> = (0..1050).map(|n| format!("10.244.{}.{}", n / 250, n % 250)).collect();
    let texts: Vec<_> = addresses.iter().map(String::as_str).collect();
    let mut slices: Vec<_> = texts
        .chunks(100)
        .enumerate()
        .map(|(n, texts)| slice(&format!("default/web-{n}"), "web").port("http", 8080).ready(texts))
        .collect();
    // The Endpoints object of the same Service, cut at a thousand, and behind: it has one that has gone.
    let behind =
        slice("default/web", "web").port("http", 8080).ready(&texts[..999]).ready(&[BACKEND_V4_GONE]);
    let behind = EndpointSlice { kind: Kind::Endpoints, ..behind };
    slices.push(behind.clone());
    let desired = of(&web(), &slices);
    assert_eq!(desired.sets[0].selection.usable.len(), 1050);
    assert!(desired.sets[0].selection.excluded.is_empty());
    let why =
        "Endpoints default/web is not read: the Service has EndpointSlices, which come before its Endpoints";
    assert_eq!(skipped(&desired), [(Verdict::SlicesFirst, why)]);

    let alone = of(&web(), &[behind]);
    assert_eq!(alone.sets[0].selection.usable.len(), 1000);
    assert!(alone.skipped.is_empty());
}

#[test]
fn b12_slices_that_hold_no_addresses_are_skipped_whole() {
    let names = slice("default/web-2", "web").of(AddressType::Fqdn).ready(&["example.test"]);
    let newer = slice("default/web-3", "web").of(AddressType::Unknown("IPv8".into()));
    let desired = of(&web(), &[web_slice(&[BACKEND_1]), names, newer]);
    assert_eq!(served(&desired), ["ClusterIP 10.96.0.50:80/TCP -> 10.244.1.21:8080"]);
    assert_eq!(
        skipped(&desired),
        [
            (Verdict::FqdnSlice, "EndpointSlice default/web-2 holds host names, which are not resolved"),
            (
                Verdict::UnknownAddressType,
                "EndpointSlice default/web-3 has the unknown address type \"IPv8\""
            ),
        ]
    );
}

#[test]
fn e02_a_protocol_that_kubernetes_does_not_have_is_refused_and_never_tcp() {
    let service = web().port_of("admin", 81, Err("tcp".into()));
    let desired = of(&service, &[]);
    assert_eq!(served(&desired), ["ClusterIP 10.96.0.50:80/TCP -> "]);
    let why = "port 81 has protocol \"tcp\", which Kubernetes does not have: TCP, UDP and SCTP, in capitals";
    assert_eq!(skipped(&desired), [(Verdict::UnsupportedProtocol, why)]);
    assert_eq!(desired.warnings, [why]);
}

#[test]
fn every_kind_of_address_is_served_and_what_is_beyond_this_build_is_computed_and_withheld() {
    let slices = [web_slice(&[BACKEND_1])];
    let mut everything = Service {
        external_ips: vec!["203.0.113.10".into()],
        load_balancer_ips: vec![balanced("203.0.113.20")],
        ..web().of_type(ServiceType::LoadBalancer)
    };
    everything.ports[0].node_port = Some(30080);
    let node = NodeView { nodeport_addresses: vec!["192.168.50.11".parse().unwrap()], ..NodeView::default() };
    let desired = compile(&everything, &slices.iter().collect::<Vec<_>>(), &Identity::of(NODE), &node);
    let addresses = [
        "ClusterIP 10.96.0.50:80",
        "LoadBalancer 203.0.113.20:80",
        "ExternalIP 203.0.113.10:80",
        "NodePort 192.168.50.11:30080",
    ];
    assert_eq!(served(&desired), addresses.map(|address| format!("{address}/TCP -> 10.244.1.21:8080")));

    let sticky = Service { affinity: SessionAffinity::ClientIP { timeout_seconds: 10_800 }, ..web() };
    let desired = of(&sticky, &slices);
    assert_eq!(desired.frontends[0].affinity_seconds, Some(10_800));

    let sctp = service("default/web", &[VIP]).port_of("http", 80, Ok(Protocol::Sctp));
    assert_eq!(served(&of(&sctp, &slices)), ["ClusterIP 10.96.0.50:80/SCTP -> "]);
}

#[test]
fn load_balancer_addresses_and_node_ports_need_their_type() {
    let mut left_over = Service { load_balancer_ips: vec![balanced("203.0.113.20")], ..web() };
    left_over.ports[0].node_port = Some(30080);
    let desired = of(&left_over, &[]);
    assert_eq!(desired.frontends.len(), 1);
    assert!(desired.skipped.is_empty());
}

#[test]
fn b71_an_address_that_is_none_is_skipped_with_a_warning_and_the_others_serve() {
    let rows = [
        ("10.96.0.300", "ClusterIP \"10.96.0.300\" is not an IP address"),
        ("::ffff:10.96.0.50", "ClusterIP \"::ffff:10.96.0.50\" is not an IP address"),
        ("127.0.0.1", "ClusterIP \"127.0.0.1\" is a loopback address, which no Service can have"),
    ];
    for (text, why) in rows {
        let desired = of(&service("default/web", &[text, VIP]).port("http", 80), &[]);
        assert_eq!(served(&desired), ["ClusterIP 10.96.0.50:80/TCP -> "]);
        assert_eq!(skipped(&desired), [(Verdict::InvalidVip, why)]);
        assert_eq!(desired.warnings, [why]);
    }
    let old_text = of(&service("default/web", &["10.96.011.012"]).port("http", 80), &[]);
    assert_eq!(served(&old_text), ["ClusterIP 10.96.11.12:80/TCP -> "]);
}

#[test]
fn b27_an_empty_local_set_drops_if_others_could_serve_and_refuses_if_none_can() {
    let elsewhere = web_slice(&[]).with(endpoint(BACKEND_2).on(OTHER_NODE));
    let rows = [
        (web(), &elsewhere, NoBackends::Reject),
        (web().local(), &elsewhere, NoBackends::Drop),
        (web().local(), &web_slice(&[]), NoBackends::Reject),
    ];
    for (service, slice, want) in rows {
        let desired = of(&service, std::slice::from_ref(slice));
        assert_eq!(desired.sets[0].no_backends(), want, "{:?}", service.internal_policy);
    }
}

#[test]
fn ports_of_the_same_name_and_protocol_share_their_endpoints() {
    let desired = of(&service("default/web", &[VIP]).port("", 80).port("", 81), &[]);
    assert_eq!(desired.frontends.len(), 2);
    assert_eq!(desired.sets.len(), 1);
}

// The whole: who gets an address.

struct Claimant {
    name: &'static str,
    created: Option<i64>,
    kind: FrontendKind,
}

/// A Service with one frontend at the VIP, as if its kind were within this build.
fn claim(claimant: &Claimant) -> (ObjectKey, ServiceDesired) {
    let service = Service { created: claimant.created, ..service(claimant.name, &[VIP]).port("http", 80) };
    let mut desired = of(&service, &[]);
    desired.frontends[0].kind = claimant.kind;
    (service.key, desired)
}

fn vip() -> ServiceKey {
    of(&web(), &[]).frontends[0].key()
}

fn losers(desired: &Desired) -> Vec<String> {
    let services: Vec<_> = desired.services().map(|(key, _)| key.clone()).collect();
    let taken = services.iter().flat_map(|key| desired.frontends_of(key));
    taken.filter_map(|(_, _, withheld)| withheld.map(|it| format!("{} {}", it.reason, it.message))).collect()
}

#[test]
fn b47_of_two_claims_the_kind_decides_then_the_age_then_the_name() {
    use FrontendKind::{ClusterIP, ExternalIP, LoadBalancer, NodePort};
    let claimant = |name, created, kind| Claimant { name, created, kind };
    let rows = [
        (claimant("a/young", Some(200), ClusterIP), claimant("b/old", Some(100), ExternalIP)),
        (claimant("a/young", Some(200), NodePort), claimant("b/old", Some(100), LoadBalancer)),
        (claimant("b/old", Some(100), ClusterIP), claimant("a/young", Some(200), ClusterIP)),
        (claimant("b/old", Some(100), ExternalIP), claimant("a/young", Some(200), LoadBalancer)),
        (claimant("a/one", Some(100), ClusterIP), claimant("b/two", Some(100), ClusterIP)),
        (claimant("a/one", None, ClusterIP), claimant("b/two", None, ClusterIP)),
        (claimant("b/known", Some(100), ClusterIP), claimant("a/unknown", None, ClusterIP)),
    ];
    for (winner, loser) in &rows {
        for order in [[winner, loser], [loser, winner]] {
            let mut desired = Desired::default();
            for claimant in order {
                let (key, service) = claim(claimant);
                assert_eq!(desired.update(&key, Some(service)), Some([vip()].into()));
            }
            assert_eq!(desired.winner(&vip()), Some(&key(winner.name)), "{} wins", winner.name);
            assert_eq!(desired.frontend_counts(), (2, 1));
            let why = format!(
                "AddressTaken {} 10.96.0.50:80/TCP: Service {} has it by precedence",
                loser.kind, winner.name
            );
            assert_eq!(losers(&desired), [why]);

            assert_eq!(desired.update(&key(winner.name), None), Some([vip()].into()));
            assert_eq!(desired.winner(&vip()), Some(&key(loser.name)));
            assert!(losers(&desired).is_empty());
            assert_eq!(desired.update(&key(loser.name), None), Some([vip()].into()));
            assert_eq!(desired.winner(&vip()), None);
            assert_eq!((desired.frontend_counts(), desired.service_count()), ((0, 0), 0));
        }
    }
}

#[test]
fn two_ports_of_one_service_with_one_number_are_one_frontend() {
    let twice = service("default/web", &[VIP]).port("a", 80).port("b", 80);
    let mut desired = Desired::default();
    desired.update(&twice.key, Some(of(&twice, &[])));
    assert_eq!(desired.frontend_counts(), (2, 1));
    assert_eq!(losers(&desired).len(), 1);
}

#[test]
fn e08_the_same_state_again_changes_nothing() {
    let mut desired = Desired::default();
    let state = || Some(of(&web(), &[web_slice(&[BACKEND_1])]));
    assert_eq!(desired.update(&web().key, state()), Some([vip()].into()));
    assert_eq!(desired.update(&web().key, state()), None);
    assert_eq!(desired.update(&key("default/unknown"), None), None);
}

#[test]
fn warnings_go_with_their_service() {
    let bad = service("default/web", &["10.96.0.300"]).port("http", 80);
    let mut desired = Desired::default();
    desired.update(&bad.key, Some(of(&bad, &[])));
    let told: Vec<_> = desired.warnings().map(|(key, message)| format!("{key}: {message}")).collect();
    assert_eq!(told, ["default/web: ClusterIP \"10.96.0.300\" is not an IP address"]);
    assert_eq!(desired.warning_count(), 1);
    desired.update(&bad.key, Some(of(&web(), &[])));
    assert_eq!((desired.warnings().count(), desired.warning_count()), (0, 0));
}
