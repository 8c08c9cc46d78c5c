//! The declaration of an implementation: what it claims, and how the suite gets pools from it.

mod parse;

use std::{collections::BTreeMap, fmt};

use buffer_api::quantity::Quantity;
use conformance_report::model::Profile;
use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Value, json};

use crate::{document::ApiVersion, rows::Feature};

/// An implementation under test, as its declaration file says.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Implementation {
    /// Version of the format.
    pub api_version: ApiVersion,
    /// Kind.
    pub kind: ImplementationKind,
    /// Who made it.
    pub identity: Identity,
    /// Whose reasons, messages and events it speaks, if anybody's.
    pub dialect: Option<Dialect>,
    /// Profiles that it claims.
    pub profiles: Vec<Profile>,
    /// Optional features that it claims.
    #[serde(default)]
    pub features: Vec<Feature>,
    /// Scenarios may run side by side on one plane; otherwise each runs alone.
    #[serde(default)]
    pub parallel_safe: bool,
    /// Declared known failures.
    #[serde(default)]
    pub exemptions: Vec<Exemption>,
    /// Settings that a plane of its own can give it.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// What `${implementation.NAME}` stands for in scenarios.
    #[serde(default)]
    pub variables: BTreeMap<String, Value>,
    /// Files and folders of CRD manifests that a plane of the suite's own has from the start. `${DIR}` is the folder of
    /// the declaration, `${CACHE}` that of what was built or downloaded.
    #[serde(default)]
    pub crds: Vec<String>,
    /// What runs on a plane of the suite's own, started in this order.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// Manifests that are applied to a plane of the suite's own once everything runs.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Plain commands, program and arguments. They get `KUBECONFIG` and, where there is a pool, `BUFCONF_POOL`.
    /// `${DIR}` and `${CACHE}` as in `crds`.
    #[serde(default)]
    pub hooks: BTreeMap<Hook, Vec<String>>,
    /// Kinds of pool that it offers, the preferred one first.
    #[serde(default)]
    pub pools: Vec<Pool>,
}

/// Kind of an implementation's file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
pub enum ImplementationKind {
    /// An implementation.
    Implementation,
}

/// Who made an implementation.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Organization.
    pub organization: String,
    /// Project.
    pub project: String,
    /// Where it lives.
    pub url: String,
    /// Version.
    pub version: String,
}

/// Whose reasons, messages and events are spoken.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Karpenter's, as documented.
    Karpenter,
    /// Cluster Autoscaler's.
    ClusterAutoscaler,
}

impl Dialect {
    /// Name as files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Karpenter => "karpenter",
            Self::ClusterAutoscaler => "cluster-autoscaler",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A declared known failure.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Exemption {
    /// Id of the scenario.
    pub scenario: String,
    /// Why it fails.
    pub reason: String,
    /// Where it is discussed.
    pub link: String,
    /// Last day on which it counts.
    #[serde(deserialize_with = "date")]
    #[schemars(with = "String", regex(pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"))]
    pub expires: Date,
}

/// Settings that a subject can be started with.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Setting {
    /// The feature gate or flag that enables buffers.
    Gate,
}

/// A process of the implementation. It ends with its plane.
///
/// In `command`, `env` values and `health`, `${DIR}` stands for the folder of the declaration, `${CACHE}` for that of what was
/// built or downloaded, `${BUFCONF}` for this program, `${KUBECONFIG}` for the path of an admin kubeconfig, `${PORT:NAME}` for
/// a free loopback port, `${GATE}` for `true`, or for `false` where a scenario wants the feature gate off.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// What it is called in logs: letters, digits and dashes.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables on top of the suite's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A URL that answers 200 once it is ready; without one it counts as ready when it runs.
    pub health: Option<String>,
}

/// Commands that an implementation can declare.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "camelCase")]
pub enum Hook {
    /// Gets what its processes need onto this machine, once before a run.
    Prepare,
    /// Installs it on a plane.
    Install,
    /// Removes it again.
    Uninstall,
    /// Exits 0 while the subject lives.
    Health,
    /// Restarts the subject.
    Restart,
    /// Makes a node of the pool drift.
    Drift,
    /// Makes a node of the pool expire.
    Expiry,
    /// Lets the machines under the pool fail.
    Faults,
}

