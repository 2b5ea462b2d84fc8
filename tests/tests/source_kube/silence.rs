//! Connections that stay open and say nothing more, as behind a balancer that has lost the server.

use std::time::{Duration, Instant};

use lb_tests::apiserver::{ApiServer, Cut, Fault, Resource, Times, Verb};
use lb_userspace::source::kube::Timing;
use tokio::time::{sleep, timeout};

use crate::{
    BACKEND_1, BACKEND_2,
    listener::{DEADLINE, Following, lists, quick, service, slice},
    of_web, web,
};

const SLICES: Resource = Resource::EndpointSlices;
const SERVICES: Resource = Resource::Services;

#[tokio::test]
async fn b67_a_watch_that_has_gone_silent_is_given_up_and_what_changed_meanwhile_is_applied() {
    // One that is open, and one that is not even answered.
    let rows = [Fault::Silent, Fault::Hold].map(|fault| async move {
        let server = ApiServer::start();
        server.fail("endpointslices", Verb::Watch, fault.clone(), Times::Count(1));
        let mut following = Following::of(&server, Timing { watch_seconds: 1, ..quick() }).await;
        following.listed().await;
        following.watching(&server).await;
        let changed = Instant::now();
        server.apply(slice("web-1", "web", BACKEND_1));
        following.until("changed", |heard| heard.slices.slice("default/web-1") == of_web(BACKEND_1)).await;
        assert!(changed.elapsed() < Duration::from_secs(1 + 10), "{fault:?}: {:?}", changed.elapsed());
        assert_eq!(lists(&server, SLICES), 1, "{fault:?}");
    });
    futures::future::join_all(rows).await;
}

#[tokio::test]
async fn b67_a_list_that_stops_within_a_page_is_begun_again_and_what_was_heard_stays() {
    let timing = Timing { list_timeout: Duration::from_millis(500), ..quick() };
    let (server, mut following) = web(timing).await;
    for number in 0..500 {
        server.apply(service(&format!("more-{number}")));
    }
    following.until("heard", |heard| heard.services.objects.len() == 501).await;
    // The version is gone, and of the list one page comes.
    server.fail("services", Verb::Watch, Fault::Gone, Times::Count(1));
    server.fail("services", Verb::List, Fault::None, Times::Count(1));
    server.fail("services", Verb::List, Fault::Stall, Times::Count(1));
    server.cut(SERVICES, Cut::Close);
    following.until("failing", |heard| heard.services.failing.is_some()).await;
    let sentence = format!("cannot list services at {}/: no answer within 0.5 s", server.url());
    assert_eq!(following.services.health, std::slice::from_ref(&sentence));
    assert_eq!((following.services.complete, following.services.objects.len()), (1, 501));

    following.until("listed again", |heard| heard.services.complete == 2).await;
    following.until("well", |heard| heard.services.failing.is_none()).await;
    assert_eq!(following.services.objects.len(), 501);
    assert_eq!(following.services.health, [sentence, "recovered".to_owned()]);
    // One page, one and a piece, and two.
    assert_eq!(lists(&server, SERVICES), 5);
    following.slices.was_always_well();
}

#[tokio::test]
async fn b67_how_long_nothing_was_heard_is_known_and_bookmarks_count() {
    let (server, mut following) = web(quick()).await;
    let contact = following.contacts.endpoints.clone();
    let heard_for = async |wanted: &dyn Fn(Duration) -> bool| {
        let waited = timeout(DEADLINE, async {
            while !wanted(contact.silence().expect("a list was heard")) {
                sleep(Duration::from_millis(2)).await;
            }
        });
        waited.await.expect("in time");
    };
    let quiet = Duration::from_millis(400);
    for _ in 0..2 {
        heard_for(&|silence| silence > quiet).await;
        server.bookmark();
        heard_for(&|silence| silence < quiet).await;
    }
    heard_for(&|silence| silence > quiet).await;
    server.apply(slice("web-1", "web", BACKEND_2));
    heard_for(&|silence| silence < quiet).await;
    following.until("changed", |heard| heard.slices.slice("default/web-1") == of_web(BACKEND_2)).await;

    // What fails says nothing.
    heard_for(&|silence| silence > quiet).await;
    server.fail("endpointslices", Verb::Watch, Fault::InternalError, Times::Always);
    server.cut(SLICES, Cut::Close);
    following.requested(&server, SLICES, Verb::Watch, 5).await;
    assert!(contact.silence().expect("heard") > quiet);
}
