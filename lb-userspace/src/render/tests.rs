use serde_json::json;

use super::*;
use crate::{
    desired::Identity,
    model::{AddressType, Endpoint, Policy, Service, ServiceType},
    source::SourceEvent,
    state::State,
    testing::{
        BACKEND_1, BACKEND_2, BACKEND_3, NODE, OTHER_NODE, OTHER_VIP, VIP, apply, endpoint, service, slice,
        web, web_slice,
    },
};

/// One of everything that the document shows.
fn events() -> Vec<SourceEvent> {
    let local = Endpoint { target: Some("default/web-7d4b9".into()), ..endpoint(BACKEND_1).on(NODE) };
    let remote = Endpoint { zone: Some("zone-1".into()), ..endpoint(BACKEND_3).on(OTHER_NODE) };
    let of_web = web_slice(&[]).with(remote).with(endpoint(BACKEND_2).not_ready()).with(local);
    let names = slice("default/web-2", "web").of(AddressType::Fqdn);
    let external = service("default/ext", &[]).of_type(ServiceType::ExternalName);
    let claims_too = Service { created: Some(1), ..service("default/late", &[VIP]).port("", 80) };
    let web =
        Service { created: Some(0), warnings: vec!["trafficDistribution is not obeyed".into()], ..web() };
    let invalid = service("default/invalid", &["10.96.0.300", OTHER_VIP]).port("", 80).local();
    let draining =
        slice("default/invalid-1", "invalid").port("", 8080).with(endpoint(BACKEND_1).on(NODE).leaving());
    vec![
        apply(0, web),
        apply(0, external),
        apply(0, claims_too),
        apply(0, invalid),
        apply(0, of_web),
        apply(0, names),
        apply(0, draining),
        apply(0, slice("default/orphan", "")),
    ]
}

fn document(events: impl IntoIterator<Item = SourceEvent>) -> Document {
    let mut state = State::new(Identity::of(NODE), 1, &[]);
    events.into_iter().for_each(|event| state.handle(event));
    state.refresh();
    state.render()
}

#[test]
fn the_document_has_the_shape_of_the_contract() {
    let not_ready = "endpoint 10.244.2.22 has ready=false, serving=false, terminating=false in EndpointSlice default/web-1";
    let taken = "ClusterIP 10.96.0.50:80/TCP: Service default/web has it by precedence";
    let want = json!({
        "node": "node-a",
        "frontends": [
            {
                "service": "default/invalid", "port_name": "", "kind": "ClusterIP", "address": "10.96.0.53", "port": 80,
                "protocol": "TCP", "policy": "Local", "affinity_seconds": null, "source_ranges": [],
                "no_backends": "reject",
                "backends": [
                    {"address": "10.244.1.21", "port": 8080, "node": "node-a", "zone": null, "local": true,
                     "state": "draining", "endpoint": null},
                ],
            },
            {
                "service": "default/web", "port_name": "http", "kind": "ClusterIP", "address": "10.96.0.50", "port": 80,
                "protocol": "TCP", "policy": "Cluster", "affinity_seconds": null, "source_ranges": [],
                "no_backends": "reject",
                "backends": [
                    {"address": "10.244.1.21", "port": 8080, "node": "node-a", "zone": null, "local": true,
                     "state": "active", "endpoint": "default/web-7d4b9"},
                    {"address": "10.244.2.23", "port": 8080, "node": "node-b", "zone": "zone-1", "local": false,
                     "state": "active", "endpoint": null},
                ],
            },
        ],
        "excluded": [
            {"service": "default/web", "port_name": "http", "address": "10.244.2.22", "port": 8080,
             "reason": "NotReady", "message": not_ready},
        ],
        "skipped": [
            {"service": null, "reason": "SliceWithoutService",
             "message": "EndpointSlice default/orphan has no kubernetes.io/service-name label"},
            {"service": "default/ext", "reason": "ExternalName",
             "message": "an ExternalName Service is a DNS alias and has no address to serve"},
            {"service": "default/invalid", "reason": "InvalidVip",
             "message": "ClusterIP \"10.96.0.300\" is not an IP address"},
            {"service": "default/late", "reason": "AddressTaken", "message": taken},
            {"service": "default/web", "reason": "FqdnSlice",
             "message": "EndpointSlice default/web-2 holds host names, which are not resolved"},
        ],
        "warnings": [
            {"object": "Service default/invalid", "message": "ClusterIP \"10.96.0.300\" is not an IP address"},
            {"object": "Service default/web", "message": "trafficDistribution is not obeyed"},
        ],
    });
    let got = serde_json::to_value(document(events())).unwrap();
    assert_eq!(got, want, "{}", serde_json::to_string_pretty(&got).unwrap());
}

