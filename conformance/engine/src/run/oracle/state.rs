//! Nodes and pods, reduced to what the oracle reads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;

use super::requests::{self, Requests};

/// A node as the oracle sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// UID: another one means another node.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<k8s::Taint>,
    /// What pods may request in all. A resource whose amount can't be read is missing.
    pub allocatable: Requests,
    /// Condition Ready is True.
    pub ready: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Has a deletion timestamp.
    pub deleting: bool,
}

/// A pod as the oracle sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Node that it is bound to.
    pub node: Option<String>,
    /// Phase, empty before the API server sets it.
    pub phase: String,
    /// What it takes; `None` where an amount can't be read, so that nothing can be said of its node.
    pub requests: Option<Requests>,
}

impl Pod {
    /// Whether it takes its requests from its node: bound, and neither succeeded nor failed. A pod that is being deleted still does.
    #[must_use]
    pub fn occupies(&self) -> bool {
        self.node.is_some() && !matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

impl From<&k8s::Node> for Node {
    fn from(node: &k8s::Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            uid: node.metadata.uid.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            allocatable: requests::read(allocatable).unwrap_or_default(),
            ready: conditions
                .is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True")),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            deleting: node.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl From<&k8s::Pod> for Pod {
    fn from(pod: &k8s::Pod) -> Self {
        let spec = pod.spec.as_ref();
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty()),
            phase: pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default(),
            requests: spec.and_then(|spec| requests::effective(spec).ok()),
        }
    }
}
