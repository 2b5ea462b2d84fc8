//! Which probes this agent runs.

use crate::model::{Container, Handler, Pod, Probe};

use super::annotations;

/// `--probe`: whose pods this agent probes over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// Every pod, as no other agent tells what it found.
    #[default]
    All,
    /// Those of this node; others have the readiness that they come with.
    Local,
}

/// What the agent may do for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Probe it over the network.
    pub network: bool,
    /// Run commands for it.
    pub commands: bool,
}

impl Reach {
    /// The reach of an agent on `node`. `commands` says whether Pods may make this machine run commands at all: only
    /// where they are files of its own. A pod without `spec.nodeName` is of no node.
    pub fn of(scope: Scope, commands: bool, node: &str, pod: &Pod) -> Self {
        let local = pod.node.as_deref() == Some(node);
        Self { network: local || scope == Scope::All, commands: local && commands }
    }

    /// Whether it covers a probe.
    pub const fn covers(self, probe: &Probe) -> bool {
        match probe.handler {
            Handler::Exec(_) => self.commands,
            _ => self.network,
        }
    }
}

/// The readiness that a container comes with: by annotation, else its own status, else the Ready condition of the pod.
/// Without any of them it is not ready.
pub fn given(pod: &Pod, container: &Container) -> bool {
    annotations::ready(pod)
        .or_else(|| container.status.map(|status| status.ready))
        .or_else(|| pod.conditions.get("Ready").copied())
        .unwrap_or(false)
}
