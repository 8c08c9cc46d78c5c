//! The Node of a hollow instance: how it is born, and what its kubelet reports.

use std::{collections::BTreeMap, net::Ipv4Addr, time::Duration};

use buffer_api::{
    NodeClaim,
    labels::{HOSTNAME, UNREGISTERED_TAINT},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
        NodeSystemInfo, Taint,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    chance,
    claim::{self, elapsed},
};

/// Annotation by which other tools mark a node as one that has no machine behind it.
pub const FAKE_ANNOTATION: &str = "kwok.x-k8s.io/node";
/// How often a kubelet reports its status when nothing changes.
const REPORT_EVERY: Duration = Duration::from_mins(5);
/// Port of the kubelet's API; nothing listens, so that logs and exec fail at once.
const KUBELET_PORT: i32 = 10250;
/// Labels that every node carries in an old form too; the controller manager would add them with a write of its own.
const BETA: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The taints with which a claim's Node is born.
#[must_use]
pub fn taints(claim: &NodeClaim) -> Vec<Taint> {
    let unregistered =
        Taint { key: UNREGISTERED_TAINT.to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
    let spec = &claim.spec;
    [unregistered].iter().chain(&spec.taints).chain(&spec.startup_taints).cloned().collect()
}

/// What every kubelet of this cloud has in common.
#[derive(Clone, Debug)]
pub struct Kubelet {
    /// Version of the API server, which the kubelets have too.
    pub version: String,
}

impl Kubelet {
    /// The Node of a claim's instance as it is first posted; without delays it is Ready from the start.
    #[must_use]
    pub fn birth(&self, claim: &NodeClaim, ip: Ipv4Addr, ready: bool, now: Timestamp) -> Node {
        let status = claim.status.clone().unwrap_or_default();
        let name = claim::name(claim);
        let mut labels = claim.metadata.labels.clone().unwrap_or_default();
        labels.extend(status.instance_labels);
        labels.insert(HOSTNAME.to_owned(), name.to_owned());
        for (key, beta) in BETA {
            if let Some(value) = labels.get(key).cloned() {
                labels.insert(beta.to_owned(), value);
            }
        }
        let info = self.info(claim::uid(claim), &labels);
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: status.provider_id,
                taints: Some(taints(claim)),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                capacity: Some(status.capacity),
                allocatable: Some(status.allocatable),
                conditions: Some(conditions(&[], ready, now)),
                addresses: Some(addresses(ip, name)),
                daemon_endpoints: Some(endpoints()),
                node_info: Some(info),
                ..NodeStatus::default()
            }),
        }
    }

    /// The patch of a Node's status that the kubelet owes, if it owes one: something is not as it should be, or its last
    /// report is too old.
    #[must_use]
    pub fn report(&self, node: &Node, ip: Ipv4Addr, ready: bool, now: Timestamp) -> Option<Value> {
        let status = node.status.clone().unwrap_or_default();
        let have = status.conditions.unwrap_or_default();
        let want = conditions(&have, ready, now);
        let as_it_is = want
            .iter()
            .all(|w| have.iter().any(|h| h.type_ == w.type_ && h.status == w.status && h.reason == w.reason));
        let mut patch = json!({});
        if status.addresses.is_none_or(|a| a.is_empty()) {
            patch["addresses"] = json!(addresses(ip, &node.name_any()));
            patch["daemonEndpoints"] = json!(endpoints());
        }
        if status.node_info.is_none_or(|info| info.kubelet_version.is_empty()) {
            patch["nodeInfo"] = json!(self.info(&node.uid().unwrap_or_default(), node.labels()));
        }
        if status.capacity.as_ref().is_none_or(BTreeMap::is_empty) {
            // a node that somebody else made without saying how large it is holds whatever comes
            patch["capacity"] = json!({"cpu": "1000", "memory": "1Ti", "pods": "10000"});
        }
        if status.allocatable.as_ref().is_none_or(BTreeMap::is_empty) {
            patch["allocatable"] = match status.capacity {
                Some(capacity) if !capacity.is_empty() => json!(capacity),
                _ => patch["capacity"].clone(),
            };
        }
        let complete = patch.as_object().is_some_and(serde_json::Map::is_empty);
        if as_it_is && complete && next_report(node, now) > Duration::ZERO {
            return None;
        }
        patch["conditions"] = json!(want);
        Some(json!({"metadata": {"uid": node.uid()}, "status": patch}))
    }

    fn info(&self, machine: &str, labels: &BTreeMap<String, String>) -> NodeSystemInfo {
        let label = |key: &str, default: &str| labels.get(key).map_or(default, String::as_str).to_owned();
        NodeSystemInfo {
            architecture: label("kubernetes.io/arch", "amd64"),
            operating_system: label("kubernetes.io/os", "linux"),
            boot_id: machine.to_owned(),
            machine_id: machine.to_owned(),
            system_uuid: machine.to_owned(),
            container_runtime_version: "hollow://1.0.0".to_owned(),
            kernel_version: "hollow".to_owned(),
            os_image: "hollow node of the fake cloud".to_owned(),
            kubelet_version: self.version.clone(),
            kube_proxy_version: String::new(),
            swap: None,
        }
    }
}

