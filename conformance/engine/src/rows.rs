//! The requirement rows and the optional features.
//!
//! A row is one comparable statement about the API, read from its text and from what implementations do. Its classes
//! say who may be judged by it: everybody, those who claim a feature, those who speak a dialect, or nobody.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::words::{did_you_mean, nearest};

use Class::{Core, Dialect, Extended, Harness, Info};
use Feature::{
    AdmissionAware, BufferEvents, GarbageCollectedTemplates, LivePodShape, ObservedGeneration, PodDefaulting,
    ProvisioningFollowsReady, ProvisioningReflectsCapacity, ResourceQuotas, ScalableCustom, ScalableJob,
    ScalableRC, ScaleSubresource, ServedV1alpha1, StatusTemplateForScalableRef, StrategyIsolation,
};

/// Optional features that an implementation can claim.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Feature {
    /// v1alpha1 is served beside v1beta1.
    ServedV1alpha1,
    /// Buffers have a scale subresource.
    ScaleSubresource,
    /// ResourceQuotas cap buffers.
    ResourceQuotas,
    /// ReplicationControllers are scalable.
    ScalableRC,
    /// Jobs are scalable.
    ScalableJob,
    /// Custom kinds with a scale subresource are scalable.
    ScalableCustom,
    /// The shape of a chunk is that of the workload's live pods.
    LivePodShape,
    /// Status names a template also for a workload.
    StatusTemplateForScalableRef,
    /// Container limits without requests count as requests.
    PodDefaulting,
    /// What admission does to a pod is done to a chunk.
    AdmissionAware,
    /// Buffers of a foreign strategy are left alone.
    StrategyIsolation,
    /// Conditions have the observed generation.
    ObservedGeneration,
    /// Provisioning is not true once readiness is lost.
    ProvisioningFollowsReady,
    /// Provisioning is true only while the capacity is there.
    ProvisioningReflectsCapacity,
    /// Events are recorded on buffers.
    BufferEvents,
    /// Templates made for a buffer go with it.
    GarbageCollectedTemplates,
}

impl Feature {
    /// Name as files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ServedV1alpha1 => "ServedV1alpha1",
            ScaleSubresource => "ScaleSubresource",
            ResourceQuotas => "ResourceQuotas",
            ScalableRC => "ScalableRC",
            ScalableJob => "ScalableJob",
            ScalableCustom => "ScalableCustom",
            LivePodShape => "LivePodShape",
            StatusTemplateForScalableRef => "StatusTemplateForScalableRef",
            PodDefaulting => "PodDefaulting",
            AdmissionAware => "AdmissionAware",
            StrategyIsolation => "StrategyIsolation",
            ObservedGeneration => "ObservedGeneration",
            ProvisioningFollowsReady => "ProvisioningFollowsReady",
            ProvisioningReflectsCapacity => "ProvisioningReflectsCapacity",
            BufferEvents => "BufferEvents",
            GarbageCollectedTemplates => "GarbageCollectedTemplates",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who may be judged by a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// Everybody.
    Core,
    /// Those who claim the feature.
    Extended(Feature),
    /// Those who speak a dialect, in assertions marked with it.
    Dialect,
    /// Nobody: it is only recorded.
    Info,
    /// Nobody by itself: it is about how a subject is set up, so only a plane of its own can show it.
    Harness,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Core => f.write_str("everybody"),
            Extended(feature) => write!(f, "{feature}"),
            Dialect => f.write_str("a dialect"),
            Info => f.write_str("nobody"),
            Harness => f.write_str("a set-up"),
        }
    }
}

/// One row.
#[derive(Debug, Eq, PartialEq)]
pub struct Row {
    /// Id, such as `V1` or `H2`.
    pub id: &'static str,
    /// Who may be judged by it; more than one where parts of the row differ.
    pub classes: &'static [Class],
    /// What it says, in a few words.
    pub title: &'static str,
}

impl Row {
    /// The row with that id.
    #[must_use]
    pub fn find(id: &str) -> Option<&'static Self> {
        ROWS.iter().find(|row| row.id == id)
    }

    /// Whether it has that class.
    #[must_use]
    pub fn has(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }
}

/// A row that an assertion is marked with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Requirement(pub &'static Row);

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.id)
    }
}

