//! The cluster source against the fake API server, which fails in every way that it can.

#![expect(clippy::expect_used, reason = "the helpers of a test fail by panicking, as it does")]

mod endpoints_api;
mod listener;
mod node;
mod silence;

use std::{
    net::TcpListener,
    time::{Duration, SystemTime},
};

use lb_tests::apiserver::{ApiServer, Cut, Fault, Resource, RetryAfter, Times, Verb};
use lb_userspace::source::kube::{Cluster, ClusterOptions, Timing};
use serde_json::json;
use tokio::time::timeout;

use crate::listener::{DEADLINE, Following, cluster, lists, quick, service, slice, watches};

const BACKEND_1: &str = "10.244.1.21";
const BACKEND_2: &str = "10.244.2.22";
const BACKEND_3: &str = "10.244.2.23";

const SLICES: Resource = Resource::EndpointSlices;
const SERVICES: Resource = Resource::Services;

/// A server with the Service `web` and its slice, and a source that has listed and watches them.
async fn web(timing: Timing) -> (ApiServer, Following) {
    let server = ApiServer::start();
    server.apply(service("web"));
    server.apply(slice("web-1", "web", BACKEND_1));
    let mut following = Following::of(&server, timing).await;
    following.listed().await;
    following.watching(&server).await;
    (server, following)
}

fn of_web(address: &str) -> Option<(Option<String>, String)> {
    Some((Some("web".to_owned()), address.to_owned()))
}

#[tokio::test]
async fn lists_are_complete_and_changes_follow_at_once() {
    let (server, mut following) = web(quick()).await;
    assert_eq!(following.services.names(), ["default/web"]);
    assert_eq!(following.slices.slice("default/web-1"), of_web(BACKEND_1));

    server.apply(slice("web-1", "web", BACKEND_2));
    following.until("changed", |heard| heard.slices.slice("default/web-1") == of_web(BACKEND_2)).await;
    server.apply(service("dns"));
    following.until("added", |heard| heard.services.names() == ["default/dns", "default/web"]).await;
    server.delete(SERVICES, "default", "web");
    following.until("deleted", |heard| heard.services.names() == ["default/dns"]).await;
    assert_eq!((lists(&server, SERVICES), lists(&server, SLICES)), (1, 1));
    following.services.was_always_well();
}

#[tokio::test]
async fn b06_a_slice_joins_and_leaves_by_its_label() {
    let server = ApiServer::start();
    server.apply(slice("orphan", (), BACKEND_1));
    let mut following = Following::of(&server, quick()).await;
    following.listed().await;
    following.watching(&server).await;
    assert_eq!(following.slices.slice("default/orphan"), Some((None, BACKEND_1.to_owned())));
    for (label, want) in [("web", Some("web")), ("other", Some("other")), ("", None)] {
        server.apply(slice("orphan", label, BACKEND_1));
        let want = Some((want.map(str::to_owned), BACKEND_1.to_owned()));
        following.until(label, |heard| heard.slices.slice("default/orphan") == want).await;
    }
    following.slices.was_always_well();
}

#[tokio::test]
async fn b55_what_was_deleted_while_the_connection_was_broken_is_gone_after_the_list() {
    let (server, mut following) = web(quick()).await;
    server.apply(service("web2"));
    server.apply(slice("web2-1", "web2", BACKEND_3));
    following
        .until("two Services", |heard| heard.services.objects.len() == 2 && heard.slices.objects.len() == 2)
        .await;

    for resource in [SERVICES, SLICES] {
        server.fail(resource.plural(), Verb::Watch, Fault::InternalError, Times::Always);
        server.cut(resource, Cut::ResetMidLine);
    }
    following
        .until("failing", |heard| heard.services.failing.is_some() && heard.slices.failing.is_some())
        .await;
    server.apply(slice("web-1", "web", BACKEND_2));
    server.delete(SERVICES, "default", "web2");
    server.delete(SLICES, "default", "web2-1");
    server.compact();
    // Away: nothing has changed for the listener.
    assert_eq!(following.services.names(), ["default/web", "default/web2"]);
    assert_eq!(following.slices.slice("default/web-1"), of_web(BACKEND_1));

    server.heal();
    following.until("listed again", |heard| heard.services.complete == 2 && heard.slices.complete == 2).await;
    assert_eq!(following.services.names(), ["default/web"]);
    assert_eq!(following.slices.names(), ["default/web-1"]);
    assert_eq!(following.slices.slice("default/web-1"), of_web(BACKEND_2));
    assert_eq!((following.services.deletes, following.slices.deletes), (0, 0));
    following.until("well", |heard| heard.services.failing.is_none() && heard.slices.failing.is_none()).await;
}

