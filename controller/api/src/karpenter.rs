//! NodePool and NodeClaim of `karpenter.sh/v1`: the subset that Karpenter documents.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of nodes that may be bought, and the rules by which they live.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    category = "karpenter",
    status = "NodePoolStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// What each NodeClaim of the pool looks like.
    pub template: NodeClaimTemplate,
    /// When nodes may be disrupted.
    #[serde(default)]
    pub disruption: Disruption,
    /// Upper bound of the pool's total capacity, by resource name; `nodes` counts nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    /// Pools of higher weight are tried first; absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,
}

/// The part of a NodePool that is copied to its NodeClaims.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the nodes.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// Spec of the NodeClaims.
    pub spec: NodeClaimTemplateSpec,
}

/// Labels and annotations of a template.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Spec of the NodeClaims that a pool makes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Node class to buy from.
    pub node_class_ref: NodeClassRef,
    /// What the nodes must be like.
    #[serde(default)]
    pub requirements: Vec<Requirement>,
    /// Taints of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that somebody else removes once the node is set up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Age at which a node is replaced, as a Go duration, or `Never`; absent is 720h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<String>,
    /// How long a drain may last before it is forced, as a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<String>,
}

/// Reference to a node class.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct NodeClassRef {
    /// API group of the class.
    pub group: String,
    /// Kind of the class.
    pub kind: String,
    /// Name of the class.
    pub name: String,
}

/// One requirement on a node label.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// How the values are compared.
    pub operator: Operator,
    /// Values; empty for `Exists` and `DoesNotExist`, one integer for `Gt` and `Lt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// At least so many distinct values must stay possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub min_values: Option<i32>,
}

/// Operators of node selector requirements.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[allow(missing_docs)] // the names are those of core/v1 NodeSelectorOperator
pub enum Operator {
    #[default]
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

/// When nodes of a pool may be disrupted.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Which nodes may be consolidated.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
    /// How long a node must have been quiet first, as a Go duration, or `Never`.
    #[serde(default = "zero_seconds")]
    pub consolidate_after: String,
    /// How many nodes may be disrupted at once.
    #[serde(default = "default_budgets")]
    pub budgets: Vec<Budget>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidation_policy: ConsolidationPolicy::default(),
            consolidate_after: zero_seconds(),
            budgets: default_budgets(),
        }
    }
}

fn zero_seconds() -> String {
    "0s".to_owned()
}

fn default_budgets() -> Vec<Budget> {
    vec![Budget { nodes: "10%".to_owned(), ..Budget::default() }]
}

/// Which nodes may be consolidated.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ConsolidationPolicy {
    /// Only nodes without pods.
    WhenEmpty,
    /// Empty nodes, and nodes whose pods fit elsewhere or on something cheaper.
    #[default]
    WhenEmptyOrUnderutilized,
}

/// Bound of simultaneous disruptions.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Budget {
    /// Nodes as a number or a percentage of the pool's nodes, rounded up.
    pub nodes: String,
    /// Cron schedule at which the budget becomes active; absent is always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// How long the budget stays active, as a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Reasons that the budget bounds; absent or empty is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<DisruptionReason>,
}

/// Why a node is disrupted.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[allow(missing_docs)] // the names are Karpenter's
pub enum DisruptionReason {
    Underutilized,
    Empty,
    Drifted,
}

/// Observed state of a pool.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Total capacity of the pool's nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Quantity>,
    /// Conditions, one a type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One node that was asked for.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    category = "karpenter",
    status = "NodeClaimStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    /// Node class to buy from.
    pub node_class_ref: NodeClassRef,
    /// What the node must be like; the instance types stand in price order.
    #[serde(default)]
    pub requirements: Vec<Requirement>,
    /// What must fit on the node.
    #[serde(default)]
    pub resources: ResourceRequests,
    /// Taints of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that somebody else removes once the node is set up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Age at which the node is replaced, as a Go duration, or `Never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<String>,
    /// How long a drain may last before it is forced, as a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<String>,
}

/// Requests by resource name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ResourceRequests {
    /// Requests by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

/// Observed state of a claim.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// Name of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Identity of the instance, `fake://<cluster>/<claim UID>` in this cloud.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Labels of the instance (type, zone, capacity type, …): what was bought. The claim's and the node's labels follow from it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub instance_labels: BTreeMap<String, String>,
    /// Size of the instance.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Size less what the system keeps.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Conditions, one a type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
