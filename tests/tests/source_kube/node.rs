//! The Node that this is: watched alone, and dispensable.

use lb_tests::apiserver::{ApiServer, Fault, Resource, Times, Verb};
use lb_userspace::model::Object;
use serde_json::{Value, json};

use crate::listener::{Following, NODE_NAME, quick, service};

fn node(name: &str, zone: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.10.11"}]},
    })
}

fn zone(following: &Following) -> Option<&str> {
    let [Object::Node(node)] = &following.node.objects.values().collect::<Vec<_>>()[..] else { return None };
    assert_eq!(node.ips, ["192.168.10.11".into()]);
    node.zone.as_deref()
}

#[tokio::test]
async fn only_this_node_is_listed_and_watched() {
    let server = ApiServer::start();
    server.apply(node(NODE_NAME, "a"));
    server.apply(node("node-b", "b"));
    let mut following = Following::of(&server, quick()).await;
    following.until("listed", |heard| heard.node.complete == 1).await;
    assert_eq!((following.node.names(), zone(&following)), (vec![NODE_NAME.to_owned()], Some("a")));

    following.requested(&server, Resource::Nodes, Verb::Watch, 1).await;
    server.apply(node("node-b", "c"));
    server.apply(node(NODE_NAME, "d"));
    following.until("moved", |heard| zone(heard) == Some("d")).await;
    assert_eq!(following.node.names(), [NODE_NAME]);
    server.delete(Resource::Nodes, "", NODE_NAME);
    following.until("deleted", |heard| heard.node.objects.is_empty()).await;
    for verb in [Verb::List, Verb::Watch] {
        let [request] = &server.requests("nodes", verb)[..] else { panic!("one {verb:?}") };
        assert!(request.query.contains("fieldSelector=metadata.name%3Dnode-a"), "{}", request.query);
    }
    following.node.was_always_well();
}

#[tokio::test]
async fn a_node_that_is_not_there_or_may_not_be_read_holds_up_nothing() {
    let server = ApiServer::start();
    server.apply(node("node-b", "b"));
    let mut following = Following::of(&server, quick()).await;
    following.listed().await;
    following.until("listed", |heard| heard.node.complete == 1).await;
    assert!(following.node.objects.is_empty());
    following.node.was_always_well();

    server.fail("nodes", Verb::List, Fault::Forbidden { user: "readylb" }, Times::Always);
    let mut following = Following::of(&server, quick()).await;
    following.listed().await;
    following.until("failing", |heard| heard.node.failing.is_some()).await;
    let sentence = format!(
        "cannot list nodes at {}/: nodes is forbidden: User \"readylb\" cannot list resource \"nodes\" in API group \
         \"\" at the cluster scope (403)",
        server.url()
    );
    assert_eq!(following.node.health, [sentence]);
    following.watching(&server).await;
    server.apply(service("web"));
    following.until("changed", |heard| heard.services.names() == ["default/web"]).await;
    following.services.was_always_well();
    following.slices.was_always_well();
}
