//! The verbs. One step is a map with exactly one of them; their serde shape is the language's grammar.

use std::{collections::BTreeMap, fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    implementation::{Dialect, Hook},
    rows::{Feature, Requirement},
    scenario::{
        count::NodeCount,
        object::{Expected, Manifest, Manifests, ObjectName, Target},
    },
    waits::Wait,
};

/// One step, all variables replaced.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Server-side apply of one manifest or a list of them, field manager `bufconf`.
    Apply(Manifests),
    /// Create an object; with `rejected` the server must refuse it with that status.
    Create(Create),
    /// Merge a patch into an object that is there.
    Update(Update),
    /// JSON patch of an object or of a subresource of it.
    Patch(Patch),
    /// Set the replicas of a workload through its scale subresource.
    Scale(Scale),
    /// Delete an object; returns when the server has accepted it, as kubectl does without `--wait`.
    Delete(Delete),
    /// Eventually the object looks like this and every CEL expression over `self` is true.
    Assert(Assert),
    /// Eventually the object is not there.
    Absent(Absent),
    /// Eventually the oracle finds room for that many copies of the buffer's template.
    Headroom(Headroom),
    /// Real pods from the buffer's template all bind to nodes that are there now.
    Probe(Probe),
    /// For the length of a wait nothing of this changes.
    Hold(Hold),
    /// Eventually the pool has that many nodes.
    Nodes(NodeCount),
    /// Eventually the pool has that many NodeClaims (only in Karpenter's dialect).
    Claims(NodeCount),
    /// An event was or is recorded.
    Event(EventStep),
    /// Eventually so many real pods are there, bound, or in a phase.
    Pods(Pods),
    /// Wait until the clock stands off the multiples of a period: the only timer.
    Offset(Offset),
    /// Run a hook of the implementation.
    Trigger(Trigger),
    /// Give this moment a name that an `assert` can look back to with `since`.
    Mark(String),
}

/// Keys that every judging step has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct JudgeKeys {
    /// The row that a failure violates; without one a failure only makes the result unknown.
    pub req: Option<Requirement>,
    /// The step is run only for subjects that declare this dialect.
    pub dialect: Option<Dialect>,
    /// The step is run only for subjects that claim this feature.
    pub feature: Option<Feature>,
    /// The wait that bounds it, the verb's default included; absent where the verb does not wait.
    pub within: Option<Wait>,
}

impl Step {
    /// The verb as it is written.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::Create(_) => "create",
            Self::Update(_) => "update",
            Self::Patch(_) => "patch",
            Self::Scale(_) => "scale",
            Self::Delete(_) => "delete",
            Self::Assert(_) => "assert",
            Self::Absent(_) => "absent",
            Self::Headroom(_) => "headroom",
            Self::Probe(_) => "probe",
            Self::Hold(_) => "hold",
            Self::Nodes(_) => "nodes",
            Self::Claims(_) => "claims",
            Self::Event(_) => "event",
            Self::Pods(_) => "pods",
            Self::Offset(_) => "offset",
            Self::Trigger(_) => "trigger",
            Self::Mark(_) => "mark",
        }
    }

    /// Requirement, dialect and wait, defaults filled in; all absent for a step that judges nothing.
    #[must_use]
    pub fn judge(&self) -> JudgeKeys {
        let keys = |req: Option<Requirement>, dialect, feature, within| JudgeKeys {
            req,
            dialect,
            feature,
            within: Some(within),
        };
        match self {
            Self::Create(step) => {
                JudgeKeys { req: step.req, dialect: step.dialect, feature: step.feature, within: None }
            }
            Self::Assert(step) => {
                keys(step.req, step.dialect, step.feature, step.within.unwrap_or(Wait::Observe))
            }
            Self::Absent(step) => {
                keys(step.req, step.dialect, step.feature, step.within.unwrap_or(Wait::Observe))
            }
            Self::Headroom(step) => {
                keys(step.req, step.dialect, step.feature, step.within.unwrap_or(Wait::Provision))
            }
            Self::Probe(step) => {
                keys(step.req, step.dialect, step.feature, step.within.unwrap_or(Wait::Bind))
            }
            Self::Hold(step) => keys(step.req, step.dialect, step.feature, step.duration),
            Self::Nodes(step) | Self::Claims(step) => keys(
                step.req,
                step.dialect,
                step.feature,
                step.within.unwrap_or(if step.is_return() { Wait::Release } else { Wait::Provision }),
            ),
            Self::Event(step) => {
                keys(step.req, step.dialect, step.feature, step.within.unwrap_or(Wait::Observe))
            }
            Self::Pods(step) => keys(step.req, step.dialect, step.feature, step.within.unwrap_or(Wait::Bind)),
            Self::Apply(_)
            | Self::Update(_)
            | Self::Patch(_)
            | Self::Scale(_)
            | Self::Delete(_)
            | Self::Offset(_)
            | Self::Trigger(_)
            | Self::Mark(_) => JudgeKeys::default(),
        }
    }

    /// Verb and object, one line.
    #[must_use]
    pub fn title(&self) -> String {
        let verb = self.verb();
        match self {
            Self::Apply(manifests) => {
                let names: Vec<_> = manifests.0.iter().map(|manifest| manifest.target.to_string()).collect();
                format!("{verb} {}", names.join(", "))
            }
            Self::Create(step) => match &step.rejected {
                Some(rejected) => format!("{verb} {} → {}", step.resource.target, rejected.status),
                None => format!("{verb} {}", step.resource.target),
            },
            Self::Update(step) => format!("{verb} {}", step.target()),
            Self::Patch(step) => format!("{verb} {}", step.target()),
            Self::Scale(step) => format!("{verb} {} to {}", step.target(), step.replicas),
            Self::Delete(step) => format!("{verb} {}", step.target()),
            Self::Assert(step) => format!("{verb} {}", step.resource.target),
            Self::Absent(step) => format!("{verb} {}", step.resource),
            Self::Headroom(step) => format!("{verb} {}", step.buffers.join(" + ")),
            Self::Probe(step) => format!("{verb} {}", step.buffer),
            Self::Hold(step) => format!("{verb} for {}", step.duration),
            Self::Nodes(step) | Self::Claims(step) => format!("{verb} {}", step.describe()),
            Self::Event(step) => format!("{verb} {} on {}", step.reason, step.regarding),
            Self::Pods(step) => {
                let labels: Vec<_> =
                    step.selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("{verb} {}", labels.join(","))
            }
            Self::Offset(step) => format!("{verb} {:?} after a multiple of {:?}", step.at, step.period),
            Self::Trigger(step) => format!("{verb} {}", step.hook),
            Self::Mark(name) => format!("{verb} {name}"),
        }
    }
}

