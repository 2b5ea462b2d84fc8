//! Rows of objects as they are written, and what the model makes of them.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<T: FromApi + DeserializeOwned>(api: Value) -> Vec<Object> {
    serde_json::from_value::<T>(api).expect("the API's own type takes it").into_model()
}

fn read_service(spec: Value) -> Service {
    let api = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
    match read::<api::Service>(api).remove(0) {
        Object::Service(service) => service,
        other => panic!("a Service became {other:?}"),
    }
}

fn slices<T: FromApi + DeserializeOwned>(api: Value) -> Vec<EndpointSlice> {
    let slices = read::<T>(api).into_iter().map(|object| match object {
        Object::EndpointSlice(slice) => slice,
        other => panic!("a slice became {other:?}"),
    });
    slices.collect()
}

fn read_slice(fields: Value) -> EndpointSlice {
    let mut api = json!({"metadata": {"name": "web-1"}, "addressType": "IPv4", "endpoints": [], "ports": []});
    for (name, value) in fields.as_object().expect("fields") {
        api[name] = value.clone();
    }
    slices::<api::EndpointSlice>(api).remove(0)
}

fn balanced(ip: &str, proxied: bool) -> LoadBalancerIp {
    LoadBalancerIp { ip: ip.into(), proxied }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_service_keeps_what_a_proxy_obeys() {
    let api = json!({
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "creationTimestamp": "1970-01-01T00:01:00Z",
            "labels": {"service.kubernetes.io/service-proxy-name": "other", "app": "web"},
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.50",
            "clusterIPs": ["10.96.0.50", "2001:db8:f0::50"],
            "externalIPs": ["192.0.2.20"],
            "ports": [
                {"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080},
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "sigtran", "port": 2905, "protocol": "SCTP"},
            ],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
            "internalTrafficPolicy": "Local",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000,
            "trafficDistribution": "PreferClose",
            "loadBalancerSourceRanges": ["192.0.2.0/24"],
        },
        "status": {"loadBalancer": {"ingress": [
            {"ip": "203.0.113.1"},
            {"ip": "203.0.113.2", "ipMode": "VIP"},
            {"ip": "203.0.113.3", "ipMode": "Proxy"},
            {"hostname": "lb.example.test"},
        ]}},
    });
    let port = |name: &str, protocol, port, node_port| ServicePort {
        name: name.into(),
        protocol: Ok(protocol),
        port,
        node_port,
    };
    let want = Service {
        key: ObjectKey::new("shop", "web"),
        created: Some(60),
        proxy_name: Some("other".into()),
        headless: false,
        service_type: ServiceType::LoadBalancer,
        cluster_ips: vec!["10.96.0.50".into(), "2001:db8:f0::50".into()],
        external_ips: vec!["192.0.2.20".into()],
        load_balancer_ips: vec![
            balanced("203.0.113.1", false),
            balanced("203.0.113.2", false),
            balanced("203.0.113.3", true),
        ],
        source_ranges: vec!["192.0.2.0/24".into()],
        ports: vec![
            port("http", Protocol::Tcp, 80, Some(30080)),
            port("dns", Protocol::Udp, 53, None),
            port("sigtran", Protocol::Sctp, 2905, None),
        ],
        affinity: SessionAffinity::ClientIP { timeout_seconds: 10 },
        internal_policy: Policy::Local,
        external_policy: Policy::Local,
        health_check_port: Some(31000),
        traffic_distribution: Some(TrafficDistribution::SameZone),
        warnings: vec![],
    };
    assert_eq!(read::<api::Service>(api), [Object::Service(want)]);
}

