//! From a buffer's reference to the shape and number of its chunks, and the condition `ReadyForProvisioning`.
//!
//! Sources: rows B1–B19, C1–C16 and F1–F4 of the requirement catalogue; reasons and messages are those that Karpenter documents.

use std::collections::BTreeMap;

use buffer_api::{
    capacity_buffer::{ACTIVE_CAPACITY, LocalObjectRef, ScalableRef},
    conditions::buffer as text,
};

use crate::{
    conditions::Wanted,
    size::{Ask, size},
    snapshot::{Buffer, ObjectKey, PodShape, Snapshot, Template, Workload},
};

/// Kinds whose replicas and template are read: (group, kind). Source: rows C1–C3.
const SUPPORTED: [(&str, &str); 5] = [
    ("", "ReplicationController"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
];

/// What became of a buffer's reference.
#[derive(Clone, Debug)]
pub struct Resolution<'a> {
    /// Shape and number of the chunks; `None` where the reference leads nowhere.
    pub chunks: Option<Chunks<'a>>,
    /// The condition `ReadyForProvisioning`.
    pub condition: Wanted,
}

/// What a buffer asks for.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    /// Shape of one chunk.
    pub shape: &'a PodShape,
    /// How many.
    pub replicas: i32,
    /// The template and its generation, where the reference is to one (row B5, C14).
    pub template: Option<(LocalObjectRef, i64)>,
}

/// What buffers may refer to, ready to be looked up.
#[derive(Debug)]
pub struct Referents<'a> {
    templates: BTreeMap<&'a ObjectKey, &'a Template>,
    workloads: BTreeMap<(&'a str, &'a str, &'a ObjectKey), &'a Workload>,
}

impl<'a> Referents<'a> {
    /// Sorts templates and workloads.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let templates = snapshot.templates.iter().map(|template| (&template.key, template)).collect();
        let workloads = snapshot.workloads.iter();
        let workloads = workloads
            .map(|workload| ((workload.group.as_str(), workload.kind.as_str(), &workload.key), workload))
            .collect();
        Self { templates, workloads }
    }
}

/// Whether the buffer's strategy is ours: active capacity, also where it is empty or not set (rows F1, F3, F4).
#[must_use]
pub fn is_ours(buffer: &Buffer) -> bool {
    matches!(buffer.spec.provisioning_strategy.as_deref(), None | Some("" | ACTIVE_CAPACITY))
}

/// Follows the reference of a buffer.
#[must_use]
pub fn resolve<'a>(buffer: &Buffer, referents: &Referents<'a>) -> Resolution<'a> {
    match find(buffer, referents) {
        Ok(chunks) => Resolution {
            chunks: Some(chunks),
            condition: Wanted {
                kind: text::READY_FOR_PROVISIONING,
                status: "True",
                reason: text::RESOLVED,
                message: text::RESOLVED_MESSAGE.to_owned(),
            },
        },
        Err((reason, message)) => Resolution {
            chunks: None,
            condition: Wanted { kind: text::READY_FOR_PROVISIONING, status: "False", reason, message },
        },
    }
}

type Failure = (&'static str, String);

fn find<'a>(buffer: &Buffer, referents: &Referents<'a>) -> Result<Chunks<'a>, Failure> {
    let spec = &buffer.spec;
    match (&spec.pod_template_ref, &spec.scalable_ref) {
        (Some(reference), None) => {
            let key = in_namespace_of(buffer, &reference.name);
            let template = *referents.templates.get(&key).ok_or_else(|| {
                (text::POD_TEMPLATE_NOT_FOUND, format!("PodTemplate \"{}\" not found", reference.name))
            })?;
            // A template has no replicas to take a percentage of (V13).
            let replicas = count(buffer, None, 0, &template.shape)?;
            let template_ref = Some((reference.clone(), template.generation));
            Ok(Chunks { shape: &template.shape, replicas, template: template_ref })
        }
        (None, Some(reference)) => {
            let workload = workload(buffer, reference, referents)?;
            let replicas = count(buffer, spec.percentage, workload.replicas, &workload.shape)?;
            Ok(Chunks { shape: &workload.shape, replicas, template: None })
        }
        (None, None) => {
            let message = "Neither podTemplateRef nor scalableRef is set";
            Err((text::RESOLUTION_FAILED, message.to_owned()))
        }
        // The API server refuses this (row A6).
        (Some(_), Some(_)) => {
            Err((text::RESOLUTION_FAILED, "Both podTemplateRef and scalableRef are set".to_owned()))
        }
    }
}

fn in_namespace_of(buffer: &Buffer, name: &str) -> ObjectKey {
    ObjectKey { namespace: buffer.key.namespace.clone(), name: name.to_owned() }
}

/// An empty group is the core group, which has no Deployment (row C5).
fn workload<'a>(
    buffer: &Buffer,
    reference: &ScalableRef,
    referents: &Referents<'a>,
) -> Result<&'a Workload, Failure> {
    let group = reference.api_group.as_deref().unwrap_or_default();
    let key = in_namespace_of(buffer, &reference.name);
    let found = referents.workloads.get(&(group, reference.kind.as_str(), &key)).copied();
    found.ok_or_else(|| {
        if SUPPORTED.contains(&(group, reference.kind.as_str())) {
            let message = format!("{}.{group} \"{}\" not found", reference.kind, reference.name);
            (text::SCALABLE_REF_NOT_FOUND, message)
        } else {
            let message = format!("unsupported scalableRef: group \"{group}\", kind \"{}\"", reference.kind);
            (text::RESOLUTION_FAILED, message)
        }
    })
}

fn count(
    buffer: &Buffer,
    percentage: Option<i32>,
    workload_replicas: i32,
    shape: &PodShape,
) -> Result<i32, Failure> {
    let limits = buffer.spec.limits.as_ref();
    let replicas = buffer.spec.replicas;
    size(Ask { replicas, percentage, workload_replicas, limits, requests: &shape.requests })
        .map_err(|error| (text::RESOLUTION_FAILED, format!("limits: {error}")))
}
