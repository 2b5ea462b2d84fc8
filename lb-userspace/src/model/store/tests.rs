use super::*;
use crate::testing::{BACKEND_1, BACKEND_2, apply, delete, key, on, service, slice, web, web_slice};

const CLUSTER: usize = 0;
const FILES: usize = 1;

fn store() -> Store {
    Store::new(2)
}

/// Takes in events, and tells which Services they touch.
fn touched(store: &mut Store, events: impl IntoIterator<Item = SourceEvent>) -> Vec<String> {
    events.into_iter().for_each(|event| store.handle(event));
    store.take_dirty().iter().map(ToString::to_string).collect()
}

fn slices_of(store: &Store, service: &str) -> Vec<String> {
    store.slices_of(&key(service)).iter().map(|slice| slice.key.to_string()).collect()
}

#[test]
fn b06_a_slice_follows_its_service_label_and_both_services_are_touched() {
    let mut store = store();
    let orphan = |service| slice("default/orphan", service).ready(&[BACKEND_1]);

    assert!(touched(&mut store, [apply(CLUSTER, orphan(""))]).is_empty());
    assert_eq!(store.slices_without_service().count(), 1);

    assert_eq!(touched(&mut store, [apply(CLUSTER, orphan("web"))]), ["default/web"]);
    assert_eq!(slices_of(&store, "default/web"), ["default/orphan"]);
    assert_eq!(store.slices_without_service().count(), 0);

    assert_eq!(touched(&mut store, [apply(CLUSTER, orphan("other"))]), ["default/other", "default/web"]);
    assert!(slices_of(&store, "default/web").is_empty());
    assert_eq!(slices_of(&store, "default/other"), ["default/orphan"]);

    assert_eq!(touched(&mut store, [apply(CLUSTER, orphan(""))]), ["default/other"]);
    assert!(slices_of(&store, "default/other").is_empty());
    assert_eq!(store.slices_without_service().count(), 1);

    assert!(touched(&mut store, [delete(CLUSTER, orphan(""))]).is_empty());
    assert_eq!(store.slices_without_service().count(), 0);
}

#[test]
fn e07_a_slice_belongs_to_a_service_of_its_own_namespace() {
    let mut store = store();
    let in_a = apply(CLUSTER, slice("a/web-1", "web"));
    let in_b = apply(CLUSTER, slice("b/web-1", "web"));
    assert_eq!(touched(&mut store, [in_a, in_b]), ["a/web", "b/web"]);
    assert_eq!(slices_of(&store, "a/web"), ["a/web-1"]);
    assert_eq!(slices_of(&store, "b/web"), ["b/web-1"]);
}

#[test]
fn e08_an_object_said_again_touches_nothing() {
    let mut store = store();
    let events = || [apply(CLUSTER, web()), apply(CLUSTER, web_slice(&[BACKEND_1]))];
    assert_eq!(touched(&mut store, events()), ["default/web"]);
    assert!(touched(&mut store, events()).is_empty());
    let relist = [on(CLUSTER, Event::ListStarted)].into_iter().chain(events());
    assert!(touched(&mut store, relist.chain([on(CLUSTER, Event::ListComplete)])).is_empty());
}

#[test]
fn a_list_replaces_everything_when_it_is_complete_and_not_before() {
    let mut store = store();
    let other = || service("default/other", &["10.96.0.60"]);
    touched(&mut store, [apply(CLUSTER, web()), apply(CLUSTER, other())]);

    assert!(touched(&mut store, [on(CLUSTER, Event::ListStarted), apply(CLUSTER, web())]).is_empty());
    assert!(store.service(&other().key).is_some());
    assert_eq!(touched(&mut store, [on(CLUSTER, Event::ListComplete)]), ["default/other"]);
    assert!(store.service(&other().key).is_none());
    assert!(store.service(&web().key).is_some());
}

#[test]
fn a_list_begun_again_forgets_what_the_first_attempt_said() {
    let mut store = store();
    touched(&mut store, [apply(CLUSTER, web())]);
    let attempt = [on(CLUSTER, Event::ListStarted), apply(CLUSTER, web())];
    let second = [on(CLUSTER, Event::ListStarted), on(CLUSTER, Event::ListComplete)];
    assert_eq!(touched(&mut store, attempt.into_iter().chain(second)), ["default/web"]);
    assert!(store.service(&web().key).is_none());
}

#[test]
fn e16_the_state_of_a_relist_wins_over_what_was_said_before() {
    let mut store = store();
    touched(&mut store, [apply(CLUSTER, web_slice(&[BACKEND_2])), apply(CLUSTER, web_slice(&[BACKEND_2]))]);
    let relist = [
        on(CLUSTER, Event::ListStarted),
        apply(CLUSTER, web_slice(&[BACKEND_1])),
        on(CLUSTER, Event::ListComplete),
    ];
    assert_eq!(touched(&mut store, relist), ["default/web"]);
    assert_eq!(store.slices_of(&web().key), [&web_slice(&[BACKEND_1])]);
}