#[tokio::test]
async fn b66_a_version_that_is_gone_costs_one_list_and_is_no_failure() {
    type Gone = fn(&ApiServer);
    let rows: [(&str, Gone); 3] = [
        ("an event in an open watch", |server| server.cut(SLICES, Cut::GoneEvent)),
        ("an event in the next watch", |server| {
            server.fail("endpointslices", Verb::Watch, Fault::GoneEvent, Times::Count(1));
            server.cut(SLICES, Cut::Close);
        }),
        ("the answer to the next watch", |server| {
            server.fail("endpointslices", Verb::Watch, Fault::Gone, Times::Count(1));
            server.cut(SLICES, Cut::Close);
        }),
    ];
    for (name, gone) in rows {
        let (server, mut following) = web(quick()).await;
        gone(&server);
        following.until(name, |heard| heard.slices.complete == 2).await;
        server.apply(slice("web-1", "web", BACKEND_2));
        following.until(name, |heard| heard.slices.slice("default/web-1") == of_web(BACKEND_2)).await;
        assert_eq!((lists(&server, SLICES), lists(&server, SERVICES)), (2, 1), "{name}");
        following.slices.was_always_well();
    }
}

#[tokio::test]
async fn b66_errors_of_the_server_are_outlasted_and_what_was_heard_stays() {
    let (server, mut following) = web(quick()).await;
    server.fail("endpointslices", Verb::Watch, Fault::InternalError, Times::Count(20));
    server.cut(SLICES, Cut::Close);
    following.until("failing", |heard| heard.slices.failing.is_some()).await;
    // Nothing changes: that it is well again is told by the watch being open.
    following.until("well", |heard| heard.slices.failing.is_none()).await;
    assert_eq!(following.slices.slice("default/web-1"), of_web(BACKEND_1));
    server.apply(slice("web-1", "web", BACKEND_2));
    following.until("changed", |heard| heard.slices.slice("default/web-1") == of_web(BACKEND_2)).await;
    // The first watch, twenty refusals, and the one that goes on where the first one was.
    assert_eq!((watches(&server, SLICES), lists(&server, SLICES)), (22, 1));
    let sentence = format!(
        "cannot watch endpointslices at {}/: Internal error occurred: etcdserver: no leader (500)",
        server.url()
    );
    assert_eq!(following.slices.health, [sentence, "recovered".to_owned()]);
    let at: Vec<_> =
        server.requests("endpointslices", Verb::Watch).iter().map(|request| request.at).collect();
    // Half of the longest pause, which jitter only makes longer.
    assert!(at[21] - at[20] > Duration::from_millis(150), "the pauses do not grow");
}

#[tokio::test]
async fn b66_a_server_that_says_when_to_come_back_is_obeyed() {
    // A date has whole seconds: of three at least two are left.
    let in_three_seconds = SystemTime::now() + Duration::from_secs(3);
    let rows = [
        (Verb::List, RetryAfter::Seconds(2)),
        (Verb::List, RetryAfter::At(in_three_seconds)),
        (Verb::Watch, RetryAfter::Seconds(2)),
        (Verb::Watch, RetryAfter::At(in_three_seconds)),
    ];
    let rows = rows.map(|(verb, retry_after)| async move {
        let server = ApiServer::start();
        server.fail("services", verb, Fault::TooManyRequests { retry_after }, Times::Count(1));
        let mut following = Following::of(&server, quick()).await;
        following.listed().await;
        following.requested(&server, SERVICES, verb, 2).await;
        server.apply(service("web"));
        following
            .until("well", |heard| {
                heard.services.failing.is_none() && heard.services.names() == ["default/web"]
            })
            .await;
        let at: Vec<_> = server.requests("services", verb).iter().map(|request| request.at).collect();
        assert_eq!(at.len(), 2, "{verb:?} {retry_after:?}");
        assert!(at[1] - at[0] > Duration::from_millis(1500), "{verb:?} {retry_after:?}: {:?}", at[1] - at[0]);
        let [sentence, recovered] = &following.services.health[..] else {
            panic!("{:?}", following.services.health)
        };
        assert!(sentence.ends_with(": Too many requests, please try again later. (429)"), "{sentence}");
        assert_eq!(recovered, "recovered");
    });
    futures::future::join_all(rows).await;
}

