//! Watches: one JSON object a line, for as long as the client, the clock or a fault lets them.

use std::{collections::VecDeque, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};
use tokio::{
    sync::watch as signal,
    time::{Instant, sleep_until},
};

use super::{
    Shared, State,
    fault::Cut,
    resource::Resource,
    routes::Query,
    selection::Selection,
    status::{expired, failure},
};

/// Marks the bookmark that ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One open watch.
struct Watch {
    shared: Arc<Shared>,
    changed: signal::Receiver<u64>,
    socket: Arc<OwnedFd>,
    resource: Resource,
    selection: Selection,
    bookmarks: bool,
    /// Changes up to this version are known to the client.
    since: u64,
    /// How much of the log, of the bookmarks and of the cuts has been seen.
    seen: (usize, usize, usize),
    ready: VecDeque<Step>,
    ends: Option<Instant>,
}

enum Step {
    Line(String),
    /// The end, after a reset of the connection if there is something left to send.
    End,
    Reset(String),
}

/// Answers a watch.
pub(super) fn watch(
    shared: &Arc<Shared>,
    resource: Resource,
    selection: Selection,
    query: &Query,
    socket: Arc<OwnedFd>,
    limit: Option<Duration>,
) -> Response {
    let since = match query.version() {
        Ok(version) => version,
        Err(refusal) => return failure(refusal),
    };
    let state = shared.lock();
    let timeout = query.timeout_seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let mut watch = Watch {
        shared: shared.clone(),
        changed: shared.changed.subscribe(),
        socket,
        resource,
        selection,
        bookmarks: query.allow_watch_bookmarks,
        since,
        seen: (state.store.after(since), state.bookmarks, state.cuts.len()),
        ready: VecDeque::new(),
        ends: limit.or(timeout).map(|time| Instant::now() + time),
    };
    watch.begin(&state, query.send_initial_events);
    drop(state);
    stream(watch)
}

/// A watch that is open and says nothing.
pub(super) fn silent() -> Response {
    let body = Body::from_stream(futures::stream::pending::<io::Result<Bytes>>());
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// A watch that says that its version is gone.
pub(super) fn gone(message: &str) -> Response {
    let line = line("ERROR", &expired(message));
    ([(CONTENT_TYPE, "application/json")], line).into_response()
}

fn stream(watch: Watch) -> Response {
    let lines = futures::stream::unfold(watch, |mut watch| async {
        let item = match watch.next().await {
            Step::Line(line) => Ok(Bytes::from(line)),
            Step::End => return None,
            Step::Reset(part) if !part.is_empty() => {
                watch.ready.push_front(Step::Reset(String::new()));
                Ok(Bytes::from(part))
            }
            Step::Reset(_) => {
                // With this, closing sends a reset. The server closes when the body fails.
                let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(&watch.socket, sockopt::Linger, &at_once).expect("set SO_LINGER");
                Err(io::Error::other("the test asked for a reset"))
            }
        };
        Some((item, watch))
    });
    ([(CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
}

impl Watch {
    /// What there is to say at once.
    fn begin(&mut self, state: &State, initial_events: bool) {
        if self.since == 0 || initial_events {
            for (path, object) in state.store.at(self.resource, state.store.version) {
                if self.selection.within(path).is_some() {
                    self.ready.push_back(Step::Line(line("ADDED", object)));
                }
            }
            self.since = state.store.version;
            self.seen.0 = state.store.log.len();
            if initial_events && self.bookmarks {
                let metadata = json!({
                    "resourceVersion": self.since.to_string(), "annotations": {INITIAL_EVENTS_END: "true"},
                });
                self.ready.push_back(Step::Line(line("BOOKMARK", &self.resource.bookmark(metadata))));
            }
        } else if let Some(message) = state.store.too_old(self.since) {
            self.ready.extend([Step::Line(line("ERROR", &expired(&message))), Step::End]);
        }
    }

    async fn next(&mut self) -> Step {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return step;
            }
            self.changed.borrow_and_update();
            let shared = self.shared.clone();
            self.catch_up(&shared.lock());
            if !self.ready.is_empty() {
                continue;
            }
            let end = async {
                match self.ends {
                    Some(time) => sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end => return Step::End,
                // Fails only where the server is gone, and this with it.
                _ = self.changed.changed() => {}
            }
        }
    }

    fn catch_up(&mut self, state: &State) {
        let (log, bookmarks, cuts) = self.seen;
        self.seen = (state.store.log.len(), state.bookmarks, state.cuts.len());
        for change in &state.store.log[log..] {
            let ours = change.resource == self.resource && self.selection.within(&change.path).is_some();
            if ours && (change.version > self.since || change.replayed) {
                self.ready.push_back(Step::Line(line(change.kind, &change.object)));
            }
        }
        let metadata = json!({"resourceVersion": state.store.version.to_string()});
        let bookmark = line("BOOKMARK", &self.resource.bookmark(metadata));
        if self.bookmarks && state.bookmarks > bookmarks {
            self.ready.push_back(Step::Line(bookmark.clone()));
        }
        for (_, cut) in state.cuts[cuts..].iter().filter(|(resource, _)| *resource == self.resource) {
            match cut {
                Cut::Close => self.ready.push_back(Step::End),
                Cut::ResetMidLine => {
                    self.ready.push_back(Step::Reset(bookmark[..bookmark.len() / 2].to_owned()));
                }
                Cut::GoneEvent => {
                    let gone = expired(&format!(
                        "too old resource version: {} ({})",
                        self.since, state.store.version
                    ));
                    self.ready.extend([Step::Line(line("ERROR", &gone)), Step::End]);
                }
            }
        }
    }
}

fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}
