//! What this build can treat fully on the wire: the one place that decides it.
//!
//! A frontend beyond it is computed and shown, but kept out of the datapath, so that nothing is half translated.

use super::FrontendKind;
use crate::model::Protocol;

/// The same for health-check node ports.
pub(super) const HEALTH_CHECKS_BEYOND: Option<&str> = Some("health-check node ports");

/// What of a frontend is beyond this build, if something is.
pub(super) fn beyond(
    kind: FrontendKind,
    protocol: Protocol,
    affinity_seconds: Option<u32>,
) -> Option<&'static str> {
    let rows = [
        (kind == FrontendKind::NodePort, "NodePorts"),
        (kind == FrontendKind::ExternalIP, "external IPs"),
        (kind == FrontendKind::LoadBalancer, "load-balancer addresses"),
        (protocol == Protocol::Sctp, "SCTP"),
        (affinity_seconds.is_some(), "session affinity"),
    ];
    rows.into_iter().find_map(|(is, what)| is.then_some(what))
}
