//! The Pod, as the prober and the endpoint controller read it.

use std::{collections::BTreeMap, sync::Arc};

use super::{ObjectKey, Probe, Protocol};

/// Annotation: addresses of the pod, separated by commas, where `status.podIPs` has none.
pub const POD_IPS: &str = "readylb.io/pod-ips";
/// The annotations that are kept.
pub const POD_ANNOTATIONS: &[&str] = &[POD_IPS];

/// A `v1` Pod, reduced to the fields in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.labels`.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// `metadata.annotations`, those of [`POD_ANNOTATIONS`] only.
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    /// `metadata.deletionTimestamp`, seconds since the epoch: the pod is being deleted.
    pub deleted: Option<i64>,
    /// `spec.nodeName`, never empty.
    pub node: Option<Arc<str>>,
    /// `spec.hostname`, never empty.
    pub hostname: Option<Box<str>>,
    /// `spec.subdomain`, never empty.
    pub subdomain: Option<Box<str>>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `spec.readinessGates[].conditionType`.
    pub readiness_gates: Vec<Box<str>>,
    /// `spec.containers`, after the sidecars: init containers with `restartPolicy: Always`.
    pub containers: Vec<Container>,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.podIPs`, else `status.podIP` alone, as text, the empty ones left out.
    pub ips: Vec<Box<str>>,
    /// `status.conditions`: type, and whether its status is True.
    pub conditions: BTreeMap<Box<str>, bool>,
    /// What the object says that is not understood or not obeyed; one sentence each.
    pub warnings: Vec<String>,
}

/// `status.phase` of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its containers run; also where the field is absent, as in manifests.
    Running,
    /// Not all of its containers have started.
    Pending,
    /// All containers have ended well.
    Succeeded,
    /// All containers have ended, one of them badly.
    Failed,
    /// The node has not been heard of.
    Unknown,
}

impl Phase {
    /// Whether no container of the pod will run again.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A container that may have probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// `name`, unique in the pod.
    pub name: Box<str>,
    /// It is a sidecar: an init container with `restartPolicy: Always`.
    pub sidecar: bool,
    /// `ports`.
    pub ports: Vec<ContainerPort>,
    /// Its probes, at most one of a kind: startup, readiness, liveness.
    pub probes: Vec<Probe>,
    /// Its entry of `status.containerStatuses` or `status.initContainerStatuses`.
    pub status: Option<ContainerStatus>,
}

/// One of `ports` of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPort {
    /// `name`; empty where it is absent.
    pub name: Box<str>,
    /// `containerPort`, 1–65535.
    pub number: u16,
    /// `protocol`; the text itself where Kubernetes has no such protocol.
    pub protocol: Result<Protocol, Box<str>>,
}

/// What the status says of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// `started`.
    pub started: Option<bool>,
    /// `ready`.
    pub ready: bool,
}