#[tokio::test]
async fn b66_a_reset_in_the_middle_of_a_line_resumes_the_watch() {
    let (server, mut following) = web(quick()).await;
    server.cut(SLICES, Cut::ResetMidLine);
    following.requested(&server, SLICES, Verb::Watch, 2).await;
    server.apply(slice("web-1", "web", BACKEND_2));
    following.until("changed", |heard| heard.slices.slice("default/web-1") == of_web(BACKEND_2)).await;
    following.until("well", |heard| heard.slices.failing.is_none()).await;
    assert_eq!(lists(&server, SLICES), 1);
}

#[tokio::test]
async fn b66_a_watch_that_ends_goes_on_from_the_last_bookmark() {
    let (server, mut following) = web(quick()).await;
    // Other resources move on, and what is before that is forgotten.
    server.advance_to(100);
    server.bookmark();
    server.apply(slice("marker", "web", BACKEND_3));
    following.until("marked", |heard| heard.slices.objects.len() == 2).await;
    server.advance_to(200);
    server.bookmark();
    server.cut(SLICES, Cut::Close);
    following.requested(&server, SLICES, Verb::Watch, 2).await;
    let resumed = &server.requests("endpointslices", Verb::Watch)[1].query;
    assert!(
        resumed.contains("resourceVersion=200") && resumed.contains("allowWatchBookmarks=true"),
        "{resumed}"
    );
    assert!(resumed.contains("timeoutSeconds=290"), "{resumed}");
    server.compact();
    server.apply(slice("web-1", "web", BACKEND_2));
    following.until("changed", |heard| heard.slices.slice("default/web-1") == of_web(BACKEND_2)).await;
    assert_eq!(lists(&server, SLICES), 1);
}

#[tokio::test]
async fn b66_watches_that_the_server_ends_again_and_again_lose_nothing() {
    let server = ApiServer::start();
    server.fail("services", Verb::Watch, Fault::CloseAfter(Duration::from_millis(20)), Times::Always);
    let mut following = Following::of(&server, quick()).await;
    following.listed().await;
    for round in 0..10 {
        server.apply(service(&format!("web-{round}")));
        following.until("added", |heard| heard.services.objects.len() == round + 1).await;
        following.requested(&server, SERVICES, Verb::Watch, round + 2).await;
    }
    assert_eq!(lists(&server, SERVICES), 1);
    following.services.was_always_well();
}

#[tokio::test]
async fn a_server_that_closes_every_watch_at_once_is_not_asked_without_a_pause() {
    let timing = Timing { shortest_watch: Duration::from_secs(3600), ..quick() };
    let (server, mut following) = web(timing).await;
    server.fail("services", Verb::Watch, Fault::CloseAfter(Duration::ZERO), Times::Always);
    server.cut(SERVICES, Cut::Close);
    following.until("failing", |heard| heard.services.failing.is_some()).await;
    let sentence = following.services.failing.clone().expect("failing");
    assert!(sentence.ends_with(": the server closes the watch as soon as it is open"), "{sentence}");
    following.requested(&server, SERVICES, Verb::Watch, 6).await;
    let at: Vec<_> = server.requests("services", Verb::Watch).iter().map(|request| request.at).collect();
    let pauses: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_millis(10)), "{pauses:?}");
    server.heal();
    server.apply(service("web2"));
    following
        .until("changed", |heard| heard.services.objects.len() == 2 && heard.services.failing.is_none())
        .await;
    assert_eq!(following.services.health, [sentence, "recovered".to_owned()]);
    assert_eq!(lists(&server, SERVICES), 1);
}

