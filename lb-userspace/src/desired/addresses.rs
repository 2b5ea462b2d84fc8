//! Where clients reach a Service: its addresses of every kind, and under which policy.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ipnet::IpNet;
use lb_common::Verdict;

use super::{FrontendKind, NodeView, ServiceDesired};
use crate::model::{Family, LoadBalancerIp, Policy, Service, ServiceType, parse_address, parse_range, unfit};

/// An address of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: FrontendKind,
    pub(super) address: IpAddr,
    pub(super) policy: Policy,
}

impl Place {
    pub(super) fn is(&self, kind: FrontendKind, family: Family) -> bool {
        self.kind == kind && Family::of(self.address) == family
    }
}

/// The addresses of a Service on this node, in the order of their kinds. What is none is skipped, and the others serve.
pub(super) fn places(service: &Service, node: &NodeView, out: &mut ServiceDesired) -> Vec<Place> {
    let Service { cluster_ips, external_ips, internal_policy, external_policy, .. } = service;
    let mut reader = Reader { out, places: Vec::new() };
    reader.texts(FrontendKind::ClusterIP, cluster_ips, *internal_policy);
    // As kube-proxy has it, a family without a cluster IP is not served at all.
    let families: Vec<_> = reader.places.iter().map(|place| Family::of(place.address)).collect();
    if service.service_type == ServiceType::LoadBalancer {
        let ips = reader.balanced(&service.load_balancer_ips);
        reader.source_ranges(service, &ips);
        reader.texts(FrontendKind::LoadBalancer, &ips, *external_policy);
    }
    // After the load balancer's: of an address that is both, the one holds that source ranges guard.
    reader.texts(FrontendKind::ExternalIP, external_ips, *external_policy);
    if service.service_type.has_node_ports() {
        let (kind, policy) = (FrontendKind::NodePort, *external_policy);
        let on_node =
            node.nodeport_addresses.iter().filter(|address| families.contains(&Family::of(**address)));
        reader.places.extend(on_node.map(|&address| Place { kind, address, policy }));
    }
    let (places, foreign): (Vec<_>, Vec<_>) =
        reader.places.into_iter().partition(|place| families.contains(&Family::of(place.address)));
    for Place { kind, address, .. } in foreign {
        let reason = Verdict::FamilyNotServed;
        out.skip(reason, format!("{kind} {address}: {}", reason.describe()));
    }
    places
}

struct Reader<'a> {
    out: &'a mut ServiceDesired,
    places: Vec<Place>,
}

impl Reader<'_> {
    fn texts(&mut self, kind: FrontendKind, texts: &[Box<str>], policy: Policy) {
        for text in texts {
            let is_none = match parse_address(text) {
                Ok(address) => match unfit(address) {
                    None => {
                        self.places.push(Place { kind, address, policy });
                        continue;
                    }
                    Some(what) => format!("{kind} {text:?} is {what}, which no Service can have"),
                },
                Err(invalid) => format!("{kind} {invalid}"),
            };
            self.out.warnings.push(is_none.clone());
            self.out.skip(Verdict::InvalidVip, is_none);
        }
    }

    /// The load-balancer addresses that are ours to serve.
    fn balanced(&mut self, ips: &[LoadBalancerIp]) -> Vec<Box<str>> {
        let (proxied, ours): (Vec<_>, Vec<_>) = ips.iter().partition(|ip| ip.proxied);
        for LoadBalancerIp { ip, .. } in proxied {
            let reason = Verdict::LoadBalancerProxy;
            self.out.skip(reason, format!("{} {ip}: {}", FrontendKind::LoadBalancer, reason.describe()));
        }
        ours.into_iter().map(|ip| ip.ip.clone()).collect()
    }

    /// Reads who may connect to the load-balancer addresses. A wish to keep clients out that cannot be read keeps all of
    /// them out.
    fn source_ranges(&mut self, service: &Service, ips: &[Box<str>]) {
        if service.source_ranges.is_empty() {
            return;
        }
        let mut ranges = Vec::with_capacity(service.source_ranges.len());
        for text in &service.source_ranges {
            match parse_range(text.trim()) {
                Ok(range) => ranges.push(range),
                Err(invalid) => {
                    let warning = format!("spec.loadBalancerSourceRanges: {invalid}, and lets nobody in");
                    self.out.warnings.push(warning);
                }
            }
        }
        ranges.sort_unstable();
        ranges.dedup();
        if ranges.is_empty() {
            let reason = Verdict::InvalidSourceRange;
            for ip in ips {
                self.out.skip(reason, format!("{} {ip}: {}", FrontendKind::LoadBalancer, reason.describe()));
            }
        }
        let of_family = |is_v4: bool| move |range: &IpNet| matches!(range, IpNet::V4(_)) == is_v4;
        for address in ips.iter().filter_map(|ip| parse_address(ip).ok()) {
            if !ranges.is_empty() && !ranges.iter().any(of_family(address.is_ipv4())) {
                let family = Family::of(address);
                self.out.warnings.push(format!(
                    "{} {address}: none of spec.loadBalancerSourceRanges is of {family}, so nobody may connect",
                    FrontendKind::LoadBalancer
                ));
            }
        }
        self.out.source_ranges = Some(ranges);
    }
}
