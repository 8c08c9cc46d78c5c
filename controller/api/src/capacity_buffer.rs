//! The CapacityBuffer resource, `autoscaling.x-k8s.io`.
//!
//! Rules: the API text of the CRD, rows A1–A17 of the suite's requirement catalogue.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Condition};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The only strategy that this API text defines; the default of `spec.provisioningStrategy`.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// What spare capacity is wanted.
///
/// Exactly one reference should be set. A buffer without a reference, or without any size, is admitted and never
/// becomes ready.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1beta1",
    kind = "CapacityBuffer",
    doc = "A request to keep node capacity spare for a number of pod-shaped chunks.",
    plural = "capacitybuffers",
    shortname = "cb",
    category = "autoscaling",
    namespaced,
    status = "CapacityBufferStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.provisioningStrategy",
        description = "How the capacity is provided."
    ),
    printcolumn(
        name = "PodTemplate",
        type_ = "string",
        json_path = ".status.podTemplateRef.name",
        description = "The PodTemplate that was used."
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "The number of chunks that the autoscaler acts on."
    ),
    printcolumn(
        name = "ConditionsType",
        type_ = "string",
        json_path = ".status.conditions[*].type",
        description = "Types of the conditions."
    ),
    printcolumn(
        name = "ConditionsStatus",
        type_ = "string",
        json_path = ".status.conditions[*].status",
        description = "Statuses of the conditions, in the order of the types."
    ),
    printcolumn(
        name = "ConditionsReason",
        type_ = "string",
        json_path = ".status.conditions[*].reason",
        description = "Reasons of the conditions, in the order of the types."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Age of the buffer."
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        "message": "podTemplateRef needs replicas or limits"
    },
    {
        "rule": "!has(self.podTemplateRef) || !has(self.scalableRef)",
        "message": "podTemplateRef and scalableRef exclude each other"
    }
]))]
pub struct CapacityBufferSpec {
    /// How the capacity is provided. A strategy that an implementation does not know is not its business.
    #[serde(default = "default_strategy", skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// A PodTemplate of the same namespace that describes one chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// A workload of the same namespace, of a kind with a scale subresource, whose pods describe one chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableRef>,
    /// Number of chunks. Where a percentage is set as well, the greater of both numbers counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Number of chunks in percent of the workload's replicas, rounded up; needs scalableRef.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub percentage: Option<i32>,
    /// Upper bound of the total requests of all chunks, by resource name. Alone, it gives as many chunks as fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, Quantity>>,
}

#[allow(clippy::unnecessary_wraps)] // the signature is serde's
fn default_strategy() -> Option<String> {
    Some(ACTIVE_CAPACITY.to_owned())
}

/// Name of an object in the buffer's namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct LocalObjectRef {
    /// Name of the object; not empty.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A scalable object in the buffer's namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalableRef {
    /// API group of the workload; absent or empty is the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind, such as `Deployment`; not empty.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Name of the object; not empty.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// What the implementation made of the buffer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// The PodTemplate that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// The number of chunks that the autoscaler acts on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Generation of the PodTemplate that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// The strategy that is acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// Conditions, one a type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