#[test]
fn e20_absent_values_are_the_defaults_and_unknown_ones_too_with_a_warning() {
    let absent = read_service(json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    assert_eq!(absent.service_type, ServiceType::ClusterIP);
    assert_eq!(absent.affinity, SessionAffinity::None);
    assert_eq!((absent.internal_policy, absent.external_policy), (Policy::Cluster, Policy::Cluster));
    assert_eq!((absent.health_check_port, absent.traffic_distribution), (None, None));
    assert_eq!(absent.cluster_ips, ["10.96.0.50".into()]);
    assert_eq!(absent.ports[0].protocol, Ok(Protocol::Tcp));
    assert_eq!(absent.ports[0].node_port, None);
    assert_eq!(absent.warnings, Vec::<String>::new());

    let rows = [
        (json!({"type": "Headless"}), r#"spec.type "Headless" is not known and is treated as ClusterIP"#),
        (
            json!({"sessionAffinity": "Cookie"}),
            r#"spec.sessionAffinity "Cookie" is not known and is treated as None"#,
        ),
        (
            json!({"internalTrafficPolicy": "Zone"}),
            r#"spec.internalTrafficPolicy "Zone" is not known and is treated as Cluster"#,
        ),
        (
            json!({"externalTrafficPolicy": "Zone"}),
            r#"spec.externalTrafficPolicy "Zone" is not known and is treated as Cluster"#,
        ),
        (
            json!({"trafficDistribution": "PreferFar"}),
            r#"spec.trafficDistribution "PreferFar" is not known and is ignored"#,
        ),
        (
            json!({"healthCheckNodePort": 70000}),
            "spec.healthCheckNodePort 70000 is not a port number (1 to 65535), and it is left out",
        ),
    ];
    for (spec, warning) in rows {
        let unknown = read_service(spec.clone());
        assert_eq!(unknown.warnings, [warning], "{spec}");
        let default = Service { warnings: vec![], ..unknown };
        assert_eq!(default, read_service(json!({})), "{spec}");
    }

    let ingress = json!({"ip": "203.0.113.1", "ipMode": "Tunnel"});
    let api = json!({"metadata": {"name": "web"}, "status": {"loadBalancer": {"ingress": [ingress]}}});
    let Object::Service(unknown) = read::<api::Service>(api).remove(0) else { panic!("no Service") };
    assert_eq!(unknown.load_balancer_ips, [balanced("203.0.113.1", false)]);
    let warning = r#"status.loadBalancer.ingress[0].ipMode "Tunnel" is not known and is treated as VIP"#;
    assert_eq!(unknown.warnings, [warning]);
}

#[test]
fn a_traffic_distribution_has_an_older_name() {
    let rows = [
        ("PreferClose", Some(TrafficDistribution::SameZone)),
        ("PreferSameZone", Some(TrafficDistribution::SameZone)),
        ("PreferSameNode", Some(TrafficDistribution::SameNode)),
        ("", None),
    ];
    for (text, want) in rows {
        let service = read_service(json!({"trafficDistribution": text}));
        assert_eq!((service.traffic_distribution, service.warnings.len()), (want, 0), "{text:?}");
    }
}

#[test]
fn a_node_has_a_zone_and_addresses_and_no_namespace() {
    let api = json!({
        "metadata": {
            "name": "node-a",
            "namespace": "nonsense",
            "labels": {"topology.kubernetes.io/zone": "zone-1", "kubernetes.io/hostname": "node-a"},
        },
        "status": {"addresses": [
            {"type": "Hostname", "address": "node-a"},
            {"type": "ExternalIP", "address": "203.0.113.11"},
            {"type": "InternalIP", "address": "192.168.50.11"},
            {"type": "InternalIP", "address": "2001:db8::11"},
        ]},
    });
    let want = Node {
        key: ObjectKey::new("", "node-a"),
        zone: Some("zone-1".into()),
        ips: vec!["192.168.50.11".into(), "2001:db8::11".into(), "203.0.113.11".into()],
    };
    assert_eq!(want.reference().to_string(), "Node node-a");
    assert_eq!(read::<api::Node>(api), [Object::Node(want)]);
    let bare = json!({"metadata": {"name": "node-a", "labels": {"topology.kubernetes.io/zone": ""}}});
    let want = Node { key: ObjectKey::new("", "node-a"), zone: None, ips: vec![] };
    assert_eq!(read::<api::Node>(bare), [Object::Node(want)]);
}

#[test]
fn hints_of_an_endpoint_name_zones_and_nodes() {
    let endpoints = json!([
        {"addresses": ["10.244.1.21"], "hints": {"forZones": [{"name": "zone-1"}], "forNodes": [{"name": "node-a"}]}},
        {"addresses": ["10.244.2.22"]},
    ]);
    let slice = read_slice(json!({"endpoints": endpoints}));
    let want = Hints { nodes: vec!["node-a".into()], zones: vec!["zone-1".into()] };
    assert_eq!(slice.endpoints[0].hints.as_deref(), Some(&want));
    assert_eq!(slice.endpoints[1].hints, None);
}

#[test]
fn cluster_ips_are_kept_as_they_stand() {
    let rows = [
        (json!({}), vec![]),
        (json!({"clusterIP": ""}), vec![""]),
        (json!({"clusterIP": "None"}), vec!["None"]),
        (json!({"clusterIP": "None", "clusterIPs": ["None"]}), vec!["None"]),
        (json!({"clusterIP": "10.96.0.50", "clusterIPs": []}), vec!["10.96.0.50"]),
        (json!({"clusterIPs": ["2001:db8:f0::50", "10.96.0.50"]}), vec!["2001:db8:f0::50", "10.96.0.50"]),
    ];
    for (spec, want) in rows {
        let want: Vec<Box<str>> = want.into_iter().map(Into::into).collect();
        assert_eq!(read_service(spec.clone()).cluster_ips, want, "{spec}");
    }
}

#[test]
fn the_affinity_timeout_is_within_the_limits_of_the_api() {
    let config = |seconds| json!({"clientIP": {"timeoutSeconds": seconds}});
    let rows = [(json!(null), 10_800, 0), (config(1), 1, 0), (config(86_400), 86_400, 0)];
    let refused = [(config(0), 10_800, 1), (config(-1), 10_800, 1), (config(86_401), 10_800, 1)];
    for (config, want, warnings) in rows.into_iter().chain(refused) {
        let spec = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config});
        let service = read_service(spec.clone());
        assert_eq!(service.affinity, SessionAffinity::ClientIP { timeout_seconds: want }, "{spec}");
        assert_eq!(service.warnings.len(), warnings, "{spec}");
    }
    let unused = read_service(json!({"sessionAffinityConfig": config(0)}));
    assert_eq!((unused.affinity, unused.warnings.len()), (SessionAffinity::None, 0));
}

