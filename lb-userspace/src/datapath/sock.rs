//! The programs at the calls of sockets: for clients on the node itself, whose packets cross no ingress.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use aya_obj::generated::bpf_attach_type;
use serde::{Deserialize, Serialize};

use super::{cgroup::Cgroup, namespace, pinned};
use crate::sys;

/// Whose sockets are served (`--socket-lb`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketLb {
    /// Those in the agent's own network namespace: processes and host-network pods of the node.
    #[default]
    Host,
    /// Those of every process below the cgroup, also of pods.
    All,
    /// None.
    Off,
}

impl SocketLb {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::All => "all",
            Self::Off => "off",
        }
    }
}

/// A call of a socket that has a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketHook {
    /// connect(2), IPv4.
    Connect4,
    /// connect(2), IPv6.
    Connect6,
    /// A datagram with a destination, IPv4.
    Sendmsg4,
    /// A datagram with a destination, IPv6.
    Sendmsg6,
    /// The source of a datagram, IPv4.
    Recvmsg4,
    /// The source of a datagram, IPv6.
    Recvmsg6,
    /// getpeername(2), IPv4.
    Getpeername4,
    /// getpeername(2), IPv6.
    Getpeername6,
}

impl SocketHook {
    /// In the order of attaching: whoever is given a backend is told the VIP from the beginning.
    pub const ATTACH_ORDER: [Self; 8] = [
        Self::Getpeername4,
        Self::Getpeername6,
        Self::Recvmsg4,
        Self::Recvmsg6,
        Self::Sendmsg4,
        Self::Sendmsg6,
        Self::Connect4,
        Self::Connect6,
    ];

    /// The name that users see, also that of the program in the object.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect4 => "connect4",
            Self::Connect6 => "connect6",
            Self::Sendmsg4 => "sendmsg4",
            Self::Sendmsg6 => "sendmsg6",
            Self::Recvmsg4 => "recvmsg4",
            Self::Recvmsg6 => "recvmsg6",
            Self::Getpeername4 => "getpeername4",
            Self::Getpeername6 => "getpeername6",
        }
    }

    /// Whether its program gives calls a backend, and not only names the VIP.
    pub const fn translates(self) -> bool {
        matches!(self, Self::Connect4 | Self::Connect6 | Self::Sendmsg4 | Self::Sendmsg6)
    }

    const fn attach_type(self) -> bpf_attach_type {
        match self {
            Self::Connect4 => bpf_attach_type::BPF_CGROUP_INET4_CONNECT,
            Self::Connect6 => bpf_attach_type::BPF_CGROUP_INET6_CONNECT,
            Self::Sendmsg4 => bpf_attach_type::BPF_CGROUP_UDP4_SENDMSG,
            Self::Sendmsg6 => bpf_attach_type::BPF_CGROUP_UDP6_SENDMSG,
            Self::Recvmsg4 => bpf_attach_type::BPF_CGROUP_UDP4_RECVMSG,
            Self::Recvmsg6 => bpf_attach_type::BPF_CGROUP_UDP6_RECVMSG,
            Self::Getpeername4 => bpf_attach_type::BPF_CGROUP_INET4_GETPEERNAME,
            Self::Getpeername6 => bpf_attach_type::BPF_CGROUP_INET6_GETPEERNAME,
        }
    }

    /// The pin of its link. No interface has such a name: theirs begin with an index.
    pub(super) fn pin_path(self, links: &Path) -> PathBuf {
        links.join(format!("cgroup-{}", self.name()))
    }

    /// The hook whose link has a pin of this name.
    pub(super) fn of_pin(name: &str) -> Option<Self> {
        let hook = name.strip_prefix("cgroup-")?;
        Self::ATTACH_ORDER.into_iter().find(|known| known.name() == hook)
    }
}

/// How it is with the programs at sockets' calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketState {
    /// Whose sockets are to be served.
    pub served: SocketLb,
    /// The cgroup whose processes' are.
    pub cgroup: Option<PathBuf>,
    /// The calls that have their programs.
    pub hooks: Vec<SocketHook>,
    /// Why one of them is missing.
    pub error: Option<String>,
}

/// Whose sockets the programs serve, as they are told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Everybody,
    /// Those in the network namespace with this cookie; 0 is the initial one.
    Namespace(u64),
}

/// Loaded programs by hook.
pub(super) type SocketPrograms = Vec<(SocketHook, OwnedFd)>;

