//! Drift, consolidation, expiry and forced drains, through every intermediate state.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod world;

use buffer_api::{conditions, karpenter::DisruptionReason, labels};
use buffer_core::{
    plan::{DeleteReason, EventObject, Plan},
    snapshot::{DisruptionBudget, Pod, PodShape, Pool},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use rstest::rstest;
use similar_asserts::assert_eq;
use world::{World, buffer, one_chunk_pool, pod, pool, requirement, shape, without_notes};

fn one() -> PodShape {
    shape(&[("cpu", "1"), ("memory", "512Mi")])
}

/// A pool of on-demand nodes of these types.
fn on_demand(types: &[&str]) -> Pool {
    let mut pool = pool("any");
    pool.spec.template.spec.requirements =
        vec![requirement(labels::INSTANCE_TYPE, types), requirement(labels::CAPACITY_TYPE, &["on-demand"])];
    pool
}

/// Pods of a workload, which are made anew when they are evicted.
fn replicas(count: u32) -> Vec<Pod> {
    (0..count).map(|number| pod(&format!("w-a-{number}"), one())).collect()
}

fn types(world: &World) -> Vec<&str> {
    let mut all: Vec<&str> =
        world.snapshot.nodes.iter().map(|node| node.labels[labels::INSTANCE_TYPE].as_str()).collect();
    all.sort_unstable();
    all
}

fn running(world: &World) -> usize {
    world.snapshot.pods.iter().filter(|pod| pod.node.is_some()).count()
}

fn deletions(world: &mut World) -> Vec<DeleteReason> {
    let mut all = Vec::new();
    for _ in 0..1_000 {
        let plan = world.plan_and_apply();
        all.extend(plan.delete.iter().map(|delete| delete.reason));
        match world.steps().first().cloned() {
            Some(step) => world.take(&step),
            None if without_notes(plan) == Plan::default() => return all,
            None => {}
        }
    }
    panic!("the world does not settle");
}

/// Eight pods on a big node shrink to two: a smaller node is bought first, then the big one is drained and goes.
#[test]
fn an_underutilized_node_is_replaced_by_a_cheaper_one() {
    let mut world = World::new(vec![on_demand(&["c-4x", "c-16x"])]);
    world.snapshot.pods = replicas(8);
    world.settle();
    assert_eq!(types(&world), ["c-16x"]);
    world.snapshot.pods.truncate(2);
    let plan = world.plan_and_apply();
    assert_eq!((plan.create.len(), plan.nodes.len(), plan.delete.len()), (1, 0, 0), "bought, not yet marked");
    assert_eq!(deletions(&mut world), [DeleteReason::Underutilized]);
    assert_eq!(types(&world), ["c-4x"]);
    assert_eq!((running(&world), world.born.len()), (2, 2));
}

/// Two nodes whose pods fit on one: one goes, nothing is bought.
#[test]
fn pods_that_fit_elsewhere_give_their_node_up() {
    let mut world = World::new(vec![on_demand(&["c-4x"])]);
    world.snapshot.pods = replicas(6);
    world.settle();
    assert_eq!(types(&world), ["c-4x", "c-4x"]);
    world.snapshot.pods.retain(|pod| ["w-a-0", "w-a-5"].contains(&pod.key.name.as_str()));
    assert_eq!(deletions(&mut world), [DeleteReason::Underutilized]);
    assert_eq!((types(&world), running(&world), world.born.len()), (vec!["c-4x"], 2, 2));
}

/// Several nodes are replaced by one that costs less than all of them.
#[test]
fn several_nodes_are_replaced_by_one() {
    let mut small = on_demand(&["c-4x"]);
    let mut world = World::new(vec![small.clone()]);
    world.snapshot.pods = replicas(12);
    world.settle();
    assert_eq!(types(&world), ["c-4x"; 4]);
    // one pod of each node stays, and requires a node of its own kind
    let mut seen = std::collections::BTreeSet::new();
    world.snapshot.pods.retain(|pod| seen.insert(pod.node.clone()));
    // none of them has room for the others' pods
    for pod in &mut world.snapshot.pods {
        pod.shape = std::sync::Arc::new(shape(&[("cpu", "2"), ("memory", "512Mi")]));
    }
    small.spec.template.spec.requirements[0] = requirement(labels::INSTANCE_TYPE, &["c-4x", "c-16x"]);
    small.generation = 2;
    world.snapshot.classes[0].instance_types = std::sync::Arc::new(
        world::catalogue()
            .into_iter()
            .map(|mut kind| {
                if kind.name == "c-16x" {
                    kind.offerings.iter_mut().for_each(|offering| offering.price = 0.15);
                }
                kind
            })
            .collect(),
    );
    world.snapshot.pools = vec![small];
    let reasons = deletions(&mut world);
    assert_eq!(reasons, [DeleteReason::Underutilized; 4]);
    assert_eq!((types(&world), running(&world), world.born.len()), (vec!["c-16x"], 4, 5));
}

/// A buffer that has shrunk does not keep the big node that it was given; it has its room throughout.
#[test]
fn a_node_of_chunks_is_right_sized() {
    let mut world = World::new(vec![on_demand(&["c-4x", "c-16x"])]);
    world.snapshot.buffers = vec![buffer("web", "one", 12)];
    world.settle();
    assert_eq!(types(&world), ["c-16x"]);
    world.snapshot.buffers[0].spec.replicas = Some(3);
    world.snapshot.buffers[0].generation = 2;
    world.settle_with(
        |_| 0,
        |world| {
            assert!(world.headroom(&one()) >= 3);
            assert!(world.is_provisioned("web"));
        },
    );
    assert_eq!((types(&world), world.born.len()), (vec!["c-4x"], 2));
}

/// The scheduler spreads pods, so it may put one that moves where a bigger chunk is kept: such nodes are left alone.
#[rstest]
#[case::chunks_as_big_as_pods("1", 2)]
#[case::bigger_chunks("3", 0)]
fn pods_are_not_moved_into_a_buffer(#[case] cpu: &str, #[case] removed: usize) {
    let mut world = World::new(vec![on_demand(&["c-4x"])]);
    world.snapshot.pods = replicas(6);
    world.settle();
    world.snapshot.templates.push(world::template("chunk", shape(&[("cpu", cpu), ("memory", "512Mi")])));
    world.snapshot.buffers = vec![buffer("web", "chunk", 1)];
    world.settle();
    let nodes = world.snapshot.nodes.len();
    world.snapshot.pods.retain(|pod| ["w-a-0", "w-a-5"].contains(&pod.key.name.as_str()));
    world.settle();
    assert_eq!((nodes, world.deleted.len()), (3, removed));
}

/// Nothing is bought that is not sure to be cheaper, spot instances not for spot instances unless many types will do.
#[rstest]
#[case::same_type_only(&["c-16x"], &["on-demand"], &["c-16x"])]
#[case::spot_for_spot(&["c-4x", "c-16x"], &["spot"], &["c-16x"])]
fn a_node_is_not_replaced_by_one_that_may_not_be_better(
    #[case] kinds: &[&str],
    #[case] capacity_types: &[&str],
    #[case] want: &[&str],
) {
    let mut pool = on_demand(kinds);
    pool.spec.template.spec.requirements[1] = requirement(labels::CAPACITY_TYPE, capacity_types);
    let mut world = World::new(vec![pool]);
    world.snapshot.pods = replicas(8);
    world.settle();
    world.snapshot.pods.truncate(2);
    world.settle();
    assert_eq!((types(&world), world.born.len()), (want.to_vec(), 1));
}

/// What keeps a node from being disrupted, one by one.
#[rstest]
#[case::policy(|world: &mut World| {
    world.snapshot.pools[0].spec.disruption.consolidation_policy = buffer_api::karpenter::ConsolidationPolicy::WhenEmpty;
})]
#[case::never(|world: &mut World| world.snapshot.pools[0].spec.disruption.consolidate_after = "Never".to_owned())]
#[case::budget(|world: &mut World| {
    let budget = &mut world.snapshot.pools[0].spec.disruption.budgets[0];
    (budget.nodes, budget.reasons) = ("0".to_owned(), vec![DisruptionReason::Underutilized]);
})]
#[case::pod(|world: &mut World| world.snapshot.pods[0].do_not_disrupt = true)]
#[case::node(|world: &mut World| {
    world.snapshot.nodes[0].annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
})]
#[case::claim(|world: &mut World| {
    world.snapshot.claims[0].annotations.insert(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
})]
#[case::exhausted_pod_budget(|world: &mut World| world.snapshot.disruption_budgets = vec![pod_budget("one", 0)])]
#[case::two_pod_budgets(|world: &mut World| {
    world.snapshot.disruption_budgets = vec![pod_budget("one", 1), pod_budget("two", 1)];
})]
#[case::limit(|world: &mut World| world.snapshot.pools[0].spec.limits = world::api(&[("nodes", "1")]))]
#[case::unavailable(|world: &mut World| {
    let until = world.now.checked_add(SignedDuration::from_hours(1)).unwrap();
    for zone in ["zone-a", "zone-b"] {
        world.snapshot.classes[0].unavailable.push(buffer_api::fake_node_class::UnavailableOffering {
            instance_type: "c-4x".to_owned(),
            zone: zone.to_owned(),
            capacity_type: "on-demand".to_owned(),
            until: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(until),
        });
    }
})]
fn a_node_stays(#[case] because: fn(&mut World)) {
    let mut world = World::new(vec![on_demand(&["c-4x", "c-16x"])]);
    world.snapshot.pods = replicas(8);
    world.settle();
    world.snapshot.pods.truncate(2);
    because(&mut world);
    world.settle();
    assert_eq!((types(&world), world.born.len(), world.deleted.len()), (vec!["c-16x"], 1, 0));
}

