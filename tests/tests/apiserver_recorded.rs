//! The fake API server answers as the real one did: each exchange that was recorded from Kubernetes 1.36 is a row.

#![expect(clippy::expect_used, reason = "the helpers of a test fail by panicking, as it does")]

use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{CONTENT_TYPE, HOST, RETRY_AFTER},
};
use hyper_util::rt::TokioIo;
use lb_tests::apiserver::{ApiServer, Fault, Resource, Times, Verb};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};

const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize)]
struct Exchange {
    name: String,
    request: String,
    head: Vec<String>,
    body: String,
}

impl Exchange {
    fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.iter().filter_map(|line| line.split_once(": "));
        headers.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    fn status(&self) -> u16 {
        self.head[0].split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line")
    }

    /// One line, except for watches.
    fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

fn recorded() -> Vec<Exchange> {
    serde_json::from_str(include_str!("../recorded/api.json")).expect("the recording is JSON")
}

async fn get(server: &ApiServer, target: &str) -> Response<Incoming> {
    let address = server.url().trim_start_matches("http://").to_owned();
    let socket = TcpStream::connect(&address).await.expect("connected");
    let (mut sender, connection) =
        http1::handshake::<_, Empty<Bytes>>(TokioIo::new(socket)).await.expect("HTTP");
    tokio::spawn(connection);
    let request = Request::get(target).header(HOST, address).body(Empty::new()).expect("a request");
    sender.send_request(request).await.expect("an answer")
}

/// So many lines of an answer, or all of them if it ends before.
async fn lines(body: &mut Incoming, count: usize) -> Vec<Value> {
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < count {
        let Some(frame) = body.frame().await else { break };
        text.extend_from_slice(frame.expect("a frame").data_ref().expect("data"));
    }
    let text = String::from_utf8(text).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Brings the server to where the real one was when the exchange took place.
fn prepare(server: &ApiServer, name: &str, recorded: &[Exchange]) {
    let body = |name: &str| recorded.iter().find(|exchange| exchange.name == name).expect("recorded").lines();
    let apply = |mut object: Value| {
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let version: u64 = version.expect("a version");
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Service");
        server.advance_to(version - 1);
        assert_eq!(server.apply(object), version);
    };
    let forbid =
        |resource, user| server.fail(resource, Verb::List, Fault::Forbidden { user }, Times::Count(1));
    match name {
        "list" => {
            body("list")[0]["items"].as_array().expect("items").iter().cloned().for_each(apply);
            server.advance_to(3113);
        }
        "watch" => {
            for event in body("watch") {
                let object = &event["object"];
                match event["type"].as_str() {
                    Some("DELETED") => {
                        let name = object["metadata"]["name"].as_str().expect("a name");
                        server.delete(Resource::Services, "tr", name);
                    }
                    _ => apply(object.clone()),
                }
            }
        }
        "list-future" => server.advance_to(3121),
        "unauthorized" => forbid("services", "system:anonymous"),
        "watch-gone" => {
            server.advance_to(3132);
            server.compact();
        }
        "forbidden" => forbid("secrets", "system:kube-proxy"),
        _ => {}
    }
}

#[tokio::test]
async fn every_recorded_exchange_is_answered_alike() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 14);
    let server = ApiServer::start();
    for exchange in &recorded {
        let name = &exchange.name;
        prepare(&server, name, &recorded);
        let mut answer = get(&server, &exchange.request).await;
        assert_eq!(answer.status().as_u16(), exchange.status(), "{name}");
        for header in [CONTENT_TYPE, RETRY_AFTER] {
            let got = answer.headers().get(&header).map(|value| value.to_str().expect("text"));
            assert_eq!(got, exchange.header(header.as_str()), "{name}: {header}");
        }
        let want = exchange.lines();
        let got = timeout(DEADLINE, lines(answer.body_mut(), want.len())).await;
        assert_eq!(got.unwrap_or_else(|_| panic!("{name}: nothing more comes")), want, "{name}");
        // A watch without a timeout goes on: it was the recorder that left. The rest has to end.
        if !["watch", "watch-future"].contains(&name.as_str()) {
            let rest = timeout(DEADLINE, lines(answer.body_mut(), usize::MAX)).await;
            let rest = rest.unwrap_or_else(|_| panic!("{name}: does not end"));
            assert!(rest.is_empty(), "{name}: {rest:?}");
        }
    }
}

#[tokio::test]
async fn pages_are_of_one_snapshot_whatever_happens_meanwhile() {
    let server = ApiServer::start();
    let slice = |namespace: &str, name: &str| {
        let metadata = json!({"namespace": namespace, "name": name});
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata})
    };
    for (namespace, name) in [("a", "one"), ("a", "two"), ("b", "one"), ("a-b", "one")] {
        server.apply(slice(namespace, name));
    }
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let target = format!("/apis/discovery.k8s.io/v1/endpointslices?limit=1&continue={token}");
        let mut answer = get(&server, &target).await;
        let [list] = &lines(answer.body_mut(), usize::MAX).await[..] else { panic!("no list") };
        assert_eq!(list["kind"], json!("EndpointSliceList"));
        assert_eq!(list["metadata"]["resourceVersion"], json!("4"));
        let text = |field: &str| list["items"][0]["metadata"][field].as_str().expect("text").to_owned();
        found.push(format!("{}/{}", text("namespace"), text("name")));
        let remaining = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        assert_eq!(remaining, 4 - found.len() as u64);
        // One goes ahead of where the list is, one comes.
        if found.len() == 1 {
            server.delete(Resource::EndpointSlices, "b", "one");
            server.apply(slice("a", "zero"));
        }
        match list["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    // In etcd's order, where a minus sign comes before a slash.
    assert_eq!(found, ["a-b/one", "a/one", "a/two", "b/one"]);
}

#[tokio::test]
async fn a_client_finds_what_is_served() {
    let server = ApiServer::start();
    let rows = [
        ("/version", "gitVersion", json!("v1.36.2")),
        ("/api", "versions", json!(["v1"])),
        ("/apis", "kind", json!("APIGroupList")),
        ("/apis/discovery.k8s.io", "name", json!("discovery.k8s.io")),
        ("/api/v1", "groupVersion", json!("v1")),
        ("/apis/discovery.k8s.io/v1", "groupVersion", json!("discovery.k8s.io/v1")),
    ];
    for (target, field, want) in rows {
        let mut answer = get(&server, target).await;
        assert_eq!(answer.status(), StatusCode::OK, "{target}");
        assert_eq!(lines(answer.body_mut(), usize::MAX).await[0][field], want, "{target}");
    }
    server.apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}));
    let mut node = get(&server, "/api/v1/nodes/node-a").await;
    assert_eq!(lines(node.body_mut(), usize::MAX).await[0]["metadata"]["name"], json!("node-a"));
    let mut none = get(&server, "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/web").await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
    let want = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "endpointslices.discovery.k8s.io \"web\" not found", "reason": "NotFound",
        "details": {"name": "web", "group": "discovery.k8s.io", "kind": "endpointslices"}, "code": 404,
    });
    assert_eq!(lines(none.body_mut(), usize::MAX).await, [want]);
}
