//! What the planner sees: slim, plain values, converted from the API's objects at the edge of the controller.

use std::collections::{BTreeMap, BTreeSet};

use buffer_api::{
    CapacityBufferSpec, CapacityBufferStatus, NodePoolSpec, NodePoolStatus,
    fake_node_class::{InstanceType, UnavailableOffering},
    karpenter::{NodeClaimSpec, NodeClaimStatus},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Affinity, ScopedResourceSelectorRequirement, Taint, Toleration, TopologySpreadConstraint,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

/// Amounts by resource name (`cpu`, `memory`, `pods`, …).
pub use buffer_api::requests::Resources;
/// Labels, annotations or selectors by key.
pub type Labels = BTreeMap<String, String>;

/// Namespace and name of an object.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectKey {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The cluster as the planner sees it. The order of the lists means nothing: the planner sorts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// All CapacityBuffers.
    pub buffers: Vec<Buffer>,
    /// PodTemplates.
    pub templates: Vec<Template>,
    /// Workloads that a buffer refers to. One that is absent here does not exist.
    pub workloads: Vec<Workload>,
    /// Real pods, apart from those that have ended.
    pub pods: Vec<Pod>,
    /// ResourceQuotas of namespaces with buffers.
    pub quotas: Vec<Quota>,
    /// PodDisruptionBudgets.
    pub disruption_budgets: Vec<DisruptionBudget>,
    /// DaemonSets: what each new node will have to carry.
    pub daemon_sets: Vec<DaemonSet>,
    /// All nodes, also those that nobody here made.
    pub nodes: Vec<Node>,
    /// All NodeClaims.
    pub claims: Vec<Claim>,
    /// All NodePools.
    pub pools: Vec<Pool>,
    /// All node classes.
    pub classes: Vec<NodeClass>,
    /// UIDs of claims whose nodes were lately marked for removal, or had a replacement bought for them, and stand there still. What looked good and was
    /// not is not tried again at once.
    pub tried: BTreeSet<String>,
}

/// A CapacityBuffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buffer {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether it has a deletion timestamp: it then asks for nothing.
    pub deleting: bool,
    /// What is wanted.
    pub spec: CapacityBufferSpec,
    /// What was last written.
    pub status: CapacityBufferStatus,
}

/// A PodTemplate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.generation`.
    pub generation: i64,
    /// Shape of its pods.
    pub shape: PodShape,
}

/// A workload with replicas and a pod template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace and name.
    pub key: ObjectKey,
    /// `spec.replicas` (a Job's `spec.parallelism`); 1 where it is not set.
    pub replicas: i32,
    /// Shape of its pods.
    pub shape: PodShape,
}

/// All of a pod that decides where it can run. Equal shapes are one demand group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodShape {
    /// Namespace, for the scope of affinity terms.
    pub namespace: String,
    /// Labels.
    pub labels: Labels,
    /// Effective requests: what kube-scheduler counts (containers, init containers, sidecars, overhead, pod level),
    /// and `pods: 1`. Requests that are absent while a limit is set equal the limit.
    pub requests: Resources,
    /// `spec.nodeSelector`.
    pub node_selector: Labels,
    /// `spec.affinity`: node, pod and pod-anti-affinity, required and preferred.
    pub affinity: Option<Affinity>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `spec.topologySpreadConstraints`.
    pub topology_spread: Vec<TopologySpreadConstraint>,
    /// Host ports: protocol, host IP and port.
    pub host_ports: Vec<(String, String, i32)>,
    /// `spec.priorityClassName`, for the scopes of quotas.
    pub priority_class: Option<String>,
    /// `spec.activeDeadlineSeconds` is set, for the scopes of quotas.
    pub has_deadline: bool,
}

/// A ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Bounds that are enforced, by key.
    pub hard: Resources,
    /// What pods use of them.
    pub used: Resources,
    /// Scopes, all of which must mean a pod for it to count.
    pub scopes: Vec<ScopedResourceSelectorRequirement>,
}

/// A real pod that has not ended.
#[expect(clippy::struct_excessive_bools, reason = "five independent facts, as the API has them")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: String,
    /// Shape.
    pub shape: std::sync::Arc<PodShape>,
    /// Node that it is bound to.
    pub node: Option<String>,
    /// The scheduler has said that it fits nowhere (`PodScheduled=False/Unschedulable`).
    pub unschedulable: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It belongs to a DaemonSet.
    pub daemon: bool,
    /// It is a static pod's mirror: belongs to its node.
    pub mirror: bool,
    /// It forbids voluntary disruption for now (`karpenter.sh/do-not-disrupt`).
    pub do_not_disrupt: bool,
    /// When it was created; unknown where scheduling gates hold it back.
    pub created: Option<Timestamp>,
    /// When it was told to end.
    pub deleted_at: Option<Timestamp>,
    /// When it was bound to its node.
    pub bound_at: Option<Timestamp>,
    /// `spec.terminationGracePeriodSeconds`: how long it may take to end.
    pub grace_seconds: i64,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DisruptionBudget {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The pods that it protects; absent selects none, empty all of the namespace.
    pub selector: Option<LabelSelector>,
    /// How many of them may be evicted now (`status.disruptionsAllowed`).
    pub allowed: i32,
}

/// A DaemonSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonSet {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Shape of its pods.
    pub shape: PodShape,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations of ours: those under `karpenter.sh/`.
    pub annotations: Labels,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// Condition Ready is True.
    pub ready: bool,
    /// When the Ready condition last changed.
    pub ready_since: Option<Timestamp>,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// Finalizers.
    pub finalizers: Vec<String>,
}

/// A NodeClaim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations of ours: those under `karpenter.sh/`.
    pub annotations: Labels,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// When its deletion was asked for.
    pub deleted_at: Option<Timestamp>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// What was asked for.
    pub spec: NodeClaimSpec,
    /// What came of it.
    pub status: NodeClaimStatus,
}

/// A NodePool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// What is wanted.
    pub spec: NodePoolSpec,
    /// What was last written.
    pub status: NodePoolStatus,
}

/// A node class and what it sells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeClass {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Condition Ready is True.
    pub ready: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// What it sells.
    pub instance_types: std::sync::Arc<Vec<InstanceType>>,
    /// What can't be bought for now.
    pub unavailable: Vec<UnavailableOffering>,
}
