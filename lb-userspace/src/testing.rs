//! Objects for tests, in few words.

use crate::{
    model::{
        AddressType, Conditions, Endpoint, EndpointSlice, Host, Kind, LoadBalancerIp, Node, Object,
        ObjectKey, Policy, Protocol, Service, ServicePort, ServiceType, SessionAffinity, SlicePort,
        parse_address,
    },
    source::{Event, Feed, SourceEvent},
};

/// This node.
pub(crate) const NODE: &str = "node-a";
/// Another one.
pub(crate) const OTHER_NODE: &str = "node-b";
/// Cluster IPs.
pub(crate) const VIP: &str = "10.96.0.50";
pub(crate) const VIP_V6: &str = "2001:db8:f0::50";
pub(crate) const OTHER_VIP: &str = "10.96.0.53";
/// Addresses of endpoints.
pub(crate) const BACKEND_1: &str = "10.244.1.21";
pub(crate) const BACKEND_2: &str = "10.244.2.22";
pub(crate) const BACKEND_3: &str = "10.244.2.23";
pub(crate) const BACKEND_V6: &str = "2001:db8:2::22";

/// The key in `namespace/name`.
pub(crate) fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    ObjectKey::new(namespace, name)
}

/// A ClusterIP Service without ports.
pub(crate) fn service(text: &str, cluster_ips: &[&str]) -> Service {
    Service {
        key: key(text),
        created: None,
        proxy_name: None,
        headless: false,
        service_type: ServiceType::ClusterIP,
        cluster_ips: cluster_ips.iter().map(|ip| (*ip).into()).collect(),
        external_ips: Vec::new(),
        load_balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        ports: Vec::new(),
        affinity: SessionAffinity::None,
        internal_policy: Policy::Cluster,
        external_policy: Policy::Cluster,
        health_check_port: None,
        traffic_distribution: None,
        warnings: Vec::new(),
    }
}

/// `default/web`: port 80 with the name `http` at [`VIP`].
pub(crate) fn web() -> Service {
    service("default/web", &[VIP]).port("http", 80)
}

/// A slice `default/<name>` of a Service of that namespace, IPv4, without ports.
pub(crate) fn slice(text: &str, service: &str) -> EndpointSlice {
    EndpointSlice {
        kind: Kind::EndpointSlice,
        key: key(text),
        service: (!service.is_empty()).then(|| service.into()),
        address_type: AddressType::Ipv4,
        ports: Vec::new(),
        endpoints: Vec::new(),
        warnings: Vec::new(),
    }
}

/// `default/web-1`, of `web`: `http` is 8080, and these endpoints are ready.
pub(crate) fn web_slice(addresses: &[&str]) -> EndpointSlice {
    slice("default/web-1", "web").port("http", 8080).ready(addresses)
}

/// An endpoint that is ready, on no node.
pub(crate) fn endpoint(address: &str) -> Endpoint {
    Endpoint {
        address: Some(parse_address(address)),
        conditions: Conditions { ready: true, serving: true, terminating: false },
        node: None,
        zone: None,
        hints: None,
        target: None,
    }
}

/// A load-balancer address that is a proxy's to serve.
pub(crate) fn balanced(ip: &str) -> LoadBalancerIp {
    LoadBalancerIp { ip: ip.into(), proxied: false }
}

/// A Node; without a zone where that is empty.
pub(crate) fn node(name: &str, zone: &str, ips: &[&str]) -> Node {
    Node {
        key: ObjectKey::new("", name),
        zone: (!zone.is_empty()).then(|| zone.into()),
        ips: ips.iter().map(|ip| (*ip).into()).collect(),
    }
}

impl Service {
    pub(crate) fn port(self, name: &str, port: u16) -> Self {
        self.port_of(name, port, Ok(Protocol::Tcp))
    }

    pub(crate) fn port_of(mut self, name: &str, port: u16, protocol: Result<Protocol, Box<str>>) -> Self {
        self.ports.push(ServicePort { name: name.into(), protocol, port, node_port: None });
        self
    }

    pub(crate) fn of_type(self, service_type: ServiceType) -> Self {
        Self { service_type, ..self }
    }

    pub(crate) fn local(self) -> Self {
        Self { internal_policy: Policy::Local, ..self }
    }
}

impl EndpointSlice {
    pub(crate) fn port(self, name: &str, port: u16) -> Self {
        self.port_of(name, Some(port), Ok(Protocol::Tcp))
    }

    pub(crate) fn port_of(
        mut self,
        name: &str,
        port: Option<u16>,
        protocol: Result<Protocol, Box<str>>,
    ) -> Self {
        self.ports.push(SlicePort { name: name.into(), protocol, port });
        self
    }

    pub(crate) fn of(self, address_type: AddressType) -> Self {
        Self { address_type, ..self }
    }

    pub(crate) fn with(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    pub(crate) fn ready(mut self, addresses: &[&str]) -> Self {
        self.endpoints.extend(addresses.iter().map(|address| endpoint(address)));
        self
    }
}

impl Endpoint {
    pub(crate) fn on(self, node: &str) -> Self {
        Self { node: Some(node.into()), ..self }
    }

    pub(crate) fn when(self, ready: bool, serving: bool, terminating: bool) -> Self {
        Self { conditions: Conditions { ready, serving, terminating }, ..self }
    }

    pub(crate) fn not_ready(self) -> Self {
        self.when(false, false, false)
    }

    /// Terminating, but serving.
    pub(crate) fn leaving(self) -> Self {
        self.when(false, true, true)
    }
}

impl From<Service> for Object {
    fn from(service: Service) -> Self {
        Self::Service(service)
    }
}

impl From<Node> for Object {
    fn from(node: Node) -> Self {
        Self::Node(node)
    }
}

impl From<Host> for Object {
    fn from(host: Host) -> Self {
        Self::Host(host)
    }
}

impl From<EndpointSlice> for Object {
    fn from(slice: EndpointSlice) -> Self {
        Self::EndpointSlice(slice)
    }
}

/// Something said on a feed.
pub(crate) fn on(feed: usize, event: Event) -> SourceEvent {
    SourceEvent { feed: Feed(feed), event }
}

/// An object said on a feed.
pub(crate) fn apply(feed: usize, object: impl Into<Object>) -> SourceEvent {
    on(feed, Event::Apply(object.into()))
}

/// An object taken back on a feed.
pub(crate) fn delete(feed: usize, object: impl Into<Object>) -> SourceEvent {
    on(feed, Event::Delete(object.into().reference()))
}
