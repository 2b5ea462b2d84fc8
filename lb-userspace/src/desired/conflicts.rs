//! The desired state of the whole, and who gets an address that two Services claim.

use std::collections::{BTreeSet, HashMap, hash_map::Entry};

use lb_common::{ServiceKey, Verdict};

use super::{
    EndpointSet, Frontend, HealthCheck, HealthChecks, ServiceDesired, Withheld, health::HealthPorts,
};
use crate::model::ObjectKey;

/// The desired state of every Service. The cost of a change depends on the Services that it touches, not on how many
/// there are.
#[derive(Debug, Default)]
pub struct Desired {
    /// Not ordered: comparing names down a large tree costs more than all else that a change costs.
    services: HashMap<ObjectKey, ServiceDesired>,
    /// Who claims an address, port and protocol; the first one has it.
    claims: HashMap<ServiceKey, Vec<Claim>>,
    health: HealthPorts,
    frontends: usize,
    programmable: usize,
    /// Services with warnings of their own.
    warned: BTreeSet<ObjectKey>,
    warnings: usize,
}

/// A frontend that claims its key, in order of precedence: kind, then the older object, then the name, then the place in
/// the Service. An object of unknown age comes after those whose age is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    kind: u8,
    age_unknown: bool,
    created: Option<i64>,
    service: ObjectKey,
    index: usize,
}

impl Desired {
    /// Puts the desired state of a Service in place of its last one, and tells which frontends this may change, also
    /// those of other Services; `None` if the two are the same.
    pub fn update(&mut self, key: &ObjectKey, new: Option<ServiceDesired>) -> Option<BTreeSet<ServiceKey>> {
        let old = self.services.get(key);
        if old == new.as_ref() {
            return None;
        }
        let frontends = [old, new.as_ref()].into_iter().flatten().flat_map(|of| &of.frontends);
        let touched: BTreeSet<_> = frontends.map(Frontend::key).collect();
        self.programmable -= self.won(&touched);
        self.remove(key);
        if let Some(new) = new {
            self.insert(key, new);
        }
        self.programmable += self.won(&touched);
        Some(touched)
    }

    /// The desired state of a Service.
    pub fn service(&self, key: &ObjectKey) -> Option<&ServiceDesired> {
        self.services.get(key)
    }

    /// Every Service, in no order.
    pub fn services(&self) -> impl Iterator<Item = (&ObjectKey, &ServiceDesired)> {
        self.services.iter()
    }

    /// Number of Services.
    pub fn service_count(&self) -> usize {
        self.services.len()
    }

    /// Number of frontends, and how many of them belong into the datapath.
    pub const fn frontend_counts(&self) -> (usize, usize) {
        (self.frontends, self.programmable)
    }

    /// The Service whose frontend belongs into the datapath under this key.
    pub fn winner(&self, key: &ServiceKey) -> Option<&ObjectKey> {
        let first = self.claims.get(key)?.first()?;
        Some(&first.service)
    }

    /// The frontends of a Service, each with its endpoints and with why it is kept out of the datapath, if it is.
    pub fn frontends_of<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> impl Iterator<Item = (&'a Frontend, &'a EndpointSet, Option<Withheld>)> {
        let service = self.services.get(key);
        service.into_iter().flat_map(move |service| {
            service.frontends.iter().enumerate().map(move |(index, frontend)| {
                (frontend, &service.sets[frontend.set], self.taken(key, index, frontend))
            })
        })
    }

    /// The health-check node port of a Service, if it has one, and why it is not served, if so.
    pub fn health_check_of(&self, key: &ObjectKey) -> Option<(HealthCheck, Option<Withheld>)> {
        let check = self.services.get(key)?.health_check?;
        let winner = self.health.winner(check.port).filter(|winner| *winner != key);
        let taken = winner.map(|winner| Withheld {
            reason: Verdict::AddressTaken,
            message: format!("health-check node port {}: Service {winner} has it by precedence", check.port),
        });
        Some((check, taken))
    }

    /// What is asked at health-check node ports, if that may have changed since the last call.
    pub fn take_health_checks(&mut self) -> Option<HealthChecks> {
        self.health.take_changed()
    }

    /// The warnings of Services that are not in their objects.
    pub fn warnings(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let services = self.warned.iter().filter_map(|key| self.services.get_key_value(key));
        services
            .flat_map(|(key, service)| service.warnings.iter().map(move |message| (key, message.as_str())))
    }

    /// Number of [`Desired::warnings`].
    pub const fn warning_count(&self) -> usize {
        self.warnings
    }

    fn taken(&self, key: &ObjectKey, index: usize, frontend: &Frontend) -> Option<Withheld> {
        let first = self.claims.get(&frontend.key())?.first()?;
        if (&first.service, first.index) == (key, index) {
            return None;
        }
        let message = if first.service == *key {
            format!("{frontend}: the Service has it already")
        } else {
            format!("{frontend}: Service {} has it by precedence", first.service)
        };
        Some(Withheld { reason: Verdict::AddressTaken, message })
    }

    /// How many of these keys have a frontend that belongs into the datapath.
    fn won(&self, keys: &BTreeSet<ServiceKey>) -> usize {
        keys.iter().filter(|key| self.winner(key).is_some()).count()
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.warned.remove(key);
        let Some(service) = self.services.remove(key) else { return };
        if let Some(check) = service.health_check {
            self.health.remove(key, check);
        }
        self.frontends -= service.frontends.len();
        self.warnings -= service.warnings.len();
        for frontend in &service.frontends {
            if let Entry::Occupied(mut claims) = self.claims.entry(frontend.key()) {
                claims.get_mut().retain(|claim| claim.service != *key);
                if claims.get().is_empty() {
                    claims.remove();
                }
            }
        }
    }

    fn insert(&mut self, key: &ObjectKey, service: ServiceDesired) {
        if !service.warnings.is_empty() {
            self.warned.insert(key.clone());
        }
        if let Some(check) = service.health_check {
            self.health.insert(key, service.created, check);
        }
        self.frontends += service.frontends.len();
        self.warnings += service.warnings.len();
        for (index, frontend) in service.frontends.iter().enumerate() {
            let claim = Claim {
                kind: frontend.kind.precedence(),
                age_unknown: service.created.is_none(),
                created: service.created,
                service: key.clone(),
                index,
            };
            let claims = self.claims.entry(frontend.key()).or_default();
            let at = claims.partition_point(|other| *other < claim);
            claims.insert(at, claim);
        }
        self.services.insert(key.clone(), service);
    }
}
