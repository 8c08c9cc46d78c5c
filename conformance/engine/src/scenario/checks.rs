//! Steps that look at something.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    implementation::Dialect,
    rows::{Feature, Requirement},
    scenario::object::{Expected, Target},
    waits::Wait,
};

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
    /// A mark: in the expressions `before` is the object as it was then.
    pub before: Option<String>,
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
