//! What a Pod can say to the prober beyond the Kubernetes API.

use std::path::PathBuf;

use super::check::Place;
use crate::model::Pod;

/// Annotation: the network namespace in which the pod's commands run: a name as `ip netns` has it, or a path.
pub const EXEC_NETNS: &str = "readylb.io/exec-netns";
/// Annotation: the root folder in which the pod's commands run, an absolute path.
pub const EXEC_ROOT: &str = "readylb.io/exec-root";
/// Annotation: `true` or `false`, the readiness of containers that this agent may not probe.
pub const READY: &str = "readylb.io/ready";
/// Annotation: a line for `/bin/sh -c` that restarts a container whose startup or liveness probe has failed.
pub const RESTART_COMMAND: &str = "readylb.io/restart-command";

fn value<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.annotations.get(name).map(|it| it.trim()).filter(|it| !it.is_empty())
}

/// Where the commands of the pod run.
pub fn place(pod: &Pod) -> Place {
    let netns = value(pod, EXEC_NETNS).map(|name| {
        if name.starts_with('/') { PathBuf::from(name) } else { PathBuf::from("/run/netns").join(name) }
    });
    Place { netns, root: value(pod, EXEC_ROOT).map(PathBuf::from) }
}

/// The readiness that the annotation gives; `None` where it is absent or neither `true` nor `false`.
pub fn ready(pod: &Pod) -> Option<bool> {
    value(pod, READY).and_then(|text| text.parse().ok())
}

/// How a container of the pod is restarted.
pub fn restart_command(pod: &Pod) -> Option<&str> {
    value(pod, RESTART_COMMAND)
}
