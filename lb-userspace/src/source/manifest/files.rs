//! The files of one `--manifests` path, and what each of them last held that could be used.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    super::document::{self, Parsed},
    Contents, ManifestError, ManifestErrors,
    inotify::News,
};
use crate::model::Warning;

/// The largest file that is read, in bytes: a mistaken path must not fill the memory.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// A path and its files.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    /// Whether the path is a folder, as last seen.
    folder: Option<bool>,
    files: BTreeMap<PathBuf, Manifest>,
}

#[derive(Debug)]
struct Manifest {
    /// As it was when it was read; none where reading failed, so that it is tried again.
    stamp: Option<Stamp>,
    /// What it held when it was last whole.
    good: Option<Parsed>,
    /// What is wrong with it now.
    errors: Vec<ManifestError>,
}

/// What changes when a file does.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for Stamp {
    fn from(file: &Metadata) -> Self {
        Self {
            inode: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl Files {
    /// A path that was not looked at yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, folder: None, files: BTreeMap::new() }
    }

    /// Reads what has changed since the last time. Files that are being written stay as they were.
    ///
    /// # Errors
    /// Where the path itself cannot be read; then nothing has changed here. What is wrong with single files is in
    /// [`Files::errors`].
    pub(super) fn look(&mut self, news: &News) -> Result<(), ManifestError> {
        let present = self.list().map_err(|error| unreadable(&self.path.display(), &error))?;
        self.files.retain(|path, _| present.contains(path));
        for path in present {
            if news.writing.contains_key(&path) {
                continue;
            }
            let metadata = match fs::metadata(&path) {
                // Deleted since it was listed.
                Err(_) if fs::symlink_metadata(&path).is_err() => {
                    self.files.remove(&path);
                    continue;
                }
                metadata => metadata,
            };
            let stamp = metadata.as_ref().ok().map(Stamp::from);
            let known = self.files.get(&path).is_some_and(|file| file.stamp.is_some() && file.stamp == stamp);
            // Two writes within one tick of the clock leave the same stamp.
            if known && !news.suspect.contains(&path) {
                continue;
            }
            let read = metadata.and_then(|metadata| {
                // To open a pipe would wait for whoever writes to it.
                if !metadata.is_file() {
                    return Err(io::Error::other("it is not a regular file"));
                }
                read_text(File::open(&path)?)
            });
            let last_good = self.files.remove(&path).and_then(|file| file.good);
            // Deleted between the two looks at it: that is no failure.
            if read.is_err() && fs::symlink_metadata(&path).is_err() {
                continue;
            }
            self.files.insert(path.clone(), Manifest::new(&path, stamp, read, last_good));
        }
        Ok(())
    }

    /// What the files hold; of a broken one, what it held before.
    pub(super) fn contents(&self) -> Contents {
        let mut contents = Contents::of(self.files.values().filter_map(|file| file.good.as_ref()));
        if self.files.is_empty() {
            let message = match self.folder {
                Some(false) => "the file is gone, and its objects with it",
                _ => {
                    "no *.yaml, *.yml or *.json file is in this folder; those in folders below it are not read"
                }
            };
            contents
                .warnings
                .push(Warning { object: self.path.display().to_string(), message: message.into() });
        }
        contents
    }

    /// What is wrong with them, if anything is.
    pub(super) fn errors(&self) -> Option<ManifestErrors> {
        let errors: Vec<_> = self.files.values().flat_map(|file| file.errors.iter().cloned()).collect();
        (!errors.is_empty()).then_some(ManifestErrors(errors))
    }

    /// Whether every file has been whole at least once.
    pub(super) fn complete(&self) -> bool {
        self.files.values().all(|file| file.good.is_some())
    }

    fn list(&mut self) -> io::Result<Vec<PathBuf>> {
        match fs::metadata(&self.path) {
            Ok(metadata) => self.folder = Some(metadata.is_dir()),
            // A file that was there has been deleted. A folder, or the folder around a file, is another matter: it may
            // be a volume that is about to come back, so what was in it stays.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.folder == Some(false) => {
                fs::metadata(parent(&self.path))?;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        }
        if self.folder == Some(false) {
            return Ok(vec![self.path.clone()]);
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            // A dangling link counts as a file, so that it is reported.
            if is_manifest(&path) && !path.is_dir() {
                files.push(path);
            }
        }
        Ok(files)
    }
}

impl Manifest {
    fn new(path: &Path, stamp: Option<Stamp>, read: io::Result<String>, last_good: Option<Parsed>) -> Self {
        let name = path.display();
        match read.map(|text| document::parse(&text, &name.to_string())) {
            Ok(Ok(parsed)) => Self { stamp, good: Some(parsed), errors: Vec::new() },
            Ok(Err(errors)) => {
                Self { stamp, good: last_good, errors: errors.into_iter().map(Into::into).collect() }
            }
            Err(error) => Self { stamp: None, good: last_good, errors: vec![unreadable(&name, &error)] },
        }
    }
}

/// The folder that a path is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Hidden files (editors' temporary ones, and the folders behind a mounted ConfigMap) are no manifests.
fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// Reads text to its end.
///
/// # Errors
/// Also where it is not UTF-8, or too long.
pub(super) fn read_text(reader: impl Read) -> io::Result<String> {
    let mut text = String::new();
    reader.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    Ok(text)
}

/// The error of a path that cannot be read.
pub(super) fn unreadable(path: &dyn std::fmt::Display, error: &io::Error) -> ManifestError {
    ManifestError::Read { path: path.to_string(), cause: error.to_string() }
}