fn pod_budget(name: &str, allowed: i32) -> DisruptionBudget {
    DisruptionBudget { key: world::key(name), selector: Some(LabelSelector::default()), allowed }
}

/// `consolidateAfter` runs from the last time that a pod came or went.
#[test]
fn a_node_with_pods_must_have_been_quiet() {
    let mut pool = on_demand(&["c-4x", "c-16x"]);
    pool.spec.disruption.consolidate_after = "30s".to_owned();
    let mut world = World::new(vec![pool]);
    world.snapshot.pods = replicas(8);
    world.settle();
    let consolidatable = |world: &World| {
        let conditions = &world.snapshot.claims[0].status.conditions;
        conditions.iter().find(|own| own.type_ == conditions::claim::CONSOLIDATABLE).unwrap().clone()
    };
    world.advance(SignedDuration::from_secs(40));
    world.settle();
    assert_eq!(consolidatable(&world).status, "True");
    for left in [4, 2] {
        // each time pods go, the wait begins anew
        world.snapshot.pods.truncate(left);
        world.settle();
        assert_ne!(consolidatable(&world).status, "True");
        assert_eq!(consolidatable(&world).last_transition_time.0, world.now);
        world.advance(SignedDuration::from_secs(20));
        world.settle();
    }
    world.advance(SignedDuration::from_secs(9));
    world.settle();
    assert_eq!(world.born.len(), 1);
    world.advance(SignedDuration::from_secs(1));
    world.settle();
    assert_eq!(types(&world), ["c-4x"]);
}