#[test]
fn a_port_number_out_of_range_costs_that_port_only() {
    let good = json!({"name": "good", "port": 80});
    for number in [70_000, -1, 0] {
        let service = read_service(json!({"ports": [{"name": "bad", "port": number}, good]}));
        let names: Vec<_> = service.ports.iter().map(|port| &*port.name).collect();
        assert_eq!(names, ["good"], "{number}");
        let place = format!("spec.ports[0].port {number} is not a port number (1 to 65535)");
        assert!(service.warnings[0].starts_with(&place), "{:?}", service.warnings);

        let slice = read_slice(json!({"ports": [good, {"name": "bad", "port": number}]}));
        let names: Vec<_> = slice.ports.iter().map(|port| &*port.name).collect();
        assert_eq!(names, ["good"], "{number}");
        let place = format!("ports[1].port {number} is not a port number (1 to 65535)");
        assert!(slice.warnings[0].starts_with(&place), "{:?}", slice.warnings);
    }
    let service =
        read_service(json!({"ports": [{"port": 80, "nodePort": 70_000}, {"port": 81, "nodePort": 0}]}));
    assert_eq!(service.ports.iter().map(|port| port.node_port).collect::<Vec<_>>(), [None, None]);
    assert_eq!(service.warnings.len(), 1, "{:?}", service.warnings);
}

#[test]
fn e02_a_protocol_that_kubernetes_has_not_is_kept_as_text() {
    let rows: [(Value, Result<Protocol, Box<str>>); 7] = [
        (json!(null), Ok(Protocol::Tcp)),
        (json!(""), Ok(Protocol::Tcp)),
        (json!("TCP"), Ok(Protocol::Tcp)),
        (json!("UDP"), Ok(Protocol::Udp)),
        (json!("SCTP"), Ok(Protocol::Sctp)),
        (json!("tcp"), Err("tcp".into())),
        (json!("DCCP"), Err("DCCP".into())),
    ];
    for (text, want) in rows {
        let ports = json!([{"port": 53, "protocol": text}]);
        assert_eq!(read_service(json!({"ports": ports})).ports[0].protocol, want, "{text}");
        assert_eq!(read_slice(json!({"ports": ports})).ports[0].protocol, want, "{text}");
    }
}