/// `create`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// What is created.
    pub resource: Manifest,
    /// The server must refuse it; an object that was created all the same is removed by the clean-up.
    pub rejected: Option<Rejected>,
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
}

/// How a request is refused.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    /// HTTP status, such as 422.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
}

/// `update`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Update {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// JSON merge patch; `null` removes a field.
    pub merge: serde_json::Map<String, Value>,
}

/// `patch`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// Subresource that is patched instead of the object.
    pub subresource: Option<Subresource>,
    /// JSON patch (RFC 6902).
    pub json: Vec<PatchOperation>,
}

/// Subresources that can be patched.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Subresource {
    /// `/status`
    Status,
}

/// One operation of a JSON patch; serializes as RFC 6902 has it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PatchOperation {
    /// What is done.
    pub op: PatchVerb,
    /// JSON pointer to where it is done.
    pub path: String,
    /// Value of `add`, `replace` and `test`; `null` where it is left out.
    #[serde(default)]
    pub value: Value,
    /// Source of `move` and `copy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// Operations of RFC 6902.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchVerb {
    /// Add a value.
    Add,
    /// Remove a value.
    Remove,
    /// Replace a value.
    Replace,
    /// Move a value.
    Move,
    /// Copy a value.
    Copy,
    /// Fail unless the value is this.
    Test,
}

/// `scale`.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scale {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// New number of replicas.
    #[schemars(range(max = 2_147_483_647))]
    pub replicas: u32,
}

/// `delete`.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delete {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// What becomes of the dependents.
    #[serde(default)]
    pub propagation: Propagation,
}

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq)]
pub enum Propagation {
    /// They are deleted afterwards, as kubectl does.
    #[default]
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

macro_rules! target {
    ($($step:ty),+) => {$(
        impl $step {
            /// The object that is meant.
            #[must_use]
            pub fn target(&self) -> Target {
                Target {
                    api_version: self.api_version.clone(),
                    kind: self.kind.clone(),
                    name: self.name.clone(),
                    namespace: self.namespace.clone(),
                }
            }
        }
    )+};
}
target!(Update, Patch, Scale, Delete);

/// `assert`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Assert {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// The object, and what it must look like.
    pub resource: Expected,
    /// CEL expressions that must be true of the object, which is `self`.
    #[serde(default)]
    pub cel: Vec<String>,
    /// A mark: it is enough that the object looked like this at any time since then.
    pub since: Option<String>,
    /// `observe` unless told.
    pub within: Option<Wait>,
}

