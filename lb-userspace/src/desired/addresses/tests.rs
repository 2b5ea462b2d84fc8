use super::*;
use crate::{
    desired::{Identity, NoBackends, compile},
    model::{AddressType, EndpointSlice, Protocol, SessionAffinity},
    testing::{
        BACKEND_1, BACKEND_2, BACKEND_V6, NODE, OTHER_NODE, VIP, VIP_V6, balanced, endpoint, service, slice,
        web, web_slice,
    },
};

const NODE_IP: &str = "192.168.50.11";
const SECOND_NODE_IP: &str = "192.168.60.5";
const NODE_IP_V6: &str = "2001:db8::11";
const EXTERNAL: &str = "203.0.113.10";
const BALANCED: &str = "203.0.113.20";
const BALANCED_V6: &str = "2001:db8:ff::20";

fn on_node(addresses: &[&str]) -> NodeView {
    NodeView {
        nodeport_addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        ..NodeView::default()
    }
}

fn of(service: &Service, slices: &[EndpointSlice], node: &NodeView) -> ServiceDesired {
    compile(service, &slices.iter().collect::<Vec<_>>(), &Identity::of(NODE), node)
}

/// The frontends, each with its policy and its backends.
fn told(desired: &ServiceDesired) -> Vec<String> {
    let frontends = desired.frontends.iter().map(|frontend| {
        let set = &desired.sets[frontend.set];
        let backends = set.selection.usable.iter().map(|backend| backend.address.to_string());
        let none = match set.no_backends() {
            NoBackends::Reject => "reject",
            NoBackends::Drop => "drop",
        };
        let backends = if set.selection.usable.is_empty() {
            none.to_owned()
        } else {
            backends.collect::<Vec<_>>().join(" ")
        };
        format!("{frontend} {:?}: {backends}", set.policy)
    });
    frontends.collect()
}

fn skipped(desired: &ServiceDesired) -> Vec<(Verdict, &str)> {
    desired.skipped.iter().map(|skipped| (skipped.reason, skipped.message.as_str())).collect()
}

/// `default/web` on every kind of address.
fn everything() -> Service {
    let mut service = Service {
        external_ips: vec![EXTERNAL.into()],
        load_balancer_ips: vec![balanced(BALANCED)],
        ..web().of_type(ServiceType::LoadBalancer)
    };
    service.ports[0].node_port = Some(30080);
    service
}

fn here_and_there() -> [EndpointSlice; 1] {
    [web_slice(&[]).with(endpoint(BACKEND_1).on(NODE)).with(endpoint(BACKEND_2).on(OTHER_NODE))]
}

#[test]
fn every_kind_of_address_is_a_frontend_and_the_node_s_come_with_it() {
    let got = told(&of(&everything(), &here_and_there(), &on_node(&[NODE_IP, SECOND_NODE_IP])));
    let want = [
        "ClusterIP 10.96.0.50:80/TCP Cluster: 10.244.1.21 10.244.2.22",
        "LoadBalancer 203.0.113.20:80/TCP Cluster: 10.244.1.21 10.244.2.22",
        "ExternalIP 203.0.113.10:80/TCP Cluster: 10.244.1.21 10.244.2.22",
        "NodePort 192.168.50.11:30080/TCP Cluster: 10.244.1.21 10.244.2.22",
        "NodePort 192.168.60.5:30080/TCP Cluster: 10.244.1.21 10.244.2.22",
    ];
    assert_eq!(got, want);
}

#[test]
fn b27_the_internal_policy_is_the_cluster_ip_s_and_the_external_one_all_others() {
    let cluster = "10.244.1.21 10.244.2.22";
    let rows = [
        (Policy::Cluster, Policy::Cluster, cluster, cluster),
        (Policy::Local, Policy::Cluster, BACKEND_1, cluster),
        (Policy::Cluster, Policy::Local, cluster, BACKEND_1),
        (Policy::Local, Policy::Local, BACKEND_1, BACKEND_1),
    ];
    for (internal_policy, external_policy, internal, external) in rows {
        let service = Service { internal_policy, external_policy, ..everything() };
        let want = [
            format!("ClusterIP 10.96.0.50:80/TCP {internal_policy:?}: {internal}"),
            format!("LoadBalancer 203.0.113.20:80/TCP {external_policy:?}: {external}"),
            format!("ExternalIP 203.0.113.10:80/TCP {external_policy:?}: {external}"),
            format!("NodePort 192.168.50.11:30080/TCP {external_policy:?}: {external}"),
        ];
        assert_eq!(told(&of(&service, &here_and_there(), &on_node(&[NODE_IP]))), want);
    }
}

