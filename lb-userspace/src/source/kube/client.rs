//! The client of one resource: kube's own, with two thin layers that see what its watcher does not pass on.
//!
//! The watcher opens a watch again and again without saying so: neither that it has worked again after a failure, nor
//! that a server closes each one at once. And of a server's `Retry-After` only kube's own retries know, which begin
//! after 5 ms and hide a failing server for minutes; they are off, and the header is kept here. Bookmarks it keeps to
//! itself, so whether a watch is alive is seen from the bytes that come.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use http_body_util::BodyExt as _;
use hyper::{HeaderMap, Request, Response, StatusCode, header::RETRY_AFTER};
use kube::{
    Client,
    client::{Body, ClientBuilder, DynBody},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tower::{BoxError, filter::FilterLayer, util::MapResponseLayer};

use super::{Cluster, ClusterError, Timing};
use crate::source::Contact;

/// The longest pause that a server may ask for: it is to be obeyed, but a mistaken one must not stop the agent.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// What the server's answers say beyond their content.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    /// Counts those that are no error.
    good: watch::Receiver<u64>,
    not_before: Arc<Mutex<Option<Instant>>>,
}

impl Answers {
    /// How many there were that are no error.
    pub(super) fn count(&self) -> u64 {
        *self.good.borrow()
    }

    /// Waits for one more than `count`, and then for a time in which nobody has called this off.
    pub(super) async fn well_since(&mut self, count: u64, settled: Duration) {
        // Fails only where the client is gone, and then nobody waits.
        let _ = self.good.wait_for(|good| *good > count).await;
        sleep(settled).await;
    }

    /// How much longer the server wants to be left alone.
    pub(super) fn retry_after(&self) -> Duration {
        let not_before = *self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        not_before.map_or(Duration::ZERO, |time| time.saturating_duration_since(Instant::now()))
    }
}

/// A watch was over sooner than is reasonable.
#[derive(Debug, thiserror::Error)]
#[error("the server closes the watch as soon as it is open")]
pub(super) struct ShortWatch;

/// A client for one feed. The contact hears whatever comes in answers that are no error.
///
/// # Errors
/// [`ClusterError::Client`] where the credentials cannot be used.
pub(super) fn client(
    cluster: &Cluster,
    timing: &Timing,
    contact: Contact,
) -> Result<(Client, Answers), ClusterError> {
    let mut config = cluster.0.clone();
    config.default_retry = false;
    // Of last resort, for a request that gets no answer at all: the watcher itself gives up after 5 s more than the
    // server should have taken.
    config.read_timeout = Some(Duration::from_secs(u64::from(timing.watch_seconds) + 7));
    // Or the time that a pooled connection was idle would count.
    config.reset_reader_on_write = true;
    let builder = ClientBuilder::try_from(config)
        .map_err(|source| ClusterError::Client { address: cluster.address(), source: Box::new(source) })?;

    let (good_sender, good) = watch::channel(0);
    let not_before = Arc::new(Mutex::new(None));
    let answers = Answers { good, not_before: not_before.clone() };
    let note_answer = MapResponseLayer::new(move |response: Response<_>| {
        let is_good = response.status().is_success();
        if is_good {
            good_sender.send_modify(|count| *count += 1);
        } else if let Some(pause) = retry_after(response.status(), response.headers()) {
            *not_before.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + pause);
        }
        let contact = contact.clone();
        response.map(|body: Box<DynBody>| {
            body.map_frame(move |frame| {
                if is_good {
                    contact.hear();
                }
                frame
            })
        })
    });

    let shortest = timing.shortest_watch;
    let mut last_watch: Option<Instant> = None;
    let refuse_short_watches = FilterLayer::new(move |request: Request<Body>| -> Result<_, BoxError> {
        let is_watch =
            request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
        // Refusing forgets, so that the next attempt, after a pause, is made.
        if is_watch && last_watch.take().is_some_and(|opened| opened.elapsed() < shortest) {
            return Err(ShortWatch.into());
        }
        last_watch = is_watch.then(Instant::now);
        Ok(request)
    });
    Ok((builder.with_layer(&note_answer).with_layer(&refuse_short_watches).build(), answers))
}

/// RFC 9110, section 10.2.3: seconds, as API servers send, or a date, as proxies may.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let asked = matches!(status.as_u16(), 429 | 503 | 504);
    let text = headers.get(RETRY_AFTER).filter(|_| asked)?.to_str().ok()?.trim();
    let pause = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // One that is over asks for no pause.
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(pause.min(MAX_RETRY_AFTER))
}
