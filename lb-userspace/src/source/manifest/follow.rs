//! One path for as long as the agent runs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    sync::mpsc::{Sender, error::SendError},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    ManifestErrors,
    changes::{Said, View},
    files::Files,
    inotify::{Inotify, News},
};
use crate::{
    model::Warning,
    source::{Feed, SourceEvent},
};

/// When files are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From the first sign of a change to reading: one save is several events.
    pub settle: Duration,
    /// Between looks that nothing has called for: not every change can be seen by watching (a link's target in another
    /// folder, some network file systems), and watches are a limited resource.
    pub rescan: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { settle: Duration::from_millis(50), rescan: Duration::from_secs(10) }
    }
}

/// Says what is at `path`, and every change to it, until `stop` or until nobody listens.
///
/// A broken file keeps what it held when it was last whole, and so does everything at a path that cannot be read; a
/// deleted file takes its objects with it. The first list is complete when every file has been whole once.
pub async fn follow(
    path: PathBuf,
    feed: Feed,
    events: Sender<SourceEvent>,
    timing: Timing,
    stop: CancellationToken,
) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = events.closed() => {}
        // Ends only where nobody listens, which is not an error.
        _ = look_and_wait(&path, feed, &events, timing) => {}
    }
}

async fn look_and_wait(
    path: &Path,
    feed: Feed,
    events: &Sender<SourceEvent>,
    timing: Timing,
) -> Result<(), SendError<SourceEvent>> {
    // Events name files by absolute paths only if the watch was made with one.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut files = Files::new(path.clone());
    let mut said = Said::default();
    let mut inotify = Inotify::new();
    let mut news = News::default();
    let mut rescan = interval(timing.rescan);
    rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // The first tick is at once.
            _ = rescan.tick() => {
                inotify.reset();
                // Whoever has kept a file open for so long without a further write is not saving it.
                news.writing.retain(|_, last| last.elapsed() < timing.rescan);
            }
            () = inotify.changed(&mut news) => {
                sleep(timing.settle).await;
                inotify.drain(&mut news);
            }
        }
        // Watch first, look then: no change falls in between.
        let unwatched = inotify.cover(&path).err();
        let looked = spawn_blocking(move || {
            let outcome = files.look(&news);
            news.suspect.clear();
            (files, news, outcome)
        });
        let Ok((seen, rest, outcome)) = looked.await else {
            // The runtime is shutting down.
            return Ok(());
        };
        (files, news) = (seen, rest);
        let view = match outcome {
            Err(error) => View { errors: Some(ManifestErrors(vec![error])), ..View::default() },
            Ok(()) => {
                let mut contents = files.contents();
                let object = path.display().to_string();
                contents.warnings.extend(unwatched.map(|message| Warning { object, message }));
                View { contents: Some(contents), complete: files.complete(), errors: files.errors() }
            }
        };
        for event in said.update(view) {
            events.send(SourceEvent { feed, event }).await?;
        }
    }
}

#[cfg(test)]
mod tests;
