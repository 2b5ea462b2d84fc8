//! The programs on interfaces: exactly one of ours at each hook, however often the agent starts.

use std::{collections::BTreeSet, io, os::fd::AsFd, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Hook,
    clsact::Clsact,
    hook::HookError,
    load::Programs,
    owned,
    sock::{SocketState, Sockets},
    tcx::TcxLinks,
};

/// How programs are put on interfaces (`--tc-attach`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TcAttach {
    /// TCX where the kernel has it, else clsact.
    #[default]
    Auto,
    /// TCX links (Linux 6.6).
    Tcx,
    /// Filters of a clsact qdisc.
    Clsact,
}

/// How programs are on interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// TCX links.
    Tcx,
    /// Filters of a clsact qdisc.
    Clsact,
}

impl Mode {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }
}

/// Why a program is not on an interface.
#[derive(Debug, thiserror::Error)]
#[error("cannot attach to {interface} at {}: {cause}", hook.name())]
pub struct AttachError {
    interface: String,
    hook: Hook,
    cause: HookError,
}

impl AttachError {
    /// Whether the interface has gone: it went between being seen and being attached to.
    pub fn is_gone(&self) -> bool {
        matches!(&self.cause, HookError::Kernel(error) if error.raw_os_error() == Some(libc::ENODEV))
    }
}

/// Puts the loaded programs on interfaces of one network namespace, and on the cgroup, and takes them off.
///
/// It takes nothing off when it is dropped: the datapath outlives its agent.
#[derive(Debug)]
pub struct Attacher {
    programs: Programs,
    sockets: Sockets,
    folder: PathBuf,
    mode: Mode,
    tcx: TcxLinks,
    clsact: Clsact,
}

impl Attacher {
    /// For the network namespace of this thread. Call within a tokio runtime.
    pub(super) fn open(
        programs: Programs,
        sockets: Sockets,
        mode: Mode,
        folder: PathBuf,
    ) -> io::Result<Self> {
        let tcx = TcxLinks::new(super::links_folder(&folder));
        let clsact = Clsact::open(super::qdiscs_folder(&folder))?;
        Ok(Self { programs, sockets, folder, mode, tcx, clsact })
    }

    /// How programs are put on interfaces.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Puts the programs on an interface, in place where they are on it already. Returns the hooks where they are now,
    /// and why one of them is missing. Doing it twice is as if done once.
    pub async fn attach(&self, ifindex: u32, interface: &str) -> (Vec<Hook>, Option<AttachError>) {
        let mut attached = Vec::new();
        for hook in Hook::ATTACH_ORDER {
            if let Err(cause) = self.attach_at(ifindex, hook).await {
                return (attached, Some(AttachError { interface: interface.to_owned(), hook, cause }));
            }
            attached.push(hook);
        }
        (attached, None)
    }

    async fn attach_at(&self, ifindex: u32, hook: Hook) -> Result<(), HookError> {
        let program = self.programs.at(hook).as_fd();
        match self.mode {
            Mode::Tcx => Ok(self.tcx.attach(program, ifindex, hook)?),
            Mode::Clsact => self.clsact.attach(program, ifindex, hook).await,
        }
    }

    /// Puts the programs on the cgroup, in place where they are on it already, or takes them off where sockets are not to be
    /// served. Doing it twice is as if done once.
    pub fn attach_sockets(&self) -> SocketState {
        self.sockets.attach()
    }

    /// Takes the programs off an interface, which may have gone or moved to another network namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn release(&self, ifindex: u32) -> io::Result<()> {
        self.tcx.release(ifindex)?;
        if self.mode == Mode::Clsact {
            self.release_filters(&BTreeSet::from([ifindex])).await?;
        }
        Ok(())
    }

    /// Takes off what an earlier run left: on interfaces that are not `chosen` now, and everywhere what was put on in
    /// the other [`Mode`]. Call it after the chosen ones have been attached to, so that no packet is missed.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn sweep(&self, chosen: &BTreeSet<u32>) -> io::Result<()> {
        let chosen_in = |mode| if self.mode == mode { chosen.clone() } else { BTreeSet::new() };
        for &ifindex in self.tcx.pinned()?.difference(&chosen_in(Mode::Tcx)) {
            self.tcx.release(ifindex)?;
        }
        let filtered = self.clsact.interfaces().await?;
        let stale: BTreeSet<u32> = filtered.difference(&chosen_in(Mode::Clsact)).copied().collect();
        self.release_filters(&stale).await
    }

    async fn release_filters(&self, interfaces: &BTreeSet<u32>) -> io::Result<()> {
        if interfaces.is_empty() {
            return Ok(());
        }
        let ours = owned::programs(&self.folder)?;
        for &ifindex in interfaces {
            self.clsact.release(ifindex, |program| ours.contains(&program)).await?;
        }
        Ok(())
    }
}
