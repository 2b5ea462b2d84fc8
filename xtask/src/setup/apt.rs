//! apt with a configuration of our own, in a scratch folder: nothing is installed, and neither the package lists nor the
//! sources of the system change. Mirrors and keys are those of the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::apt_sources::Source;
use crate::bpf::command::output;

/// What a private apt works in.
pub(super) struct Apt {
    scratch: PathBuf,
}

impl Apt {
    /// One that knows these sources and nothing else. Its lists are not there before [`Self::update`].
    pub(super) fn new(scratch: &Path, sources: &[Source]) -> Result<Self> {
        let apt = Self { scratch: scratch.to_owned() };
        for folder in ["lists/partial", "cache/archives/partial", "sources"] {
            create(&scratch.join(folder))?;
        }
        let file = scratch.join("sources/mirrors.sources");
        let text: String = sources.iter().map(Source::to_deb822).collect();
        fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
        Ok(apt)
    }

    /// `apt-get update`. Fails also when one suite of many cannot be had.
    pub(super) fn update(&self) -> Result<()> {
        output(self.command("apt-get").arg("update")).map(drop)
    }

    /// What `apt-cache` prints.
    pub(super) fn cache(&self, arguments: &[&str]) -> Result<String> {
        output(self.command("apt-cache").args(arguments))
    }

    /// Downloads packages (`NAME` or `NAME=VERSION`) and unpacks them into one folder.
    pub(super) fn unpack(&self, packages: &[String], folder: &Path) -> Result<()> {
        output(self.command("apt-get").arg("download").args(packages))?;
        let scratch = &self.scratch;
        let files = fs::read_dir(scratch).with_context(|| format!("{} cannot be read", scratch.display()))?;
        let mut debs: Vec<_> = files.filter_map(|file| file.ok().map(|file| file.path())).collect();
        debs.retain(|path| path.extension() == Some("deb".as_ref()));
        anyhow::ensure!(!debs.is_empty(), "`apt-get download` left no package");
        for deb in debs {
            output(Command::new("dpkg-deb").arg("-x").args([deb.as_path(), folder]))?;
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut apt = Command::new(program);
        apt.current_dir(&self.scratch).args(["-q", "-o", "Dir::Etc::SourceList=/dev/null"]);
        for (name, folder) in
            [("Dir::Etc::SourceParts", "sources"), ("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")]
        {
            apt.arg("-o").arg(format!("{name}={}", self.scratch.join(folder).display()));
        }
        // The user _apt may not enter the target folder. Signatures are checked all the same.
        apt.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"]);
        apt.args(["-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=20"]);
        apt
    }
}

pub(super) fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))
}