/// `absent`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Absent {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// The object.
    pub resource: Target,
    /// `observe` unless told.
    pub within: Option<Wait>,
}

/// `headroom`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(try_from = "RawHeadroom")]
pub struct Headroom {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// Buffers whose templates must fit side by side; at least one.
    pub buffers: Vec<String>,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// Copies in all, instead of the sum of `status.replicas`.
    pub at_least: Option<u32>,
    /// `provision` unless told.
    pub within: Option<Wait>,
}

/// `headroom` as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawHeadroom {
    /// Requirement.
    req: Option<Requirement>,
    /// Dialect.
    dialect: Option<Dialect>,
    /// Feature.
    feature: Option<Feature>,
    /// A single buffer.
    buffer: Option<String>,
    /// Several buffers.
    #[serde(default)]
    buffers: Vec<String>,
    /// Namespace, where it is not the scenario's.
    namespace: Option<String>,
    /// Copies in all, instead of the sum of `status.replicas`.
    at_least: Option<u32>,
    /// `provision` unless told.
    within: Option<Wait>,
}

impl TryFrom<RawHeadroom> for Headroom {
    type Error = &'static str;

    fn try_from(raw: RawHeadroom) -> Result<Self, Self::Error> {
        let RawHeadroom { req, dialect, feature, buffer, buffers, namespace, at_least, within } = raw;
        Ok(Self {
            req,
            dialect,
            feature,
            buffers: one_or_many(buffer, buffers)?,
            namespace,
            at_least,
            within,
        })
    }
}

fn one_or_many(buffer: Option<String>, buffers: Vec<String>) -> Result<Vec<String>, &'static str> {
    match (buffer, buffers.is_empty()) {
        (Some(buffer), true) => Ok(vec![buffer]),
        (None, false) => Ok(buffers),
        _ => Err("name either `buffer` or `buffers`"),
    }
}

/// `probe`.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// The buffer.
    pub buffer: String,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// Pods, instead of `status.replicas`.
    pub count: Option<u32>,
    /// `bind` unless told.
    pub within: Option<Wait>,
}

/// `hold`: at least one of its conditions is given.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(try_from = "RawHold")]
pub struct Hold {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// The wait whose length it holds.
    pub duration: Wait,
    /// Room that must never be less.
    pub headroom: Option<HoldHeadroom>,
    /// Nodes of the pool that may be born meanwhile.
    pub nodes_born: Option<u32>,
    /// Nodes of the pool that may be lost meanwhile.
    pub nodes_lost: Option<u32>,
    /// An object that must keep looking like this.
    pub resource: Option<Expected>,
    /// CEL expressions that must stay true of that object.
    pub cel: Vec<String>,
}

/// `hold` as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawHold {
    /// Requirement.
    req: Option<Requirement>,
    /// Dialect.
    dialect: Option<Dialect>,
    /// Feature.
    feature: Option<Feature>,
    /// The wait whose length it holds; `stable` unless told.
    #[serde(rename = "for")]
    duration: Option<Wait>,
    /// Room that must never be less.
    headroom: Option<HoldHeadroom>,
    /// Nodes of the pool that may be born meanwhile.
    nodes_born: Option<u32>,
    /// Nodes of the pool that may be lost meanwhile.
    nodes_lost: Option<u32>,
    /// An object that must keep looking like this.
    resource: Option<Expected>,
    /// CEL expressions that must stay true of that object.
    #[serde(default)]
    cel: Vec<String>,
}

impl TryFrom<RawHold> for Hold {
    type Error = &'static str;

    fn try_from(raw: RawHold) -> Result<Self, Self::Error> {
        let RawHold { req, dialect, feature, duration, headroom, nodes_born, nodes_lost, resource, cel } =
            raw;
        if headroom.is_none() && nodes_born.is_none() && nodes_lost.is_none() && resource.is_none() {
            return Err("a hold needs something to hold: `headroom`, `nodesBorn`, `nodesLost` or `resource`");
        }
        if resource.is_none() && !cel.is_empty() {
            return Err("`cel` needs a `resource` to look at");
        }
        let duration = duration.unwrap_or(Wait::Stable);
        Ok(Self { req, dialect, feature, duration, headroom, nodes_born, nodes_lost, resource, cel })
    }
}

/// Room that must never be less while something is held.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(try_from = "RawHoldHeadroom")]
pub struct HoldHeadroom {
    /// Buffers whose templates must fit side by side; at least one.
    pub buffers: Vec<String>,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// Copies in all, instead of the sum of `status.replicas`.
    pub at_least: Option<u32>,
}

