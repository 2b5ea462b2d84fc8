//! From one Service and its slices to its desired state.

use std::net::IpAddr;

use ipnet::IpNet;
use lb_common::Verdict;

use super::{
    EndpointSet, Frontend, FrontendKind, HealthCheck, Identity, NodeView, PortKey, Skipped,
    addresses::{Place, places},
    slices,
};
use crate::{
    endpoints::{Judged, Query, judge, select},
    model::{EndpointSlice, Family, Policy, Protocol, Service, ServicePort, ServiceType, SessionAffinity},
};

/// The desired state of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceDesired {
    /// `metadata.creationTimestamp`, seconds since the epoch.
    pub created: Option<i64>,
    /// The sets of endpoints that its frontends use.
    pub sets: Vec<EndpointSet>,
    /// Its frontends, also those kept out of the datapath.
    pub frontends: Vec<Frontend>,
    /// Who may connect to its load-balancer addresses: only clients in one of these, and nobody where none of them can be
    /// read. `None`: anybody.
    pub source_ranges: Option<Vec<IpNet>>,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check: Option<HealthCheck>,
    /// What makes no frontend.
    pub skipped: Vec<Skipped>,
    /// What a user should know of, beside what the objects themselves carry; one sentence each.
    pub warnings: Vec<String>,
}

/// Computes the desired state of a Service from its slices.
pub fn compile(
    service: &Service,
    slices: &[&EndpointSlice],
    identity: &Identity,
    node: &NodeView,
) -> ServiceDesired {
    let mut out = ServiceDesired { created: service.created, ..Default::default() };
    if let Some((reason, message)) = not_served(service, identity) {
        out.skip(reason, message);
        return out;
    }
    if service.ports.is_empty() {
        out.skip(Verdict::NoPorts, Verdict::NoPorts.describe().to_owned());
    }
    let places = places(service, node, &mut out);
    let mut compiler = Compiler { service, slices: slices::that_count(slices), identity, node, out };
    compiler.ports(&places);
    compiler.health_check(&places);
    compiler.api_server();
    let mut out = compiler.out;
    for slice in slices {
        if let Some(Skipped { reason, message }) = slices::left_out(slice, slices, &out.sets) {
            out.skip(reason, message);
        }
    }
    // Most Services have one of each, for as long as they exist.
    out.sets.shrink_to_fit();
    out.frontends.shrink_to_fit();
    out
}

/// Every endpoint that the slices of a Service list, with what became of it, once for each set of its desired state. The
/// slices that no set looks at are not among them, see [`left_out`](super::left_out).
pub fn explain<'a>(
    service: &'a Service,
    slices: &[&'a EndpointSlice],
    identity: &Identity,
    node: &NodeView,
    set: &EndpointSet,
) -> Vec<Judged<'a>> {
    let is_its = |port: &&ServicePort| port.name == set.port.name && port.protocol == Ok(set.port.protocol);
    let Some(port) = service.ports.iter().find(is_its) else { return Vec::new() };
    let query = query(service, (port, set.port.protocol), (set.family, set.policy), identity, node);
    judge(&query, &slices::that_count(slices)).0
}

fn query<'a>(
    service: &Service,
    (port, protocol): (&'a ServicePort, Protocol),
    (family, policy): (Family, Policy),
    identity: &'a Identity,
    node: &'a NodeView,
) -> Query<'a> {
    Query {
        port,
        protocol,
        family,
        policy,
        wish: service.traffic_distribution,
        node: &identity.node,
        zone: node.zone.as_deref(),
    }
}

/// Why the Service as a whole has no frontends, if so. Its type comes before its addresses: an ExternalName Service can
/// keep a cluster IP from an earlier life.
fn not_served(service: &Service, identity: &Identity) -> Option<(Verdict, String)> {
    if service.proxy_name != identity.proxy_name {
        let label = "the label service.kubernetes.io/service-proxy-name";
        let message = match (&service.proxy_name, &identity.proxy_name) {
            (Some(theirs), _) => format!("{label} gives the Service to {theirs:?}"),
            (None, ours) => {
                format!("only Services are served for which {label} is {:?}", ours.as_deref().unwrap_or(""))
            }
        };
        return Some((Verdict::OtherProxy, message));
    }
    let reason = if service.service_type == ServiceType::ExternalName {
        Verdict::ExternalName
    } else if service.headless || service.cluster_ips.iter().any(|ip| &**ip == "None") {
        Verdict::Headless
    } else if service.cluster_ips.iter().all(|ip| ip.is_empty()) {
        Verdict::NoClusterIP
    } else {
        return None;
    };
    Some((reason, reason.describe().to_owned()))
}

impl ServiceDesired {
    pub(super) fn skip(&mut self, reason: Verdict, message: String) {
        self.skipped.push(Skipped { reason, message });
    }
}

