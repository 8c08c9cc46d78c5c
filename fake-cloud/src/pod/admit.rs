//! Whether a node may run a pod: the checks that a kubelet repeats after the scheduler.
//!
//! They catch who binds pods past the scheduler, or counts a node's room twice.

use buffer_api::{Quantity, quantity::parse_amounts};
use buffer_client::chain;
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod, Taint, Toleration};
use kube::ResourceExt;

use super::{
    requests::{Held, HostPort, held},
    state::program,
};
use crate::select;

/// Why a pod is not run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// Reason in the pod's status.
    pub reason: String,
    /// Message in the pod's status.
    pub message: String,
}

/// Whether the node may run the pod beside `others`, what it already runs. The first reason counts.
pub fn admit(pod: &Pod, node: &Node, others: &[&Held]) -> Result<Held, Rejection> {
    let reject = |reason: &str, message: String| Rejection { reason: reason.to_owned(), message };
    let unexpected = |error: &dyn std::error::Error| reject("UnexpectedAdmissionError", chain(error));
    let own = held(pod).map_err(|error| unexpected(&error))?;
    program(pod).map_err(|error| unexpected(&error))?;
    let spec = pod.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let allocatable =
        parse_amounts(&status.allocatable.unwrap_or_default()).map_err(|error| unexpected(&error))?;

    let room = allocatable.get("pods").copied().unwrap_or_default();
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX).saturating_add(1);
    if Quantity::units(count) > room {
        return Err(reject("OutOfpods", format!("the node has room for {room} pods")));
    }
    for (resource, &request) in own.requests.iter().filter(|(_, request)| request.is_positive()) {
        let Some(&room) = allocatable.get(resource) else {
            // a resource of some device that the node doesn't know is not the kubelet's to judge
            if resource.contains('/') {
                continue;
            }
            return Err(reject(&format!("OutOf{resource}"), format!("the node has no {resource}")));
        };
        let used = others
            .iter()
            .filter_map(|other| other.requests.get(resource))
            .fold(Quantity::ZERO, |sum, &amount| sum.plus(amount));
        if used.plus(request) > room {
            let message =
                format!("not enough {resource}: requested {request}, used {used}, allocatable {room}");
            return Err(reject(&format!("OutOf{resource}"), message));
        }
    }
    if !selected(pod, node) {
        return Err(reject("NodeAffinity", "the node does not match the pod's node selector".to_owned()));
    }
    if let Some((protocol, _, port)) =
        own.ports.iter().find(|p| others.iter().any(|o| o.ports.iter().any(|other| clash(p, other))))
    {
        return Err(reject("NodePorts", format!("the node's port {port}/{protocol} is in use")));
    }
    let tolerations = spec.tolerations.unwrap_or_default();
    let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
    if let Some(taint) =
        taints.filter(|t| t.effect == "NoExecute").find(|t| !tolerations.iter().any(|tol| tolerates(tol, t)))
    {
        return Err(reject("TaintToleration", format!("the pod does not tolerate the taint {}", taint.key)));
    }
    let os = status.node_info.map(|info| info.operating_system).unwrap_or_default();
    if let Some(wanted) = spec.os.map(|os| os.name).filter(|wanted| *wanted != os) {
        return Err(reject("PodOSNotSupported", format!("the pod wants {wanted}, the node runs {os}")));
    }
    Ok(own)
}

/// Whether the node matches the pod's node selector and required node affinity.
fn selected(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let labels = node.labels();
    if !spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let name = node.name_any();
    required.is_none_or(|selector| {
        selector.node_selector_terms.iter().any(|term: &NodeSelectorTerm| {
            let expressions = term.match_expressions.as_deref().unwrap_or_default();
            let fields = term.match_fields.as_deref().unwrap_or_default();
            !(expressions.is_empty() && fields.is_empty())
                && expressions.iter().all(|r| select::satisfies(r, labels.get(&r.key).map(String::as_str)))
                && fields.iter().all(|r| r.key == "metadata.name" && select::satisfies(r, Some(&name)))
        })
    })
}

fn clash(a: &HostPort, b: &HostPort) -> bool {
    const ANY: &str = "0.0.0.0";
    a.0 == b.0 && a.2 == b.2 && (a.1 == b.1 || a.1 == ANY || b.1 == ANY)
}