/// The conditions of a kubelet. What does not change keeps its time of transition.
fn conditions(have: &[NodeCondition], ready: bool, now: Timestamp) -> Vec<NodeCondition> {
    let ready = if ready {
        ("Ready", "True", "KubeletReady", "the hollow kubelet is ready")
    } else {
        ("Ready", "False", "KubeletNotReady", "the hollow kubelet is starting")
    };
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "the hollow kubelet has sufficient memory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the hollow kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "the hollow kubelet has sufficient process ids"),
        ready,
    ]
    .map(|(type_, status, reason, message)| {
        let before = have.iter().find(|c| c.type_ == type_ && c.status == status);
        NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: before.and_then(|c| c.last_transition_time.clone()).or(Some(Time(now))),
        }
    })
    .into()
}

/// How long until the kubelet owes a report even if nothing changes.
#[must_use]
pub fn next_report(node: &Node, now: Timestamp) -> Duration {
    let last = ready_condition(node).and_then(|c| c.last_heartbeat_time.as_ref());
    last.map_or(Duration::ZERO, |last| {
        chance::jitter(REPORT_EVERY, &[&node.name_any(), &last.0.to_string()])
            .saturating_sub(elapsed(last.0, now))
    })
}

/// The node's condition Ready.
#[must_use]
pub fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == "Ready")
}

/// The internal IPv4 address that a node has.
#[must_use]
pub fn address(node: &Node) -> Option<Ipv4Addr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|a| a.type_ == "InternalIP")?.address.parse().ok()
}

fn addresses(ip: Ipv4Addr, hostname: &str) -> Vec<NodeAddress> {
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    vec![address("InternalIP", ip.to_string()), address("Hostname", hostname.to_owned())]
}

fn endpoints() -> NodeDaemonEndpoints {
    NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: KUBELET_PORT }) }
}

