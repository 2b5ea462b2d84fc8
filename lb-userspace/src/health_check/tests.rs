//! Over loopback, on ports that the kernel has chosen.

use std::net::{Ipv4Addr, TcpListener as StdListener};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

use super::*;
use crate::{desired::HealthCheckOf, reconcile::NodeStatus, testing::key};

const DEADLINE: Duration = Duration::from_secs(600);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Server {
    checks: watch::Sender<HealthChecks>,
    status: watch::Sender<Status>,
    states: watch::Receiver<Vec<HealthCheckState>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Of a node that is well.
    fn start() -> Self {
        let (checks, checks_now) = watch::channel(HealthChecks::new());
        let node = NodeStatus { nodeport_addresses: vec![HERE], ..NodeStatus::default() };
        let (status, status_now) = watch::channel(Status { complete: true, node, ..Status::default() });
        let (report, states) = watch::channel(Vec::new());
        let task = tokio::spawn(run(checks_now, status_now, report));
        Self { checks, status, states, task }
    }

    fn ask_for(&self, port: u16, service: &str, local_endpoints: usize) {
        self.checks.send_modify(|checks| {
            checks.insert(port, HealthCheckOf { service: key(service), local_endpoints });
        });
    }

    async fn until(&mut self, is_so: impl Fn(&[HealthCheckState]) -> bool) {
        let is_reached = timeout(DEADLINE, self.states.wait_for(|states| is_so(states))).await.is_ok();
        assert!(is_reached, "{:?}", *self.states.borrow());
    }

    async fn until_all_listen(&mut self, number: usize) {
        self.until(|states| states.len() == number && states.iter().all(|state| state.error.is_none())).await;
    }
}

/// A port that nobody listens on now, held for the time being.
fn a_port() -> (StdListener, u16) {
    let listener = StdListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn get(port: u16) -> String {
    let mut stream = TcpStream::connect((HERE, port)).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn b48_the_answer_is_kube_proxy_s_and_200_only_for_a_node_that_is_well_and_has_endpoints() {
    let mut server = Server::start();
    let (held, port) = a_port();
    drop(held);
    let rows = [
        (1, true, 0, "200 OK"),
        (2, true, 0, "200 OK"),
        (0, true, 0, "503 Service Unavailable"),
        (1, false, 0, "503 Service Unavailable"),
        (1, true, 1, "503 Service Unavailable"),
    ];
    for (local, complete, write_failures, code) in rows {
        server.ask_for(port, "default/web", local);
        server.status.send_modify(|status| {
            (status.complete, status.write_failures) = (complete, write_failures);
        });
        server.until_all_listen(1).await;
        let answer = get(port).await.to_lowercase();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("http/1.0 {code}").to_lowercase()), "{head}");
        for header in [
            "content-type: application/json".to_owned(),
            "x-content-type-options: nosniff".to_owned(),
            format!("x-load-balancing-endpoint-weight: {local}"),
        ] {
            assert!(head.lines().any(|line| line == header), "{header} in {head}");
        }
        let healthy = complete && write_failures == 0;
        let want = format!(
            r#"{{"service":{{"namespace":"default","name":"web"}},"localendpoints":{local},"serviceproxyhealthy":{healthy}}}"#
        );
        assert_eq!(body, want);
    }
    server.task.abort();
}

#[tokio::test]
async fn a_listener_stays_while_its_port_does_whatever_else_comes_and_goes() {
    let mut server = Server::start();
    let ([(first, kept), (second, passing)], other) = ([a_port(), a_port()], "default/other");
    drop((first, second));
    server.ask_for(kept, "default/web", 1);
    server.until_all_listen(1).await;
    // A connection that the listener has not taken yet would be lost with it.
    let waiting = TcpStream::connect((HERE, kept)).await.unwrap();
    server.ask_for(passing, other, 1);
    server.ask_for(kept, "default/renamed", 1);
    server.until_all_listen(2).await;
    assert!(get(passing).await.contains(r#""name":"other""#));
    server.checks.send_modify(|checks| drop(checks.remove(&passing)));
    server.until_all_listen(1).await;
    let mut waiting = waiting;
    waiting.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains(r#""name":"renamed""#), "{answer}");
    let refused = async {
        while TcpStream::connect((HERE, passing)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, refused).await.unwrap();
    server.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_port_that_somebody_else_has_is_told_and_taken_once_it_is_free() {
    let mut server = Server::start();
    let (held, port) = a_port();
    server.ask_for(port, "default/web", 1);
    let address = SocketAddr::new(HERE, port);
    server.until(|states| states.iter().any(|state| state.error.is_some())).await;
    let error = Some("Address already in use (os error 98)".to_owned());
    let want = HealthCheckState { address, service: "default/web".to_owned(), error };
    assert_eq!(*server.states.borrow(), [want]);
    drop(held);
    server.until_all_listen(1).await;
    server.task.abort();
}