/// What has to be known before the programs are loaded: whom they serve, and where they go.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) scope: Scope,
    cgroup: Cgroup,
}

impl Plan {
    /// For the network namespace of this thread. `None`: nobody is to be served. The error is a sentence.
    pub(super) fn new(served: SocketLb, cgroup: Option<&Path>) -> Option<Result<Self, String>> {
        let scope = match served {
            SocketLb::Off => return None,
            SocketLb::All => Ok(Scope::Everybody),
            SocketLb::Host => namespace::cookie().map(Scope::Namespace),
        };
        let cgroup = Cgroup::open(cgroup).map_err(|error| error.to_string());
        Some(scope.and_then(|scope| Ok(Self { scope, cgroup: cgroup? })))
    }
}

/// Puts the programs on a cgroup. They stay when it is dropped.
#[derive(Clone, Debug)]
pub(super) struct Sockets {
    served: SocketLb,
    links: PathBuf,
    /// `None`: nobody is to be served. The error is a sentence.
    ready: Option<Result<Arc<(Cgroup, SocketPrograms)>, String>>,
}

impl Sockets {
    pub(super) fn new(
        served: SocketLb,
        links: PathBuf,
        plan: Option<Result<Plan, String>>,
        programs: Result<SocketPrograms, String>,
    ) -> Self {
        let ready = plan.map(|plan| plan.and_then(|plan| Ok(Arc::new((plan.cgroup, programs?)))));
        Self { served, links, ready }
    }

    /// Puts the programs on the cgroup, in place where they are on it already; takes them off where nobody is to be served.
    /// Where they cannot be put on, those of an earlier run stay.
    pub(super) fn attach(&self) -> SocketState {
        let mut state = SocketState { served: self.served, ..SocketState::default() };
        let done = match &self.ready {
            None => self.release(),
            Some(Err(sentence)) => Err(sentence.clone()),
            Some(Ok(ready)) => {
                let (cgroup, programs) = &**ready;
                state.cgroup = Some(cgroup.path().to_owned());
                programs.iter().try_for_each(|(hook, program)| {
                    attach(&self.links, *hook, program, cgroup).map_err(|error| {
                        format!("cannot attach {} to {}: {error}", hook.name(), cgroup.path().display())
                    })?;
                    state.hooks.push(*hook);
                    Ok(())
                })
            }
        };
        state.error = done.err();
        state
    }

    fn release(&self) -> Result<(), String> {
        SocketHook::ATTACH_ORDER.iter().rev().try_for_each(|hook| {
            let path = hook.pin_path(&self.links);
            pinned::release(&path)
                .map(drop)
                .map_err(|error| format!("cannot remove {}: {error}", path.display()))
        })
    }
}

fn attach(links: &Path, hook: SocketHook, program: &OwnedFd, cgroup: &Cgroup) -> io::Result<()> {
    let path = hook.pin_path(links);
    pinned::attach(
        &path,
        program.as_fd(),
        // The link of a cgroup that has gone is on none.
        |link| Ok(sys::link_cgroup(link)? == cgroup.id()),
        || sys::cgroup_link_create(program.as_fd(), cgroup.as_fd(), hook.attach_type()),
    )
}

/// Whether a pin is that of a hook whose program gives calls a backend. Such links are removed first, as they came last.
pub(super) fn is_request_pin(path: &Path) -> bool {
    let hook = path.file_name().and_then(|name| SocketHook::of_pin(name.to_str()?));
    hook.is_some_and(SocketHook::translates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pin_of_a_hook_names_it_and_no_interface() {
        for hook in SocketHook::ATTACH_ORDER {
            let path = hook.pin_path(Path::new("/links"));
            let name = path.file_name().and_then(|name| name.to_str()).unwrap();
            assert_eq!(SocketHook::of_pin(name), Some(hook));
            assert_eq!(is_request_pin(&path), hook.translates());
            assert_eq!(name.split_once('-').unwrap().0.parse::<u32>().ok(), None);
        }
        assert_eq!(SocketHook::of_pin("7-ingress"), None);
    }

    #[test]
    fn nobody_is_given_a_backend_before_everybody_is_told_the_vip() {
        let order = SocketHook::ATTACH_ORDER;
        assert!(order.is_sorted_by_key(|hook| hook.translates()));
        let mut hooks = order.to_vec();
        hooks.sort_unstable();
        hooks.dedup();
        assert_eq!(hooks.len(), order.len());
    }
}