#[test]
fn e17_a_deletion_needs_the_identity_only() {
    let mut store = store();
    let said = web_slice(&[BACKEND_1]);
    touched(&mut store, [apply(CLUSTER, web()), apply(CLUSTER, said.clone())]);
    let bare = |reference: ObjectRef| on(CLUSTER, Event::Delete(reference));
    assert_eq!(touched(&mut store, [bare(said.reference())]), ["default/web"]);
    assert!(slices_of(&store, "default/web").is_empty());
    assert_eq!(touched(&mut store, [bare(web().reference())]), ["default/web"]);
    assert!(touched(&mut store, [bare(web().reference()), bare(said.reference())]).is_empty());
}

#[test]
fn of_two_feeds_with_one_object_the_last_feed_wins_whenever_it_spoke() {
    let (of_cluster, of_files) = (web_slice(&[BACKEND_1]), web_slice(&[BACKEND_2]));
    let holds = |store: &Store| store.slices_of(&web().key).first().map(|slice| (*slice).clone());
    let by_cluster = || apply(CLUSTER, of_cluster.clone());
    let by_files = || apply(FILES, of_files.clone());
    for order in [[by_cluster(), by_files()], [by_files(), by_cluster()]] {
        let mut store = store();
        assert_eq!(touched(&mut store, order), ["default/web"]);
        assert_eq!(holds(&store), Some(of_files.clone()));
        assert_eq!(store.contested().collect::<Vec<_>>(), [of_files.reference()]);

        // Something new from the other feed changes nothing.
        let newer = web_slice(&[BACKEND_1, BACKEND_2]);
        assert!(touched(&mut store, [apply(CLUSTER, newer.clone())]).is_empty());
        assert_eq!(holds(&store), Some(of_files.clone()));

        // What disappears from the other feed does not take it away.
        let empty_list = [on(CLUSTER, Event::ListStarted), on(CLUSTER, Event::ListComplete)];
        assert!(touched(&mut store, empty_list).is_empty());
        assert_eq!(holds(&store), Some(of_files.clone()));

        // Without the winner, the other one holds.
        assert!(touched(&mut store, [apply(CLUSTER, newer.clone())]).is_empty());
        assert_eq!(touched(&mut store, [delete(FILES, of_files.clone())]), ["default/web"]);
        assert_eq!(holds(&store), Some(newer.clone()));
        assert_eq!(touched(&mut store, [delete(CLUSTER, newer)]), ["default/web"]);
        assert_eq!(holds(&store), None);
    }
}

#[test]
fn it_is_complete_when_every_feed_has_completed_a_list() {
    let mut store = store();
    for (event, complete) in [
        (on(CLUSTER, Event::ListStarted), false),
        (on(CLUSTER, Event::ListComplete), false),
        (on(FILES, Event::Failing("files cannot be read".into())), false),
        (on(FILES, Event::ListComplete), true),
        (on(FILES, Event::ListStarted), true),
    ] {
        store.handle(event.clone());
        assert_eq!(store.is_complete(), complete, "{event:?}");
    }
    assert_eq!(store.feeds()[FILES].failing.as_deref(), Some("files cannot be read"));
    store.handle(on(FILES, Event::Recovered));
    assert_eq!(store.feeds()[FILES].failing, None);
}

#[test]
fn warnings_are_those_of_the_feeds_and_of_the_objects_that_are_there() {
    let mut store = store();
    let warned = Service { warnings: vec!["unknown value".into()], ..web() };
    let of_feed = |text: &str| Warning { object: "web.yaml".into(), message: text.into() };
    let told = |store: &Store| {
        let warnings = store.warnings();
        assert_eq!(store.warning_count(), warnings.len());
        warnings
            .into_iter()
            .map(|warning| format!("{}: {}", warning.object, warning.message))
            .collect::<Vec<_>>()
    };
    touched(
        &mut store,
        [
            apply(CLUSTER, warned),
            on(FILES, Event::Warnings(vec![of_feed("old")])),
            on(FILES, Event::Warnings(vec![of_feed("new")])),
        ],
    );
    assert_eq!(told(&store), ["Service default/web: unknown value", "web.yaml: new"]);
    touched(&mut store, [delete(CLUSTER, web()), on(FILES, Event::Warnings(Vec::new()))]);
    assert!(told(&store).is_empty());
}

#[test]
fn an_optional_feed_is_waited_for_until_it_fails() {
    let mut store = Store::new(2).optional(Feed(1));
    store.handle(on(0, Event::ListComplete));
    assert!(!store.is_complete(), "it may still come");
    store.handle(on(1, Event::Failing("nodes: forbidden".into())));
    assert!(store.is_complete());
    store.handle(on(1, Event::ListComplete));
    store.handle(on(1, Event::Recovered));
    assert!(store.is_complete());

    let mut store = Store::new(2).optional(Feed(1));
    store.handle(on(1, Event::ListComplete));
    store.handle(on(0, Event::Failing("services: forbidden".into())));
    assert!(!store.is_complete(), "the other one is not optional");
}

