//! Which Service has which health-check node port.

use std::collections::BTreeMap;

use super::HealthCheck;
use crate::model::ObjectKey;

/// What is asked at the health-check node ports, by port.
pub type HealthChecks = BTreeMap<u16, HealthCheckOf>;

/// The Service that is asked for at a health-check node port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckOf {
    /// The Service.
    pub service: ObjectKey,
    /// Number of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// A Service that claims a port, in order of precedence: the older object, then the name. An object of unknown age comes
/// after those whose age is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    age_unknown: bool,
    created: Option<i64>,
    service: ObjectKey,
    local_endpoints: usize,
}

/// The claims on health-check node ports. The API server gives each port once, manifests may not.
#[derive(Debug, Default)]
pub(super) struct HealthPorts {
    claims: BTreeMap<u16, Vec<Claim>>,
    changed: bool,
}

impl HealthPorts {
    /// Takes a Service out.
    pub(super) fn remove(&mut self, service: &ObjectKey, check: HealthCheck) {
        if let Some(claims) = self.claims.get_mut(&check.port) {
            claims.retain(|claim| claim.service != *service);
            if claims.is_empty() {
                self.claims.remove(&check.port);
            }
            self.changed = true;
        }
    }

    /// Takes a Service in.
    pub(super) fn insert(&mut self, service: &ObjectKey, created: Option<i64>, check: HealthCheck) {
        let claim = Claim {
            age_unknown: created.is_none(),
            created,
            service: service.clone(),
            local_endpoints: check.local_endpoints,
        };
        let claims = self.claims.entry(check.port).or_default();
        let at = claims.partition_point(|other| *other < claim);
        claims.insert(at, claim);
        self.changed = true;
    }

    /// Who has the port, if somebody has.
    pub(super) fn winner(&self, port: u16) -> Option<&ObjectKey> {
        Some(&self.claims.get(&port)?.first()?.service)
    }

    /// Every port with the Service that has it, if that may have changed since the last call.
    pub(super) fn take_changed(&mut self) -> Option<HealthChecks> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let first = |claims: &Vec<Claim>| {
            let Claim { service, local_endpoints, .. } = claims.first()?;
            Some(HealthCheckOf { service: service.clone(), local_endpoints: *local_endpoints })
        };
        Some(self.claims.iter().filter_map(|(port, claims)| Some((*port, first(claims)?))).collect())
    }
}
