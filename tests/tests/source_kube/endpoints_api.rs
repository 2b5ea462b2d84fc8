//! EndpointSlices or Endpoints: one feed, whichever is read.

use std::collections::BTreeSet;

use lb_tests::apiserver::{ApiServer, Cut, Fault, Resource, Times, Verb};
use lb_userspace::{model::Object, source::kube::EndpointsApi};
use serde_json::{Value, json};

use crate::{
    BACKEND_1, BACKEND_2, BACKEND_3,
    listener::{Following, cluster, lists, quick, slice},
};

const SLICES: Resource = Resource::EndpointSlices;
const ENDPOINTS: Resource = Resource::Endpoints;

/// Endpoints of the Service of this name, one subset for each list of addresses.
fn endpoints(name: &str, subsets: &[&[&str]]) -> Value {
    let subset = |(number, addresses): (usize, &&[&str])| {
        let addresses: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"addresses": addresses, "ports": [{"name": "http", "port": 8080 + number}]})
    };
    let subsets: Vec<_> = subsets.iter().enumerate().map(subset).collect();
    json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"namespace": "default", "name": name},
        "subsets": subsets,
    })
}

/// Kind and name of everything on the feed.
fn objects(following: &Following) -> Vec<String> {
    following.slices.objects.keys().map(ToString::to_string).collect()
}

async fn reading_endpoints(server: &ApiServer) -> Following {
    let mut following = Following::reading(EndpointsApi::Endpoints, cluster(&server.url()).await, quick());
    following.listed().await;
    following.requested(server, ENDPOINTS, Verb::Watch, 1).await;
    following
}

#[tokio::test]
async fn an_object_that_shrinks_or_goes_takes_all_its_parts_with_it() {
    const ONE: &str = "Endpoints default/web";
    const TWO: &str = "Endpoints default/web/2";
    const THREE: &str = "Endpoints default/web/3";
    let server = ApiServer::start();
    let whole: [&[&str]; 3] = [&[BACKEND_1], &[BACKEND_2], &[BACKEND_3]];
    server.apply(endpoints("web", &whole));
    let mut following = reading_endpoints(&server).await;
    assert_eq!(objects(&following), [ONE, TWO, THREE]);

    for (subsets, want) in
        [(1, &[ONE][..]), (2, &[ONE, TWO]), (0, &[]), (3, &[ONE, TWO, THREE]), (2, &[ONE, TWO])]
    {
        server.apply(endpoints("web", &whole[..subsets]));
        following.until("as many", |heard| objects(heard) == want).await;
    }
    server.delete_saying_little(ENDPOINTS, "default", "web");
    following.until("deleted", |heard| objects(heard).is_empty()).await;

    // The parts that a list has said are known after it, and those from before it are forgotten.
    server.apply(endpoints("web", &whole));
    server.cut(ENDPOINTS, Cut::GoneEvent);
    following.until("listed again", |heard| heard.slices.complete == 2 && objects(heard).len() == 3).await;
    following.requested(&server, ENDPOINTS, Verb::Watch, 2).await;
    server.apply(endpoints("web", &whole[..1]));
    following.until("one part", |heard| objects(heard) == [ONE]).await;
    server.apply(endpoints("web", &whole[..2]));
    following.until("two parts", |heard| objects(heard) == [ONE, TWO]).await;
    server.delete(ENDPOINTS, "default", "web");
    following.until("deleted", |heard| objects(heard).is_empty()).await;
    assert_eq!((lists(&server, ENDPOINTS), lists(&server, SLICES)), (2, 0));
    following.slices.was_always_well();
}

#[tokio::test]
async fn b13_slices_have_every_endpoint_and_endpoints_that_are_cut_off_say_so() {
    let server = ApiServer::start();
    let address = |number: usize| format!("10.244.{}.{}", number / 250, 1 + number % 250);
    let all: Vec<_> = (0..1050).map(address).collect();
    for (number, addresses) in all.chunks(100).enumerate() {
        let mut slice = slice(&format!("web-{number}"), "web", BACKEND_1);
        slice["endpoints"] = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
        server.apply(slice);
    }
    let first: Vec<_> = all[..1000].iter().map(String::as_str).collect();
    let mut cut_off = endpoints("web", &[&first]);
    cut_off["metadata"]["annotations"] = json!({"endpoints.kubernetes.io/over-capacity": "truncated"});
    server.apply(cut_off);

    for (read, objects, count, warnings) in [
        (EndpointsApi::Slices, 11, 1050, &[][..]),
        (
            EndpointsApi::Endpoints,
            1,
            1000,
            &["the object holds only the first 1,000 addresses of its Service"],
        ),
    ] {
        let mut following = Following::reading(read, cluster(&server.url()).await, quick());
        following.listed().await;
        let mut addresses = BTreeSet::new();
        let mut told = Vec::new();
        for object in following.slices.objects.values() {
            let Object::EndpointSlice(slice) = object else { panic!("{object:?}") };
            for endpoint in &slice.endpoints {
                let address = *endpoint.address.as_ref().expect("one").as_ref().expect("an address");
                assert!(addresses.insert(address), "{read:?}: {address} twice");
            }
            told.extend(slice.warnings.clone());
        }
        assert_eq!((following.slices.objects.len(), addresses.len()), (objects, count), "{read:?}");
        assert_eq!(told, warnings, "{read:?}");
    }
    assert_eq!((lists(&server, SLICES), lists(&server, ENDPOINTS)), (1, 1), "each reads its own");
}

#[tokio::test]
async fn endpoints_are_read_for_as_long_as_slices_are_not_served() {
    let server = ApiServer::start();
    server.apply(endpoints("web", &[&[BACKEND_1], &[BACKEND_2]]));
    server.fail("endpointslices", Verb::List, Fault::NotServed, Times::Always);
    let mut following = Following::of(&server, quick()).await;
    let of_endpoints = ["Endpoints default/web", "Endpoints default/web/2"];
    following.until("read from Endpoints", |heard| objects(heard) == of_endpoints).await;
    let name = format!("endpoints at {}/ (endpointslices are not served)", server.url());
    assert_eq!(following.contacts.endpoints.name(), name);
    // It goes on asking, and watches meanwhile.
    following.requested(&server, SLICES, Verb::List, 3).await;
    server.apply(endpoints("web", &[&[BACKEND_1]]));
    following.until("changed", |heard| objects(heard) == of_endpoints[..1]).await;
    assert_eq!(following.slices.complete, 1);

    server.apply(slice("web-1", "web", BACKEND_1));
    server.heal();
    following.until("read from slices", |heard| objects(heard) == ["EndpointSlice default/web-1"]).await;
    assert_eq!(
        following.contacts.endpoints.name(),
        format!("endpointslices.discovery.k8s.io at {}/", server.url())
    );
    // Only the list takes the other kind away.
    assert_eq!((following.slices.complete, following.slices.deletes), (2, 1));
    following.slices.was_always_well();

    // As by a downgrade of the server.
    following.requested(&server, SLICES, Verb::Watch, 1).await;
    for verb in [Verb::List, Verb::Watch] {
        server.fail("endpointslices", verb, Fault::NotServed, Times::Always);
    }
    server.cut(SLICES, Cut::Close);
    following.until("read from Endpoints", |heard| objects(heard) == of_endpoints[..1]).await;
    following.until("well", |heard| heard.slices.failing.is_none()).await;
    assert_eq!(following.contacts.endpoints.name(), name);
}
