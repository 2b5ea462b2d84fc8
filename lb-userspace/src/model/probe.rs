//! A probe of a container, with the API's defaults in it.

use super::pod::ContainerPort;

/// A `v1` Probe. `terminationGracePeriodSeconds` is not read: readylb ends no container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Which of the container's three probes it is.
    pub kind: ProbeKind,
    /// What is asked.
    pub handler: Handler,
    /// `initialDelaySeconds`, in seconds after the start of the container; default 0.
    pub initial_delay_seconds: u32,
    /// `periodSeconds`, at least 1; default 10.
    pub period_seconds: u32,
    /// `timeoutSeconds`, at least 1; default 1.
    pub timeout_seconds: u32,
    /// `successThreshold`, at least 1; default 1, and always 1 for startup and liveness.
    pub success_threshold: u32,
    /// `failureThreshold`, at least 1; default 3.
    pub failure_threshold: u32,
}

/// Which probe of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// `startupProbe`: until it has succeeded the other two wait.
    Startup,
    /// `readinessProbe`.
    Readiness,
    /// `livenessProbe`.
    Liveness,
}

impl ProbeKind {
    /// The name of the field, without `Probe`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Readiness => "readiness",
            Self::Liveness => "liveness",
        }
    }
}

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// `httpGet`.
    Http(HttpGet),
    /// `tcpSocket`.
    Tcp {
        /// `host`; the pod's address where it is absent.
        host: Option<Box<str>>,
        /// `port`.
        port: ProbePort,
    },
    /// `exec.command`, run without a shell.
    Exec(Vec<Box<str>>),
    /// `grpc`, the health protocol (`grpc.health.v1`).
    Grpc {
        /// `port`. The API takes no name here.
        port: ProbePort,
        /// `service`; empty where it is absent.
        service: Box<str>,
    },
    /// Nothing that this build knows. The API refuses such a probe; here it never succeeds.
    Unknown,
}

/// `httpGet` of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    /// `host`; the pod's address where it is absent.
    pub host: Option<Box<str>>,
    /// `port`.
    pub port: ProbePort,
    /// `path`, with the query; `/` where it is absent.
    pub path: Box<str>,
    /// `scheme` is HTTPS; otherwise HTTP, also where it is absent.
    pub https: bool,
    /// `httpHeaders`, name and value, in their order; a name may be there twice.
    pub headers: Vec<(Box<str>, Box<str>)>,
}

/// A port that a probe names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbePort {
    /// A number, as written; the API takes 1 to 65535.
    Number(i32),
    /// Text: the name of a port of the container, or else a number.
    Text(Box<str>),
}

impl ProbePort {
    /// The port number, or `None` where there is none: text is looked up among the names of the container's ports
    /// first, whatever their protocol, and then read as a number, as the kubelet does it.
    pub fn resolve(&self, ports: &[ContainerPort]) -> Option<u16> {
        let number = match self {
            Self::Number(number) => u16::try_from(*number).ok(),
            Self::Text(text) => match ports.iter().find(|port| port.name == *text) {
                Some(port) => Some(port.number),
                None => text.parse().ok(),
            },
        };
        number.filter(|&number| number != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;

    #[test]
    fn text_is_a_name_first_and_then_a_number() {
        let port =
            |name: &str, number| ContainerPort { name: name.into(), number, protocol: Ok(Protocol::Tcp) };
        let ports = [port("http", 8080), port("9090", 7070)];
        let text = |text: &str| ProbePort::Text(text.into()).resolve(&ports);
        assert_eq!(text("http"), Some(8080));
        assert_eq!(text("9090"), Some(7070));
        assert_eq!(text("9091"), Some(9091));
        for none in ["https", "", "0", "65536", "-1"] {
            assert_eq!(text(none), None, "{none}");
        }
        assert_eq!(ProbePort::Number(80).resolve(&[]), Some(80));
        for none in [-1, 0, 65_536] {
            assert_eq!(ProbePort::Number(none).resolve(&ports), None, "{none}");
        }
    }
}