#[cfg(test)]
mod tests {
    use buffer_api::{NodeClaimSpec, karpenter::NodeClaimStatus};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    const IP: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 7);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn kubelet() -> Kubelet {
        Kubelet { version: "v1.36.3".to_owned() }
    }

    fn claim() -> NodeClaim {
        let taint =
            |key: &str| Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        let mut claim = NodeClaim::new(
            "web-1",
            NodeClaimSpec {
                taints: vec![taint("team")],
                startup_taints: vec![taint("starting")],
                ..NodeClaimSpec::default()
            },
        );
        let map = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
            entries.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
        };
        let size = || BTreeMap::from([("cpu".to_owned(), Quantity("2".to_owned()))]);
        claim.metadata.uid = Some("u-1".to_owned());
        claim.metadata.labels = Some(map(&[("karpenter.sh/nodepool", "web")]));
        claim.status = Some(NodeClaimStatus {
            provider_id: Some("fake://test/u-1".to_owned()),
            instance_labels: map(&[("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "arm64")]),
            capacity: size(),
            allocatable: size(),
            ..NodeClaimStatus::default()
        });
        claim
    }

    #[test]
    fn born_complete() {
        let node = kubelet().birth(&claim(), IP, true, at(5));
        let labels: Vec<_> = node.labels().iter().map(|(k, v)| format!("{k}={v}")).collect();
        similar_asserts::assert_eq!(
            labels,
            [
                "beta.kubernetes.io/arch=arm64",
                "beta.kubernetes.io/os=linux",
                "karpenter.sh/nodepool=web",
                "kubernetes.io/arch=arm64",
                "kubernetes.io/hostname=web-1",
                "kubernetes.io/os=linux",
            ]
        );
        let spec = node.spec.clone().expect("a spec");
        let taints: Vec<_> =
            spec.taints.iter().flatten().map(|t| format!("{}:{}", t.key, t.effect)).collect();
        assert_eq!(taints, ["karpenter.sh/unregistered:NoExecute", "team:NoSchedule", "starting:NoSchedule"]);
        assert_eq!(spec.provider_id.as_deref(), Some("fake://test/u-1"));
        assert_eq!(ready_condition(&node).map(|c| c.status.as_str()), Some("True"));
        assert_eq!(address(&node), Some(IP));
        let info = node.status.clone().and_then(|s| s.node_info).expect("node info");
        assert_eq!((info.kubelet_version.as_str(), info.architecture.as_str()), ("v1.36.3", "arm64"));
        assert_eq!(kubelet().report(&node, IP, true, at(6)), None, "a node that is born ready owes nothing");
    }

    #[test]
    fn becoming_ready_changes_only_its_own_time() {
        let node = kubelet().birth(&claim(), IP, false, at(5));
        let patch = kubelet().report(&node, IP, true, at(9)).expect("a change");
        let conditions: Vec<NodeCondition> =
            serde_json::from_value(patch["status"]["conditions"].clone()).expect("conditions");
        for condition in conditions {
            let changed = if condition.type_ == "Ready" { 9 } else { 5 };
            assert_eq!(condition.last_transition_time, Some(Time(at(changed))), "{}", condition.type_);
            assert_eq!(condition.last_heartbeat_time, Some(Time(at(9))));
        }
        assert_eq!(patch["status"].as_object().map(serde_json::Map::len), Some(1));
    }

    #[test]
    fn reports_about_every_five_minutes() {
        let node = kubelet().birth(&claim(), IP, true, at(0));
        let due = next_report(&node, at(0));
        assert!((288..=312).contains(&due.as_secs()), "{due:?}");
        assert_eq!(kubelet().report(&node, IP, true, at(287)), None);
        let patch = kubelet().report(&node, IP, true, at(313)).expect("a heartbeat");
        assert_eq!(patch["status"]["conditions"][3]["lastTransitionTime"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn what_the_controller_manager_wrote_over_is_repaired() {
        let mut node = kubelet().birth(&claim(), IP, true, at(0));
        for condition in node.status.iter_mut().flat_map(|s| &mut s.conditions).flatten() {
            condition.status = "Unknown".to_owned();
            condition.reason = Some("NodeStatusUnknown".to_owned());
        }
        let patch = kubelet().report(&node, IP, true, at(60)).expect("a repair");
        assert_eq!(patch["status"]["conditions"][3]["status"], "True");
        assert_eq!(patch["status"]["conditions"][3]["lastTransitionTime"], "1970-01-01T00:01:00Z");
    }

    #[test]
    fn adopted_nodes_are_completed_and_keep_their_size() {
        let mut node = Node::default();
        node.metadata.name = Some("theirs".to_owned());
        let size = BTreeMap::from([("cpu".to_owned(), Quantity("4".to_owned()))]);
        node.status = Some(NodeStatus { capacity: Some(size), ..NodeStatus::default() });
        let status = kubelet().report(&node, IP, true, at(0)).expect("a first report")["status"].clone();
        assert_eq!(status.get("capacity"), None);
        assert_eq!(status["allocatable"], json!({"cpu": "4"}));
        assert_eq!(status["addresses"][0]["address"], "198.18.0.7");
        let nothing = Node::default();
        let status = kubelet().report(&nothing, IP, true, at(0)).expect("a first report")["status"].clone();
        assert_eq!(status["capacity"], status["allocatable"]);
    }
}