impl Hook {
    /// Name as files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Install => "install",
            Self::Uninstall => "uninstall",
            Self::Health => "health",
            Self::Restart => "restart",
            Self::Drift => "drift",
            Self::Expiry => "expiry",
            Self::Faults => "faults",
        }
    }

    /// Whether a scenario may trigger it; the others belong to the harness.
    #[must_use]
    pub const fn is_trigger(self) -> bool {
        matches!(self, Self::Restart | Self::Drift | Self::Expiry | Self::Faults)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kind of pool.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(try_from = "RawPool")]
pub struct Pool {
    /// Allocatable of each of its nodes.
    pub shape: Shape,
    /// Most nodes that it can have.
    pub max_nodes: u32,
    /// Each node has a host name of its own.
    pub unique_hostnames: bool,
    /// It takes resource limits.
    pub limits_settable: bool,
    /// Where such a pool comes from.
    pub supply: Supply,
}

/// Where a pool comes from.
#[derive(Clone, Debug, JsonSchema, PartialEq)]
pub enum Supply {
    /// Manifests, with `${pool}` and `${run}`, that are applied when it is acquired and deleted at clean-up.
    Create(Vec<Value>),
    /// Pools that are there already, one scenario at a time each. Their nodes have label and taint
    /// `bufconf.dev/pool=<name>`.
    Slots(Vec<Slot>),
}

/// A pool that is there already.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// Value of the label.
    pub name: String,
}

/// Allocatable of a node.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// CPU.
    #[serde(deserialize_with = "quantity")]
    #[schemars(with = "IntOrString")]
    pub cpu: Quantity,
    /// Memory, bytes.
    #[serde(deserialize_with = "quantity")]
    #[schemars(with = "IntOrString")]
    pub memory: Quantity,
    /// Pods.
    pub pods: u32,
}

/// How a quantity may be written.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes")]
enum IntOrString {
    Number(f64),
    Text(String),
}

/// Names of the chunks and their share of a node's CPU and memory, in percent. Both leave at least a tenth of the
/// node for what runs there anyhow.
const CHUNKS: [(&str, i64); 2] = [("half_node", 45), ("one_per_node", 60)];

/// Names of the chunks, `${chunk.NAME}`.
pub(crate) fn chunk_names() -> impl Iterator<Item = &'static str> {
    CHUNKS.iter().map(|(name, _)| *name)
}

const MEBIBYTE: i64 = 1 << 20;

impl Shape {
    /// Resource requests of the chunks that are sized by it, by name.
    #[must_use]
    pub fn chunks(&self) -> BTreeMap<&'static str, Value> {
        // a share of n units of a step: ⌊amount · percent / (100 · step)⌋
        let share = |amount: Quantity, percent: i64, step: Quantity| {
            amount.times(percent).fits(step.times(100)).unwrap_or_default()
        };
        CHUNKS
            .into_iter()
            .map(|(name, percent)| {
                let cpu = share(self.cpu, percent, Quantity::milli(1));
                let memory = share(self.memory, percent, Quantity::units(MEBIBYTE));
                (name, json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}))
            })
            .collect()
    }
}

fn date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Date, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format!("`{text}` is not a date such as 2027-01-31")))
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => return Err(D::Error::custom("expected a quantity such as 1900m or 4Gi")),
    };
    let quantity: Quantity = text.parse().map_err(D::Error::custom)?;
    if quantity.is_positive() {
        Ok(quantity)
    } else {
        Err(D::Error::custom(format!("{text} is not more than zero")))
    }
}

/// A kind of pool as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPool {
    /// Allocatable of each of its nodes.
    shape: Shape,
    /// Most nodes that it can have.
    max_nodes: u32,
    /// Each node has a host name of its own.
    #[serde(default)]
    unique_hostnames: bool,
    /// It takes resource limits.
    #[serde(default)]
    limits_settable: bool,
    /// Manifests, with `${pool}` and `${run}`, that are applied when it is acquired and deleted at clean-up.
    create: Option<Vec<Value>>,
    /// Pools that are there already; their nodes have label and taint `bufconf.dev/pool=<name>`.
    slots: Option<Vec<Slot>>,
}

impl TryFrom<RawPool> for Pool {
    type Error = &'static str;

    fn try_from(raw: RawPool) -> Result<Self, Self::Error> {
        let RawPool { shape, max_nodes, unique_hostnames, limits_settable, create, slots } = raw;
        let supply = match (create, slots) {
            (Some(manifests), None) if !manifests.is_empty() => Supply::Create(manifests),
            (None, Some(slots)) if !slots.is_empty() => Supply::Slots(slots),
            _ => return Err("say where the pool comes from: either `create` or `slots`"),
        };
        Ok(Self { shape, max_nodes, unique_hostnames, limits_settable, supply })
    }
}
