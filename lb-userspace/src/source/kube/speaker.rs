//! From what the watcher says to the events of one feed.

use std::collections::HashMap;

use kube::runtime::watcher;
use tokio::sync::mpsc::{Sender, error::SendError};

use crate::{
    model::{Object, ObjectKey},
    source::{Contact, Event, Feed, SourceEvent, convert::FromApi},
};

/// Turns what the watcher says into the events of one feed.
///
/// Nothing is noted before it is said: whoever has a speaker may be dropped while it waits for the listener.
pub(super) struct Speaker<'a> {
    feed: Feed,
    contact: Contact,
    events: &'a Sender<SourceEvent>,
    failing: Option<String>,
    /// The newest version of any object in this list and after it. Versions of one resource are numbers that rise
    /// (Kubernetes API concepts, resource versions).
    newest: u64,
    /// How many objects of the model one of the API is, where it is not one.
    parts: HashMap<ObjectKey, usize>,
}

impl<'a> Speaker<'a> {
    /// For a feed of which nothing was said yet.
    pub(super) fn new(feed: Feed, contact: Contact, events: &'a Sender<SourceEvent>) -> Self {
        Self { feed, contact, events, failing: None, newest: 0, parts: HashMap::new() }
    }

    /// What the feed lets others see.
    pub(super) const fn contact(&self) -> &Contact {
        &self.contact
    }

    pub(super) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    pub(super) async fn pass_on<K: FromApi>(
        &mut self,
        event: watcher::Event<K>,
    ) -> Result<(), SendError<SourceEvent>> {
        match event {
            watcher::Event::Init => {
                self.newest = 0;
                // What this list does not say is gone when it is complete, parts too.
                self.parts.clear();
                self.say(Event::ListStarted).await
            }
            watcher::Event::InitApply(object) => {
                self.newest = self.newest.max(version(&object));
                self.change::<K>(object.reference().key, object.into_model()).await
            }
            watcher::Event::InitDone => {
                self.say(Event::ListComplete).await?;
                self.recovered().await
            }
            watcher::Event::Apply(object) if self.is_news(&object) => {
                self.recovered().await?;
                self.change::<K>(object.reference().key, object.into_model()).await
            }
            watcher::Event::Apply(_) => Ok(()),
            // Whatever its version: not every server raises it for a deletion, and a dead endpoint must not stay.
            watcher::Event::Delete(object) => {
                self.recovered().await?;
                let key = object.reference().key;
                self.change::<K>(key.clone(), Vec::new()).await?;
                self.parts.remove(&key);
                Ok(())
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

    /// Says what an object is now, all parts of it at once: with one of them at another place, an address would be listed
    /// nowhere for a moment.
    async fn change<K: FromApi>(
        &mut self,
        key: ObjectKey,
        objects: Vec<Object>,
    ) -> Result<(), SendError<SourceEvent>> {
        let parts = objects.len();
        let before = self.parts.get(&key).copied().unwrap_or(1);
        let ended = (parts..before).map(|index| Event::Delete(K::part(&key, index)));
        let mut events: Vec<_> = objects.into_iter().map(Event::Apply).chain(ended).collect();
        match events.len() {
            0 => {}
            1 => self.say(events.remove(0)).await?,
            _ => self.say(Event::Together(events)).await?,
        }
        if parts == 1 {
            self.parts.remove(&key);
        } else {
            self.parts.insert(key, parts);
        }
        Ok(())
    }

    pub(super) async fn failing(&mut self, sentence: String) -> Result<(), SendError<SourceEvent>> {
        if self.failing.as_ref() != Some(&sentence) {
            self.say(Event::Failing(sentence.clone())).await?;
            self.failing = Some(sentence);
        }
        Ok(())
    }

    pub(super) async fn recovered(&mut self) -> Result<(), SendError<SourceEvent>> {
        if self.is_failing() {
            self.say(Event::Recovered).await?;
            self.failing = None;
        }
        Ok(())
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
