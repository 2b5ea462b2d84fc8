//! Objects that a test writes: a dual-stack Service on its VIPs with chosen endpoints, ready or not.

use std::{fs, net::IpAddr, path::Path};

use anyhow::Result;
use serde_json::{Value, json};

use crate::netns::shapes::{Pod, Shape, VIP, VIP_V6};

/// Name of the Service.
pub const SERVICE: &str = "default/web";

/// Port of the Service, TCP and UDP.
pub const PORT: u16 = 80;

/// Port on which its backends listen.
pub const BACKEND_PORT: u16 = 8080;

/// The Service, with an EndpointSlice for each address family. The endpoints are the backends of a shape, each with
/// whether it is ready.
pub fn web(shape: &Shape, ready: [bool; 3]) -> [Value; 3] {
    [
        service("web", [VIP.into(), VIP_V6.into()]),
        web_slice(shape, VIP.into(), ready),
        web_slice(shape, VIP_V6.into(), ready),
    ]
}

/// A dual-stack Service of the namespace `default` on [`PORT`].
pub fn service(name: &str, vips: [IpAddr; 2]) -> Value {
    let port = |name, protocol| json!({"name": name, "port": PORT, "protocol": protocol, "targetPort": BACKEND_PORT});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "clusterIP": vips[0],
            "clusterIPs": vips,
            "ipFamilies": ["IPv4", "IPv6"],
            "ports": [port("tcp", "TCP"), port("udp", "UDP")],
        },
    })
}

/// The EndpointSlice of the Service `web` for the family of `like`.
pub fn web_slice(shape: &Shape, like: IpAddr, ready: [bool; 3]) -> Value {
    let family = if like.is_ipv4() { "IPv4" } else { "IPv6" };
    let port = |name, protocol| json!({"name": name, "port": BACKEND_PORT, "protocol": protocol});
    let endpoints: Vec<_> = shape
        .backends
        .iter()
        .zip(ready)
        .map(|(pod, ready)| json!({"addresses": [pod.address(like)], "conditions": {"ready": ready}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("web-{}", family.to_lowercase()),
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": family,
        "ports": [port("tcp", "TCP"), port("udp", "UDP")],
        "endpoints": endpoints,
    })
}

/// Objects as the text of a manifest.
pub fn list(objects: impl IntoIterator<Item = Value>) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects.into_iter().collect::<Vec<_>>()}).to_string()
}

/// Replaces a file as a whole, so that a watcher never sees half of it.
///
/// # Errors
/// What the kernel says.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, text)?;
    Ok(fs::rename(beside, path)?)
}

/// The addresses of both families of some backends.
pub fn addresses<'a>(backends: impl IntoIterator<Item = &'a Pod>) -> Vec<IpAddr> {
    backends.into_iter().flat_map(|pod| [IpAddr::from(pod.v4), IpAddr::from(pod.v6)]).collect()
}
