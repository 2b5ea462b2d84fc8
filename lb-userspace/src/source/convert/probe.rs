//! Probes. The API server refuses an object with a bad number; here it costs a warning, and the default is used.

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::util::intstr::IntOrString};

use super::{Warnings, boxed};
use crate::model::{Handler, HttpGet, Probe, ProbeKind, ProbePort};

/// The probes of a container; `field` is where it stands in its Pod.
pub(super) fn probes(field: &str, api: &mut core::Container, warnings: &mut Warnings) -> Vec<Probe> {
    let all = [
        (ProbeKind::Startup, api.startup_probe.take()),
        (ProbeKind::Readiness, api.readiness_probe.take()),
        (ProbeKind::Liveness, api.liveness_probe.take()),
    ];
    let there = all.into_iter().filter_map(|(kind, api)| Some((kind, api?)));
    there.map(|(kind, api)| probe(&format!("{field}.{}Probe", kind.name()), kind, api, warnings)).collect()
}

fn probe(field: &str, kind: ProbeKind, api: core::Probe, warnings: &mut Warnings) -> Probe {
    let mut number = |name: &str, value: Option<i32>, default: u32| match u32::try_from(value.unwrap_or(0)) {
        // The API's defaults take the place of zero, not only of what is absent.
        Ok(0) => default,
        Ok(value) => value,
        Err(_) => {
            warnings.0.push(format!("{field}.{name} is negative and is treated as {default}"));
            default
        }
    };
    let initial_delay_seconds = number("initialDelaySeconds", api.initial_delay_seconds, 0);
    let period_seconds = number("periodSeconds", api.period_seconds, 10);
    let timeout_seconds = number("timeoutSeconds", api.timeout_seconds, 1);
    let mut success_threshold = number("successThreshold", api.success_threshold, 1);
    let failure_threshold = number("failureThreshold", api.failure_threshold, 3);
    if kind != ProbeKind::Readiness && success_threshold != 1 {
        warnings.0.push(format!("{field}.successThreshold has to be 1 and is treated as 1"));
        success_threshold = 1;
    }
    let handler = if let Some(http) = api.http_get {
        let known = [("HTTP", false), ("HTTPS", true)];
        let https = warnings.choose(&format!("{field}.httpGet.scheme"), http.scheme.as_deref(), &known);
        let headers = http.http_headers.unwrap_or_default().into_iter();
        Handler::Http(HttpGet {
            host: host(http.host),
            port: port(http.port),
            path: http.path.filter(|path| !path.is_empty()).map_or_else(|| "/".into(), Into::into),
            https,
            headers: headers.map(|it| (it.name.into(), it.value.into())).collect(),
        })
    } else if let Some(tcp) = api.tcp_socket {
        Handler::Tcp { host: host(tcp.host), port: port(tcp.port) }
    } else if let Some(exec) = api.exec {
        Handler::Exec(boxed(exec.command))
    } else if let Some(grpc) = api.grpc {
        Handler::Grpc { port: ProbePort::Number(grpc.port), service: grpc.service.unwrap_or_default().into() }
    } else {
        warnings.0.push(format!("{field} asks nothing that is known, and never succeeds"));
        Handler::Unknown
    };
    Probe {
        kind,
        handler,
        initial_delay_seconds,
        period_seconds,
        timeout_seconds,
        success_threshold,
        failure_threshold,
    }
}

fn host(text: Option<String>) -> Option<Box<str>> {
    text.filter(|text| !text.is_empty()).map(Into::into)
}

fn port(api: IntOrString) -> ProbePort {
    match api {
        IntOrString::Int(number) => ProbePort::Number(number),
        IntOrString::String(text) => ProbePort::Text(text.into()),
    }
}