#[test]
fn the_external_policy_local_is_not_for_clients_inside_the_cluster() {
    let service = Service { external_policy: Policy::Local, ..everything() };
    let desired = of(&service, &here_and_there(), &on_node(&[NODE_IP]));
    let inside = |frontend: &crate::desired::Frontend| {
        let set = &desired.sets[frontend.inside?];
        Some((set.policy, set.selection.usable.len()))
    };
    let got: Vec<_> = desired.frontends.iter().map(|frontend| (frontend.kind, inside(frontend))).collect();
    let cluster = Some((Policy::Cluster, 2));
    let want = [
        (FrontendKind::ClusterIP, None),
        (FrontendKind::LoadBalancer, cluster),
        (FrontendKind::ExternalIP, cluster),
        (FrontendKind::NodePort, cluster),
    ];
    assert_eq!(got, want);
    let open = of(&everything(), &here_and_there(), &on_node(&[NODE_IP]));
    assert!(open.frontends.iter().all(|frontend| frontend.inside.is_none()));
}

#[test]
fn b39_cluster_and_local_fall_back_to_terminating_endpoints_each_on_its_own() {
    let service = Service { external_policy: Policy::Local, ..everything() };
    let leaving_here =
        web_slice(&[]).with(endpoint(BACKEND_1).on(NODE).leaving()).with(endpoint(BACKEND_2).on(OTHER_NODE));
    let got = told(&of(&service, &[leaving_here], &on_node(&[NODE_IP])));
    assert_eq!(got[0], "ClusterIP 10.96.0.50:80/TCP Cluster: 10.244.2.22");
    assert_eq!(got[3], "NodePort 192.168.50.11:30080/TCP Local: 10.244.1.21");

    let elsewhere = web_slice(&[]).with(endpoint(BACKEND_2).on(OTHER_NODE).leaving());
    let got = told(&of(&service, &[elsewhere], &on_node(&[NODE_IP])));
    assert_eq!(got[0], "ClusterIP 10.96.0.50:80/TCP Cluster: 10.244.2.22");
    assert_eq!(got[3], "NodePort 192.168.50.11:30080/TCP Local: drop");
    let nowhere = told(&of(&service, &[web_slice(&[])], &on_node(&[NODE_IP])));
    assert_eq!(nowhere[3], "NodePort 192.168.50.11:30080/TCP Local: reject");
}

#[test]
fn b44_tcp_and_udp_on_one_node_port_are_apart() {
    let mut dns = service("default/dns", &["10.96.0.53"])
        .port_of("dns", 53, Ok(Protocol::Udp))
        .port("dns-tcp", 53)
        .of_type(ServiceType::NodePort);
    dns.ports.iter_mut().for_each(|port| port.node_port = Some(30053));
    let node_ports = |service: &Service| {
        let of = told(&of(service, &[], &on_node(&[NODE_IP])));
        of.into_iter().filter(|it| it.starts_with("NodePort")).collect::<Vec<_>>()
    };
    let udp = "NodePort 192.168.50.11:30053/UDP Cluster: reject";
    let tcp = "NodePort 192.168.50.11:30053/TCP Cluster: reject";
    assert_eq!(node_ports(&dns), [udp, tcp]);
    let mut tcp_only = dns.clone();
    tcp_only.ports.remove(0);
    assert_eq!(node_ports(&tcp_only), [tcp]);
    dns.ports.iter_mut().for_each(|port| port.port = 5333);
    assert_eq!(node_ports(&dns), [udp, tcp]);
}

