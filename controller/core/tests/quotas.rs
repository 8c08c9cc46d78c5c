//! What ResourceQuotas leave to buffers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod world;

use buffer_api::conditions::buffer as text;
use buffer_core::snapshot::{ObjectKey, PodShape, Quota};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ScopedResourceSelectorRequirement;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use similar_asserts::assert_eq;
use world::{World, buffer, one_chunk_pool, resources, shape, template};

fn quota(name: &str, hard: &[(&str, &str)], used: &[(&str, &str)]) -> Quota {
    Quota { key: world::key(name), hard: resources(hard), used: resources(used), scopes: Vec::new() }
}

/// Buffers of so many chunks of 1 CPU, each created a second after the one before.
fn world(sizes: &[i32], quotas: Vec<Quota>) -> World {
    let mut world = World::new(vec![one_chunk_pool()]);
    for (at, size) in sizes.iter().enumerate() {
        let mut buffer = buffer(&format!("b{at}"), "one", *size);
        buffer.created = world.now.checked_add(SignedDuration::from_secs(i64::try_from(at).unwrap())).ok();
        world.snapshot.buffers.push(buffer);
    }
    world.snapshot.quotas = quotas;
    world
}

fn replicas(world: &World) -> Vec<i32> {
    world.snapshot.buffers.iter().map(|buffer| buffer.status.replicas.unwrap()).collect()
}

fn limited(world: &World, buffer: &str) -> Option<(String, String)> {
    let (status, reason, message) = world.condition(buffer, text::LIMITED_BY_QUOTAS)?;
    assert_eq!(reason, "ResourceQuotasAllocated");
    Some((status, message))
}

/// Rows E1–E4, E8: the older buffer comes first, what is used already counts, a limited buffer is ready.
#[test]
fn older_buffers_come_first() {
    let mut world = world(&[2, 4], vec![quota("q", &[("cpu", "5")], &[])]);
    world.settle();
    assert_eq!(replicas(&world), [2, 3]);
    assert_eq!(limited(&world, "b0"), Some(("False".into(), String::new())));
    let message = "Buffer replicas limited from 4 to 3 due to quotas: q";
    assert_eq!(limited(&world, "b1"), Some(("True".into(), message.into())));
    assert_eq!(world.condition("b1", text::READY_FOR_PROVISIONING).unwrap().0, "True");
    assert_eq!(world.born.len(), 5, "no more than the quota is bought");

    world.snapshot.buffers[0].spec.replicas = Some(4);
    world.settle();
    assert_eq!(replicas(&world), [4, 1]);
    world.snapshot.quotas[0].used = resources(&[("cpu", "2")]);
    world.settle();
    assert_eq!(replicas(&world), [3, 0]);
    assert_eq!(world.provisioning("b1").unwrap().1, "BufferEmpty");
    world.snapshot.quotas[0].hard = resources(&[("cpu", "10")]);
    world.settle();
    assert_eq!(replicas(&world), [4, 4]);
    assert_eq!(limited(&world, "b1"), Some(("False".into(), String::new())));
    world.snapshot.quotas.clear();
    world.settle();
    assert_eq!(limited(&world, "b1"), Some(("False".into(), String::new())), "it does not vanish in silence");
}

/// What does not mean the buffer does not limit it; without any quota nothing is said.
#[rstest]
#[case::no_quota(vec![], false)]
#[case::other_namespace(vec![Quota {
    key: ObjectKey { namespace: "other".into(), name: "q".into() }, ..quota("q", &[("cpu", "1")], &[])
}], false)]
#[case::other_resource(vec![quota("q", &[("nvidia.com/gpu", "1")], &[])], true)]
#[case::keys_that_do_not_count(vec![quota("q", &[("pods", "1"), ("count/pods", "1"), ("limits.cpu", "1")], &[])], true)]
fn what_does_not_count(#[case] quotas: Vec<Quota>, #[case] said: bool) {
    let mut world = world(&[3], quotas);
    world.settle();
    let want = said.then(|| ("False".to_owned(), String::new()));
    assert_eq!((replicas(&world), limited(&world, "b0")), (vec![3], want));
}

/// Row E5: both spellings of a key, and the tightest of several quotas; all that are too small are named.
#[rstest]
#[case::plain(vec![quota("q", &[("cpu", "2")], &[])], 2, "q")]
#[case::prefixed(vec![quota("q", &[("requests.cpu", "2")], &[])], 2, "q")]
#[case::both(vec![quota("q", &[("cpu", "9"), ("requests.cpu", "2")], &[("cpu", "0"), ("requests.cpu", "1")])], 1, "q")]
#[case::memory(vec![quota("q", &[("memory", "1200Mi")], &[])], 2, "q")]
#[case::tightest(vec![quota("a", &[("cpu", "2")], &[]), quota("b", &[("memory", "512Mi")], &[])], 1, "a, b")]
#[case::one_is_roomy(vec![quota("a", &[("cpu", "20")], &[]), quota("b", &[("memory", "512Mi")], &[])], 1, "b")]
#[case::overdrawn(vec![quota("q", &[("cpu", "2")], &[("cpu", "7")])], 0, "q")]
#[case::fraction(vec![quota("q", &[("cpu", "2999m")], &[])], 2, "q")]
fn what_counts(#[case] quotas: Vec<Quota>, #[case] allowed: i32, #[case] names: &str) {
    let mut world = world(&[3], quotas);
    world.settle();
    assert_eq!(replicas(&world), [allowed]);
    let message = format!("Buffer replicas limited from 3 to {allowed} due to quotas: {names}");
    assert_eq!(limited(&world, "b0"), Some(("True".into(), message)));
    assert_eq!(world.born.len(), usize::try_from(allowed).unwrap());
}

