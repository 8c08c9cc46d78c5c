//! What a pod takes of its node, as kube-scheduler and kubelet count it.

use buffer_api::requests::{AmountError, Resources, effective, is_sidecar};
use k8s_openapi::api::core::v1::Pod;

/// A host port: protocol, host IP, port.
pub type HostPort = (String, String, i32);

/// What a pod takes of its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Requests by resource, overhead included.
    pub requests: Resources,
    /// Ports of the node.
    pub ports: Vec<HostPort>,
}

/// What a pod takes of its node.
pub fn held(pod: &Pod) -> Result<Held, AmountError> {
    let Some(spec) = &pod.spec else { return Ok(Held::default()) };
    let ports = spec.containers.iter().chain(spec.init_containers.iter().flatten().filter(|c| is_sidecar(c)));
    let ports = ports.flat_map(|c| c.ports.iter().flatten()).filter_map(|port| {
        let host_ip = port.host_ip.clone().filter(|ip| !ip.is_empty());
        Some((
            port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            host_ip.unwrap_or_else(|| "0.0.0.0".to_owned()),
            port.host_port.filter(|&port| port > 0)?,
        ))
    });
    Ok(Held { requests: effective(spec, pod.status.as_ref())?, ports: ports.collect() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::needless_pass_by_value, reason = "literals are handed in")]

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
    }

    fn c(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[rstest]
    #[case::sum(json!({"containers": [c("1"), c("500m")]}), "1500m")]
    #[case::larger_init(json!({"containers": [c("1")], "initContainers": [c("2"), c("1500m")]}), "2")]
    #[case::smaller_init(json!({"containers": [c("1")], "initContainers": [c("500m")]}), "1")]
    #[case::sidecar(json!({"containers": [c("1")], "initContainers": [sidecar("500m")]}), "1500m")]
    #[case::init_after_sidecar(json!({"containers": [c("1")], "initContainers": [sidecar("500m"), c("2")]}), "2500m")]
    #[case::init_before_sidecar(json!({"containers": [c("1")], "initContainers": [c("2"), sidecar("500m")]}), "2")]
    #[case::pod_level(json!({"containers": [c("1")], "resources": {"requests": {"cpu": "3"}}}), "3")]
    #[case::overhead(json!({"containers": [c("1")], "overhead": {"cpu": "250m"}}), "1250m")]
    fn cpu(#[case] spec: Value, #[case] want: &str) {
        let held = held(&pod(spec)).expect("quantities");
        assert_eq!(held.requests["cpu"].to_string(), want);
    }

    #[test]
    fn host_ports() {
        let spec = json!({"containers": [{"name": "c", "ports": [
            {"containerPort": 80},
            {"containerPort": 80, "hostPort": 8080},
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "127.0.0.1"},
        ]}]});
        let ports = held(&pod(spec)).expect("quantities").ports;
        let want = [("TCP", "0.0.0.0", 8080), ("UDP", "127.0.0.1", 53)]
            .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c));
        assert_eq!(ports, want);
    }
}
