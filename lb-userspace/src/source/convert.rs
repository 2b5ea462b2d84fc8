//! Where Kubernetes' types meet the model, and the only place that names them.
//!
//! The model keeps what a proxy obeys. What an object says in a way that is not understood becomes one of its warnings:
//! a newer API server may send values that this build does not know, and one bad field must not cost the whole object.

use std::sync::Arc;

use k8s_openapi::{
    Metadata,
    api::core::v1::{self as core, EndpointAddress, LoadBalancerIngress, ObjectReference},
    api::discovery::v1 as discovery,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

mod pod;
mod probe;

pub use pod::pod;

use super::names::shared;
use crate::model::{
    AddressType, Conditions, Endpoint, EndpointSlice, Hints, Kind, LoadBalancerIp, Node, Object, ObjectKey,
    ObjectRef, Policy, Protocol, Service, ServicePort, ServiceType, SessionAffinity, SlicePort,
    TrafficDistribution, parse_address,
};

/// The types of the API, for those who read them from somewhere.
pub(super) mod api {
    pub(crate) use k8s_openapi::api::{
        core::v1::{Endpoints, Node, Service},
        discovery::v1::EndpointSlice,
    };
}

/// Label of an EndpointSlice: the Service that it belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a Service: the proxy that serves it, where it is not the default one.
const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of a Service that no proxy is to serve, whatever its value.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Label of a Node: its zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Annotation of Endpoints: `truncated` where the Service has more than the 1,000 addresses that fit.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Default of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;
/// The largest value that the API takes for it.
const MAX_AFFINITY_SECONDS: u32 = 86_400;

/// An object of the API that the model has an equal of.
pub(super) trait FromApi: Metadata<Ty = ObjectMeta> + Sized {
    /// Its kind in the model.
    const MODEL_KIND: Kind;

    /// The namespace of an object that names none; `None` for a kind that belongs to no namespace.
    const DEFAULT_NAMESPACE: Option<&str> = Some("default");

    /// What the object is in the model. One Endpoints object can be several slices.
    fn into_model(self) -> Vec<Object>;

    /// What identifies the object. Needs the metadata only: the object of a DELETED event may hold nothing else.
    fn reference(&self) -> ObjectRef {
        ObjectRef { kind: Self::MODEL_KIND, key: key::<Self>(self.metadata()) }
    }

    /// What identifies one of the objects that the object of this key is in the model, counted from zero.
    fn part(key: &ObjectKey, index: usize) -> ObjectRef {
        ObjectRef { kind: Self::MODEL_KIND, key: part(key, index) }
    }
}

impl FromApi for core::Service {
    const MODEL_KIND: Kind = Kind::Service;

    fn into_model(self) -> Vec<Object> {
        vec![Object::Service(service(self))]
    }
}

impl FromApi for discovery::EndpointSlice {
    const MODEL_KIND: Kind = Kind::EndpointSlice;

    fn into_model(self) -> Vec<Object> {
        vec![Object::EndpointSlice(endpoint_slice(self))]
    }
}

impl FromApi for core::Endpoints {
    const MODEL_KIND: Kind = Kind::Endpoints;

    fn into_model(self) -> Vec<Object> {
        endpoints(self).into_iter().map(Object::EndpointSlice).collect()
    }
}

impl FromApi for core::Node {
    const MODEL_KIND: Kind = Kind::Node;
    const DEFAULT_NAMESPACE: Option<&str> = None;

    fn into_model(self) -> Vec<Object> {
        vec![Object::Node(node(self))]
    }
}

fn service(api: core::Service) -> Service {
    let mut warnings = Warnings::default();
    let key = key::<core::Service>(&api.metadata);
    let spec = api.spec.unwrap_or_default();
    let service_type = warnings.choose(
        "spec.type",
        spec.type_.as_deref(),
        &[
            ("ClusterIP", ServiceType::ClusterIP),
            ("NodePort", ServiceType::NodePort),
            ("LoadBalancer", ServiceType::LoadBalancer),
            ("ExternalName", ServiceType::ExternalName),
        ],
    );
    let internal_policy = warnings.choose(
        "spec.internalTrafficPolicy",
        spec.internal_traffic_policy.as_deref(),
        &[("Cluster", Policy::Cluster), ("Local", Policy::Local)],
    );
    let external_policy = warnings.choose(
        "spec.externalTrafficPolicy",
        spec.external_traffic_policy.as_deref(),
        &[("Cluster", Policy::Cluster), ("Local", Policy::Local)],
    );
    let traffic_distribution = traffic_distribution(spec.traffic_distribution.as_deref(), &mut warnings);
    let health_check_port =
        optional_port("spec.healthCheckNodePort", spec.health_check_node_port, &mut warnings);
    let affinity_config = spec.session_affinity_config.and_then(|config| config.client_ip);
    let affinity = session_affinity(
        spec.session_affinity.as_deref(),
        affinity_config.and_then(|config| config.timeout_seconds),
        &mut warnings,
    );
    let ports = exact(numbered(spec.ports).filter_map(|(i, port)| service_port(i, port, &mut warnings)));
    let ingress = api.status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
    let load_balancer_ips =
        numbered(ingress).filter_map(|(i, ingress)| load_balancer_ip(i, ingress, &mut warnings)).collect();
    let mut labels = api.metadata.labels.unwrap_or_default();
    let cluster_ips = spec.cluster_ips.filter(|ips| !ips.is_empty());
    Service {
        key,
        created: api.metadata.creation_timestamp.map(|time| time.0.as_second()),
        headless: labels.contains_key(HEADLESS),
        proxy_name: labels.remove(SERVICE_PROXY_NAME).map(Into::into),
        service_type,
        cluster_ips: boxed(cluster_ips.or_else(|| Some(vec![spec.cluster_ip?]))),
        external_ips: boxed(spec.external_ips),
        load_balancer_ips,
        source_ranges: boxed(spec.load_balancer_source_ranges),
        ports,
        affinity,
        internal_policy,
        external_policy,
        health_check_port,
        traffic_distribution,
        warnings: warnings.0,
    }
}

fn service_port(index: usize, api: core::ServicePort, warnings: &mut Warnings) -> Option<ServicePort> {
    let Some(port) = port_number(api.port) else {
        let field = format!("spec.ports[{index}].port");
        warnings.bad_port(&field, api.port, "this port of the Service is left out");
        return None;
    };
    let node_port = optional_port(&format!("spec.ports[{index}].nodePort"), api.node_port, warnings);
    Some(ServicePort {
        name: api.name.unwrap_or_default().into(),
        protocol: protocol(api.protocol),
        port,
        node_port,
    })
}

/// A port that need not be there. Zero is how the API's own encoding spells an absent number.
fn optional_port(field: &str, number: Option<i32>, warnings: &mut Warnings) -> Option<u16> {
    let number = number.filter(|&number| number != 0)?;
    let port = port_number(number);
    if port.is_none() {
        warnings.bad_port(field, number, "it is left out");
    }
    port
}

fn traffic_distribution(text: Option<&str>, warnings: &mut Warnings) -> Option<TrafficDistribution> {
    match text? {
        "" => None,
        "PreferClose" | "PreferSameZone" => Some(TrafficDistribution::SameZone),
        "PreferSameNode" => Some(TrafficDistribution::SameNode),
        text => {
            warnings.0.push(format!("spec.trafficDistribution {text:?} is not known and is ignored"));
            None
        }
    }
}

fn session_affinity(name: Option<&str>, seconds: Option<i32>, warnings: &mut Warnings) -> SessionAffinity {
    let known = [("None", false), ("ClientIP", true)];
    if !warnings.choose("spec.sessionAffinity", name, &known) {
        return SessionAffinity::None;
    }
    let timeout_seconds = match seconds.map(u32::try_from) {
        None => DEFAULT_AFFINITY_SECONDS,
        Some(Ok(seconds @ 1..=MAX_AFFINITY_SECONDS)) => seconds,
        Some(Ok(_) | Err(_)) => {
            warnings.0.push(format!(
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds is not within 1 and {MAX_AFFINITY_SECONDS}, and \
                 is treated as {DEFAULT_AFFINITY_SECONDS}"
            ));
            DEFAULT_AFFINITY_SECONDS
        }
    };
    SessionAffinity::ClientIP { timeout_seconds }
}

fn load_balancer_ip(
    index: usize,
    api: LoadBalancerIngress,
    warnings: &mut Warnings,
) -> Option<LoadBalancerIp> {
    let field = format!("status.loadBalancer.ingress[{index}].ipMode");
    let proxied = warnings.choose(&field, api.ip_mode.as_deref(), &[("VIP", false), ("Proxy", true)]);
    let ip = api.ip.filter(|ip| !ip.is_empty())?;
    Some(LoadBalancerIp { ip: ip.into(), proxied })
}

fn node(api: core::Node) -> Node {
    let addresses = api.status.and_then(|status| status.addresses).unwrap_or_default();
    let of_type = |name: &'static str| addresses.iter().filter(move |address| address.type_ == name);
    Node {
        key: key::<core::Node>(&api.metadata),
        zone: api
            .metadata
            .labels
            .and_then(|mut labels| labels.remove(ZONE))
            .filter(|zone| !zone.is_empty())
            .map(Into::into),
        ips: of_type("InternalIP")
            .chain(of_type("ExternalIP"))
            .map(|it| it.address.as_str().into())
            .collect(),
    }
}

fn endpoint_slice(api: discovery::EndpointSlice) -> EndpointSlice {
    let mut warnings = Warnings::default();
    let key = key::<discovery::EndpointSlice>(&api.metadata);
    let service = api.metadata.labels.and_then(|mut labels| labels.remove(SERVICE_NAME));
    EndpointSlice {
        kind: Kind::EndpointSlice,
        service: service.filter(|name| !name.is_empty()).as_deref().map(shared),
        address_type: match api.address_type.as_str() {
            "IPv4" => AddressType::Ipv4,
            "IPv6" => AddressType::Ipv6,
            "FQDN" => AddressType::Fqdn,
            other => AddressType::Unknown(other.into()),
        },
        ports: exact(numbered(api.ports).filter_map(|(i, port)| {
            slice_port("ports", i, port.name, port.protocol, port.port, &mut warnings)
        })),
        endpoints: exact(api.endpoints.into_iter().flatten().map(|api| endpoint(api, &key.namespace))),
        key,
        warnings: warnings.0,
    }
}

fn endpoint(api: discovery::Endpoint, namespace: &str) -> Endpoint {
    let conditions = api.conditions.unwrap_or_default();
    Endpoint {
        address: api.addresses.first().map(|text| parse_address(text)),
        conditions: Conditions {
            ready: conditions.ready.unwrap_or(true),
            serving: conditions.serving.unwrap_or(true),
            terminating: conditions.terminating.unwrap_or(false),
        },
        node: api.node_name.as_deref().filter(|name| !name.is_empty()).map(shared),
        zone: api.zone.as_deref().map(shared),
        hints: api.hints.map(|hints| Arc::new(self::hints(hints))),
        target: target_pod(api.target_ref, namespace),
    }
}

fn hints(api: discovery::EndpointHints) -> Hints {
    Hints {
        nodes: api.for_nodes.into_iter().flatten().map(|node| shared(&node.name)).collect(),
        zones: api.for_zones.into_iter().flatten().map(|zone| shared(&zone.name)).collect(),
    }
}

/// The first part of an object is named as the object; those after it get a number behind a slash, which no name in the
/// API contains.
fn part(whole: &ObjectKey, index: usize) -> ObjectKey {
    match index {
        0 => whole.clone(),
        more => ObjectKey {
            namespace: whole.namespace.clone(),
            name: format!("{}/{}", whole.name, more + 1).into(),
        },
    }
}

/// The slices that mirror an Endpoints object: one a subset, since ports differ between subsets, and one an address
/// family.
fn endpoints(api: core::Endpoints) -> Vec<EndpointSlice> {
    let mut warnings = Warnings::default();
    let key = key::<core::Endpoints>(&api.metadata);
    let annotations = api.metadata.annotations.unwrap_or_default();
    if annotations.get(OVER_CAPACITY).is_some_and(|state| state == "truncated") {
        warnings.0.push("the object holds only the first 1,000 addresses of its Service".into());
    }
    let mut slices = Vec::new();
    for (index, subset) in numbered(api.subsets) {
        let ports = numbered(subset.ports).filter_map(|(i, port)| {
            let list = format!("subsets[{index}].ports");
            slice_port(&list, i, port.name, port.protocol, Some(port.port), &mut warnings)
        });
        let ports: Vec<_> = ports.collect();
        for (address_type, endpoints) in
            families(subset.addresses, subset.not_ready_addresses, &key.namespace)
        {
            slices.push(EndpointSlice {
                kind: Kind::Endpoints,
                key: part(&key, slices.len()),
                service: Some(key.name.clone()),
                address_type,
                ports: ports.clone(),
                endpoints,
                warnings: Vec::new(),
            });
        }
    }
    if let Some(first) = slices.first_mut() {
        first.warnings = warnings.0;
    }
    slices
}

/// The addresses of a subset by family, a family without any left out. Text that is no address goes by its looks.
fn families(
    ready: Option<Vec<EndpointAddress>>,
    not_ready: Option<Vec<EndpointAddress>>,
    namespace: &str,
) -> impl Iterator<Item = (AddressType, Vec<Endpoint>)> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (list, ready) in [(ready, true), (not_ready, false)] {
        for address in list.into_iter().flatten() {
            let family = if address.ip.contains(':') { &mut v6 } else { &mut v4 };
            family.push(endpoint_address(address, ready, namespace));
        }
    }
    [(AddressType::Ipv4, v4), (AddressType::Ipv6, v6)].into_iter().filter(|(_, list)| !list.is_empty())
}