#[test]
fn b04_b17_absent_conditions_are_ready_and_serving() {
    let conditions = |ready, serving, terminating| Conditions { ready, serving, terminating };
    let rows = [
        (json!(null), conditions(true, true, false)),
        (json!({}), conditions(true, true, false)),
        (json!({"ready": null, "serving": null}), conditions(true, true, false)),
        (json!({"ready": false}), conditions(false, true, false)),
        (json!({"ready": true, "serving": false}), conditions(true, false, false)),
        (json!({"ready": false, "terminating": true}), conditions(false, true, true)),
    ];
    for (api, want) in rows {
        let endpoints = json!([{"addresses": ["10.244.1.21"], "conditions": api}]);
        assert_eq!(read_slice(json!({"endpoints": endpoints})).endpoints[0].conditions, want, "{api}");
    }
}

#[test]
fn b06_a_slice_without_the_label_or_with_an_empty_one_belongs_to_no_service() {
    let rows = [
        (json!(null), None),
        (json!({}), None),
        (json!({"kubernetes.io/service-name": ""}), None),
        (json!({"kubernetes.io/service-name": "web"}), Some("web".into())),
    ];
    for (labels, want) in rows {
        let slice = read_slice(json!({"metadata": {"name": "orphan", "labels": labels}}));
        assert_eq!((slice.service, slice.kind), (want, Kind::EndpointSlice), "{labels}");
    }
}

#[test]
fn b12_the_address_type_is_read_exactly() {
    let rows = [
        ("IPv4", AddressType::Ipv4),
        ("IPv6", AddressType::Ipv6),
        ("FQDN", AddressType::Fqdn),
        ("ipv4", AddressType::Unknown("ipv4".into())),
        ("", AddressType::Unknown("".into())),
    ];
    for (text, want) in rows {
        assert_eq!(read_slice(json!({"addressType": text})).address_type, want, "{text:?}");
    }
}

#[test]
fn e12_an_endpoint_needs_nothing_but_its_address() {
    let slice = read_slice(json!({
        "metadata": {"name": "web-1", "namespace": "shop"},
        "ports": [{}, {"name": "http", "port": 8080}],
        "endpoints": [
            {"addresses": ["10.244.1.21"]},
            {
                "addresses": ["010.244.002.022", "10.244.2.300"],
                "nodeName": "node-b",
                "zone": "zone-b",
                "hostname": "web-0",
                "hints": {"forZones": [{"name": "zone-a"}]},
                "targetRef": {"kind": "Pod", "name": "web-7d4b9"},
            },
            {"addresses": ["10.244.2.300"], "targetRef": {"kind": "Pod", "namespace": "other", "name": "p"}},
            {"addresses": [], "targetRef": {"kind": "VirtualMachine", "name": "vm"}},
        ],
    }));
    let port = |name: &str, port| SlicePort { name: name.into(), protocol: Ok(Protocol::Tcp), port };
    assert_eq!(slice.ports, [port("", None), port("http", Some(8080))]);
    let [bare, full, elsewhere, no_pod] = &slice.endpoints[..] else { panic!("{slice:?}") };
    assert_eq!((&bare.node, &bare.zone, &bare.target), (&None, &None, &None));
    assert_eq!(bare.address, Some(Ok(ip("10.244.1.21"))));
    assert_eq!(full.address, Some(Ok(ip("10.244.2.22"))));
    assert_eq!((full.node.as_deref(), full.zone.as_deref()), (Some("node-b"), Some("zone-b")));
    assert_eq!(full.target.as_deref(), Some("shop/web-7d4b9"));
    assert_eq!(elsewhere.address, Some(Err(crate::model::InvalidAddress { text: "10.244.2.300".into() })));
    assert_eq!(elsewhere.target.as_deref(), Some("other/p"));
    assert_eq!((&no_pod.address, &no_pod.target), (&None, &None));
}

