//! Where objects come from. Every source speaks in the same events.

mod contact;
mod convert;
mod document;
pub mod host;
pub mod kube;
pub mod manifest;
mod names;

use std::fmt;

pub use self::contact::Contact;
pub use self::convert::pod;
use crate::model::{Object, ObjectRef, Warning};

/// One stream of lists and changes: one kind of object of the cluster, or one `--manifests` path. Feeds are numbered by
/// the agent from zero, without gaps, and are all known before the first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feed(pub usize);

/// What a source says, and on which feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceEvent {
    /// The feed that it is about.
    pub feed: Feed,
    /// What is said.
    pub event: Event,
}

/// What a source can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A complete list begins: the objects of this feed that are not applied before [`Event::ListComplete`] are gone.
    /// A list that is begun again starts over.
    ListStarted,
    /// The list is complete.
    ListComplete,
    /// The object is now so. The same state may be said again.
    Apply(Object),
    /// The object is gone. It need not have been there.
    Delete(ObjectRef),
    /// Several changes at once: nobody acts on a part of them. What is one object at its source can be several here.
    Together(Vec<Event>),
    /// What the source as a whole has to say about its input (a broken document, a dropped field): replaces what it
    /// said before.
    Warnings(Vec<Warning>),
    /// The source cannot get at its objects now; what it said before stays. One sentence that names the resource or
    /// the file, and the cause.
    Failing(String),
    /// It can again.
    Recovered,
}

impl fmt::Display for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "feed {}", self.0)
    }
}