impl<'de> Deserialize<'de> for Requirement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        Row::find(&id).map(Self).ok_or_else(|| {
            let hint = did_you_mean(nearest(&id, ROWS.iter().map(|row| row.id)));
            D::Error::custom(format!("unknown row `{id}`{hint}"))
        })
    }
}

impl JsonSchema for Requirement {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Requirement".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "Id of a requirement row.", "type": "string", "enum": ROWS.iter().map(|row| row.id).collect::<Vec<_>>()})
    }
}

const fn row(id: &'static str, classes: &'static [Class], title: &'static str) -> Row {
    Row { id, classes, title }
}

/// All rows, in the order of the matrix: sizes (V), schema (A), templates (B), workloads (C), quotas (E),
/// strategies (F), conditions (G), capacity (H), operations (I), and the nodes of a cloud and their pods (N).
pub const ROWS: &[Row] = &[
    row("V1", &[Core], "template, replicas 5: 5"),
    row("V2", &[Core], "template, replicas 0: 0"),
    row("V3", &[Core], "template, replicas 10, limits for 3: 3"),
    row("V4", &[Core], "template, replicas 3, limits for 10: 3"),
    row("V5", &[Core], "template, limits for 5 alone: 5"),
    row("V6", &[Core], "template, limits for 10 in CPU and memory alone: 10"),
    row("V7", &[Core], "template, the scarcer limit decides: 4"),
    row("V9", &[Core], "template, limits below one chunk: 0, and ready"),
    row("V10", &[Core], "template, replicas 5, a limit of zero: 0"),
    row("V11", &[Core], "template, limits in thousandths of a CPU: 4"),
    row("V13", &[Core], "template, a percentage means nothing, the limits do: 4"),
    row("V14", &[Core], "template, an init container larger than the main one counts: 2"),
    row("V16", &[Dialect], "template, replicas 3, limits only of a resource that it does not ask for"),
    row(
        "V17",
        &[Core, Dialect],
        "template, limits only of a resource that it does not ask for: nothing is provisioned",
    ),
    row("V18", &[Dialect], "template, replicas 3, empty limits"),
    row("V19", &[Dialect], "template without requests, replicas 3, limits"),
    row("V20", &[Core], "workload of 10, 20 %: 2"),
    row("V21", &[Core], "workload of 10, 33 %: 4, rounded up"),
    row("V23", &[Core], "workload of 3, 10 %: 1"),
    row("V25", &[Core], "workload of 10, 200 %: 20"),
    row("V26", &[Core], "workload of 10, 0 %: 0"),
    row("V27", &[Core], "workload of 0, 50 %: 0"),
    row("V28", &[Core], "workload of 10, replicas 5 or 20 %: 5, the larger"),
    row("V29", &[Core], "workload of 10, replicas 5 or 80 %: 8, the larger"),
    row("V31", &[Core], "workload of 10, replicas 5 or 0 %: 5"),
    row("V33", &[Core], "workload of 10, replicas 5 or 80 %, limits for 4: 4"),
    row("V35", &[Core], "workload of 10, limits for 4 alone: 4"),
    row("V36", &[Core], "workload of 10, replicas 2: 2"),
    row("V37", &[Core], "workload of 0, 50 %, limits for 4: 0, for a percentage is set"),
    row("V39", &[Core, Dialect], "workload, no size at all: nothing is provisioned"),
    row("V40", &[Dialect], "workload of 10, 20 %, limits only of a resource that it does not ask for"),
    row("V42", &[Info], "template, the largest possible number of replicas"),
    row("A1", &[Core], "group, kind, plural and short name"),
    row("A2", &[Core], "namespaced"),
    row("A3", &[Core], "v1beta1 is served"),
    row("A4", &[Extended(ServedV1alpha1)], "v1alpha1 is served, deprecated, with the same content"),
    row("A5", &[Core], "the strategy defaults to active capacity"),
    row("A6", &[Core], "both references: refused"),
    row("A7", &[Core], "a template without replicas or limits: refused"),
    row("A8", &[Core], "no reference: refused, or never ready and without capacity"),
    row("A9", &[Core], "a workload without any size: refused, or without capacity"),
    row("A10", &[Core], "negative replicas or percentage: refused, zero is not"),
    row("A11", &[Core], "empty names and kinds: refused, no API group is fine"),
    row("A12", &[Info], "negative quantities in limits"),
    row("A13", &[Core], "status is a subresource"),
    row("A14", &[Extended(ScaleSubresource)], "the scale subresource sets the replicas"),
    row("A15", &[Info], "texts of the validation rules"),
    row("A16", &[Info], "documentation of replicas"),
    row("A17", &[Info], "documentation of percentage"),
    row("B1", &[Core], "a template that is there: ready for provisioning"),
    row("B2", &[Dialect], "reason and message when ready"),
    row("B3", &[Core, Dialect], "a missing template: not ready, the message names it"),
    row("B4", &[Dialect], "status fields after it stopped being ready"),
    row("B5", &[Core, Dialect], "status names an existing template of the namespace"),
    row("B6", &[Core], "status has the generation of the template it names, also after an edit"),
    row("B7", &[Core], "a template that is created later makes it ready"),
    row("B8", &[Core], "an edited template is resolved again"),
    row("B9", &[Core, Extended(ProvisioningFollowsReady)], "a deleted template: not ready, capacity goes"),
    row("B10", &[Core, Dialect], "which further templates exist; the user's own is never touched"),
    row("B11", &[Dialect, Extended(GarbageCollectedTemplates)], "what was made for a buffer goes with it"),
    row("B12", &[Extended(PodDefaulting)], "container limits without requests count as requests"),
    row("B13", &[Extended(AdmissionAware)], "defaults from admission count"),
    row("B14", &[Extended(AdmissionAware)], "a chunk that admission refuses: not ready"),
    row("B15", &[Core], "effective requests as the scheduler computes them"),
    row("B16", &[Dialect], "claims and ephemeral volumes of the template"),
    row("B17", &[Core], "labels of the template drive affinity and spread"),
    row("B18", &[Info], "annotations of the template"),
    row("B19", &[Core], "another reference: the size follows it"),
    row("C1", &[Core], "Deployment, StatefulSet and ReplicaSet are scalable"),
    row("C2", &[Extended(ScalableRC)], "ReplicationController is scalable"),
    row("C3", &[Extended(ScalableJob)], "Job is scalable"),
    row("C4", &[Extended(ScalableCustom)], "a custom kind with the scale subresource is scalable"),
    row("C5", &[Dialect], "an empty API group with an apps kind"),
    row("C6", &[Core, Dialect], "a kind that is not supported: not ready"),
    row("C7", &[Core, Dialect], "a missing workload: not ready"),
    row("C8", &[Core], "a workload that is created later makes it ready"),
    row("C9", &[Extended(LivePodShape)], "live pods decide the shape of the chunk"),
    row("C10", &[Core], "no running pod is needed"),
    row("C11", &[Core], "current replicas of a settled workload"),
    row("C12", &[Core], "a workload without replicas has one"),
    row("C13", &[Core], "a scaled workload changes the size"),
    row("C14", &[Extended(StatusTemplateForScalableRef)], "status names a template also for a workload"),
    row("C15", &[Core], "no size at all: no capacity"),
    row("C16", &[Core], "a kind that stops being supported: capacity goes"),
    row("E1", &[Extended(ResourceQuotas)], "a quota caps the buffers of its namespace"),
    row("E2", &[Extended(ResourceQuotas)], "LimitedByQuotas says so and names the quota"),
    row("E3", &[Extended(ResourceQuotas)], "older buffers come first"),
    row("E4", &[Extended(ResourceQuotas)], "a capped buffer is still ready"),
    row("E5", &[Extended(ResourceQuotas)], "which keys of a quota count"),
    row("E6", &[Extended(ResourceQuotas)], "scopes of quotas"),
    row("E7", &[Dialect], "less than one chunk left"),
    row("E8", &[Extended(ResourceQuotas)], "real usage counts"),
    row("E9", &[Core], "a quota does not break an implementation that ignores it"),
    row("F1", &[Core], "active capacity is provisioned"),
    row("F2", &[Core], "status shows the strategy"),
    row("F3", &[Extended(StrategyIsolation)], "a foreign strategy is left alone"),
    row("F4", &[Core, Dialect], "an empty strategy is active capacity"),
    row("F5", &[Harness], "standby strategies"),
    row("G1", &[Core], "every buffer with a reference says whether it is ready"),
    row("G2", &[Info], "a condition Ready"),
    row("G3", &[Extended(ObservedGeneration)], "conditions have the observed generation"),
    row("G4", &[Core], "conditions are valid"),
    row("G5", &[Core], "transition times are stable"),
    row("G6", &[Core, Dialect], "no reference: never ready"),
    row("G7", &[Core, Dialect], "once ready and the capacity is there, Provisioning turns true"),
    row(
        "G8",
        &[Extended(ProvisioningReflectsCapacity)],
        "Provisioning is not true before the capacity is there",
    ),
    row("G9", &[Dialect], "what Provisioning false means"),
    row(
        "G10",
        &[Extended(ProvisioningReflectsCapacity)],
        "Provisioning is not true for what can't be satisfied",
    ),
    row("G11", &[Core, Dialect], "size 0: ready, and Provisioning not true"),
    row("G12", &[Core], "never ready: Provisioning never true"),
    row("G13", &[Extended(ProvisioningFollowsReady)], "readiness lost: Provisioning not true"),
    row("G14", &[Dialect], "Provisioning without any pool"),
    row("G15", &[Dialect], "reason and message while Provisioning"),
    row("H1", &[Core], "no pod objects"),
    row("H2", &[Core], "capacity appears"),
    row("H3", &[Core], "capacity that is there is used first"),
    row("H4", &[Core], "node selector, tolerations and affinity are honoured"),
    row("H5", &[Core], "anti-affinity between chunks is honoured"),
    row("H6", &[Core], "buffers add up"),
    row("H7", &[Core], "any pod may use the capacity"),
    row("H8", &[Core], "consumed capacity comes back"),
    row("H9", &[Core], "a larger size grows the capacity"),
    row("H10", &[Core, Dialect], "a smaller size shrinks the capacity"),
    row("H11", &[Core], "a deleted buffer releases its capacity, with nobody poking"),
    row("H12", &[Core], "capacity stays while nothing changes"),
    row("H13", &[Core], "a ceiling is never exceeded"),
    row("H14", &[Info], "repacking by consolidation"),
    row("H15", &[Dialect], "drift and expiry refill"),
    row("H16", &[Core], "DaemonSets take their part"),
    row("H17", &[Dialect], "priority of chunks"),
    row("H18", &[Core], "real pods and buffers side by side"),
    row("H19", &[Core], "rapid creation and deletion"),
    row("H20", &[Core], "a restart loses and doubles nothing"),
    row("H21", &[Core], "one name in two namespaces"),
    row("I1", &[Extended(BufferEvents)], "events on the buffer"),
    row("I2", &[Info], "events on pods that don't exist"),
    row("I3", &[Dialect], "events on nodes"),
    row("I4", &[Dialect], "metrics"),
    row("I5", &[Harness], "how the feature is enabled"),
    row("I6", &[Info], "maturity label"),
    row("I7", &[Harness], "the definition is missing at the start"),
    row("I8", &[Core], "no finalizer keeps a buffer"),
    row("I9", &[Info], "very long names"),
    row("I10", &[Info], "writes in the steady state"),
    row("N1", &[Core], "a pod is pending, then running, then ready"),
    row("N2", &[Core], "a closed readiness gate keeps a pod from being ready"),
    row("N3", &[Core], "a deleted pod has its grace period and no more, and ends before it goes"),
    row("N4", &[Core], "a disruption budget holds a drain up, and lets it go on"),
    row("N5", &[Core], "a Job completes"),
    row("N6", &[Core], "a silent node: its pods are not ready, and ready again when it is back"),
    row("N7", &[Core], "a node that is gone takes its pods with it"),
    row("N8", &[Core], "a pod bound past the scheduler that does not fit is refused"),
    row("N9", &[Core], "what others wrote on nodes and pods stays"),
    row("N10", &[Core], "a StatefulSet goes one by one"),
    row("N11", &[Core], "pods count as available after minReadySeconds"),
    row("N12", &[Core], "after a restart pods have the address and the start that they had"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_every_row_says_who_is_judged() {
        let ids: BTreeSet<_> = ROWS.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), ROWS.len());
        for row in ROWS {
            assert!(!row.classes.is_empty(), "{}", row.id);
            assert_eq!(Row::find(row.id), Some(row));
        }
    }

    #[test]
    fn every_feature_is_written_as_it_is_named_and_has_a_row() {
        let features: BTreeSet<_> = ROWS
            .iter()
            .flat_map(|row| row.classes)
            .filter_map(|class| match class {
                Extended(feature) => Some(*feature),
                _ => None,
            })
            .collect();
        assert_eq!(features.len(), 16);
        for feature in features {
            assert_eq!(serde_json::to_value(feature).unwrap(), feature.name());
        }
    }
}