#[test]
fn nodes_and_addresses_touch_no_service_and_follow_their_lists() {
    let mut store = store();
    let node = |name: &str| crate::testing::node(name, "zone-1", &[]);
    let list = [on(FILES, Event::ListStarted), apply(FILES, node("a")), apply(FILES, node("b"))];
    assert!(touched(&mut store, list).is_empty());
    assert!(store.take_nodes_dirty());
    assert!(!store.take_nodes_dirty());
    assert!(touched(&mut store, [apply(FILES, node("a"))]).is_empty());
    assert!(!store.take_nodes_dirty(), "the same again");

    let next = [on(FILES, Event::ListStarted), apply(FILES, node("a")), on(FILES, Event::ListComplete)];
    assert!(touched(&mut store, next).is_empty());
    assert!(store.take_nodes_dirty());
    assert!(store.node("a").is_some() && store.node("b").is_none());

    assert!(store.host().is_none());
    store.handle(apply(FILES, Host::default()));
    assert!(store.host().is_some() && store.take_nodes_dirty());
    store.handle(delete(FILES, Host::default()));
    assert!(store.host().is_none());
}

#[test]
fn a_list_that_brings_another_kind_replaces_the_one_before_when_it_is_complete() {
    let endpoints = |name: &str| EndpointSlice { kind: Kind::Endpoints, ..slice(name, "web") };
    let parts = |store: &Store| {
        let slices = store.slices_of(&key("default/web"));
        slices.iter().map(|slice| slice.reference().to_string()).collect::<Vec<_>>()
    };
    let (as_endpoints, as_slices) = (
        [endpoints("default/web"), endpoints("default/web/2")],
        [slice("default/web-1", "web"), slice("default/web-2", "web")],
    );
    for [before, after] in [[&as_endpoints, &as_slices], [&as_slices, &as_endpoints]] {
        let names =
            |slices: &[EndpointSlice; 2]| slices.each_ref().map(|slice| slice.reference().to_string());
        let mut store = store();
        store.handle(on(CLUSTER, Event::ListStarted));
        before.iter().for_each(|slice| store.handle(apply(CLUSTER, slice.clone())));
        assert_eq!(parts(&store), names(before), "the first list is used as it comes");
        store.handle(on(CLUSTER, Event::ListComplete));

        store.handle(on(CLUSTER, Event::ListStarted));
        store.handle(apply(CLUSTER, after[0].clone()));
        assert_eq!(parts(&store), names(before), "a part of the new ones says too little");
        // The list begins anew: what the one before has brought is no more whole.
        store.handle(on(CLUSTER, Event::ListStarted));
        assert_eq!(parts(&store), names(before));
        after.iter().for_each(|slice| store.handle(apply(CLUSTER, slice.clone())));
        assert_eq!(parts(&store), names(before));
        store.take_dirty();
        store.handle(on(CLUSTER, Event::ListComplete));
        assert_eq!(parts(&store), names(after));
        assert_eq!(store.take_dirty(), [key("default/web")].into(), "and the Service is looked at again");
    }
}

#[test]
fn what_comes_together_is_taken_in_at_once() {
    let mut store = store();
    let events = vec![Event::Apply(web().into()), Event::Apply(web_slice(&[BACKEND_1]).into())];
    assert_eq!(touched(&mut store, [on(CLUSTER, Event::Together(events))]), ["default/web"]);
    let gone = vec![Event::Delete(web().reference()), Event::Apply(web_slice(&[]).into())];
    assert_eq!(touched(&mut store, [on(CLUSTER, Event::Together(gone))]), ["default/web"]);
    assert!(store.service(&key("default/web")).is_none());
}

#[test]
fn what_a_list_brings_beside_the_kind_that_is_known_counts_when_it_is_complete() {
    let mut store = store();
    let known = || apply(CLUSTER, slice("default/web-1", "web"));
    let beside = EndpointSlice { kind: Kind::Endpoints, ..slice("default/web", "web") };
    let first = [on(CLUSTER, Event::ListStarted), known(), on(CLUSTER, Event::ListComplete)];
    assert_eq!(touched(&mut store, first), ["default/web"]);

    assert_eq!(
        touched(&mut store, [on(CLUSTER, Event::ListStarted), apply(CLUSTER, beside)]),
        ["default/web"]
    );
    assert_eq!(slices_of(&store, "default/web"), ["default/web-1"]);
    // The known one is said again and is no news; the other one counts from now on.
    assert_eq!(touched(&mut store, [known(), on(CLUSTER, Event::ListComplete)]), ["default/web"]);
    assert_eq!(slices_of(&store, "default/web"), ["default/web-1", "default/web"]);
}
