//! Which files may have changed, as the kernel tells.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, CreateKind, ModifyKind, RenameMode},
};
use tokio::{sync::mpsc, time::Instant};

/// What is known of files since they were last looked at.
#[derive(Debug, Default)]
pub(super) struct News {
    /// To be read whatever they look like.
    pub(super) suspect: HashSet<PathBuf>,
    /// Somebody has written to them, last at this time, and not closed them: what they hold is not whole.
    pub(super) writing: HashMap<PathBuf, Instant>,
}

/// The watches on the folders that decide what is at a path.
pub(super) struct Inotify {
    watcher: Option<RecommendedWatcher>,
    /// The folders under watch, and which inode each of them was.
    watched: BTreeMap<PathBuf, (u64, u64)>,
    sender: mpsc::UnboundedSender<Signal>,
    signals: mpsc::UnboundedReceiver<Signal>,
}

#[derive(Debug)]
enum Signal {
    /// Is being written: no reason to look yet.
    Writing(PathBuf),
    /// Is as it should be again: closed, moved here, or changed in its metadata.
    Settled(PathBuf),
    /// Is not at this place any more.
    Gone(PathBuf),
    /// Anything may have changed.
    Lost,
}

impl Inotify {
    /// Without any watch.
    pub(super) fn new() -> Self {
        let (sender, signals) = mpsc::unbounded_channel();
        Self { watcher: None, watched: BTreeMap::new(), sender, signals }
    }

    /// Sees to it that whatever changes at `path` from now on is noticed: the path itself if it is a folder, and the
    /// nearest folder above it that exists.
    ///
    /// # Errors
    /// As a sentence, where the kernel has no more watches to give; changes are then found by looking only.
    pub(super) fn cover(&mut self, path: &Path) -> Result<(), String> {
        let above = path.ancestors().skip(1).find(|folder| folder.is_dir());
        let wanted: Vec<_> = above.into_iter().chain(path.is_dir().then_some(path)).collect();
        let stale: Vec<_> =
            self.watched.keys().filter(|folder| !wanted.contains(&folder.as_path())).cloned().collect();
        stale.iter().for_each(|folder| self.forget(folder));
        wanted.into_iter().try_for_each(|folder| self.watch(folder)).map_err(|error| {
            format!("changes are noticed late, by looking now and then: cannot watch it: {error}")
        })
    }

    /// Drops every watch, so that the next [`Inotify::cover`] makes them anew: an inode number alone does not tell a
    /// folder from one that was made in its place.
    pub(super) fn reset(&mut self) {
        let folders: Vec<_> = self.watched.keys().cloned().collect();
        folders.iter().for_each(|folder| self.forget(folder));
    }

    /// Waits until there is a reason to look.
    pub(super) async fn changed(&mut self, news: &mut News) {
        while let Some(signal) = self.signals.recv().await {
            if self.note(signal, news) {
                return;
            }
        }
    }

    /// Takes what has come in without waiting.
    pub(super) fn drain(&mut self, news: &mut News) {
        while let Ok(signal) = self.signals.try_recv() {
            self.note(signal, news);
        }
    }

    fn note(&mut self, signal: Signal, news: &mut News) -> bool {
        match signal {
            Signal::Writing(path) => {
                news.writing.insert(path, Instant::now());
                return false;
            }
            Signal::Settled(path) => {
                news.writing.remove(&path);
                news.suspect.insert(path);
            }
            Signal::Gone(path) => {
                news.writing.remove(&path);
                self.forget(&path);
            }
            Signal::Lost => {}
        }
        true
    }

    fn watch(&mut self, folder: &Path) -> notify::Result<()> {
        let metadata = fs::metadata(folder)?;
        let inode = (metadata.dev(), metadata.ino());
        if self.watched.get(folder) == Some(&inode) {
            return Ok(());
        }
        self.forget(folder);
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => none.insert(new_watcher(self.sender.clone())?),
        };
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        self.watched.insert(folder.to_owned(), inode);
        Ok(())
    }

    fn forget(&mut self, folder: &Path) {
        if self.watched.remove(folder).is_some()
            && let Some(watcher) = &mut self.watcher
            && let Err(error) = watcher.unwatch(folder)
        {
            // The kernel has dropped it already, with the folder.
            tracing::debug!(folder = %folder.display(), %error, "watch was gone");
        }
    }
}

fn new_watcher(sender: mpsc::UnboundedSender<Signal>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        for signal in signals(event) {
            // Fails only where nobody listens any more.
            let _ = sender.send(signal);
        }
    })
}

fn signals(event: notify::Result<notify::Event>) -> Vec<Signal> {
    let Ok(event) = event else { return vec![Signal::Lost] };
    let signal: fn(PathBuf) -> Signal = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Signal::Settled,
        // Our own reading among others.
        EventKind::Access(_) => return Vec::new(),
        EventKind::Modify(ModifyKind::Data(_)) => Signal::Writing,
        EventKind::Create(CreateKind::File) => created,
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) | EventKind::Remove(_) => Signal::Gone,
        // Repeats both sides of a move that were told one by one.
        EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return Vec::new(),
        _ if event.need_rescan() => return vec![Signal::Lost],
        _ => Signal::Settled,
    };
    event.paths.into_iter().map(signal).collect()
}

/// A file that was made by opening it is empty until its maker has written and closed it. One that was made as a link,
/// soft or hard, is never closed.
fn created(path: PathBuf) -> Signal {
    match fs::symlink_metadata(&path) {
        Ok(file) if file.is_file() && file.nlink() == 1 => Signal::Writing(path),
        _ => Signal::Settled(path),
    }
}