#[test]
fn an_endpoints_object_is_a_slice_for_each_subset_and_family() {
    let slices = slices::<api::Endpoints>(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "subsets": [
            {
                "ports": [{"name": "http", "port": 8080}, {"name": "dns", "port": 5353, "protocol": "UDP"}],
                "addresses": [
                    {"ip": "10.244.1.21", "nodeName": "node-a", "targetRef": {"kind": "Pod", "name": "p1"}},
                    {"ip": "2001:db8:2::22"},
                ],
                "notReadyAddresses": [{"ip": "10.244.2.22"}],
            },
            {"ports": [{"name": "http", "port": 9090}], "addresses": [{"ip": "10.244.2.23"}]},
            {"ports": [{"port": 1}]},
        ],
    }));
    let summary: Vec<_> = slices
        .iter()
        .map(|slice| {
            let ports: Vec<_> = slice.ports.iter().filter_map(|port| port.port).collect();
            let addresses = slice.endpoints.iter().map(|endpoint| {
                let Conditions { ready, serving, terminating } = endpoint.conditions;
                assert_eq!((ready, terminating), (serving, false));
                (endpoint.address.clone().expect("one").map(|ip| ip.to_string()).expect("an address"), ready)
            });
            (slice.key.to_string(), slice.address_type.clone(), ports, addresses.collect::<Vec<_>>())
        })
        .collect();
    let address = |ip: &str, ready| (ip.to_owned(), ready);
    let want = [
        (
            "shop/web".into(),
            AddressType::Ipv4,
            vec![8080, 5353],
            vec![address("10.244.1.21", true), address("10.244.2.22", false)],
        ),
        ("shop/web/2".into(), AddressType::Ipv6, vec![8080, 5353], vec![address("2001:db8:2::22", true)]),
        ("shop/web/3".into(), AddressType::Ipv4, vec![9090], vec![address("10.244.2.23", true)]),
    ];
    assert_eq!(summary, want);
    for slice in &slices {
        assert_eq!((slice.kind, slice.service.as_deref()), (Kind::Endpoints, Some("web")));
    }
    let first = &slices[0].endpoints[0];
    assert_eq!((first.node.as_deref(), first.target.as_deref()), (Some("node-a"), Some("shop/p1")));
}

#[test]
fn b13_endpoints_that_were_cut_off_say_so() {
    let read = |annotations: Value| {
        let subset = json!({"addresses": [{"ip": "10.244.1.21"}], "ports": [{"port": 70_000}, {"port": 80}]});
        let api = json!({"metadata": {"name": "web", "annotations": annotations}, "subsets": [subset]});
        slices::<api::Endpoints>(api).remove(0)
    };
    let bad_port =
        "subsets[0].ports[0].port 70000 is not a port number (1 to 65535), and this port is left out";
    assert_eq!(read(json!({})).warnings, [bad_port]);
    let cut_off = read(json!({"endpoints.kubernetes.io/over-capacity": "truncated"}));
    let warning = "the object holds only the first 1,000 addresses of its Service";
    assert_eq!(cut_off.warnings, [warning, bad_port]);
}

#[test]
fn e17_what_identifies_an_object_is_in_its_metadata() {
    let api = json!({"metadata": {"name": "web-1", "namespace": "shop"}});
    let slice = serde_json::from_value::<api::EndpointSlice>(api.clone()).expect("metadata is enough");
    assert_eq!(slice.reference().to_string(), "EndpointSlice shop/web-1");
    let service = serde_json::from_value::<api::Service>(api).expect("metadata is enough");
    assert_eq!(service.reference().to_string(), "Service shop/web-1");
    let api = json!({"metadata": {"name": "web"}});
    let endpoints = serde_json::from_value::<api::Endpoints>(api).expect("metadata is enough");
    assert_eq!(endpoints.reference().to_string(), "Endpoints default/web");
}