/// A pod that comes while another goes is noticed too.
#[test]
fn a_pod_that_takes_the_place_of_another_is_noticed() {
    let mut pool = on_demand(&["c-4x", "c-16x"]);
    pool.spec.disruption.consolidate_after = "30s".to_owned();
    let mut world = World::new(vec![pool]);
    world.snapshot.pods = replicas(8);
    world.settle();
    world.snapshot.pods.truncate(2);
    world.settle();
    world.advance(SignedDuration::from_secs(20));
    let mut other = world.snapshot.pods.pop().unwrap();
    (other.key.name, other.uid, other.bound_at) = ("w-b-0".into(), "uid-w-b-0".into(), Some(world.now));
    world.snapshot.pods.push(other);
    world.settle();
    world.advance(SignedDuration::from_secs(29));
    world.settle();
    assert_eq!(world.born.len(), 1);
    world.advance(SignedDuration::from_secs(1));
    world.settle();
    assert_eq!(types(&world), ["c-4x"]);
}

fn drift_of(world: &World) -> Vec<String> {
    let of = |claim: &buffer_core::snapshot::Claim| {
        let mut all = claim.status.conditions.iter();
        all.find(|own| own.type_ == conditions::claim::DRIFTED).map(|own| own.reason.clone())
    };
    world.snapshot.claims.iter().filter_map(of).collect()
}