#[test]
fn b45_node_ports_are_on_the_addresses_that_the_node_has_now() {
    let mut service = web().of_type(ServiceType::NodePort);
    service.ports[0].node_port = Some(30080);
    let at = |addresses: &[&str]| {
        let desired = of(&service, &[], &on_node(addresses));
        let node_ports = desired.frontends.iter().filter(|it| it.kind == FrontendKind::NodePort);
        node_ports.map(|frontend| frontend.address.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(at(&[NODE_IP]), [NODE_IP]);
    assert_eq!(at(&[NODE_IP, SECOND_NODE_IP]), [NODE_IP, SECOND_NODE_IP]);
    assert_eq!(at(&[SECOND_NODE_IP]), [SECOND_NODE_IP]);

    let unknown = of(&service, &[], &on_node(&[]));
    let why = "NodePort 30080/TCP over IPv4: no address of this node is known on which NodePorts are served \
               (--nodeport-addresses primary)";
    assert_eq!(skipped(&unknown), [(Verdict::NoNodeAddress, why)]);
    assert_eq!(told(&unknown).len(), 1, "the cluster IP does not wait for it");

    let mut dual = service.clone();
    dual.cluster_ips.push(VIP_V6.into());
    let reasons: Vec<_> =
        of(&dual, &[], &on_node(&[NODE_IP])).skipped.into_iter().map(|it| it.message).collect();
    assert!(reasons.iter().any(|it| it.starts_with("NodePort 30080/TCP over IPv6: ")), "{reasons:?}");
}

#[test]
fn a_family_without_a_cluster_ip_is_not_served_at_all() {
    let of_v6 = slice("default/web-6", "web").of(AddressType::Ipv6).port("http", 8080).ready(&[BACKEND_V6]);
    let node = on_node(&[NODE_IP, NODE_IP_V6]);
    let mut both = everything();
    both.load_balancer_ips.push(balanced(BALANCED_V6));
    let v4_only = of(&both, std::slice::from_ref(&of_v6), &node);
    assert_eq!(told(&v4_only).len(), 4);
    let of_address = "LoadBalancer 2001:db8:ff::20: the Service has no cluster IP of this address family";
    let of_slice =
        "EndpointSlice default/web-6 holds IPv6 addresses, and the Service has none of that family";
    assert_eq!(
        skipped(&v4_only),
        [(Verdict::FamilyNotServed, of_address), (Verdict::FamilyNotServed, of_slice)]
    );

    both.cluster_ips = vec![VIP.into(), VIP_V6.into()];
    let dual = told(&of(&both, &[web_slice(&[BACKEND_1]), of_v6], &node));
    let v6 = |kind: &str, at: &str| format!("{kind} [{at}/TCP Cluster: {BACKEND_V6}");
    for want in [v6("LoadBalancer", "2001:db8:ff::20]:80"), v6("NodePort", "2001:db8::11]:30080")] {
        assert!(dual.contains(&want), "{want} in {dual:?}");
    }
    assert_eq!(dual.len(), 7);
}

#[test]
fn b47_an_address_with_ip_mode_proxy_is_the_load_balancer_s_own() {
    let mut service = everything();
    service.load_balancer_ips[0].proxied = true;
    let desired = of(&service, &[], &on_node(&[NODE_IP]));
    assert!(!desired.frontends.iter().any(|it| it.kind == FrontendKind::LoadBalancer));
    let why = "LoadBalancer 203.0.113.20: ipMode Proxy: traffic to the address has to reach the load balancer itself";
    assert_eq!(skipped(&desired), [(Verdict::LoadBalancerProxy, why)]);
}

#[test]
fn source_ranges_keep_out_whoever_they_do_not_name() {
    let with = |ranges: &[&str]| {
        let mut service = everything();
        service.cluster_ips.push(VIP_V6.into());
        service.load_balancer_ips.push(balanced(BALANCED_V6));
        service.source_ranges = ranges.iter().map(|range| (*range).into()).collect();
        of(&service, &[], &on_node(&[NODE_IP, NODE_IP_V6]))
    };
    let ranges = |desired: &ServiceDesired| {
        let ranges = desired.source_ranges.as_ref()?;
        Some(ranges.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let only = |ranges: &[&str]| Some(ranges.iter().map(|range| (*range).to_owned()).collect::<Vec<_>>());
    let balanced = |desired: &ServiceDesired| {
        desired.frontends.iter().filter(|it| it.kind == FrontendKind::LoadBalancer).count()
    };

    let open = with(&[]);
    assert_eq!((ranges(&open), balanced(&open), open.warnings.len()), (None, 2, 0));

    let both = with(&[" 192.0.2.1/24", "2001:db8:c::/48", "192.0.2.0/24"]);
    assert_eq!(ranges(&both), only(&["192.0.2.0/24", "2001:db8:c::/48"]));
    assert_eq!((balanced(&both), both.warnings.len()), (2, 0));

    let v4 = with(&["192.0.2.0/24"]);
    let nobody = "LoadBalancer 2001:db8:ff::20: none of spec.loadBalancerSourceRanges is of IPv6, so nobody may connect";
    assert_eq!((ranges(&v4), &v4.warnings[..]), (only(&["192.0.2.0/24"]), &[nobody.to_owned()][..]));

    let some_wrong = with(&["192.0.2.0/24", "2001:db8:c::/48", "everybody"]);
    assert_eq!(ranges(&some_wrong), only(&["192.0.2.0/24", "2001:db8:c::/48"]));
    let wrong = "spec.loadBalancerSourceRanges: \"everybody\" is not a CIDR, and lets nobody in";
    assert_eq!(some_wrong.warnings, [wrong]);

    let all_wrong = with(&["everybody"]);
    assert_eq!((ranges(&all_wrong), balanced(&all_wrong)), (only(&[]), 2), "they are there for nobody");
    let reasons: Vec<_> = skipped(&all_wrong).into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, [Verdict::InvalidSourceRange; 2]);
}

#[test]
fn b44_tcp_and_udp_on_one_node_port_come_and_go_apart() {
    let udp = |port| ("dns", port, Ok(Protocol::Udp), 30053);
    let tcp = |port| ("dns-tcp", port, Ok(Protocol::Tcp), 30053);
    let with = |ports: &[(&str, u16, Result<Protocol, Box<str>>, u16)]| {
        let mut dns = service("default/dns", &[VIP]).of_type(ServiceType::NodePort);
        for (name, port, protocol, _) in ports {
            dns = dns.port_of(name, *port, protocol.clone());
        }
        dns.ports.iter_mut().zip(ports).for_each(|(port, (.., number))| port.node_port = Some(*number));
        let desired = of(&dns, &[], &on_node(&[NODE_IP]));
        let node_ports = desired.frontends.iter().filter(|it| it.kind == FrontendKind::NodePort);
        node_ports.map(ToString::to_string).collect::<Vec<_>>()
    };
    let (of_udp, of_tcp) = ("NodePort 192.168.50.11:30053/UDP", "NodePort 192.168.50.11:30053/TCP");
    assert_eq!(with(&[udp(53), tcp(53)]), [of_udp, of_tcp]);
    assert_eq!(with(&[tcp(53)]), [of_tcp]);
    assert_eq!(with(&[udp(5333), tcp(5333)]), [of_udp, of_tcp]);
}

#[test]
fn b48_of_two_services_with_one_health_check_port_the_older_is_asked_for() {
    let with_check = |name: &str, vip: &str, created, ready: &[&str]| {
        let service = Service {
            created: Some(created),
            external_policy: Policy::Local,
            health_check_port: Some(31000),
            ..service(name, &[vip]).port("http", 80).of_type(ServiceType::LoadBalancer)
        };
        let of_it = slice(&format!("{name}-1"), name.split('/').next_back().unwrap()).port("http", 8080);
        let slices = [ready.iter().fold(of_it, |slice, ip| slice.with(endpoint(ip).on(NODE)))];
        (service.key.clone(), of(&service, &slices, &on_node(&[NODE_IP])))
    };
    let (old, of_old) = with_check("default/old", "10.96.0.51", 100, &[BACKEND_1]);
    let (young, of_young) = with_check("default/young", "10.96.0.52", 200, &[BACKEND_1, BACKEND_2]);
    let mut desired = crate::desired::Desired::default();
    let asked = |desired: &mut crate::desired::Desired| {
        let checks = desired.take_health_checks()?;
        Some(
            checks
                .into_iter()
                .map(|(port, it)| (port, it.service.to_string(), it.local_endpoints))
                .collect::<Vec<_>>(),
        )
    };
    desired.update(&young, Some(of_young));
    assert_eq!(asked(&mut desired), Some(vec![(31000, "default/young".to_owned(), 2)]));
    desired.update(&old, Some(of_old));
    assert_eq!(asked(&mut desired), Some(vec![(31000, "default/old".to_owned(), 1)]));
    assert_eq!(asked(&mut desired), None, "nothing new");
    let (check, taken) = desired.health_check_of(&young).unwrap();
    let why = "health-check node port 31000: Service default/old has it by precedence";
    assert_eq!((check.local_endpoints, taken.unwrap().message.as_str()), (2, why));
    assert!(desired.health_check_of(&old).unwrap().1.is_none());
    desired.update(&old, None);
    assert_eq!(asked(&mut desired), Some(vec![(31000, "default/young".to_owned(), 2)]));
    desired.update(&young, None);
    assert_eq!(asked(&mut desired), Some(vec![]));
}

#[test]
fn b42_the_affinity_is_that_of_every_frontend_in_seconds() {
    for timeout_seconds in [10, 10_800, 86_400] {
        let affinity = SessionAffinity::ClientIP { timeout_seconds };
        let desired = of(&Service { affinity, ..everything() }, &[], &on_node(&[NODE_IP]));
        let seconds: Vec<_> = desired.frontends.iter().map(|it| it.affinity_seconds).collect();
        assert_eq!(seconds, [Some(timeout_seconds); 4]);
    }
}

#[test]
fn b43_two_ports_of_a_sticky_local_service_have_a_service_id_and_a_local_set_each() {
    let mut sip = service("default/sip", &[VIP]).port("sip", 5060).port("rtp", 40982);
    sip.ports.iter_mut().zip([30060, 30982]).for_each(|(port, number)| port.node_port = Some(number));
    let sip = Service {
        affinity: SessionAffinity::ClientIP { timeout_seconds: 10_800 },
        external_policy: Policy::Local,
        ..sip.of_type(ServiceType::NodePort)
    };
    let slice = slice("default/sip-1", "sip").port("sip", 5060).port("rtp", 40982);
    let slice = slice.with(endpoint(BACKEND_1).on(NODE)).with(endpoint(BACKEND_2).on(OTHER_NODE));
    let got = told(&of(&sip, &[slice], &on_node(&[NODE_IP])));
    for want in [
        "NodePort 192.168.50.11:30060/TCP Local: 10.244.1.21",
        "NodePort 192.168.50.11:30982/TCP Local: 10.244.1.21",
    ] {
        assert!(got.iter().any(|it| it == want), "{want} in {got:?}");
    }
}

#[test]
fn a_health_check_counts_the_ready_endpoints_of_this_node_by_address() {
    let asked = |slice: EndpointSlice| {
        let service = Service {
            external_policy: Policy::Local,
            health_check_port: Some(31000),
            // No load balancer has given an address yet.
            load_balancer_ips: Vec::new(),
            ..everything().port("admin", 81)
        };
        let check = of(&service, &[slice], &on_node(&[])).health_check.unwrap();
        assert_eq!(check.port, 31000);
        check.local_endpoints
    };
    let both_ports = || web_slice(&[]).port("admin", 8081);
    assert_eq!(asked(both_ports().with(endpoint(BACKEND_1).on(NODE))), 1);
    assert_eq!(asked(both_ports().with(endpoint(BACKEND_2).on(OTHER_NODE))), 0);
    assert_eq!(asked(both_ports().with(endpoint(BACKEND_1).on(NODE).leaving())), 0);
    assert_eq!(asked(both_ports()), 0);

    let checks = |service: Service| of(&service, &[], &on_node(&[])).health_check;
    let port = Some(31000);
    assert_eq!(checks(Service { health_check_port: port, ..everything() }), None, "the policy is Cluster");
    let node_port = Service { external_policy: Policy::Local, health_check_port: port, ..everything() };
    assert_eq!(checks(node_port.of_type(ServiceType::NodePort)), None);
}

#[test]
fn b47_a_service_that_lists_an_address_twice_has_it_once() {
    let mut service = everything();
    service.load_balancer_ips = vec![balanced(EXTERNAL)];
    let mut desired = crate::desired::Desired::default();
    desired.update(&service.key, Some(of(&service, &[], &on_node(&[]))));
    let taken: Vec<_> = desired
        .frontends_of(&service.key)
        .filter_map(|(_, _, withheld)| withheld)
        .filter(|withheld| withheld.reason == Verdict::AddressTaken)
        .map(|withheld| withheld.message)
        .collect();
    // The one that stays is the one that source ranges guard.
    assert_eq!(taken, ["ExternalIP 203.0.113.10:80/TCP: the Service has it already"]);
}