fn endpoint_address(api: EndpointAddress, ready: bool, namespace: &str) -> Endpoint {
    Endpoint {
        address: Some(parse_address(&api.ip)),
        conditions: Conditions { ready, serving: ready, terminating: false },
        node: api.node_name.as_deref().map(shared),
        zone: None,
        hints: None,
        target: target_pod(api.target_ref, namespace),
    }
}

fn slice_port(
    list: &str,
    index: usize,
    name: Option<String>,
    text: Option<String>,
    number: Option<i32>,
    warnings: &mut Warnings,
) -> Option<SlicePort> {
    let port = number.map(port_number);
    if let (Some(number), Some(None)) = (number, port) {
        warnings.bad_port(&format!("{list}[{index}].port"), number, "this port is left out");
        return None;
    }
    Some(SlicePort { name: name.unwrap_or_default().into(), protocol: protocol(text), port: port.flatten() })
}

fn key<T: FromApi>(metadata: &ObjectMeta) -> ObjectKey {
    let given = metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let namespace = T::DEFAULT_NAMESPACE.map_or("", |default| given.unwrap_or(default));
    let name = metadata.name.as_deref().unwrap_or_default();
    ObjectKey { namespace: shared(namespace), name: name.into() }
}

fn target_pod(api: Option<ObjectReference>, namespace: &str) -> Option<Arc<str>> {
    let api = api.filter(|target| target.kind.as_deref() == Some("Pod"))?;
    let namespace = api.namespace.as_deref().unwrap_or(namespace);
    Some(format!("{namespace}/{}", api.name?).into())
}