/// A change of the pool's template replaces all nodes, one budget at a time, and the buffer has its room throughout.
#[rstest]
#[case::template("NodePoolDrifted", |world: &mut World| {
    world.snapshot.pools[0].spec.template.metadata.labels.insert("team".to_owned(), "a".to_owned());
})]
#[case::requirement("RequirementsDrifted", |world: &mut World| {
    world.snapshot.pools[0].spec.template.spec.requirements[0] = requirement(labels::INSTANCE_TYPE, &["c-4x"]);
})]
fn drifted_nodes_are_replaced(#[case] reason: &str, #[case] change: fn(&mut World)) {
    let mut world = World::new(vec![one_chunk_pool()]);
    world.snapshot.buffers = vec![buffer("web", "one", 3)];
    world.snapshot.pods = replicas(2);
    world.settle();
    assert_eq!((types(&world), drift_of(&world).len()), (vec!["c-2x"; 5], 0));
    let before = world.snapshot.nodes.clone();
    world.snapshot.pools[0].spec.disruption.budgets[0].nodes = "40%".to_owned();
    change(&mut world);
    world.snapshot.pools[0].generation += 1;
    world.plan_and_apply();
    assert_eq!(drift_of(&world), [reason; 5]);
    world.settle_with(
        |_| 0,
        |world| {
            let away = |node: &&buffer_core::snapshot::Node| {
                node.deleting || node.taints.iter().any(|own| own.key == labels::DISRUPTED_TAINT)
            };
            assert!(world.snapshot.nodes.iter().filter(away).count() <= 2, "the budget is exceeded");
            // a pod that moves takes its new place before its old one is free
            let moving = world.snapshot.pods.iter().filter(|pod| pod.node.is_none() || pod.deleting).count();
            assert!(world.headroom(&one()) + moving as u64 >= 3, "the buffer has lost its room");
        },
    );
    assert!(world.snapshot.nodes.iter().all(|node| before.iter().all(|old| old.name != node.name)));
    assert_eq!((running(&world), drift_of(&world).len()), (2, 0));
    assert!(world.is_provisioned("web"));
}

/// An empty node that has drifted goes under the budget for drift, also where nothing is consolidated.
#[test]
fn an_empty_drifted_node_goes() {
    let mut pool = one_chunk_pool();
    pool.spec.disruption.consolidate_after = "Never".to_owned();
    let mut world = World::new(vec![pool]);
    world.snapshot.buffers = vec![buffer("web", "one", 1)];
    world.settle();
    world.snapshot.buffers.clear();
    world.settle();
    assert_eq!(world.snapshot.nodes.len(), 1);
    world.snapshot.pools[0].spec.template.metadata.labels.insert("team".to_owned(), "a".to_owned());
    assert_eq!(deletions(&mut world), [DeleteReason::Drifted]);
    assert_eq!((world.snapshot.nodes.len(), world.born.len()), (0, 1));
}

/// Drift passes by pods that forbid it only where the drain is forced in the end.
#[rstest]
#[case::waits(None, 0)]
#[case::forced(Some("1h"), 1)]
fn do_not_disrupt_and_drift(#[case] grace: Option<&str>, #[case] replaced: usize) {
    let mut pool = one_chunk_pool();
    pool.spec.template.spec.termination_grace_period = grace.map(ToOwned::to_owned);
    let mut world = World::new(vec![pool]);
    world.snapshot.pods = replicas(1);
    world.snapshot.pods[0].do_not_disrupt = true;
    world.settle();
    world.snapshot.pools[0].spec.template.metadata.labels.insert("team".to_owned(), "a".to_owned());
    let mut plan = world.plan_and_apply();
    if replaced == 0 {
        plan = world.plan();
        let about = |event: &&buffer_core::plan::Event| matches!(event.about, EventObject::Node(..));
        let event = plan.events.iter().find(about).unwrap();
        assert_eq!(event.reason, "DisruptionBlocked");
        assert!(event.message.contains("default/w-a-0"), "{}", event.message);
    }
    assert_eq!(plan.create.len(), replaced);
}

/// A node that is too old goes at its time, whatever budgets and pods say; its load is bought anew.
#[test]
fn an_old_node_is_replaced() {
    let mut pool = one_chunk_pool();
    pool.spec.disruption.budgets[0].nodes = "0".to_owned();
    pool.spec.template.spec.expire_after = Some("24h".to_owned());
    let mut world = World::new(vec![pool]);
    world.snapshot.buffers = vec![buffer("web", "one", 1)];
    world.snapshot.pods = replicas(1);
    world.settle();
    let end = world.snapshot.claims[0].created.unwrap().checked_add(SignedDuration::from_hours(24)).unwrap();
    world.now = end.checked_sub(SignedDuration::from_secs(1)).unwrap();
    let plan = world.plan_and_apply();
    assert_eq!((plan.delete.len(), plan.wake_up), (0, Some(end)));
    world.now = end;
    assert_eq!(deletions(&mut world), [DeleteReason::Expired; 2]);
    assert_eq!((world.snapshot.nodes.len(), running(&world), world.born.len()), (2, 1, 4));
    assert!(world.is_provisioned("web"));
}

