//! What a feed lets others see of it without an event.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Shared between a source, which writes it, and whoever wants to know: the name of a feed, and when something was last
/// heard on it. A watch on which nothing changes for days still hears bookmarks, and those are no events.
#[derive(Clone, Debug)]
pub struct Contact(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    name: String,
    heard: Option<Instant>,
}

impl Contact {
    /// Of a feed on which nothing was heard yet.
    pub fn new(name: String) -> Self {
        Self(Arc::new(Mutex::new(State { name, heard: None })))
    }

    /// Where its objects come from now.
    pub fn name(&self) -> String {
        self.lock().name.clone()
    }

    /// How long ago something was last heard: an object, a bookmark, a page of a list. `None`: never, or it is not
    /// noted, as of files and of this machine.
    pub fn silence(&self) -> Option<Duration> {
        self.lock().heard.map(|heard| heard.elapsed())
    }

    /// Its objects come from elsewhere now.
    pub(super) fn rename(&self, name: String) {
        self.lock().name = name;
    }

    /// Something was heard.
    pub(super) fn hear(&self) {
        self.lock().heard = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_from_what_was_heard_last() {
        let contact = Contact::new("services".into());
        assert_eq!(contact.silence(), None);
        for seconds in [3, 2] {
            contact.clone().hear();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(contact.silence(), Some(Duration::from_secs(seconds)));
        }
        contact.clone().rename("endpoints".into());
        assert_eq!(contact.name(), "endpoints");
    }
}
