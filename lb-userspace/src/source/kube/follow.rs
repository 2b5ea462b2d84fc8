//! One resource for as long as the agent runs.

use std::{convert::Infallible, fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{
        utils::ResetTimerBackoff,
        watcher::{self, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc::{Sender, error::SendError},
    time::{sleep, timeout},
};

use super::{
    Timing,
    client::Answers,
    failure::{Failure, Remedy},
};
use crate::source::{Event, Feed, SourceEvent, convert::FromApi};

/// Objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// Says what there is of one resource, and every change.
///
/// # Errors
/// Where nobody listens any more; nothing else ends it.
pub(super) async fn follow<K>(
    api: Api<K>,
    mut answers: Answers,
    timing: &Timing,
    address: &str,
    mut speaker: Speaker<'_>,
) -> Result<Infallible, SendError<SourceEvent>>
where
    K: FromApi + Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let backoff = ExponentialBackoff::from(timing.backoff);
    let mut backoff = ResetTimerBackoff::new(backoff, timing.backoff_reset);
    loop {
        let config = watcher::Config::default().page_size(PAGE_SIZE).timeout(timing.watch_seconds);
        let mut stream = pin!(watcher(api.clone(), config));
        let mut listing = true;
        let mut failed_at = answers.count();
        loop {
            let limit = if listing { timing.list_timeout } else { Duration::MAX };
            let next = tokio::select! {
                biased;
                // A watch that is open again says nothing until something changes.
                () = answers.well_since(failed_at, timing.shortest_watch), if speaker.is_failing() && !listing => {
                    speaker.recovered().await?;
                    continue;
                }
                next = timeout(limit, stream.next()) => next,
            };
            let failure = match next {
                Ok(Some(Ok(event))) => {
                    listing = match event {
                        watcher::Event::Init | watcher::Event::InitApply(_) => true,
                        watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_) => {
                            false
                        }
                    };
                    speaker.pass_on(event).await?;
                    continue;
                }
                Ok(Some(Err(error))) => Failure::Watcher(error),
                Ok(None) => Failure::Ended,
                Err(_) => Failure::NoAnswer(limit),
            };
            let remedy = failure.remedy();
            if remedy != Remedy::List {
                failed_at = answers.count();
                speaker.failing(failure.sentence(K::URL_PATH_SEGMENT, address)).await?;
            }
            // Pauses that have come to their end start over after this.
            let pause = backoff.next().unwrap_or(timing.backoff_reset);
            sleep(pause.max(answers.retry_after())).await;
            if remedy != Remedy::Retry {
                break;
            }
        }
    }
}

/// Turns what the watcher says into the events of one feed.
pub(super) struct Speaker<'a> {
    feed: Feed,
    events: &'a Sender<SourceEvent>,
    failing: Option<String>,
    /// The newest version of any object in this list and after it. Versions of one resource are numbers that rise
    /// (Kubernetes API concepts, resource versions).
    newest: u64,
}

impl<'a> Speaker<'a> {
    /// For a feed of which nothing was said yet.
    pub(super) fn new(feed: Feed, events: &'a Sender<SourceEvent>) -> Self {
        Self { feed, events, failing: None, newest: 0 }
    }

    fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    async fn pass_on<K: FromApi>(&mut self, event: watcher::Event<K>) -> Result<(), SendError<SourceEvent>> {
        match event {
            watcher::Event::Init => {
                self.newest = 0;
                self.say(Event::ListStarted).await
            }
            watcher::Event::InitApply(object) => {
                self.newest = self.newest.max(version(&object));
                self.apply(object).await
            }
            watcher::Event::InitDone => {
                self.say(Event::ListComplete).await?;
                self.recovered().await
            }
            watcher::Event::Apply(object) if self.is_news(&object) => {
                self.recovered().await?;
                self.apply(object).await
            }
            watcher::Event::Apply(_) => Ok(()),
            // Whatever its version: not every server raises it for a deletion, and a dead endpoint must not stay.
            watcher::Event::Delete(object) => {
                self.recovered().await?;
                self.say(Event::Delete(object.reference())).await
            }
        }
    }

    /// Whether the event is not one from before the list. The watcher goes on from the version of the last event, so an
    /// old one that is replayed brings back those after it.
    fn is_news<K: FromApi>(&mut self, object: &K) -> bool {
        let version = version(object);
        let news = version >= self.newest;
        self.newest = self.newest.max(version);
        news
    }

    async fn apply<K: FromApi>(&self, object: K) -> Result<(), SendError<SourceEvent>> {
        for object in object.into_model() {
            self.say(Event::Apply(object)).await?;
        }
        Ok(())
    }

    async fn failing(&mut self, sentence: String) -> Result<(), SendError<SourceEvent>> {
        if self.failing.as_ref() == Some(&sentence) {
            return Ok(());
        }
        self.failing = Some(sentence.clone());
        self.say(Event::Failing(sentence)).await
    }

    async fn recovered(&mut self) -> Result<(), SendError<SourceEvent>> {
        if self.failing.take().is_none() {
            return Ok(());
        }
        self.say(Event::Recovered).await
    }

    async fn say(&self, event: Event) -> Result<(), SendError<SourceEvent>> {
        self.events.send(SourceEvent { feed: self.feed, event }).await
    }
}

/// `metadata.resourceVersion`; as new as can be where it is no number.
fn version<K: FromApi>(object: &K) -> u64 {
    let version = object.metadata().resource_version.as_deref();
    version.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}