/// The room to hold as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawHoldHeadroom {
    /// A single buffer.
    buffer: Option<String>,
    /// Several buffers.
    #[serde(default)]
    buffers: Vec<String>,
    /// Namespace, where it is not the scenario's.
    namespace: Option<String>,
    /// Copies in all, instead of the sum of `status.replicas`.
    at_least: Option<u32>,
}

impl TryFrom<RawHoldHeadroom> for HoldHeadroom {
    type Error = &'static str;

    fn try_from(raw: RawHoldHeadroom) -> Result<Self, Self::Error> {
        let RawHoldHeadroom { buffer, buffers, namespace, at_least } = raw;
        Ok(Self { buffers: one_or_many(buffer, buffers)?, namespace, at_least })
    }
}

/// `event`.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventStep {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// What it is about.
    pub regarding: Regarding,
    /// Reason of the event.
    pub reason: String,
    /// Part of its message.
    pub message: Option<String>,
    /// `observe` unless told.
    pub within: Option<Wait>,
}

/// What an event is about.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Regarding {
    /// Kind.
    pub kind: EventKind,
    /// Name; without one any object of the kind that is the scenario's (of its pool, for nodes and claims).
    pub name: Option<String>,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
}

impl fmt::Display for Regarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{:?}/{name}", self.kind),
            None => write!(f, "any {:?}", self.kind),
        }
    }
}

/// Kinds whose events are looked at.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
pub enum EventKind {
    /// A buffer in the scenario's namespace.
    CapacityBuffer,
    /// A node of the pool.
    Node,
    /// A claim of the pool.
    NodeClaim,
    /// A real pod in the scenario's namespace.
    Pod,
}

/// `pods`: at least one of its conditions is given.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(try_from = "RawPods")]
pub struct Pods {
    /// Requirement.
    pub req: Option<Requirement>,
    /// Dialect.
    pub dialect: Option<Dialect>,
    /// Feature.
    pub feature: Option<Feature>,
    /// Labels of the pods that are meant; empty = all of the namespace.
    pub selector: BTreeMap<String, String>,
    /// Namespace, where it is not the scenario's.
    pub namespace: Option<String>,
    /// Phase in which all of them are.
    pub phase: Option<PodPhase>,
    /// How many of them are bound to a node.
    pub bound: Option<u32>,
    /// How many there are.
    pub count: Option<u32>,
    /// `bind` unless told.
    pub within: Option<Wait>,
}

/// `pods` as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPods {
    /// Requirement.
    req: Option<Requirement>,
    /// Dialect.
    dialect: Option<Dialect>,
    /// Feature.
    feature: Option<Feature>,
    /// Labels of the pods that are meant; empty = all of the namespace.
    selector: BTreeMap<String, String>,
    /// Namespace, where it is not the scenario's.
    namespace: Option<String>,
    /// Phase in which all of them are.
    phase: Option<PodPhase>,
    /// How many of them are bound to a node.
    bound: Option<u32>,
    /// How many there are.
    count: Option<u32>,
    /// `bind` unless told.
    within: Option<Wait>,
}

impl TryFrom<RawPods> for Pods {
    type Error = &'static str;

    fn try_from(raw: RawPods) -> Result<Self, Self::Error> {
        let RawPods { req, dialect, feature, selector, namespace, phase, bound, count, within } = raw;
        if phase.is_none() && bound.is_none() && count.is_none() {
            return Err("say what is wanted of the pods: `phase`, `bound` or `count`");
        }
        if phase.is_some() && bound.or(count).is_none() {
            return Err("`phase` alone is true of no pods at all: add `count` or `bound`");
        }
        Ok(Self { req, dialect, feature, selector, namespace, phase, bound, count, within })
    }
}

/// Phases of a pod.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// Running.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// `offset`.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offset {
    /// What the period is counted from.
    pub from: OffsetFrom,
    /// The object, `Kind/name`.
    pub of: ObjectName,
    /// The period.
    #[serde(deserialize_with = "duration")]
    #[schemars(with = "String")]
    pub period: Duration,
    /// How long after a multiple of it.
    #[serde(deserialize_with = "duration")]
    #[schemars(with = "String")]
    pub at: Duration,
}

/// What the period of an [`Offset`] is counted from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum OffsetFrom {
    /// The last change of the object's status that was seen.
    LastStatusWrite,
}

fn duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    crate::waits::parse_duration(&text).map_err(serde::de::Error::custom)
}

/// `trigger`.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// The hook; also named in `needs.hooks`.
    pub hook: Hook,
}
