//! From one Service and its slices to its desired state.

use std::net::IpAddr;

use lb_common::Verdict;

use super::{
    EndpointSet, Frontend, FrontendKind, Identity, NodeView, PortKey, Skipped, Withheld, feature_level,
};
use crate::{
    endpoints::select,
    model::{
        AddressType, EndpointSlice, Family, Policy, Protocol, Service, ServicePort, ServiceType,
        SessionAffinity, parse_address, unfit,
    },
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
    let mut compiler = Compiler {
        service,
        slices,
        identity,
        node,
        out: ServiceDesired { created: service.created, ..Default::default() },
    };
    if let Some((reason, message)) = not_served(service, identity) {
        compiler.skip(reason, message);
    } else {
        compiler.ports();
        compiler.unused_slices();
        compiler.api_server();
    }
    compiler.out
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
    } else if service.cluster_ips.iter().any(|ip| &**ip == "None") {
        Verdict::Headless
    } else if service.cluster_ips.iter().all(|ip| ip.is_empty()) {
        Verdict::NoClusterIP
    } else {
        return None;
    };
    Some((reason, reason.describe().to_owned()))
}

struct Compiler<'a> {
    service: &'a Service,
    slices: &'a [&'a EndpointSlice],
    identity: &'a Identity,
    node: &'a NodeView,
    out: ServiceDesired,
}

impl Compiler<'_> {
    fn skip(&mut self, reason: Verdict, message: String) {
        self.out.skipped.push(Skipped { reason, message });
    }

    fn ports(&mut self) {
        let service = self.service;
        if service.ports.is_empty() {
            self.skip(Verdict::NoPorts, Verdict::NoPorts.describe().to_owned());
        }
        // The external traffic policy decides about the external kinds; those are beyond this build, so the set shown
        // for them is the whole cluster's.
        let mut addresses =
            self.addresses(FrontendKind::ClusterIP, &service.cluster_ips, service.internal_policy);
        addresses.extend(self.addresses(FrontendKind::ExternalIP, &service.external_ips, Policy::Cluster));
        if service.service_type == ServiceType::LoadBalancer {
            let ips: Vec<_> =
                service.load_balancer_ips.iter().filter(|ip| !ip.proxied).map(|ip| ip.ip.clone()).collect();
            addresses.extend(self.addresses(FrontendKind::LoadBalancer, &ips, Policy::Cluster));
        }
        for port in &service.ports {
            match &port.protocol {
                Ok(protocol) => self.port(port, *protocol, &addresses),
                Err(text) => {
                    let message = format!(
                        "port {} has protocol {text:?}, which Kubernetes does not have: TCP, UDP and SCTP, in capitals",
                        port.port
                    );
                    self.skip(Verdict::UnsupportedProtocol, message);
                }
            }
        }
    }

    /// Reads the addresses of one kind. Text that is none is skipped, and the others still serve.
    fn addresses(
        &mut self,
        kind: FrontendKind,
        texts: &[Box<str>],
        policy: Policy,
    ) -> Vec<(FrontendKind, IpAddr, Policy)> {
        let mut addresses = Vec::with_capacity(texts.len());
        for text in texts {
            let unfit_text = match parse_address(text) {
                Ok(address) => match unfit(address) {
                    None => {
                        addresses.push((kind, address, policy));
                        continue;
                    }
                    Some(what) => format!("{kind} {text:?} is {what}, which no Service can have"),
                },
                Err(invalid) => format!("{kind} {invalid}"),
            };
            self.out.warnings.push(unfit_text.clone());
            self.skip(Verdict::InvalidVip, unfit_text);
        }
        addresses
    }

    fn port(&mut self, port: &ServicePort, protocol: Protocol, addresses: &[(FrontendKind, IpAddr, Policy)]) {
        let affinity_seconds = match self.service.affinity {
            SessionAffinity::None => None,
            SessionAffinity::ClientIP { timeout_seconds } => Some(timeout_seconds),
        };
        for &(kind, address, policy) in addresses {
            let set = self.set(port, protocol, Family::of(address), policy);
            let mut frontend =
                Frontend { kind, address, port: port.port, set, protocol, affinity_seconds, withheld: None };
            if let Some(what) = feature_level::beyond(kind, protocol, affinity_seconds) {
                let message = format!("{frontend}: this build does not serve {what} yet");
                frontend.withheld = Some(Withheld { reason: Verdict::NotInThisBuild, message });
            }
            self.out.frontends.push(frontend);
        }
        // The addresses of this node are not known here yet, so there is no frontend to show.
        let has_node_ports =
            matches!(self.service.service_type, ServiceType::NodePort | ServiceType::LoadBalancer);
        let node_port = port.node_port.filter(|_| has_node_ports);
        let kind = FrontendKind::NodePort;
        if let (Some(number), Some(what)) =
            (node_port, feature_level::beyond(kind, protocol, affinity_seconds))
        {
            let message = format!("{kind} {number}/{protocol}: this build does not serve {what} yet");
            self.skip(Verdict::NotInThisBuild, message);
        }
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
        let selection = select(port, protocol, family, policy, self.slices, &self.identity.node);
        let port = PortKey { name: port.name.clone(), protocol };
        self.out.sets.push(EndpointSet { port, family, policy, selection });
        self.out.sets.len() - 1
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

    /// Reports the slices that no frontend looks at.
    fn unused_slices(&mut self) {
        for slice in self.slices {
            let address_type = &slice.address_type;
            let (reason, what) = match address_type {
                AddressType::Fqdn => {
                    (Verdict::FqdnSlice, "holds host names, which are not resolved".to_owned())
                }
                AddressType::Unknown(text) => {
                    (Verdict::UnknownAddressType, format!("has the unknown address type {text:?}"))
                }
                AddressType::Ipv4 | AddressType::Ipv6 => {
                    let mut sets = self.out.sets.iter();
                    if sets.len() == 0 || sets.any(|set| address_type.family() == Some(set.family)) {
                        continue;
                    }
                    let what =
                        format!("holds {address_type} addresses, and the Service has none of that family");
                    (Verdict::FamilyNotServed, what)
                }
            };
            self.skip(reason, format!("{} {what}", slice.reference()));
        }
    }
}