#[tokio::test]
async fn b69_who_may_not_list_is_told_what() {
    let server = ApiServer::start();
    let user = "system:serviceaccount:kube-system:readylb";
    server.fail("endpointslices", Verb::List, Fault::Forbidden { user }, Times::Always);
    let mut following = Following::of(&server, quick()).await;
    following.until("failing", |heard| heard.slices.failing.is_some() && heard.services.complete == 1).await;
    let sentence = format!(
        "cannot list endpointslices at {}/: endpointslices.discovery.k8s.io is forbidden: User {user:?} cannot list \
         resource \"endpointslices\" in API group \"discovery.k8s.io\" at the cluster scope (403)",
        server.url()
    );
    assert_eq!(following.slices.health, [sentence]);
    assert_eq!(following.slices.complete, 0);
    assert_eq!(lists(&server, Resource::Endpoints), 0, "nothing else is read in its place");
    server.heal();
    following.until("listed", |heard| heard.slices.complete == 1 && heard.slices.failing.is_none()).await;
}

#[tokio::test]
async fn e16_an_event_from_before_the_list_changes_nothing() {
    let (server, mut following) = web(quick()).await;
    let versioned = |version: u64, address: &str| {
        let mut slice = slice("web-1", "web", address);
        slice["metadata"]["resourceVersion"] = json!(version.to_string());
        slice
    };
    let current = server.apply(slice("web-1", "web", BACKEND_2));
    server.replay(SLICES, "ADDED", versioned(current, BACKEND_2));
    server.replay(SLICES, "MODIFIED", versioned(current - 1, BACKEND_1));
    server.apply(slice("marker", "web", BACKEND_3));
    following.until("all heard", |heard| heard.slices.objects.contains_key(&marker())).await;
    assert_eq!(following.slices.slice("default/web-1"), of_web(BACKEND_2));
    assert_eq!(following.slices.names(), ["default/marker", "default/web-1"]);

    server.cut(SLICES, Cut::GoneEvent);
    following.until("listed again", |heard| heard.slices.complete == 2).await;
    following.requested(&server, SLICES, Verb::Watch, 2).await;
    server.replay(SLICES, "MODIFIED", versioned(current - 1, BACKEND_1));
    server.delete(SLICES, "default", "marker");
    following.until("all heard", |heard| !heard.slices.objects.contains_key(&marker())).await;
    assert_eq!(following.slices.slice("default/web-1"), of_web(BACKEND_2));
}

fn marker() -> lb_userspace::model::ObjectRef {
    use lb_userspace::model::{Kind, ObjectKey, ObjectRef};
    ObjectRef { kind: Kind::EndpointSlice, key: ObjectKey::new("default", "marker") }
}

#[tokio::test]
async fn e17_a_deletion_needs_no_more_than_the_metadata() {
    let (server, mut following) = web(quick()).await;
    server.delete_saying_little(SERVICES, "default", "web");
    server.delete_saying_little(SLICES, "default", "web-1");
    following
        .until("deleted", |heard| heard.services.objects.is_empty() && heard.slices.objects.is_empty())
        .await;
    assert_eq!((lists(&server, SERVICES), lists(&server, SLICES)), (1, 1));
}

#[tokio::test]
async fn e17_a_deletion_may_carry_the_version_of_the_last_state() {
    let (server, mut following) = web(quick()).await;
    server.apply(slice("newer", "web", BACKEND_2));
    let mut last_state = slice("web-1", "web", BACKEND_1);
    last_state["metadata"]["resourceVersion"] = json!("2");
    server.replay(SLICES, "DELETED", last_state);
    following.until("deleted", |heard| heard.slices.names() == ["default/newer"]).await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let server = ApiServer::start();
    for number in 0..1203 {
        server.apply(service(&format!("web-{number}")));
    }
    let mut following = Following::of(&server, quick()).await;
    following.listed().await;
    assert_eq!(following.services.objects.len(), 1203);
    let queries: Vec<_> =
        server.requests("services", Verb::List).into_iter().map(|request| request.query).collect();
    assert_eq!(queries.len(), 3, "{queries:?}");
    assert!(queries.iter().all(|query| query.contains("limit=500")), "{queries:?}");
    assert_eq!(queries.iter().filter(|query| query.contains("continue=")).count(), 2, "{queries:?}");
}