fn scope(name: &str, operator: &str, values: &[&str]) -> ScopedResourceSelectorRequirement {
    ScopedResourceSelectorRequirement {
        scope_name: name.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then(|| values.iter().map(ToString::to_string).collect()),
    }
}

fn with(change: impl Fn(&mut PodShape)) -> PodShape {
    let mut shape = shape(&[("cpu", "1"), ("memory", "512Mi")]);
    change(&mut shape);
    shape
}

/// Row E6: a quota counts only for pods that all its scopes mean.
#[rstest]
#[case::not_terminating(scope("NotTerminating", "Exists", &[]), with(|_| {}), true)]
#[case::terminating(scope("Terminating", "Exists", &[]), with(|_| {}), false)]
#[case::deadline(scope("Terminating", "Exists", &[]), with(|shape| shape.has_deadline = true), true)]
#[case::not_best_effort(scope("NotBestEffort", "Exists", &[]), with(|_| {}), true)]
#[case::best_effort(scope("BestEffort", "Exists", &[]), with(|_| {}), false)]
#[case::class_in(scope("PriorityClass", "In", &["high"]), with(|shape| shape.priority_class = Some("high".into())), true)]
#[case::class_not_in(scope("PriorityClass", "NotIn", &["high"]), with(|shape| shape.priority_class = Some("high".into())), false)]
#[case::no_class(scope("PriorityClass", "In", &["high"]), with(|_| {}), false)]
#[case::no_class_is_none_of_them(scope("PriorityClass", "NotIn", &["high"]), with(|_| {}), true)]
#[case::class_exists(scope("PriorityClass", "Exists", &[]), with(|_| {}), false)]
#[case::class_does_not_exist(scope("PriorityClass", "DoesNotExist", &[]), with(|_| {}), true)]
#[case::stays_in_its_namespace(scope("CrossNamespacePodAffinity", "Exists", &[]), with(|_| {}), false)]
#[case::looks_into_others(
    scope("CrossNamespacePodAffinity", "Exists", &[]),
    with(|shape| shape.affinity = serde_json::from_value(json!({"podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaces": ["other"]}}
        ]
    }})).unwrap()),
    true
)]
#[case::operator_that_does_not_go_with_it(scope("NotTerminating", "In", &["x"]), with(|_| {}), false)]
#[case::unknown(scope("VolumeAttributesClass", "Exists", &[]), with(|_| {}), false)]
fn scopes(#[case] scope: ScopedResourceSelectorRequirement, #[case] shape: PodShape, #[case] counts: bool) {
    let mut world = world(&[3], vec![Quota { scopes: vec![scope], ..quota("q", &[("cpu", "1")], &[]) }]);
    world.snapshot.templates = vec![template("one", shape)];
    world.settle();
    assert_eq!(replicas(&world), [if counts { 1 } else { 3 }]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Together the buffers never take more than is left, whatever order the lists have and however big the numbers are; nobody gets more
    /// than it asked for; and what the older ones get does not depend on the younger ones.
    #[test]
    fn quotas_are_never_exceeded(
        sizes in prop::collection::vec(prop_oneof![0..9_i32, Just(i32::MAX)], 1..6),
        hard in prop_oneof![0..20_i64, Just(i64::MAX)],
        used in 0..30_i64,
        turn in any::<prop::sample::Index>(),
    ) {
        let amounts = |number: i64| [("cpu", number.to_string())];
        let text = |all: [(&'static str, String); 1]| resources(&[(all[0].0, all[0].1.as_str())]);
        let limit = Quota { hard: text(amounts(hard)), used: text(amounts(used)), ..quota("q", &[], &[]) };
        let mut all = world(&sizes, vec![limit]);
        all.snapshot.pools.clear();
        let mut turned = all.clone();
        turned.snapshot.buffers.rotate_left(turn.index(sizes.len()));
        let mut fewer = all.clone();
        fewer.snapshot.buffers.pop();
        for world in [&mut all, &mut turned, &mut fewer] {
            world.plan_and_apply();
        }
        let got = replicas(&all);
        turned.snapshot.buffers.sort_by(|one, two| one.key.cmp(&two.key));
        prop_assert_eq!(&replicas(&turned), &got);
        prop_assert_eq!(&replicas(&fewer), &got[..sizes.len() - 1]);
        let sum: i64 = got.iter().map(|count| i64::from(*count)).sum();
        prop_assert!(sum <= (hard - used).max(0));
        for (got, asked) in got.iter().zip(&sizes) {
            prop_assert!((0..=*asked).contains(got));
        }
    }
}
