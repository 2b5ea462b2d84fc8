//! What the prober has found out about a pod.

/// Takes the place of what a Pod's own `status` says of its readiness, for pods that this agent probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodStatus {
    /// The condition `Ready`: its containers are, and every readiness gate is True.
    pub ready: bool,
    /// The condition `ContainersReady`.
    pub containers_ready: bool,
    /// Why it is not ready, one sentence that names container and probe or gate; empty where it is.
    pub message: String,
}