struct Compiler<'a> {
    service: &'a Service,
    slices: Vec<&'a EndpointSlice>,
    identity: &'a Identity,
    node: &'a NodeView,
    out: ServiceDesired,
}

impl Compiler<'_> {
    fn ports(&mut self, places: &[Place]) {
        for port in &self.service.ports {
            match &port.protocol {
                Ok(protocol) => self.port(port, *protocol, places),
                Err(text) => {
                    let message = format!(
                        "port {} has protocol {text:?}, which Kubernetes does not have: TCP, UDP and SCTP, in capitals",
                        port.port
                    );
                    self.out.warnings.push(message.clone());
                    self.out.skip(Verdict::UnsupportedProtocol, message);
                }
            }
        }
    }

    fn port(&mut self, port: &ServicePort, protocol: Protocol, places: &[Place]) {
        let affinity_seconds = match self.service.affinity {
            SessionAffinity::None => None,
            SessionAffinity::ClientIP { timeout_seconds } => Some(timeout_seconds),
        };
        for &Place { kind, address, policy } in places {
            let number = match kind {
                FrontendKind::NodePort => port.node_port,
                _ => Some(port.port),
            };
            let Some(number) = number else { continue };
            let set = self.set(port, protocol, Family::of(address), policy);
            let is_apart = kind != FrontendKind::ClusterIP && policy == Policy::Local;
            let inside = is_apart.then(|| self.set(port, protocol, Family::of(address), Policy::Cluster));
            let frontend = Frontend { kind, address, port: number, set, inside, protocol, affinity_seconds };
            self.out.frontends.push(frontend);
        }
        self.missing_node_ports(port, protocol, places);
    }

    /// Reports the families in which a NodePort has no address.
    fn missing_node_ports(&mut self, port: &ServicePort, protocol: Protocol, places: &[Place]) {
        let Some(number) = port.node_port.filter(|_| self.service.service_type.has_node_ports()) else {
            return;
        };
        let has = |kind, family| places.iter().any(|place| place.is(kind, family));
        for family in [Family::Ipv4, Family::Ipv6] {
            if has(FrontendKind::ClusterIP, family) && !has(FrontendKind::NodePort, family) {
                let (kind, reason) = (FrontendKind::NodePort, Verdict::NoNodeAddress);
                let wanted = &self.identity.nodeport_addresses;
                let message = format!(
                    "{kind} {number}/{protocol} over {family}: {} (--nodeport-addresses {wanted})",
                    reason.describe()
                );
                self.out.skip(reason, message);
            }
        }
    }

    fn query<'a>(
        &'a self,
        port: &'a ServicePort,
        protocol: Protocol,
        family: Family,
        policy: Policy,
    ) -> Query<'a> {
        query(self.service, (port, protocol), (family, policy), self.identity, self.node)
    }

    /// Index of the set, which is made on its first use.
    fn set(&mut self, port: &ServicePort, protocol: Protocol, family: Family, policy: Policy) -> usize {
        let same = |set: &EndpointSet| {
            set.port.name == port.name
                && set.port.protocol == protocol
                && set.family == family
                && set.policy == policy
        };
        if let Some(index) = self.out.sets.iter().position(same) {
            return index;
        }
        let selection = select(&self.query(port, protocol, family, policy), &self.slices);
        let port = PortKey { name: port.name.clone(), protocol };
        self.out.sets.push(EndpointSet { port, family, policy, selection });
        self.out.sets.len() - 1
    }

    /// A load balancer asks for local endpoints before it has an address to give.
    fn health_check(&mut self, places: &[Place]) {
        let service = self.service;
        let wants_one =
            service.service_type == ServiceType::LoadBalancer && service.external_policy == Policy::Local;
        let Some(port) = service.health_check_port.filter(|_| wants_one) else { return };
        let mut local = Vec::<IpAddr>::new();
        for port in &service.ports {
            let Ok(protocol) = port.protocol else { continue };
            let is_served = |family: &Family| places.iter().any(|it| it.is(FrontendKind::ClusterIP, *family));
            for family in [Family::Ipv4, Family::Ipv6].into_iter().filter(is_served) {
                // Not a set of the Service: no traffic asks for it unless a frontend does.
                let query = self.query(port, protocol, family, Policy::Local);
                let ready = select(&query, &self.slices).usable.into_iter().filter(|it| !it.draining);
                local.extend(ready.map(|backend| backend.address));
            }
        }
        local.sort_unstable();
        local.dedup();
        self.out.health_check = Some(HealthCheck { port, local_endpoints: local.len() });
    }

    /// Tells where the maps differ from this on purpose, see [`crate::plan::service`].
    fn api_server(&mut self) {
        let is_empty = self.out.sets.iter().any(|set| set.selection.usable.is_empty());
        if self.service.key.is_api_server() && is_empty {
            let warning =
                "no endpoint of the API server is usable; the last usable ones stay in the datapath";
            self.out.warnings.push(warning.to_owned());
        }
    }
}
