//! The verbs. One step is a map with exactly one of them; their serde shape is the language's grammar.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    implementation::Dialect,
    rows::{Feature, Requirement},
    scenario::{
        actions::{Create, Delete, Offset, Patch, Rejected, Scale, Trigger, Update},
        checks::{Absent, Assert, EventStep, Headroom, Hold, Pods, Probe},
        count::NodeCount,
        object::Manifests,
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
            Self::Update(step) => JudgeKeys { dialect: step.dialect, ..JudgeKeys::default() },
            Self::Apply(_)
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
                Some(Rejected { status, optional }) => {
                    let or = if *optional { " or accepted" } else { "" };
                    format!("{verb} {} → {status}{or}", step.resource.target)
                }
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
