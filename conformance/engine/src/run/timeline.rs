//! What of an object's changes belongs on the time line: births, deaths, transitions of conditions, binds. No heartbeats.

use conformance_report::model::Lane;
use serde_json::Value;

use super::world::Key;

/// Row of the time line for objects of a kind; `None` where they are not shown.
#[must_use]
pub fn lane(kind: &str) -> Option<Lane> {
    match kind {
        "CapacityBuffer" => Some(Lane::Buffer),
        "NodeClaim" => Some(Lane::Claim),
        "Node" => Some(Lane::Node),
        "Pod" => Some(Lane::Pod),
        _ => None,
    }
}

/// Name of an object on the time line.
#[must_use]
pub fn name(key: &Key) -> String {
    key.name.clone()
}

/// What happened between two versions of an object, in the order in which it is told.
#[must_use]
pub fn transitions(key: &Key, old: Option<&Value>, new: &Value) -> Vec<(Lane, String)> {
    let Some(lane) = lane(&key.kind) else {
        return Vec::new();
    };
    let mut told = Vec::new();
    let mut tell = |what: String| told.push((lane, what));
    let was = |path: &str| old.and_then(|old| old.pointer(path)).filter(|value| !value.is_null());
    let is = |path: &str| new.pointer(path).filter(|value| !value.is_null());

    if old.is_none() {
        tell("created".to_owned());
    }
    if was("/metadata/deletionTimestamp").is_none() && is("/metadata/deletionTimestamp").is_some() {
        tell("deleting".to_owned());
    }
    match lane {
        Lane::Buffer => {
            for (field, path) in [("wants", "/spec/replicas"), ("replicas", "/status/replicas")] {
                match is(path) {
                    Some(value) if was(path) != Some(value) => tell(format!("{field}={value}")),
                    _ => {}
                }
            }
        }
        Lane::Pod => {
            if let (None, Some(node)) = (was("/spec/nodeName"), is("/spec/nodeName").and_then(Value::as_str))
            {
                tell(format!("bound to {node}"));
            }
            match is("/status/phase").and_then(Value::as_str) {
                Some(phase)
                    if phase != "Pending" && was("/status/phase").and_then(Value::as_str) != Some(phase) =>
                {
                    tell(phase.to_owned());
                }
                _ => {}
            }
        }
        _ => {}
    }
    for condition in conditions(new) {
        let kind = &condition["type"];
        let before = old.and_then(|old| conditions(old).find(|other| &other["type"] == kind));
        let same = |field: &str| before.is_some_and(|before| before.get(field) == condition.get(field));
        if shown(lane, kind) && !(same("status") && same("reason")) {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            tell(format!("{}={} {}", text("type"), text("status"), text("reason")).trim_end().to_owned());
        }
    }
    told
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// Of nodes and pods only readiness is told; the rest is the kubelet's and the scheduler's own business.
fn shown(lane: Lane, condition: &Value) -> bool {
    match lane {
        Lane::Node => condition == "Ready",
        Lane::Pod => condition == "PodScheduled" || condition == "Ready",
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(kind: &str) -> Key {
        Key { api_version: "v1".to_owned(), kind: kind.to_owned(), namespace: None, name: "x".to_owned() }
    }

    fn told(kind: &str, old: Option<&Value>, new: &Value) -> Vec<String> {
        transitions(&key(kind), old, new).into_iter().map(|(_, what)| what).collect()
    }

    #[test]
    fn a_buffer_is_told_by_sizes_and_conditions() {
        let born = json!({"spec": {"replicas": 3}});
        similar_asserts::assert_eq!(told("CapacityBuffer", None, &born), ["created", "wants=3"]);
        let condition = |status: &str, time: &str| json!({"type": "Provisioning", "status": status, "reason": "R", "lastTransitionTime": time});
        let resolved = json!({"spec": {"replicas": 3}, "status": {"replicas": 3, "conditions": [condition("False", "1")]}});
        similar_asserts::assert_eq!(
            told("CapacityBuffer", Some(&born), &resolved),
            ["replicas=3", "Provisioning=False R"]
        );
        let again = json!({"spec": {"replicas": 3}, "status": {"replicas": 3, "conditions": [condition("False", "2")]}});
        similar_asserts::assert_eq!(told("CapacityBuffer", Some(&resolved), &again), Vec::<String>::new());
        let there = json!({"spec": {"replicas": 3}, "status": {"replicas": 3, "conditions": [condition("True", "2")]}});
        similar_asserts::assert_eq!(told("CapacityBuffer", Some(&again), &there), ["Provisioning=True R"]);
    }

    #[test]
    fn a_node_is_told_by_readiness_without_heartbeats() {
        let beat = |time: &str| {
            json!({"status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": time},
                {"type": "DiskPressure", "status": "False", "reason": "None"},
            ]}})
        };
        similar_asserts::assert_eq!(told("Node", None, &beat("1")), ["created", "Ready=True KubeletReady"]);
        similar_asserts::assert_eq!(told("Node", Some(&beat("1")), &beat("2")), Vec::<String>::new());
    }

    #[test]
    fn a_pod_is_told_by_bind_and_phase() {
        let pending = json!({"status": {"phase": "Pending"}});
        let running = json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        similar_asserts::assert_eq!(told("Pod", Some(&pending), &running), ["bound to n1", "Running"]);
        let leaving = json!({"metadata": {"deletionTimestamp": "t"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        similar_asserts::assert_eq!(told("Pod", Some(&running), &leaving), ["deleting"]);
    }

    #[test]
    fn other_kinds_are_not_told() {
        similar_asserts::assert_eq!(told("Deployment", None, &json!({})), Vec::<String>::new());
    }
}