fn protocol(text: Option<String>) -> Result<Protocol, Box<str>> {
    match text {
        None => Ok(Protocol::Tcp),
        Some(text) if text.is_empty() => Ok(Protocol::Tcp),
        Some(text) => text.parse().map_err(|()| text.into()),
    }
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|&port| port != 0)
}

fn numbered<T>(list: Option<Vec<T>>) -> impl Iterator<Item = (usize, T)> {
    list.unwrap_or_default().into_iter().enumerate()
}

/// A list with no room to grow. It stays for as long as its object does.
fn exact<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list: Vec<_> = items.collect();
    list.shrink_to_fit();
    list
}

fn boxed(list: Option<Vec<String>>) -> Vec<Box<str>> {
    list.unwrap_or_default().into_iter().map(Into::into).collect()
}

/// One sentence for each thing in an object that is not understood.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Warnings {
    /// The value that an enumeration's text stands for. The first one is the default, for absent and for unknown text.
    fn choose<T: Copy>(&mut self, field: &str, text: Option<&str>, values: &[(&str, T)]) -> T {
        let (default_text, default) = values[0];
        let Some(text) = text.filter(|text| !text.is_empty()) else { return default };
        match values.iter().find(|(known, _)| *known == text) {
            Some((_, value)) => *value,
            None => {
                self.0.push(format!("{field} {text:?} is not known and is treated as {default_text}"));
                default
            }
        }
    }

    fn bad_port(&mut self, field: &str, number: i32, outcome: &str) {
        self.0.push(format!("{field} {number} is not a port number (1 to 65535), and {outcome}"));
    }
}

#[cfg(test)]
mod tests;
