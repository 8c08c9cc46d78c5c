//! From references to statuses: rows B, C, F and G of the requirement catalogue.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod world;

use buffer_api::{
    capacity_buffer::{LocalObjectRef, ScalableRef},
    conditions::buffer as text,
};
use buffer_core::snapshot::{Buffer, Workload};
use jiff::SignedDuration;
use rstest::rstest;
use similar_asserts::assert_eq;
use world::{World, buffer, deployment, foreign_node, key, percentage, shape, without_notes};

fn world_with(buffer: Buffer) -> World {
    let mut world = World::new(Vec::new());
    world.snapshot.buffers = vec![buffer];
    world.snapshot.nodes = vec![foreign_node("node", &[("cpu", "64"), ("memory", "64Gi"), ("pods", "100")])];
    world
}

fn said(world: &World, kind: &str) -> String {
    world.condition("web", kind).map_or_else(
        || "nothing".to_owned(),
        |(status, reason, message)| format!("{status}/{reason}: {message}"),
    )
}

fn refers(api_group: Option<&str>, kind: &str) -> Buffer {
    let mut buffer = percentage("web", "app", 20);
    buffer.spec.scalable_ref = Some(ScalableRef {
        api_group: api_group.map(ToOwned::to_owned),
        kind: kind.to_owned(),
        name: "app".to_owned(),
    });
    buffer
}

/// Rows C1, C5–C7: which workloads resolve.
#[rstest]
#[case::deployment(Some("apps"), "Deployment", "True/Resolved: Pod template resolved successfully")]
#[case::stateful_set(Some("apps"), "StatefulSet", "True/Resolved: Pod template resolved successfully")]
#[case::replica_set(Some("apps"), "ReplicaSet", "True/Resolved: Pod template resolved successfully")]
#[case::core_group_has_no_deployment(
    Some(""),
    "Deployment",
    "False/ResolutionFailed: unsupported scalableRef: group \"\", kind \"Deployment\""
)]
#[case::no_group_is_the_core_group(
    None,
    "Deployment",
    "False/ResolutionFailed: unsupported scalableRef: group \"\", kind \"Deployment\""
)]
#[case::cron_job(
    Some("batch"),
    "CronJob",
    "False/ResolutionFailed: unsupported scalableRef: group \"batch\", kind \"CronJob\""
)]
#[case::other_kind(
    Some("apps"),
    "DaemonSet",
    "False/ResolutionFailed: unsupported scalableRef: group \"apps\", kind \"DaemonSet\""
)]
fn workloads(#[case] group: Option<&str>, #[case] kind: &str, #[case] want: &str) {
    let mut world = world_with(refers(group, kind));
    world.snapshot.workloads = ["Deployment", "StatefulSet", "ReplicaSet"]
        .map(|kind| Workload { kind: kind.to_owned(), ..deployment("app", 10, shape(&[("cpu", "1")])) })
        .to_vec();
    world.plan_and_apply();
    assert_eq!(said(&world, text::READY_FOR_PROVISIONING), want);
    let status = &world.snapshot.buffers[0].status;
    assert_eq!(status.replicas, want.starts_with("True").then_some(2));
    assert_eq!(status.pod_template_ref, None);
    assert_eq!(status.pod_template_generation, None);
}

/// Whatever the shell can read resolves, also a kind that is not built in.
#[test]
fn a_workload_that_was_read_resolves() {
    let mut world = world_with(refers(Some("example.com"), "Fleet"));
    let fleet = Workload {
        group: "example.com".to_owned(),
        kind: "Fleet".to_owned(),
        ..deployment("app", 10, shape(&[("cpu", "1")]))
    };
    world.snapshot.workloads = vec![fleet];
    world.plan_and_apply();
    assert_eq!(world.snapshot.buffers[0].status.replicas, Some(2));
}

/// Rows B3, C7, G6: what does not resolve, and what it says.
#[rstest]
#[case::no_template(buffer("web", "gone", 1), "False/PodTemplateNotFound: PodTemplate \"gone\" not found")]
#[case::no_workload(
    percentage("web", "gone", 20),
    "False/ScalableRefNotFound: Deployment.apps \"gone\" not found"
)]
#[case::neither(Buffer { key: key("web"), generation: 1, ..Buffer::default() },
    "False/ResolutionFailed: Neither podTemplateRef nor scalableRef is set")]
#[case::both({
    let mut both = percentage("web", "app", 20);
    both.spec.pod_template_ref = Some(LocalObjectRef { name: "one".to_owned() });
    both
}, "False/ResolutionFailed: Both podTemplateRef and scalableRef are set")]
fn failures(#[case] buffer: Buffer, #[case] want: &str) {
    let mut world = world_with(buffer);
    world.plan_and_apply();
    assert_eq!(said(&world, text::READY_FOR_PROVISIONING), want);
    assert_eq!(
        said(&world, text::PROVISIONING),
        "False/NotReadyForProvisioning: Buffer is not ReadyForProvisioning"
    );
}

