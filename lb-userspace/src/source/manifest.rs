//! Manifest files as a source: read once, or watched.
//!
//! ```text
//!   inotify ──which files──► files ──────► contents ─────────► changes ──events──►
//!   also a rescan now        re-reads what one set of objects, a pure diff
//!   and then                 changed       the last one wins
//! ```

mod changes;
mod contents;
mod files;
mod follow;
mod inotify;

use std::{fmt, io, path::Path};

use self::files::Files;
pub use self::{
    contents::Contents,
    follow::{Timing, follow},
};
use super::document;
pub use super::document::DocumentError;

/// Why a file or a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// A path cannot be read.
    #[error("cannot read {path}: {cause}")]
    Read {
        /// The path, or the name of a stream.
        path: String,
        /// What the operating system said.
        cause: String,
    },
    /// A document is not what it should be.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

/// Everything that is wrong with some manifests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestErrors(
    /// At least one.
    pub Vec<ManifestError>,
);

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => Ok(()),
            [only] => only.fmt(f),
            [first, rest @ ..] => write!(f, "{first} (and {} more)", rest.len()),
        }
    }
}

/// Reads a file, or the `*.yaml`, `*.yml` and `*.json` files of a folder, once.
///
/// # Errors
/// Every file and document that cannot be used.
pub fn read(path: &Path) -> Result<Contents, ManifestErrors> {
    let mut files = Files::new(path.to_owned());
    files.look(&inotify::News::default()).map_err(|error| ManifestErrors(vec![error]))?;
    files.errors().map_or_else(|| Ok(files.contents()), Err)
}

/// Reads a stream, such as standard input, to its end. `name` stands in errors where a file's path would.
///
/// # Errors
/// Every document that cannot be used.
pub fn read_from(reader: impl io::Read, name: &str) -> Result<Contents, ManifestErrors> {
    let text =
        files::read_text(reader).map_err(|error| ManifestErrors(vec![files::unreadable(&name, &error)]))?;
    match document::parse(&text, name) {
        Ok(parsed) => Ok(Contents::of([&parsed])),
        Err(errors) => Err(ManifestErrors(errors.into_iter().map(Into::into).collect())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n";

    #[test]
    fn a_stream_is_read_to_its_end() {
        let contents = read_from(SERVICE.as_bytes(), "standard input").expect("well formed");
        assert_eq!(contents.objects.len(), 1);
        let error = read_from(&b"kind: ["[..], "standard input").expect_err("broken");
        assert_eq!(error.to_string(), "standard input document 1: unclosed bracket '[' at line 1, column 7");
        let error = read_from(&b"\xff"[..], "standard input").expect_err("no text");
        assert_eq!(error.to_string(), "cannot read standard input: stream did not contain valid UTF-8");
    }

    #[test]
    fn every_error_of_a_folder_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()).expect("empty").warnings.len(), 1);
        fs::write(folder.path().join("a.yaml"), format!("{SERVICE}---\nkind: [")).expect("written");
        fs::write(folder.path().join("b.json"), "{").expect("written");
        fs::write(folder.path().join("c.yml"), SERVICE).expect("written");
        let error = read(folder.path()).expect_err("broken");
        assert_eq!(error.0.len(), 2, "{error:?}");
        assert!(error.to_string().ends_with(" (and 1 more)"), "{error}");
        assert_eq!(read(&folder.path().join("c.yml")).expect("well formed").objects.len(), 1);
        let missing = folder.path().join("missing");
        let want = format!("cannot read {}: No such file or directory (os error 2)", missing.display());
        assert_eq!(read(&missing).expect_err("missing").to_string(), want);
    }

    #[test]
    fn a_pipe_is_no_manifest_and_nobody_waits_for_its_writer() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe.yaml");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let want = format!("cannot read {}: it is not a regular file", pipe.display());
        assert_eq!(read(folder.path()).expect_err("a pipe").to_string(), want);
    }
}