/// Whether a toleration covers a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => !key.is_empty() && value == taint.value.as_deref().unwrap_or_default(),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::needless_pass_by_value, reason = "literals are handed in")]

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"zone": "a", "cpu": "4"}},
            "spec": {"taints": [
                {"key": "k", "value": "v", "effect": "NoExecute"},
                {"key": "other", "effect": "NoSchedule"},
            ]},
            "status": {
                "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "2"},
                "nodeInfo": {"operatingSystem": "linux", "architecture": "", "bootID": "", "machineID": "",
                    "systemUUID": "", "containerRuntimeVersion": "", "kernelVersion": "", "osImage": "",
                    "kubeletVersion": "", "kubeProxyVersion": ""},
            },
        }))
        .expect("a node")
    }

    /// A pod that the node admits, changed by `spec`.
    fn pod(spec: Value) -> Pod {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "tolerations": [{"key": "k", "value": "v"}],
        }});
        if let (Some(all), Value::Object(changes)) = (pod["spec"].as_object_mut(), spec) {
            all.extend(changes);
        }
        serde_json::from_value(pod).expect("a pod")
    }

    fn container(requests: Value) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
    }

    fn affinity(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": terms}}}})
    }

    fn tolerations(tolerations: Value) -> Value {
        json!({"tolerations": tolerations})
    }

    #[rstest]
    #[case::as_it_is(json!({}), None)]
    #[case::cpu(container(json!({"cpu": "2100m"})), Some("OutOfcpu"))]
    #[case::all_of_it(container(json!({"cpu": "2", "memory": "4Gi"})), None)]
    #[case::memory(container(json!({"memory": "4097Mi"})), Some("OutOfmemory"))]
    #[case::absent(container(json!({"ephemeral-storage": "1"})), Some("OutOfephemeral-storage"))]
    #[case::absent_but_zero(container(json!({"ephemeral-storage": "0"})), None)]
    #[case::unknown_device(container(json!({"example.com/gpu": "1"})), None)]
    #[case::selector(json!({"nodeSelector": {"zone": "a"}}), None)]
    #[case::other_selector(json!({"nodeSelector": {"zone": "b"}}), Some("NodeAffinity"))]
    #[case::terms_are_ored(affinity(json!([
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        {"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["2"]}]},
    ])), None)]
    #[case::expressions_are_anded(affinity(json!([{"matchExpressions": [
        {"key": "zone", "operator": "Exists"},
        {"key": "cpu", "operator": "Gt", "values": ["4"]},
    ]}])), Some("NodeAffinity"))]
    #[case::by_name(affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}])), None)]
    #[case::by_other_name(affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}])), Some("NodeAffinity"))]
    #[case::empty_term(affinity(json!([{}])), Some("NodeAffinity"))]
    #[case::untolerated(tolerations(json!([])), Some("TaintToleration"))]
    #[case::other_value(tolerations(json!([{"key": "k", "value": "w"}])), Some("TaintToleration"))]
    #[case::other_effect(tolerations(json!([{"key": "k", "value": "v", "effect": "NoSchedule"}])), Some("TaintToleration"))]
    #[case::key_exists(tolerations(json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}])), None)]
    #[case::everything(tolerations(json!([{"operator": "Exists"}])), None)]
    #[case::os(json!({"os": {"name": "windows"}}), Some("PodOSNotSupported"))]
    #[case::same_os(json!({"os": {"name": "linux"}}), None)]
    fn alone(#[case] spec: Value, #[case] want: Option<&str>) {
        let got = admit(&pod(spec), &node(), &[]);
        assert_eq!(got.as_ref().err().map(|r| r.reason.as_str()), want, "{got:?}");
    }

    #[rstest]
    #[case::beside_one(&["1"], Ok(()))]
    #[case::no_cpu_left(&["1100m"], Err("OutOfcpu"))]
    #[case::no_place_left(&["0", "0"], Err("OutOfpods"))]
    fn beside(#[case] others: &[&str], #[case] want: Result<(), &str>) {
        let others: Vec<Held> = others
            .iter()
            .map(|cpu| held(&pod(container(json!({"cpu": cpu})))).expect("quantities"))
            .collect();
        let got = admit(&pod(json!({})), &node(), &others.iter().collect::<Vec<_>>());
        assert_eq!(got.map(|_| ()).map_err(|r| r.reason), want.map_err(str::to_owned));
    }

    #[rstest]
    #[case(json!({"hostPort": 80}), json!({"hostPort": 80}), true)]
    #[case(json!({"hostPort": 80}), json!({"hostPort": 81}), false)]
    #[case(json!({"hostPort": 80}), json!({"hostPort": 80, "protocol": "UDP"}), false)]
    #[case(json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80}), true)]
    #[case(json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80, "hostIP": "10.0.0.2"}), false)]
    fn host_ports(#[case] a: Value, #[case] b: Value, #[case] clashes: bool) {
        let with_port = |mut port: Value| {
            port["containerPort"] = json!(80);
            pod(json!({"containers": [{"name": "c", "ports": [port]}]}))
        };
        let other = held(&with_port(b)).expect("quantities");
        let got = admit(&with_port(a), &node(), &[&other]);
        assert_eq!(got.is_err_and(|r| r.reason == "NodePorts"), clashes);
    }

    #[test]
    fn a_bad_annotation_is_refused() {
        let mut pod = pod(json!({"restartPolicy": "Never"}));
        pod.metadata.annotations =
            Some([(super::super::state::RUN_FOR.to_owned(), "soon".to_owned())].into());
        let rejection = admit(&pod, &node(), &[]).expect_err("not a duration");
        assert_eq!(rejection.reason, "UnexpectedAdmissionError");
        assert!(rejection.message.contains("\"soon\" is not a duration"), "{}", rejection.message);
    }
}
