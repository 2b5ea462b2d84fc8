use super::*;
use crate::{
    desired::FrontendKind,
    model::{Host, ServiceType},
    source::Event,
    testing::{BACKEND_1, NODE, OTHER_NODE, apply, delete, key, node, on, service, web, web_slice},
};

fn state() -> State {
    State::new(Identity::of(NODE), 1, &[])
}

/// Takes in events, and tells which Services they change.
fn changed(state: &mut State, events: impl IntoIterator<Item = SourceEvent>) -> Vec<String> {
    events.into_iter().for_each(|event| state.handle(event));
    state.refresh().iter().map(|change| change.service.to_string()).collect()
}

fn with_node_port(name: &str, vip: &str) -> crate::model::Service {
    let mut service = service(name, &[vip]).port("http", 80).of_type(ServiceType::NodePort);
    service.ports[0].node_port = Some(30080);
    service
}

fn node_ports(state: &State) -> Vec<String> {
    let frontends = state.render().frontends.into_iter().filter(|it| it.kind == FrontendKind::NodePort);
    frontends.map(|frontend| frontend.address.to_string()).collect()
}

fn host(addresses: &[&str]) -> Host {
    let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Host { primary: addresses.iter().take(1).copied().collect(), addresses, ..Host::default() }
}

#[test]
fn b45_a_change_of_the_node_s_addresses_changes_the_services_with_node_ports_only() {
    let mut state = state();
    let at_first = [apply(0, web()), apply(0, with_node_port("default/out", "10.96.0.51"))];
    assert_eq!(changed(&mut state, at_first), ["default/out", "default/web"]);
    assert!(node_ports(&state).is_empty());

    let ours = || apply(0, node(NODE, "", &["192.168.50.11"]));
    assert_eq!(changed(&mut state, [ours()]), ["default/out"]);
    assert_eq!(node_ports(&state), ["192.168.50.11"]);
    assert!(changed(&mut state, [ours()]).is_empty(), "the same again");
    let another = apply(0, node(OTHER_NODE, "zone-2", &["192.168.50.12"]));
    assert!(changed(&mut state, [another]).is_empty(), "another node");

    // The machine has an address more, which is not the primary one.
    assert!(changed(&mut state, [apply(0, host(&["192.168.50.11", "192.168.60.5"]))]).is_empty());
    assert_eq!(
        changed(&mut state, [apply(0, node(NODE, "", &["192.168.70.11"]))]),
        ["default/out"],
        "the Node's word counts"
    );
    assert_eq!(node_ports(&state), ["192.168.70.11"]);
    // Without a Node the machine's word counts, but not while it may still come.
    assert_eq!(changed(&mut state, [delete(0, node(NODE, "", &[]))]), ["default/out"]);
    assert!(node_ports(&state).is_empty());
    assert_eq!(changed(&mut state, [on(0, Event::ListComplete)]), ["default/out"]);
    assert_eq!(node_ports(&state), ["192.168.50.11"]);
}

#[test]
fn a_node_that_cannot_be_read_keeps_its_node_ports_where_an_earlier_agent_had_them() {
    const OBJECTS: usize = 0;
    const NODES: usize = 1;
    let kept = "192.168.60.5".parse().unwrap();
    let mut state = State::new(Identity::of(NODE), 2, &[Feed(NODES)]).remembering(vec![kept]);
    let events = [
        apply(OBJECTS, with_node_port("default/out", "10.96.0.51")),
        apply(OBJECTS, host(&["192.168.50.11", "192.168.60.5"])),
        on(OBJECTS, Event::ListComplete),
    ];
    changed(&mut state, events);
    assert_eq!(node_ports(&state), ["192.168.60.5"], "the Node may still come");
    assert!(changed(&mut state, [on(NODES, Event::Failing("nodes: forbidden".into()))]).is_empty());
    assert!(state.store().is_complete());
    assert_eq!(node_ports(&state), ["192.168.60.5"]);
    // Once it is heard that there is none, the kernel's word counts.
    assert_eq!(changed(&mut state, [on(NODES, Event::ListComplete)]), ["default/out"]);
    assert_eq!(node_ports(&state), ["192.168.50.11"]);
}

#[test]
fn a_change_of_the_zone_changes_the_services_with_hints_only() {
    let hinted = |zone: &str| {
        let mut slice = web_slice(&[BACKEND_1]);
        let hints = crate::model::Hints { nodes: vec![], zones: vec![zone.into()] };
        slice.endpoints[0].hints = Some(hints.into());
        slice
    };
    let mut state = state();
    let events = [
        apply(0, web()),
        apply(0, service("default/b", &["10.96.0.52"]).port("", 80)),
        apply(0, hinted("zone-1")),
    ];
    changed(&mut state, events);
    let why = |state: &State| state.render().frontends.last().unwrap().topology.clone();
    assert_eq!(why(&state).as_deref(), Some("every endpoint: the zone of node node-a is not known"));
    assert_eq!(changed(&mut state, [apply(0, node(NODE, "zone-1", &[]))]), ["default/web"]);
    assert_eq!(why(&state).as_deref(), Some("the endpoints hinted for zone zone-1"));
}

#[test]
fn without_its_node_and_its_addresses_everything_else_is_computed() {
    let mut state = state();
    let events = [
        on(0, Event::ListStarted),
        apply(0, web()),
        apply(0, web_slice(&[BACKEND_1])),
        on(0, Event::ListComplete),
    ];
    assert_eq!(changed(&mut state, events), ["default/web"]);
    assert_eq!(state.render().frontends[0].backends.len(), 1);
    assert!(state.store().is_complete());
}

#[test]
fn b21_endpoints_are_listed_chosen_or_not_also_those_of_services_that_are_not_served() {
    let mut state = state();
    let headless = service("default/headless", &["None"]).port("http", 80);
    let of_headless = crate::model::EndpointSlice {
        service: Some("headless".into()),
        ..crate::testing::slice("default/headless-1", "").port("http", 8080).ready(&[BACKEND_1])
    };
    let names = crate::testing::slice("default/web-2", "web")
        .of(crate::model::AddressType::Fqdn)
        .port("http", 8080)
        .ready(&["example.test"]);
    let events = [
        apply(0, web()),
        apply(0, web_slice(&[BACKEND_1])),
        apply(0, headless),
        apply(0, of_headless),
        apply(0, names),
    ];
    changed(&mut state, events);
    let told: Vec<_> = state
        .endpoints()
        .into_iter()
        .map(|it| {
            format!(
                "{} {} {} {}",
                it.service,
                it.address,
                it.slice,
                it.reason.unwrap_or_else(|| "chosen".into())
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "default/headless 10.244.1.21 EndpointSlice default/headless-1 Headless",
            "default/web example.test EndpointSlice default/web-2 FqdnSlice",
            "default/web 10.244.1.21 EndpointSlice default/web-1 chosen",
        ]
    );
    assert_eq!(state.store().slices_of(&key("default/web")).len(), 2);
}
