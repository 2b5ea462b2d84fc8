//! Pods and their containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;

use super::{super::names::shared, Warnings, boxed, exact, numbered, port_number, probe::probes, protocol};
use crate::model::{Container, ContainerPort, ContainerStatus, ObjectKey, POD_ANNOTATIONS, Phase, Pod};

/// What a Pod of the API is in the model.
pub fn pod(api: core::Pod) -> Pod {
    let mut warnings = Warnings::default();
    let metadata = api.metadata;
    let namespace = metadata.namespace.as_deref().filter(|it| !it.is_empty()).unwrap_or("default");
    let spec = api.spec.unwrap_or_default();
    let status = api.status.unwrap_or_default();
    let mut statuses: BTreeMap<_, _> = [status.init_container_statuses, status.container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .map(|it| (it.name, ContainerStatus { started: it.started, ready: it.ready }))
        .collect();
    let sidecars = numbered(spec.init_containers)
        .filter(|(_, it)| it.restart_policy.as_deref() == Some("Always"))
        .map(|(i, it)| (format!("spec.initContainers[{i}]"), true, it));
    let others = numbered(Some(spec.containers)).map(|(i, it)| (format!("spec.containers[{i}]"), false, it));
    let containers = exact(sidecars.chain(others).map(|(field, sidecar, it)| {
        let status = statuses.remove(&it.name);
        container(&field, sidecar, it, status, &mut warnings)
    }));
    let phase = warnings.choose(
        "status.phase",
        status.phase.as_deref(),
        &[
            ("Running", Phase::Running),
            ("Pending", Phase::Pending),
            ("Succeeded", Phase::Succeeded),
            ("Failed", Phase::Failed),
            ("Unknown", Phase::Unknown),
        ],
    );
    let ips = status.pod_ips.filter(|ips| !ips.is_empty());
    let ips = ips.map(|ips| ips.into_iter().map(|it| it.ip).collect());
    let ips = ips.or_else(|| Some(vec![status.pod_ip?]));
    let annotations = metadata.annotations.unwrap_or_default().into_iter();
    let conditions = status.conditions.unwrap_or_default().into_iter();
    Pod {
        key: ObjectKey { namespace: shared(namespace), name: metadata.name.unwrap_or_default().into() },
        labels: texts(metadata.labels.unwrap_or_default().into_iter()),
        annotations: texts(annotations.filter(|(name, _)| POD_ANNOTATIONS.contains(&name.as_str()))),
        deleted: metadata.deletion_timestamp.map(|time| time.0.as_second()),
        node: spec.node_name.filter(|name| !name.is_empty()).as_deref().map(shared),
        hostname: spec.hostname.filter(|name| !name.is_empty()).map(Into::into),
        subdomain: spec.subdomain.filter(|name| !name.is_empty()).map(Into::into),
        host_network: spec.host_network.unwrap_or_default(),
        readiness_gates: boxed(
            spec.readiness_gates.map(|gates| gates.into_iter().map(|it| it.condition_type).collect()),
        ),
        containers,
        phase,
        ips: exact(boxed(ips).into_iter().filter(|ip| !ip.is_empty())),
        conditions: conditions.map(|it| (it.type_.into(), it.status == "True")).collect(),
        warnings: warnings.0,
    }
}

fn container(
    field: &str,
    sidecar: bool,
    mut api: core::Container,
    status: Option<ContainerStatus>,
    warnings: &mut Warnings,
) -> Container {
    let ports = exact(numbered(api.ports.take()).filter_map(|(i, port)| {
        let Some(number) = port_number(port.container_port) else {
            let field = format!("{field}.ports[{i}].containerPort");
            warnings.bad_port(&field, port.container_port, "this port is left out");
            return None;
        };
        let name = port.name.unwrap_or_default().into();
        Some(ContainerPort { name, number, protocol: protocol(port.protocol) })
    }));
    let probes = probes(field, &mut api, warnings);
    Container { name: api.name.into(), sidecar, ports, probes, status }
}

fn texts(pairs: impl Iterator<Item = (String, String)>) -> BTreeMap<Box<str>, Box<str>> {
    pairs.map(|(name, value)| (name.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Handler, ProbeKind, ProbePort};

    fn read(api: Value) -> Pod {
        pod(serde_json::from_value(api).expect("the API's own type takes it"))
    }

    fn with_probe(kind: &str, probe: &Value) -> Pod {
        read(json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", kind: probe}]}}))
    }

    #[test]
    fn a_pod_keeps_what_is_in_use() {
        let pod = read(json!({
            "metadata": {"name": "web", "annotations": {"readylb.io/pod-ips": "10.0.0.1", "other": "x"}},
            "spec": {
                "initContainers": [{"name": "once"}, {"name": "mesh", "restartPolicy": "Always"}],
                "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80}]}],
            },
            "status": {
                "podIP": "10.0.0.2",
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "x", "status": "Unknown"}],
                "initContainerStatuses": [
                    {"name": "mesh", "ready": true, "started": true, "image": "", "imageID": "", "restartCount": 0}
                ],
            },
        }));
        assert_eq!(pod.key, ObjectKey::new("default", "web"));
        assert_eq!(pod.annotations.keys().map(|it| &**it).collect::<Vec<_>>(), ["readylb.io/pod-ips"]);
        assert_eq!(pod.ips, ["10.0.0.2".into()]);
        assert_eq!(pod.phase, Phase::Running);
        assert_eq!(pod.conditions.values().copied().collect::<Vec<_>>(), [true, false]);
        let names: Vec<_> = pod.containers.iter().map(|it| (&*it.name, it.sidecar)).collect();
        assert_eq!(names, [("mesh", true), ("c", false)]);
        assert_eq!(pod.containers[0].status, Some(ContainerStatus { started: Some(true), ready: true }));
        assert_eq!(pod.containers[1].ports[0].number, 80);
        assert_eq!(pod.warnings, Vec::<String>::new());
    }

    #[test]
    fn absent_and_zero_are_the_default_and_negative_is_warned_of() {
        for zero in [json!({}), json!({"periodSeconds": 0, "timeoutSeconds": 0, "failureThreshold": 0})] {
            let mut probe = zero;
            probe["tcpSocket"] = json!({"port": "http"});
            let pod = with_probe("readinessProbe", &probe);
            let probe = &pod.containers[0].probes[0];
            assert_eq!(probe.kind, ProbeKind::Readiness);
            assert_eq!(probe.handler, Handler::Tcp { host: None, port: ProbePort::Text("http".into()) });
            assert_eq!(
                (probe.initial_delay_seconds, probe.period_seconds, probe.timeout_seconds),
                (0, 10, 1)
            );
            assert_eq!((probe.success_threshold, probe.failure_threshold), (1, 3));
            assert_eq!(pod.warnings, Vec::<String>::new());
        }
        let bad = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": -1, "periodSeconds": -5});
        let pod = with_probe("livenessProbe", &bad);
        assert_eq!(pod.containers[0].probes[0].period_seconds, 10);
        assert_eq!(pod.warnings.len(), 2, "{:?}", pod.warnings);
    }

    #[test]
    fn only_readiness_may_ask_for_several_successes() {
        let probe = json!({"grpc": {"port": 1}, "successThreshold": 2});
        for (kind, threshold, warned) in
            [("readinessProbe", 2, 0), ("livenessProbe", 1, 1), ("startupProbe", 1, 1)]
        {
            let pod = with_probe(kind, &probe);
            assert_eq!(pod.containers[0].probes[0].success_threshold, threshold, "{kind}");
            assert_eq!(pod.warnings.len(), warned, "{kind}");
        }
    }

    #[test]
    fn a_probe_that_asks_nothing_stays_and_is_warned_of() {
        let pod = with_probe("readinessProbe", &json!({}));
        assert_eq!(pod.containers[0].probes[0].handler, Handler::Unknown);
        assert_eq!(pod.warnings.len(), 1);
    }
}