#[tokio::test]
async fn a_page_that_has_expired_starts_the_list_over() {
    let server = ApiServer::start();
    for number in 0..501 {
        server.apply(service(&format!("web-{number}")));
    }
    server.fail("services", Verb::List, Fault::None, Times::Count(1));
    server.fail("services", Verb::List, Fault::Gone, Times::Count(1));
    let mut following = Following::of(&server, quick()).await;
    following.listed().await;
    following.until("well", |heard| heard.services.failing.is_none()).await;
    assert_eq!(following.services.objects.len(), 501);
    assert_eq!(lists(&server, SERVICES), 4);
}

#[tokio::test]
async fn one_list_that_is_late_does_not_hold_up_the_other() {
    let server = ApiServer::start();
    server.fail("endpointslices", Verb::List, Fault::Hold, Times::Always);
    let timing = Timing { list_timeout: Duration::from_millis(100), ..quick() };
    let mut following = Following::of(&server, timing).await;
    following.until("late", |heard| heard.slices.failing.is_some() && heard.services.complete == 1).await;
    let sentence = format!("cannot list endpointslices at {}/: no answer within 0.1 s", server.url());
    assert_eq!(following.slices.health, [sentence]);
    assert_eq!(following.slices.complete, 0);
    server.heal();
    following.until("listed", |heard| heard.slices.complete == 1 && heard.slices.failing.is_none()).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let mut following = Following::at(cluster(&format!("http://{address}")).await, quick());
    following
        .until("failing", |heard| heard.services.failing.is_some() && heard.slices.failing.is_some())
        .await;
    let sentence = following.services.failing.clone().expect("failing");
    assert!(sentence.starts_with(&format!("cannot list services at http://{address}/: ")), "{sentence}");
    assert!(sentence.contains("Connection refused"), "{sentence}");
    let _server = ApiServer::start_on(TcpListener::bind(address).expect("the same port"));
    following.listed().await;
    following.until("well", |heard| heard.services.failing.is_none() && heard.slices.failing.is_none()).await;
}

#[tokio::test]
async fn it_ends_when_it_is_stopped_or_nobody_listens() {
    let (_server, following) = web(quick()).await;
    following.stop.cancel();
    timeout(DEADLINE, following.task).await.expect("ends").expect("no panic");
    let (_server, following) = web(quick()).await;
    drop(following.events);
    timeout(DEADLINE, following.task).await.expect("ends").expect("no panic");
}

#[tokio::test]
async fn a_kubeconfig_leads_to_the_server_and_master_leads_elsewhere() {
    let server = ApiServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    server.kubeconfig(&path).expect("written");
    let options = ClusterOptions { kubeconfig: Some(path.clone()), master: None };
    let found = Cluster::find(&options).await.expect("a kubeconfig");
    assert_eq!(found.address(), format!("{}/", server.url()));
    Following::at(found, quick()).listed().await;

    let master = Some("http://192.0.2.1:6443".to_owned());
    let found = Cluster::find(&ClusterOptions { master, ..options.clone() }).await.expect("an address");
    assert_eq!(found.address(), "http://192.0.2.1:6443/");

    let master = Some("192.0.2.1:6443".to_owned());
    let error = Cluster::find(&ClusterOptions { master, ..options }).await.expect_err("no address");
    assert_eq!(error.to_string(), "--master 192.0.2.1:6443 is no http:// or https:// address");

    let broken = folder.path().join("broken");
    std::fs::write(&broken, "clusters: [").expect("written");
    for (path, cause) in [
        (broken, "unclosed bracket '[' at line 1, column 11"),
        (folder.path().join("missing"), "No such file or directory (os error 2)"),
    ] {
        let options = ClusterOptions { kubeconfig: Some(path.clone()), master: None };
        let error = Cluster::find(&options).await.expect_err("no kubeconfig").to_string();
        assert!(error.starts_with(&format!("cannot use kubeconfig {}: ", path.display())), "{error}");
        assert!(error.ends_with(cause), "{error}");
    }
}