/// Rows B4, B7–B9, G13: what appears, changes and disappears is followed at once, and a failure leaves nothing stale.
#[test]
fn the_template_is_followed() {
    let mut world = world_with(buffer("web", "late", 10));
    world.snapshot.buffers[0].spec.limits = Some(world::api(&[("cpu", "4")]));
    world.plan_and_apply();
    assert!(said(&world, text::READY_FOR_PROVISIONING).starts_with("False/PodTemplateNotFound"));
    let start = world.now;

    world.snapshot.templates.push(world::template("late", shape(&[("cpu", "1")])));
    world.advance(SignedDuration::from_secs(10));
    world.plan_and_apply();
    let status = world.snapshot.buffers[0].status.clone();
    assert_eq!((status.replicas, status.pod_template_generation), (Some(4), Some(1)));
    assert_eq!(
        said(&world, text::PROVISIONING),
        "True/FitsExistingCapacity: All 4 virtual pods fit on existing capacity"
    );
    let times = |world: &World| {
        let conditions = &world.snapshot.buffers[0].status.conditions;
        conditions.iter().map(|own| own.last_transition_time.0).collect::<Vec<_>>()
    };
    let flipped = start.checked_add(SignedDuration::from_secs(10)).unwrap();
    assert_eq!(times(&world), [flipped, flipped]);

    // An edit: the size halves, neither status flips.
    let template = world.snapshot.templates.iter_mut().find(|own| own.key.name == "late").unwrap();
    (template.generation, template.shape) = (2, shape(&[("cpu", "2")]));
    world.advance(SignedDuration::from_secs(10));
    world.plan_and_apply();
    let status = world.snapshot.buffers[0].status.clone();
    assert_eq!((status.replicas, status.pod_template_generation), (Some(2), Some(2)));
    assert_eq!(times(&world), [flipped, flipped]);

    world.snapshot.templates.clear();
    world.plan_and_apply();
    let status = &world.snapshot.buffers[0].status;
    assert_eq!(status.replicas, None);
    assert_eq!(status.pod_template_ref, None);
    assert_eq!(status.pod_template_generation, None);
    assert_eq!(status.provisioning_strategy.as_deref(), Some("buffer.x-k8s.io/active-capacity"));
    assert!(said(&world, text::PROVISIONING).starts_with("False/NotReadyForProvisioning"));
}

/// Row G3: both conditions carry the generation, also where nothing else changes.
#[test]
fn generations_are_observed() {
    let mut world = world_with(buffer("web", "one", 1));
    world.plan_and_apply();
    world.snapshot.buffers[0].generation = 7;
    world.plan_and_apply();
    let conditions = &world.snapshot.buffers[0].status.conditions;
    assert_eq!(conditions.iter().map(|own| own.observed_generation).collect::<Vec<_>>(), [Some(7), Some(7)]);
}

/// Rows F1, F2, F4: the strategies that are ours.
#[rstest]
#[case::not_set(None, "buffer.x-k8s.io/active-capacity")]
#[case::empty(Some(""), "")]
#[case::active(Some("buffer.x-k8s.io/active-capacity"), "buffer.x-k8s.io/active-capacity")]
fn own_strategies(#[case] strategy: Option<&str>, #[case] want: &str) {
    let mut world = world_with(buffer("web", "one", 1));
    world.snapshot.buffers[0].spec.provisioning_strategy = strategy.map(ToOwned::to_owned);
    world.plan_and_apply();
    assert!(world.is_provisioned("web"));
    assert_eq!(world.snapshot.buffers[0].status.provisioning_strategy.as_deref(), Some(want));
}

/// Row F3: a foreign strategy gets no status and no capacity; a buffer that was ours loses what we said of it, once, and what a foreign
/// controller says is left alone.
#[test]
fn foreign_strategies_are_left_alone() {
    let mut world = world_with(buffer("web", "one", 1));
    world.snapshot.nodes.clear();
    world.snapshot.buffers[0].spec.provisioning_strategy = Some("example.com/other".to_owned());
    assert_eq!(without_notes(world.plan()), buffer_core::plan::Plan::default());

    let mut world = world_with(buffer("web", "one", 1));
    world.plan_and_apply();
    world.snapshot.buffers[0].spec.provisioning_strategy = Some("example.com/other".to_owned());
    let plan = world.plan_and_apply();
    assert_eq!(plan.buffers[0].status, buffer_api::CapacityBufferStatus::default());
    world.snapshot.buffers[0].status.provisioning_strategy = Some("example.com/other".to_owned());
    assert_eq!(without_notes(world.plan()), buffer_core::plan::Plan::default());
}

/// A buffer that a finalizer holds asks for nothing.
#[test]
fn deleting_buffers_ask_for_nothing() {
    let mut world = world_with(buffer("web", "one", 1));
    world.snapshot.nodes.clear();
    world.snapshot.pools = vec![world::pool("any")];
    world.snapshot.buffers[0].deleting = true;
    let plan = world.plan();
    assert_eq!((plan.buffers.len(), plan.create.len()), (0, 0));
}

/// Row H21: the same name in two namespaces is two buffers.
#[test]
fn namespaces_are_apart() {
    let mut world = world_with(buffer("web", "one", 1));
    let mut other = buffer("web", "one", 5);
    "other".clone_into(&mut other.key.namespace);
    let mut template = world::template("one", shape(&[("cpu", "1")]));
    "other".clone_into(&mut template.key.namespace);
    world.snapshot.buffers.push(other);
    world.plan_and_apply();
    let replicas =
        |world: &World| world.snapshot.buffers.iter().map(|own| own.status.replicas).collect::<Vec<_>>();
    assert_eq!(replicas(&world), [Some(1), None]);
    world.snapshot.templates.push(template);
    world.plan_and_apply();
    assert_eq!(replicas(&world), [Some(1), Some(5)]);
}

/// Conditions of others are not looked at.
#[test]
fn foreign_conditions_stay_out_of_it() {
    let mut world = world_with(buffer("web", "one", 1));
    world.plan_and_apply();
    let mut foreign = world.snapshot.buffers[0].status.conditions[0].clone();
    "example.com/Audited".clone_into(&mut foreign.type_);
    world.snapshot.buffers[0].status.conditions.push(foreign);
    assert_eq!(world.plan().buffers.len(), 0);
}
