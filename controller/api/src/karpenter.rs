//! NodePool and NodeClaim of `karpenter.sh/v1`: the subset that Karpenter documents.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Taint,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pattern of a time span of whole seconds, minutes and hours, or `Never`.
const SPAN_OR_NEVER: &str = "^(([0-9]+(s|m|h))+|Never)$";
/// Pattern of a time span of whole seconds, minutes and hours.
const SPAN: &str = "^([0-9]+(s|m|h))+$";

/// Pattern of a label value.
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Pattern of a label or taint key.
pub(crate) const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";

/// A kind of nodes that may be bought, and the rules by which they live.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    doc = "A kind of nodes that may be bought, and the rules by which they live.",
    plural = "nodepools",
    category = "karpenter",
    status = "NodePoolStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.template.spec.nodeClassRef.name"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.resources.nodes"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    printcolumn(name = "CPU", type_ = "string", json_path = ".status.resources.cpu", priority = 1),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.resources.memory", priority = 1)
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
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_empty")]
    pub metadata: TemplateMetadata,
    /// Spec of the NodeClaims.
    pub spec: NodeClaimTemplateSpec,
}

/// Labels and annotations of a template.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 100,
        "additionalProperties" = {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
        "x-kubernetes-validations" = [
            {
                "rule": "self.all(k, k != 'kubernetes.io/hostname')",
                "message": "kubernetes.io/hostname is not known before the node is"
            },
            {
                "rule": "self.all(k, k == 'karpenter.sh/capacity-type' || !k.matches('^([^/]*[.])?karpenter[.]sh/'))",
                "message": "labels of karpenter.sh other than capacity-type are Karpenter's own"
            }
        ]
    ))]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl TemplateMetadata {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// Spec of the NodeClaims that a pool makes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Node class to buy from; only its name can be changed.
    #[schemars(extend("x-kubernetes-validations" = [
        {
            "rule": "self.group == oldSelf.group && self.kind == oldSelf.kind",
            "message": "group and kind of nodeClassRef are immutable"
        }
    ]))]
    pub node_class_ref: NodeClassRef,
    /// What the nodes must be like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-validations" = [
        {
            "rule": "self.all(r, r.key != 'karpenter.sh/nodepool')",
            "message": "karpenter.sh/nodepool can't be required by a NodePool"
        }
    ]))]
    pub requirements: Vec<Requirement>,
    /// Taints of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that somebody else removes once the node is set up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Age at which a node is replaced, in hours, minutes and seconds, or `Never`; absent is 720h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN_OR_NEVER), extend("default" = "720h"))]
    pub expire_after: Option<String>,
    /// How long a drain may last before it is forced, in hours, minutes and seconds; absent is for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN))]
    pub termination_grace_period: Option<String>,
}

/// Reference to a node class.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct NodeClassRef {
    /// API group of the class, without a version.
    #[schemars(length(min = 1), regex(pattern = "^[^/]*$"))]
    pub group: String,
    /// Kind of the class.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Name of the class.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// One requirement on a node label.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.operator != 'In' || (has(self.values) && self.values.size() > 0)",
        "message": "operator In needs values"
    },
    {
        "rule": "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && self.values.size() == 1 && self.values[0].matches('^[0-9]{1,18}$'))",
        "message": "operators Gt and Lt need one value, an integer that is not negative"
    },
    {
        "rule": "self.operator != 'In' || !has(self.minValues) || (has(self.values) && self.values.size() >= self.minValues)",
        "message": "minValues is more than the number of values"
    }
]))]
pub struct Requirement {
    /// Label key.
    #[schemars(
        length(max = 316),
        regex(pattern = LABEL_KEY),
        extend("x-kubernetes-validations" = [
            {
                "rule": "self != 'kubernetes.io/hostname'",
                "message": "kubernetes.io/hostname is not known before the node is"
            },
            {
                "rule": "self in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || !self.matches('^([^/]*[.])?karpenter[.]sh/')",
                "message": "labels of karpenter.sh other than capacity-type are Karpenter's own"
            }
        ])
    )]
    pub key: String,
    /// How the values are compared.
    pub operator: Operator,
    /// Values; empty for `Exists` and `DoesNotExist`, one integer for `Gt` and `Lt`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 63)))]
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

impl Operator {
    /// The operator of that name, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            _ => return None,
        })
    }
}

/// When nodes of a pool may be disrupted.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Which nodes may be consolidated.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
    /// How long a node must have been quiet first, in hours, minutes and seconds, or `Never`.
    #[serde(default = "zero_seconds")]
    #[schemars(regex(pattern = SPAN_OR_NEVER))]
    pub consolidate_after: String,
    /// How many nodes may be disrupted at once.
    #[serde(default = "default_budgets")]
    #[schemars(length(max = 50), extend("x-kubernetes-validations" = [
        {
            "rule": "self.all(b, has(b.schedule) == has(b.duration))",
            "message": "schedule and duration go together"
        }
    ]))]
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
    vec![Budget { nodes: ten_percent(), ..Budget::default() }]
}

fn ten_percent() -> String {
    "10%".to_owned()
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
    #[serde(default = "ten_percent")]
    #[schemars(regex(pattern = "^((100|[0-9]{1,2})%|[0-9]+)$"))]
    pub nodes: String,
    /// Cron schedule, in UTC, at which the budget becomes active; absent is always.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(
        pattern = "^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|(.+)\\s(.+)\\s(.+)\\s(.+)\\s(.+))$"
    ))]
    pub schedule: Option<String>,
    /// How long the budget stays active, in hours and minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?$"))]
    pub duration: Option<String>,
    /// Reasons that the budget bounds; absent or empty is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "set"))]
    pub reasons: Vec<DisruptionReason>,
}

/// Why a node is disrupted.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
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
    doc = "One node that was asked for.",
    plural = "nodeclaims",
    category = "karpenter",
    status = "NodeClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = r".metadata.labels.node\.kubernetes\.io/instance-type"
    ),
    printcolumn(
        name = "Capacity",
        type_ = "string",
        json_path = r".metadata.labels.karpenter\.sh/capacity-type"
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = r".metadata.labels.topology\.kubernetes\.io/zone"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(
        name = "Initialized",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Initialized")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.providerID", priority = 1),
    printcolumn(
        name = "NodePool",
        type_ = "string",
        json_path = r".metadata.labels.karpenter\.sh/nodepool",
        priority = 1
    ),
    printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.nodeClassRef.name", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "a claim's spec is immutable"}
]))]
pub struct NodeClaimSpec {
    /// Node class to buy from.
    pub node_class_ref: NodeClassRef,
    /// What the node must be like; the instance types stand in price order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub requirements: Vec<Requirement>,
    /// What must fit on the node.
    #[serde(default, skip_serializing_if = "ResourceRequests::is_empty")]
    pub resources: ResourceRequests,
    /// Taints of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that somebody else removes once the node is set up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Age at which the node is replaced, in hours, minutes and seconds, or `Never`; absent is 720h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN_OR_NEVER), extend("default" = "720h"))]
    pub expire_after: Option<String>,
    /// How long a drain may last before it is forced, in hours, minutes and seconds; absent is for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN))]
    pub termination_grace_period: Option<String>,
}

/// Requests by resource name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ResourceRequests {
    /// Requests by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

impl ResourceRequests {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
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