#[test]
fn the_same_objects_in_another_order_are_the_same_bytes() {
    let bytes = |events| serde_json::to_string(&document(events)).unwrap();
    let want = bytes(events());
    for first in 0..events().len() {
        let mut rotated = events();
        rotated.rotate_left(first);
        assert_eq!(bytes(rotated), want);
    }
    assert_eq!(bytes(events().into_iter().rev().collect()), want);
}

#[test]
fn health_checks_are_in_order_whatever_the_order_of_the_services() {
    let balanced = |n: u16| Service {
        external_policy: Policy::Local,
        health_check_port: Some(31_000 + n),
        ..service(&format!("default/s{n:02}"), &[VIP]).port("", 80).of_type(ServiceType::LoadBalancer)
    };
    let ports: Vec<_> = document((0..40).rev().map(|n| apply(0, balanced(n))))
        .health_checks
        .iter()
        .map(|it| it.port)
        .collect();
    assert_eq!(ports, (31_000..31_040).collect::<Vec<_>>());
}

#[test]
fn what_is_printed_can_be_read_back() {
    let document = document(events());
    let text = serde_json::to_string(&document).unwrap();
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), document);
}

#[test]
fn tables_say_the_same_to_people() {
    let want = "\
SERVICE          PORT  KIND       FRONTEND           BACKEND           NOTE
default/invalid  -     ClusterIP  10.96.0.53:80/TCP  10.244.1.21:8080  local, draining; policy Local
default/web      http  ClusterIP  10.96.0.50:80/TCP  10.244.1.21:8080  default/web-7d4b9, local
                                                     10.244.2.23:8080

EXCLUDED ENDPOINT  SERVICE      PORT  REASON    MESSAGE
10.244.2.22:8080   default/web  http  NotReady  endpoint 10.244.2.22 has ready=false, serving=false, terminating=false in EndpointSlice default/web-1

SKIPPED          REASON               MESSAGE
-                SliceWithoutService  EndpointSlice default/orphan has no kubernetes.io/service-name label
default/ext      ExternalName         an ExternalName Service is a DNS alias and has no address to serve
default/invalid  InvalidVip           ClusterIP \"10.96.0.300\" is not an IP address
default/late     AddressTaken         ClusterIP 10.96.0.50:80/TCP: Service default/web has it by precedence
default/web      FqdnSlice            EndpointSlice default/web-2 holds host names, which are not resolved

WARNING                  MESSAGE
Service default/invalid  ClusterIP \"10.96.0.300\" is not an IP address
Service default/web      trafficDistribution is not obeyed
";
    let got = document(events()).to_tables();
    assert_eq!(got, want, "{got}");
}

#[test]
fn a_frontend_without_backends_says_what_becomes_of_its_traffic() {
    let elsewhere = web_slice(&[]).with(endpoint(BACKEND_2).on(OTHER_NODE));
    let rows = [
        (vec![apply(0, web())], "no usable endpoint (reject)"),
        (
            vec![apply(0, web().local()), apply(0, elsewhere)],
            "no endpoint on this node, and the policy is Local (drop); policy Local",
        ),
    ];
    for (events, note) in rows {
        let table = document(events).services_table();
        let row = table.lines().nth(1).unwrap();
        assert!(row.ends_with(&format!("10.96.0.50:80/TCP  -        {note}")), "{row}");
    }
    assert_eq!(document([]).to_tables(), "");
}
