//! FakeNodeClass, `bufconf.dev/v1alpha1`: what the fake cloud sells, how fast, and what goes wrong.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NodeSelectorRequirement,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pattern of a time span as Go writes it.
const SPAN: &str = "^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$";

/// What can be bought from the fake cloud.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "bufconf.dev",
    version = "v1alpha1",
    kind = "FakeNodeClass",
    doc = "What can be bought from the fake cloud, how fast, and what goes wrong on purpose.",
    plural = "fakenodeclasses",
    category = "karpenter",
    status = "FakeNodeClassStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Backend", type_ = "string", json_path = ".spec.backend"),
    printcolumn(name = "Instances", type_ = "integer", json_path = ".spec.quota.instances"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FakeNodeClassSpec {
    /// What stands behind a node, or absent for what the cloud was started with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<Backend>,
    /// Name of a catalogue that the cloud ships, or absent for `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// How much may be bought in all.
    #[serde(default)]
    pub quota: Quota,
    /// How long each step takes.
    #[serde(default, skip_serializing_if = "Timing::is_instant")]
    pub timing: Timing,
    /// What goes wrong on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// What stands behind a node.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Backend {
    /// A fake kubelet on a real control plane.
    Hollow,
    /// A container with a real kubelet.
    Kind,
}

/// How much may be bought.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Quota {
    /// Instances at the same time.
    #[serde(default = "default_instances")]
    pub instances: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self { instances: default_instances() }
    }
}

fn default_instances() -> u32 {
    500
}

/// How long each step takes; absent is at once.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Timing {
    /// From the claim to the running instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Delay>,
    /// From the running instance to the Node object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<Delay>,
    /// From the Node object to Ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Delay>,
    /// From the order to terminate to the instance being away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminate: Option<Delay>,
}

impl Timing {
    /// Whether no step takes any time.
    #[must_use]
    pub fn is_instant(&self) -> bool {
        *self == Self::default()
    }
}

/// A time span, fixed (`min` alone) or evenly spread between `min` and `max`.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Delay {
    /// Shortest span, as a Go duration.
    #[schemars(regex(pattern = SPAN))]
    pub min: String,
    /// Longest span, as a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN))]
    pub max: Option<String>,
}

/// Something that goes wrong on purpose.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Only offerings that match all of these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// How often in all; absent is always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// How often, in percent of the chances; absent is each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<u32>,
    /// Seed of the chance.
    #[serde(default)]
    pub seed: u64,
    /// For `crash` and `disappear`: how long after the launch; for `slow`: how much longer each step takes; for
    /// `insufficientCapacity`: after what time the offering may be tried again (absent is 3 minutes). A Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SPAN))]
    pub after: Option<String>,
}

/// Ways to go wrong.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultKind {
    /// The offering can't be bought.
    #[default]
    InsufficientCapacity,
    /// The purchase fails with an error.
    LaunchError,
    /// The instance runs, its Node never comes.
    NeverRegister,
    /// The Node comes, it never is Ready.
    NeverReady,
    /// The kubelet falls silent, the instance stays.
    Crash,
    /// The instance is gone without a word.
    Disappear,
    /// Each step takes longer.
    Slow,
}

/// What can be bought now.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FakeNodeClassStatus {
    /// Instance types, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<InstanceType>,
    /// Offerings that can't be bought for now; small, so that the long list above is written once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<UnavailableOffering>,
    /// How often faults with a `count` have struck, so that a restart of the cloud doesn't start over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub struck: Vec<StruckFault>,
    /// Conditions, one a type; `Ready` says that the catalogue was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One size of machine.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Name, the value of the instance-type label.
    pub name: String,
    /// Size of the machine.
    pub capacity: BTreeMap<String, Quantity>,
    /// What the system keeps of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overhead: BTreeMap<String, Quantity>,
    /// Labels of its nodes beyond those of the offering.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Where and how it is sold.
    pub offerings: Vec<Offering>,
}

/// A place and a way in which an instance type is sold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// Zone.
    pub zone: String,
    /// `on-demand` or `spot`.
    pub capacity_type: String,
    /// Price of an hour, in no particular currency.
    pub price: f64,
}

/// An offering that can't be bought for now.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableOffering {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// `on-demand` or `spot`.
    pub capacity_type: String,
    /// When it may be tried again.
    pub until: Time,
}

/// How often a fault with a `count` has struck.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct StruckFault {
    /// Fingerprint of the fault.
    pub fault: String,
    /// Number of strikes.
    pub strikes: u32,
    /// For faults that stay with an instance: the claims that were struck, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<String>,
}
