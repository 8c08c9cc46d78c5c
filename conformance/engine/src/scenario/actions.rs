//! Steps that do something.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    implementation::{Dialect, Hook},
    rows::{Feature, Requirement},
    scenario::object::{Manifest, ObjectName, Target},
};

/// `create`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// What is created.
    pub resource: Manifest,
    /// The server must refuse it, or may; an object that was created is removed by the clean-up.
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
    /// It may as well be accepted. Where it is refused, the steps that follow have nothing to look at and are not reached.
    #[serde(default)]
    pub optional: bool,
}

/// `update`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Update {
    /// The step is run only for subjects that declare this dialect.
    pub dialect: Option<Dialect>,
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
    /// Grace period, seconds, instead of the object's own.
    pub grace_period_seconds: Option<u32>,
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
