//! What is asked of whom, resolved from a probe and its pod; and what comes of it.

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{annotations, worker::WorkerId};
use crate::model::{Container, Handler, Pod, Probe, ProbePort};

/// One run of a probe.
#[derive(Clone, Debug)]
pub struct Check {
    /// Whose it is; goes back with the answer.
    pub id: WorkerId,
    /// `timeoutSeconds`.
    pub timeout: Duration,
    /// What is asked of whom; or why nobody can be asked.
    pub target: Arc<Result<Target, String>>,
}

/// Whom a check asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An HTTP server.
    Http {
        /// Name or address.
        host: Box<str>,
        /// TCP port.
        port: u16,
        /// Over TLS.
        https: bool,
        /// Path and query.
        path: Box<str>,
        /// Name and value.
        headers: Vec<(Box<str>, Box<str>)>,
    },
    /// A TCP port.
    Tcp {
        /// Name or address.
        host: Box<str>,
        /// TCP port.
        port: u16,
    },
    /// A command on this machine.
    Exec {
        /// Program and arguments.
        command: Vec<Box<str>>,
        /// Where it runs.
        place: Place,
    },
    /// A server of `grpc.health.v1`.
    Grpc {
        /// Name or address.
        host: Box<str>,
        /// TCP port.
        port: u16,
        /// Name of the service, or empty.
        service: Box<str>,
    },
}

/// Where a command runs; `None`: where the agent does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// File of the network namespace.
    pub netns: Option<PathBuf>,
    /// Root folder.
    pub root: Option<PathBuf>,
}

/// What a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Well.
    Success,
    /// Not well.
    Failure,
    /// Nothing is known: before the first result, or since the prober itself erred.
    Unknown,
}

/// A result, and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether it is well.
    pub success: bool,
    /// One sentence or the beginning of the output.
    pub message: String,
}

impl Answer {
    /// All is well.
    pub fn success(message: impl Into<String>) -> Self {
        Self { success: true, message: message.into() }
    }

    /// It is not.
    pub fn failure(message: impl Into<String>) -> Self {
        Self { success: false, message: message.into() }
    }
}

/// The prober could not ask. Says nothing of the container; the sentence names the cause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProberError(pub String);

impl Target {
    /// Whom the probe asks.
    ///
    /// # Errors
    /// A sentence where the pod has no address yet, or the port is no port of the container.
    pub fn resolve(
        probe: &Probe,
        pod: &Pod,
        container: &Container,
        address: Option<IpAddr>,
    ) -> Result<Self, String> {
        let host = |named: &Option<Box<str>>| match (named, address) {
            (Some(host), _) => Ok(host.clone()),
            (None, Some(address)) => Ok(address.to_string().into()),
            (None, None) => Err("the pod has no address".to_owned()),
        };
        let port = |port: &ProbePort| {
            port.resolve(&container.ports).ok_or_else(|| match port {
                ProbePort::Number(number) => format!("{number} is no port number"),
                ProbePort::Text(name) => {
                    format!("container {} has no port named {name:?}", container.name)
                }
            })
        };
        match &probe.handler {
            Handler::Http(http) => Ok(Self::Http {
                port: port(&http.port)?,
                host: host(&http.host)?,
                https: http.https,
                path: http.path.clone(),
                headers: http.headers.clone(),
            }),
            Handler::Tcp { host: named, port: wanted } => {
                Ok(Self::Tcp { port: port(wanted)?, host: host(named)? })
            }
            Handler::Exec(command) if command.is_empty() => Err("the command is empty".to_owned()),
            Handler::Exec(command) => {
                Ok(Self::Exec { command: command.clone(), place: annotations::place(pod) })
            }
            Handler::Grpc { port: wanted, service } => {
                Ok(Self::Grpc { port: port(wanted)?, host: host(&None)?, service: service.clone() })
            }
            Handler::Unknown => Err("the probe asks nothing that is known".to_owned()),
        }
    }
}

/// `host:port`, an IPv6 address in brackets.
pub fn authority(host: &str, port: u16) -> String {
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http { host, port, https, path, .. } => {
                let slash = if path.starts_with('/') { "" } else { "/" };
                let scheme = if *https { "https" } else { "http" };
                write!(f, "http-get {scheme}://{}{slash}{path}", authority(host, *port))
            }
            Self::Tcp { host, port } => write!(f, "tcp-socket {}", authority(host, *port)),
            Self::Exec { command, .. } => write!(f, "exec {command:?}"),
            Self::Grpc { host, port, service } => write!(f, "grpc {} {service}", authority(host, *port)),
        }
    }
}
