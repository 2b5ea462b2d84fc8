//! A Kubernetes API server, as far as its clients can tell: a real HTTP/1.1 server over objects in memory.
//!
//! ```text
//!   routes ──► fault? ──► list ───► store: every version of every object, and the log of changes
//!                    └──► watch ──►
//! ```
//!
//! It answers in the shapes that were recorded from Kubernetes 1.36 (`tests/recorded/api.json`), and fails in the ways
//! that a test asks for. Any client can talk to it; `kubectl --kubeconfig … get services -A` works.

#![expect(clippy::expect_used, reason = "a test that cannot have its server fails, and says where")]

mod fault;
mod list;
mod resource;
mod routes;
mod selection;
mod status;
mod store;
mod watch;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};

use serde_json::{Value, json};
use tokio::sync::{oneshot, watch as signal};

use self::{fault::Rule, store::Store};
pub use self::{
    fault::{Cut, Fault, RetryAfter, Times, Verb},
    resource::Resource,
};

/// A server, until it is dropped.
#[derive(Debug)]
pub struct ApiServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// One request that has come in.
#[derive(Clone, Debug)]
pub struct Request {
    /// When.
    pub at: Instant,
    /// Plural name of the resource.
    pub resource: String,
    /// What was to be done with it.
    pub verb: Verb,
    /// The part of the URL after `?`.
    pub query: String,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts whatever an open watch or a held request has to notice.
    changed: signal::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    store: Store,
    rules: Vec<Rule>,
    requests: Vec<Request>,
    /// Bookmarks that were asked for.
    bookmarks: usize,
    /// What was to become of the watches that were open then.
    cuts: Vec<(Resource, Cut)>,
}

impl ApiServer {
    /// A server on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// Where there is none.
    pub fn start() -> Self {
        Self::start_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a port of 127.0.0.1"))
    }

    /// A server on a socket that listens already, in whatever network namespace it was made.
    ///
    /// # Panics
    /// Where the socket cannot be used.
    pub fn start_on(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("a listening socket has an address");
        listener.set_nonblocking(true).expect("set O_NONBLOCK");
        let shared = Arc::new(Shared { state: Mutex::default(), changed: signal::channel(0).0 });
        let (stop, stopped) = oneshot::channel();
        let router = routes::router(shared.clone());
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a tokio listener");
                // Dropping the server closes its connections, open watches too.
                tokio::select! {
                    outcome = axum::serve(listener, routes::with_connection(router)) => outcome.expect("serve"),
                    _ = stopped => {}
                }
            });
        });
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// As a client is told.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Writes a kubeconfig that leads here.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn kubeconfig(&self, path: &Path) -> io::Result<()> {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url()}}],
            "users": [{"name": "fake", "user": {"token": "any"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        });
        fs::write(path, kubeconfig.to_string())
    }

    /// Creates or replaces an object, and returns its `resourceVersion`.
    ///
    /// # Panics
    /// Where the object is of no kind that is served, or has no name.
    pub fn apply(&self, object: Value) -> u64 {
        self.change(|state| state.store.apply(object))
    }

    /// Deletes an object. The event carries its last state, as a real server's does.
    ///
    /// # Panics
    /// Where there is no such object.
    pub fn delete(&self, resource: Resource, namespace: &str, name: &str) -> u64 {
        self.change(|state| state.store.delete(resource, namespace, name, |last| last))
    }

    /// Deletes an object, with no more than its metadata in the event.
    ///
    /// # Panics
    /// Where there is no such object.
    pub fn delete_saying_little(&self, resource: Resource, namespace: &str, name: &str) -> u64 {
        self.change(|state| {
            state.store.delete(resource, namespace, name, |last| json!({"metadata": last["metadata"]}))
        })
    }

    /// Sends an event to the open watches that nothing has caused: the store stays as it is.
    pub fn replay(&self, resource: Resource, kind: &'static str, object: Value) {
        self.change(|state| state.store.replay(resource, kind, object));
    }

    /// Raises the version, as writes to other resources do.
    pub fn advance_to(&self, version: u64) {
        self.change(|state| state.store.version = version);
    }

    /// Forgets every version but the current one.
    pub fn compact(&self) {
        self.change(|state| state.store.compact());
    }

    /// Sends a bookmark on every watch that allows them.
    pub fn bookmark(&self) {
        self.change(|state| state.bookmarks += 1);
    }

    /// Ends the open watches of a resource.
    pub fn cut(&self, resource: Resource, cut: Cut) {
        self.change(|state| state.cuts.push((resource, cut)));
    }

    /// From now on requests fail. `resource` is a plural name, which need not be one that is served. Of several rules
    /// the first one that fits holds.
    pub fn fail(&self, resource: &str, verb: Verb, fault: Fault, times: Times) {
        self.change(|state| state.rules.push(Rule { resource: resource.into(), verb, fault, times }));
    }

    /// Ends all faults. Requests that were held are answered now.
    pub fn heal(&self) {
        self.change(|state| state.rules.clear());
    }

    /// The requests so far, in the order in which they came.
    pub fn requests(&self, resource: &str, verb: Verb) -> Vec<Request> {
        let state = self.shared.lock();
        state
            .requests
            .iter()
            .filter(|request| request.resource == resource && request.verb == verb)
            .cloned()
            .collect()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.shared.lock());
        self.shared.changed.send_modify(|count| *count += 1);
        outcome
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server has been printed; a second one would abort the test.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
