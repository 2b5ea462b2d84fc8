//! The objects of a cluster of any size, always the same ones.

use std::{fmt::Write as _, io, net::Ipv4Addr};

use anyhow::Result;
use clap::ValueEnum;
use lb_userspace::{model::Object, source::manifest};
use serde_json::{Value, json};

/// Endpoints of each Service.
pub const ENDPOINTS: usize = 10;
/// Nodes that they are spread over, `node-0` first.
const NODES: usize = 1_000;
const ZONES: usize = 3;
const NAMESPACES: usize = 50;

/// How the objects are printed.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of Services, each with one EndpointSlice of 10 endpoints
    #[arg(long, default_value_t = 10_000)]
    pub(super) services: usize,
    /// As what
    #[arg(long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
    /// Shuffle them
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// YAML documents
    Yaml,
    /// One YAML document, a List
    YamlList,
    /// JSON objects, one after another
    Json,
    /// One JSON object, a List
    JsonList,
}

/// A cluster: Services of one port, each with one slice of [`ENDPOINTS`] endpoints. One in ten Services has something
/// that this build warns of.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    services: usize,
}

impl Cluster {
    /// A cluster of so many Services, at most 400,000.
    pub const fn of(services: usize) -> Self {
        Self { services }
    }

    /// Number of Services.
    pub const fn services(self) -> usize {
        self.services
    }

    /// Service number `n`.
    pub fn service(self, n: usize) -> Value {
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name(n),
                "namespace": namespace(n),
                "uid": format!("6f0d6a3e-0000-4000-8000-{n:012}"),
                "creationTimestamp": "2026-01-05T10:00:00Z",
                "labels": {"app.kubernetes.io/name": name(n)},
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": vip(n),
                "clusterIPs": [vip(n)],
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
                "internalTrafficPolicy": "Cluster",
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
                "selector": {"app.kubernetes.io/name": name(n)},
                "sessionAffinity": "None",
            },
            "status": {"loadBalancer": {}},
        });
        if n.is_multiple_of(10) {
            service["spec"]["trafficDistribution"] = "PreferOfALaterVersion".into();
        }
        service
    }

    /// The slice of Service number `n`; one of its endpoints may be not ready.
    pub fn slice(self, n: usize, not_ready: Option<usize>) -> Value {
        let endpoints: Vec<_> = (0..ENDPOINTS).map(|at| endpoint(n, at, not_ready != Some(at))).collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{}-x{n:05}", name(n)),
                "namespace": namespace(n),
                "uid": format!("6f0d6a3e-0000-4000-9000-{n:012}"),
                "labels": {
                    "kubernetes.io/service-name": name(n),
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        })
    }

    /// Everything, Services first.
    pub fn objects(self) -> impl Iterator<Item = Value> {
        let services = (0..self.services).map(move |n| self.service(n));
        services.chain((0..self.services).map(move |n| self.slice(n, None)))
    }

    pub(super) fn write(self, args: &Args, out: &mut impl io::Write) -> Result<()> {
        let mut objects: Vec<_> = self.objects().collect();
        if let Some(seed) = args.shuffle {
            fastrand::Rng::with_seed(seed).shuffle(&mut objects);
        }
        if matches!(args.format, Format::YamlList | Format::JsonList) {
            objects = vec![json!({"apiVersion": "v1", "kind": "List", "items": objects})];
        }
        for object in &objects {
            match args.format {
                Format::Json | Format::JsonList => writeln!(out, "{object}")?,
                Format::Yaml | Format::YamlList => {
                    writeln!(out, "---")?;
                    out.write_all(yaml(object, 0).as_bytes())?;
                }
            }
        }
        Ok(())
    }
}

/// Reads one object as a source does, so that what it holds in memory is what an agent holds.
///
/// # Errors
/// Where it is none.
pub fn read(object: &Value) -> Result<Object> {
    let contents = manifest::read_from(object.to_string().as_bytes(), "benchmark")?;
    contents.objects.into_values().next().ok_or_else(|| anyhow::anyhow!("{object} is no object of ours"))
}

fn endpoint(n: usize, at: usize, ready: bool) -> Value {
    let number = n * ENDPOINTS + at;
    let node = number % NODES;
    json!({
        "addresses": [address([10, 128, 0, 1], number)],
        "conditions": {"ready": ready, "serving": ready, "terminating": false},
        "nodeName": format!("node-{node}.example.test"),
        "zone": format!("region-1-zone-{}", node % ZONES),
        "targetRef": {
            "kind": "Pod",
            "name": format!("{}-7d4b9c6f5-x{at:04}", name(n)),
            "namespace": namespace(n),
            "uid": format!("6f0d6a3e-0000-4000-a000-{number:012}"),
        },
    })
}

fn name(n: usize) -> String {
    format!("service-{n:05}")
}

fn namespace(n: usize) -> String {
    format!("team-{}", n % NAMESPACES)
}

fn vip(n: usize) -> Ipv4Addr {
    address([10, 96, 0, 10], n)
}

fn address(first: [u8; 4], number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).expect("not that many addresses");
    (u32::from_be_bytes(first) + number).into()
}

/// Block style, as kubectl prints it. Text is in quotes, which are the same in JSON and in YAML.
fn yaml(value: &Value, depth: usize) -> String {
    let mut text = String::new();
    let indent = "  ".repeat(depth);
    let mut line = |head: &str, value: &Value| {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                write!(text, "{indent}{head}\n{}", yaml(value, depth + 1))
            }
            Value::Array(items) if !items.is_empty() => {
                write!(text, "{indent}{head}\n{}", yaml(value, depth + 1))
            }
            scalar => writeln!(text, "{indent}{head} {scalar}"),
        }
        .expect("a String takes everything");
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| line(&format!("{name}:"), value)),
        Value::Array(items) => items.iter().for_each(|value| line("-", value)),
        scalar => line("", scalar),
    }
    text
}