/// A drain that may not last for ever: pods that forbid it are deleted in time to have their grace, and at the end nobody is waited for.
#[test]
fn a_drain_is_forced_in_time() {
    let mut pool = one_chunk_pool();
    pool.spec.template.spec.termination_grace_period = Some("60s".to_owned());
    let mut world = World::new(vec![pool]);
    world.snapshot.pods = vec![pod("stays", one())];
    world.snapshot.pods[0].do_not_disrupt = true;
    world.snapshot.pods[0].grace_seconds = 20;
    world.settle();
    world.snapshot.claims[0].deleting = true;
    world.snapshot.claims[0].deleted_at = Some(world.now);
    let end = world.now.checked_add(SignedDuration::from_secs(60)).unwrap();
    let plan = world.plan_and_apply();
    assert_eq!(plan.evict.len(), 0);
    world.now = end.checked_sub(SignedDuration::from_secs(20)).unwrap();
    let plan = world.plan();
    assert_eq!(plan.evict.iter().map(|eviction| eviction.force).collect::<Vec<_>>(), [Some(20)]);
    world.apply(&plan);
    world.now = end;
    let plan = world.plan();
    assert_eq!(plan.release, [world.snapshot.claims[0].name.clone()]);
}

/// An eviction that is asked for by budgets is not forced before its time.
#[test]
fn a_drain_asks_first() {
    let mut pool = one_chunk_pool();
    pool.spec.template.spec.termination_grace_period = Some("60s".to_owned());
    let mut world = World::new(vec![pool]);
    world.snapshot.pods = replicas(1);
    world.settle();
    world.snapshot.claims[0].deleting = true;
    world.snapshot.claims[0].deleted_at = Some(world.now);
    let plan = world.plan();
    assert_eq!(plan.evict.iter().map(|eviction| eviction.force).collect::<Vec<_>>(), [None]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever pods go and come: consolidation ends, never costs the buffer its room, and never makes the nodes dearer.
    #[test]
    fn consolidation_ends_and_spares_the_buffer(
        seed in any::<u64>(),
        pods in 0..24_u32,
        chunks in 0..12_i32,
        size in 1..4_u32,
        spreads in any::<bool>(),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        kinds in prop::sample::subsequence(vec!["c-2x", "c-4x", "c-8x", "c-16x", "c-32x"], 1..=5),
    ) {
        let chunk = shape(&[("cpu", &size.to_string()), ("memory", "512Mi")]);
        let mut world = World::new(vec![on_demand(&kinds)]);
        world.snapshot.templates.push(world::template("chunk", chunk.clone()));
        world.snapshot.buffers = vec![buffer("web", "chunk", chunks)];
        world.snapshot.pods = replicas(pods);
        world.settle();
        let had_room = world.is_provisioned("web");
        world.spreads = spreads;
        for index in gone {
            if !world.snapshot.pods.is_empty() {
                let at = index.index(world.snapshot.pods.len());
                world.snapshot.pods.remove(at);
            }
        }
        let left = world.snapshot.pods.len();
        let wanted = if had_room { u64::try_from(chunks).unwrap() } else { 0 };
        let (born, price) = (world.born.len(), price(&world));
        world.settle_with(world::random(seed), |world| {
            assert!(world.headroom(&chunk) >= wanted, "the buffer has lost its room");
        });
        prop_assert_eq!(running(&world), left);
        prop_assert!(world.headroom(&chunk) >= wanted);
        prop_assert!(self::price(&world) <= price + 1e-9);
        prop_assert!(world.born.len() <= born + 6, "{} were born for nothing", world.born.len() - born);
    }
}

fn price(world: &World) -> f64 {
    let of = |kind: &str| {
        let all = &world.snapshot.classes[0].instance_types;
        all.iter().find(|own| own.name == kind).unwrap().offerings[0].price
    };
    types(world).into_iter().map(of).sum()
}
