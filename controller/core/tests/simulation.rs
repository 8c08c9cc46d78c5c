//! Whole stories in a small world, through every intermediate state.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod world;

use buffer_api::{conditions, labels};
use buffer_core::{
    plan::{DeleteReason, EventObject, Plan},
    snapshot::PodShape,
};
use jiff::SignedDuration;
use proptest::prelude::*;
use rstest::rstest;
use similar_asserts::assert_eq;
use world::{World, buffer, one_chunk_pool, pod, pool, shape, without_notes};

fn one() -> PodShape {
    shape(&[("cpu", "1"), ("memory", "512Mi")])
}

fn with_buffer(replicas: i32) -> World {
    let mut world = World::new(vec![one_chunk_pool()]);
    world.snapshot.buffers = vec![buffer("web", "one", replicas)];
    world
}

fn provisioning(world: &World) -> (String, String) {
    let (status, reason, message) = world.provisioning("web").unwrap();
    (format!("{status}/{reason}"), message)
}

/// Zero-node baseline: the documented conditions and status, step by step.
#[test]
fn three_chunks_from_zero() {
    let mut world = with_buffer(3);
    let plan = world.plan_and_apply();
    assert_eq!(plan.create.len(), 3);
    let status = &world.snapshot.buffers[0].status;
    assert_eq!(status.replicas, Some(3));
    assert_eq!(status.pod_template_ref.as_ref().unwrap().name, "one");
    assert_eq!(status.pod_template_generation, Some(1));
    assert_eq!(status.provisioning_strategy.as_deref(), Some("buffer.x-k8s.io/active-capacity"));
    let ready = world.condition("web", conditions::buffer::READY_FOR_PROVISIONING).unwrap();
    assert_eq!(ready, ("True".into(), "Resolved".into(), "Pod template resolved successfully".into()));
    assert_eq!(
        provisioning(&world),
        ("False/RequiresNewCapacity".into(), "3/3 virtual pods required new capacity, 0 failed".into())
    );
    // True neither before all nodes take pods nor after.
    world.settle_with(
        |_| 0,
        |world| assert_eq!(world.is_provisioned("web"), world.headroom(&one()) >= 3 && all_marked(world)),
    );
    assert_eq!(
        provisioning(&world),
        ("True/FitsExistingCapacity".into(), "All 3 virtual pods fit on existing capacity".into())
    );
    for condition in &world.snapshot.buffers[0].status.conditions {
        assert_eq!(condition.observed_generation, Some(1));
    }
    assert_eq!(world.born.len(), 3);
}

fn all_marked(world: &World) -> bool {
    world.snapshot.nodes.iter().all(|node| node.labels.contains_key(labels::INITIALIZED))
}

/// At most seven requests a claim, of which the cloud needs two (launch, node) and the controller manager one (taint).
#[test]
fn the_write_budget_is_kept() {
    let mut world = with_buffer(3);
    world.settle();
    for (name, requests) in world.requests.iter().filter(|(name, _)| name.starts_with("small-")) {
        assert!(*requests <= 4, "{name}: {requests} requests of ours");
    }
    let claim = &world.snapshot.claims[0];
    for kind in ["Launched", "Registered", "Initialized", "Consolidatable"] {
        assert!(
            claim.status.conditions.iter().any(|own| own.type_ == kind && own.status == "True"),
            "{kind} is missing"
        );
    }
    assert!(claim.status.node_name.is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// No churn: exactly as many claims as needed are ever made and none is deleted, whatever order things happen in, at once or slowly.
    #[test]
    fn thirty_chunks_make_thirty_claims_ever(seed in any::<u64>(), pace in 0..1_800_i64) {
        let mut world = with_buffer(30);
        world.pace = SignedDuration::from_millis(pace);
        world.settle_with(
            world::random(seed),
            |world| {
                assert!(world.born.len() <= 30, "too many claims");
                assert!(!world.is_provisioned("web") || world.headroom(&one()) >= 30, "True too early");
            },
        );
        prop_assert_eq!(world.born.len(), 30);
        prop_assert_eq!(world.deleted.len(), 0);
        prop_assert!(world.is_provisioned("web"));
    }

    /// Buffers of different shapes, and pods that consume them, on instance types of all sizes: no claim is made that isn't used, none is deleted.
    #[test]
    fn mixed_buffers_buy_once(
        seed in any::<u64>(),
        sizes in prop::collection::vec((1..40_u32, 1..32_u32, 1..6_i32), 1..6),
        widest in 2..7_usize,
    ) {
        let mut any = pool("any");
        let types = ["c-1x", "c-2x", "c-4x", "c-8x", "c-16x", "c-32x", "c-64x"];
        any.spec.template.spec.requirements =
            vec![world::requirement(labels::INSTANCE_TYPE, &types[..=widest.min(6)])];
        let mut world = World::new(vec![any]);
        world.settings.search = false;
        for (at, (cpu, memory, replicas)) in sizes.iter().enumerate() {
            let requests = [("cpu", format!("{}m", cpu * 90)), ("memory", format!("{}Mi", memory * 100))];
            let requests: Vec<(&str, &str)> = requests.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
            world.snapshot.templates.push(world::template(&format!("t{at}"), shape(&requests)));
            world.snapshot.buffers.push(buffer(&format!("b{at}"), &format!("t{at}"), *replicas));
        }
        let first = world.plan_and_apply();
        let wanted = first.create.len();
        world.settle_with(world::random(seed), |world| {
            assert_eq!(world.born.len(), wanted, "bought again");
        });
        prop_assert_eq!(world.deleted.len(), 0);
    }
}

/// A pod takes a place: the condition leaves True at once, the place comes back, and nothing else happens.
#[test]
fn consumption_is_noticed_and_refilled() {
    let mut world = with_buffer(2);
    world.settle();
    assert!(world.is_provisioned("web"));
    world.snapshot.pods.push(pod("consumer", one()));
    let schedule = world.steps();
    assert_eq!(schedule, vec![world::Step::Schedule]);
    world.take(&schedule[0]);
    assert!(world.snapshot.pods[0].node.is_some());
    let plan = world.plan_and_apply();
    assert_eq!(plan.create.len(), 1);
    assert_eq!(
        provisioning(&world),
        ("False/RequiresNewCapacity".into(), "1/2 virtual pods required new capacity, 0 failed".into())
    );
    world.settle();
    assert!(world.is_provisioned("web"));
    assert_eq!((world.born.len(), world.deleted.len()), (3, 0));
}

/// Survives consolidation: with `consolidateAfter: 0s` and a budget of 100 % nothing is touched while the buffer is there.
#[test]
fn a_buffer_keeps_its_nodes() {
    let mut world = with_buffer(3);
    world.settle();
    let before = world.snapshot.clone();
    for _ in 0..60 {
        world.advance(SignedDuration::from_secs(1));
        let plan = world.plan_and_apply();
        assert_eq!((plan.nodes.len(), plan.delete.len(), plan.create.len()), (0, 0, 0));
        let on = |about: &dyn Fn(&EventObject) -> bool| {
            plan.events.iter().filter(|event| about(&event.about)).count()
        };
        assert_eq!(on(&|about| matches!(about, EventObject::Node(..))), 3);
        assert_eq!(on(&|about| matches!(about, EventObject::Claim(..))), 3);
        let node = &world.snapshot.nodes[0].name;
        assert!(plan.events.iter().all(|event| event.reason == "Unconsolidatable" && !event.warning));
        assert!(plan.events.iter().any(|event| event.message == format!("Node \"{node}\" has buffer pods")));
    }
    assert_eq!(before.nodes, world.snapshot.nodes);
    assert_eq!(before.claims, world.snapshot.claims);
    assert_eq!(before.buffers, world.snapshot.buffers);
}

/// Clean-up: the last buffer goes, and so does everything else, in two phases.
#[test]
fn without_buffers_all_claims_go() {
    let mut world = with_buffer(3);
    world.settle();
    world.snapshot.buffers.clear();
    let plan = world.plan_and_apply();
    assert_eq!(plan.nodes.len(), 3, "marked first");
    assert_eq!(plan.delete.len(), 0);
    let plan = world.plan();
    assert_eq!(plan.delete.len(), 3);
    assert!(plan.delete.iter().all(|delete| delete.reason == DeleteReason::Empty));
    world.settle();
    assert_eq!((world.snapshot.claims.len(), world.snapshot.nodes.len()), (0, 0));
    assert_eq!(world.born.len(), 3);
}

/// Rapid creation and deletion leaves nothing behind (row H19).
#[test]
fn rapid_creation_and_deletion_ends_at_zero() {
    let mut world = with_buffer(2);
    let buffers = world.snapshot.buffers.clone();
    for _ in 0..5 {
        world.snapshot.buffers = buffers.clone();
        world.plan_and_apply();
        for step in world.steps() {
            world.take(&step);
        }
        world.plan_and_apply();
        world.snapshot.buffers.clear();
        world.plan_and_apply();
    }
    world.settle();
    assert_eq!((world.snapshot.claims.len(), world.snapshot.nodes.len()), (0, 0));
    assert_eq!(world.born.len(), 2);
}

/// A node that is marked but needed again is taken back instead of a new one being bought.
#[test]
fn demand_takes_the_mark_off() {
    let mut world = with_buffer(2);
    world.settle();
    let buffers = std::mem::take(&mut world.snapshot.buffers);
    world.plan_and_apply();
    assert!(
        world
            .snapshot
            .nodes
            .iter()
            .all(|node| node.taints.iter().any(|own| own.key == labels::DISRUPTED_TAINT))
    );
    world.snapshot.buffers = buffers;
    let plan = world.plan_and_apply();
    assert_eq!((plan.create.len(), plan.delete.len(), plan.nodes.len()), (0, 0, 2));
    world.settle();
    assert!(world.is_provisioned("web"));
    assert_eq!((world.born.len(), world.deleted.len()), (2, 0));
}

/// With the gate off a buffer is left alone while a pending pod gets its node.
#[test]
fn the_gate_drops_only_buffers() {
    let mut world = with_buffer(3);
    world.settings.capacity_buffer = false;
    world.snapshot.pods.push(pod("real", one()));
    world.settle();
    assert_eq!(world.born.len(), 1);
    assert_eq!(world.snapshot.buffers[0].status, buffer_api::CapacityBufferStatus::default());
    assert!(world.snapshot.pods[0].node.is_some());
}

/// Deleting the Node object deletes its claim; the place comes back.
#[test]
fn deleting_a_node_deletes_its_claim() {
    let mut world = with_buffer(2);
    world.settle();
    world.snapshot.nodes[0].deleting = true;
    let plan = world.plan_and_apply();
    assert_eq!(plan.delete.len(), 1);
    assert_eq!(plan.delete[0].reason, DeleteReason::NodeGone);
    assert_eq!(plan.create.len(), 1, "the replacement does not wait");
    world.settle();
    assert_eq!((world.snapshot.claims.len(), world.snapshot.nodes.len()), (2, 2));
    assert!(world.is_provisioned("web"));
    assert_eq!(world.born.len(), 3);
}

/// Deleting a claim with pods: its node is marked and drained, then both go.
#[test]
fn deleting_a_claim_drains_its_node() {
    let mut world = World::new(vec![one_chunk_pool()]);
    world.snapshot.pods.push(pod("real", one()));
    world.settle();
    world.snapshot.claims[0].deleting = true;
    let plan = world.plan();
    assert_eq!(plan.evict.len(), 1);
    assert!(plan.nodes[0].delete && plan.nodes[0].add_taints.len() == 1 && !plan.nodes[0].drop_finalizer);
    assert_eq!(plan.release, Vec::<String>::new());
    assert_eq!(plan.create.len(), 1, "the pod's next place is bought meanwhile");
    world.settle();
    assert_eq!(world.snapshot.claims.len(), 0, "the replacement was emptied after the pod had gone");
}

/// A pod that forbids disruption is waited for, not evicted.
#[test]
fn do_not_disrupt_holds_a_drain_up() {
    let mut world = World::new(vec![one_chunk_pool()]);
    let mut real = pod("real", one());
    real.do_not_disrupt = true;
    world.snapshot.pods.push(real);
    world.settle();
    world.snapshot.claims[0].deleting = true;
    world.settle();
    assert_eq!(world.snapshot.pods.len(), 1);
    let deleting = world.snapshot.claims.iter().find(|claim| claim.deleting).unwrap();
    assert_eq!(deleting.finalizers.len(), 2);
    world.snapshot.pods.clear();
    world.settle();
    assert!(world.snapshot.claims.iter().all(|claim| !claim.deleting));
}

/// A node whose claim vanished is let go.
#[test]
fn an_orphan_loses_its_finalizer() {
    let mut world = with_buffer(1);
    world.settle();
    world.snapshot.claims.clear();
    let plan = world.plan();
    assert!(plan.nodes[0].drop_finalizer);
    assert_eq!(plan.create.len(), 1, "an orphan is no place for a chunk");
}

/// All offerings failed: the claim goes, and offerings that are known to be unavailable are left out of the next one.
#[test]
fn insufficient_capacity_is_worked_around() {
    let mut any = pool("any");
    any.spec.template.spec.requirements = vec![world::requirement(labels::INSTANCE_TYPE, &["c-2x", "c-4x"])];
    let mut world = World::new(vec![any]);
    world.snapshot.buffers = vec![buffer("web", "one", 1)];
    world.plan_and_apply();
    let until = world.now.checked_add(SignedDuration::from_mins(3)).unwrap();
    let block = |world: &mut World, kind: &str| {
        for (zone, capacity_type) in
            [("zone-a", "spot"), ("zone-b", "spot"), ("zone-a", "on-demand"), ("zone-b", "on-demand")]
        {
            world.snapshot.classes[0].unavailable.push(buffer_api::fake_node_class::UnavailableOffering {
                instance_type: kind.to_owned(),
                zone: zone.to_owned(),
                capacity_type: capacity_type.to_owned(),
                until: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(until),
            });
        }
    };
    block(&mut world, "c-2x");
    block(&mut world, "c-4x");
    let step = world.steps();
    world.take(&step[0]);
    let plan = world.plan_and_apply();
    assert_eq!(plan.delete[0].reason, DeleteReason::InsufficientCapacity);
    assert_eq!(plan.create.len(), 0);
    assert_eq!(
        provisioning(&world),
        ("False/RequiresNewCapacity".into(), "0/1 virtual pods required new capacity, 1 failed".into())
    );
    world.settle();
    assert_eq!(world.plan().wake_up, Some(until));
    // One of the types comes back.
    world.snapshot.classes[0].unavailable.retain(|own| own.instance_type == "c-2x");
    let plan = world.plan();
    let types = plan.create[0].spec.requirements.iter().find(|own| own.key == labels::INSTANCE_TYPE).unwrap();
    assert_eq!(types.values, vec!["c-4x".to_owned()]);
    // Both are to be had again when their time is over.
    world.now = until;
    let plan = world.plan();
    let types = plan.create[0].spec.requirements.iter().find(|own| own.key == labels::INSTANCE_TYPE).unwrap();
    assert_eq!(types.values, vec!["c-2x".to_owned(), "c-4x".to_owned()]);
    world.settle();
    assert!(world.is_provisioned("web"));
}

#[rstest]
#[case::not_launched(0, SignedDuration::from_mins(5))]
#[case::not_joined(1, SignedDuration::from_mins(15))]
fn liveness(#[case] steps: usize, #[case] patience: SignedDuration) {
    let mut world = with_buffer(1);
    world.plan_and_apply();
    for _ in 0..steps {
        let step = world.steps();
        world.take(&step[0]);
    }
    world.advance(patience - SignedDuration::from_secs(1));
    let plan = world.plan();
    assert_eq!(plan.delete.len(), 0);
    assert_eq!(plan.create.len(), 0);
    world.advance(SignedDuration::from_secs(1));
    let plan = world.plan();
    assert_eq!(plan.delete[0].reason, DeleteReason::Liveness);
    assert_eq!(plan.create.len(), 1, "its place is bought anew");
}

/// A node that never becomes ready goes after a quarter of an hour, and its place is bought anew.
#[test]
fn a_node_that_never_is_ready_is_given_up() {
    let mut world = with_buffer(1);
    world.plan_and_apply();
    for _ in 0..2 {
        let step = world.steps();
        world.take(&step[0]);
        world.plan_and_apply();
    }
    assert_eq!(world.snapshot.nodes.len(), 1);
    world.advance(SignedDuration::from_mins(15) - SignedDuration::from_secs(1));
    assert_eq!(world.plan().delete.len(), 0);
    world.advance(SignedDuration::from_secs(1));
    let plan = world.plan_and_apply();
    assert_eq!(plan.delete[0].reason, DeleteReason::Liveness);
    world.settle();
    assert!(world.is_provisioned("web"));
    assert_eq!((world.snapshot.nodes.len(), world.born.len()), (1, 2));
}

/// `consolidateAfter` runs from the time at which the node became quiet, and the plan says when to look again.
#[test]
fn consolidate_after_is_waited_for() {
    let mut pool = one_chunk_pool();
    pool.spec.disruption.consolidate_after = "30s".to_owned();
    let mut world = World::new(vec![pool]);
    world.snapshot.pods.push(pod("real", one()));
    world.settle();
    world.advance(SignedDuration::from_mins(10));
    world.snapshot.pods.clear();
    let plan = world.plan_and_apply();
    assert_eq!(plan.nodes.len(), 0);
    let end = world.now.checked_add(SignedDuration::from_secs(30)).unwrap();
    assert_eq!(plan.wake_up, Some(end));
    world.advance(SignedDuration::from_secs(29));
    assert_eq!(without_notes(world.plan()), Plan::default());
    world.now = end;
    let plan = world.plan_and_apply();
    assert_eq!(plan.nodes.len(), 1);
    world.settle();
    assert_eq!(world.snapshot.claims.len(), 0);
}

#[test]
fn never_is_never() {
    let mut pool = one_chunk_pool();
    pool.spec.disruption.consolidate_after = "Never".to_owned();
    pool.spec.template.spec.expire_after = Some("Never".to_owned());
    let mut world = World::new(vec![pool]);
    world.snapshot.buffers = vec![buffer("web", "one", 1)];
    world.settle();
    world.snapshot.buffers.clear();
    world.advance(SignedDuration::from_hours(1_000));
    world.settle();
    assert_eq!(world.snapshot.claims.len(), 1);
}

/// The default budget of 10 % lets one of three nodes go at a time.
#[test]
fn the_budget_is_kept() {
    let mut pool = one_chunk_pool();
    pool.spec.disruption.budgets[0].nodes = "10%".to_owned();
    let mut world = World::new(vec![pool]);
    world.snapshot.buffers = vec![buffer("web", "one", 3)];
    world.settle();
    world.snapshot.buffers.clear();
    world.settle_with(
        |_| 0,
        |world| {
            let busy = |node: &&buffer_core::snapshot::Node| {
                node.deleting || node.taints.iter().any(|own| own.key == labels::DISRUPTED_TAINT)
            };
            assert!(world.snapshot.nodes.iter().filter(busy).count() <= 1);
        },
    );
    assert_eq!(world.snapshot.claims.len(), 0);
}

/// A pool limit is never exceeded, and the buffer says that it does not fit (rows H13, G10).
#[test]
fn a_limit_is_never_exceeded() {
    let mut pool = one_chunk_pool();
    pool.spec.limits = world::api(&[("cpu", "4")]);
    let mut world = World::new(vec![pool]);
    world.snapshot.buffers = vec![buffer("web", "one", 10)];
    world.settle_with(|_| 0, |world| assert!(world.born.len() <= 2));
    assert_eq!(world.snapshot.nodes.len(), 2);
    assert_eq!(
        provisioning(&world),
        ("False/RequiresNewCapacity".into(), "0/10 virtual pods required new capacity, 8 failed".into())
    );
}

/// A node that falls silent is expected back for five minutes; then its place is bought anew. Meanwhile the buffer is not True.
#[test]
fn a_silent_node_is_replaced_after_a_while() {
    let mut world = with_buffer(1);
    world.settle();
    world.snapshot.nodes[0].ready = false;
    world.snapshot.nodes[0].ready_since = Some(world.now);
    world.plan_and_apply();
    assert!(!world.is_provisioned("web"));
    let end = world.now.checked_add(SignedDuration::from_mins(5)).unwrap();
    assert_eq!(world.plan().wake_up.map(|time| time <= end), Some(true));
    world.advance(SignedDuration::from_mins(5) - SignedDuration::from_secs(1));
    assert_eq!(world.plan().create.len(), 0);
    world.now = end;
    let plan = world.plan_and_apply();
    assert_eq!(plan.create.len(), 1);
    world.settle();
    assert!(world.is_provisioned("web"));
    assert_eq!(world.snapshot.nodes.len(), 1, "the dead node was taken away");
}

/// Start-up taints need no toleration, come with registration and keep the node from being initialised until they go.
#[test]
fn startup_taints_are_waited_for() {
    let mut pool = one_chunk_pool();
    pool.spec.template.spec.startup_taints = vec![world::taint("example.com/agent", "NoSchedule")];
    let mut world = World::new(vec![pool]);
    world.snapshot.buffers = vec![buffer("web", "one", 1)];
    world.settle();
    assert_eq!(world.born.len(), 1);
    assert!(!world.is_provisioned("web"));
    world.advance(SignedDuration::from_secs(5));
    world.settle();
    let reasons: Vec<&str> =
        world.snapshot.claims[0].status.conditions.iter().map(|own| own.reason.as_str()).collect();
    assert!(reasons.contains(&"StartupTaintsExist"), "{reasons:?}");
    world.snapshot.nodes[0].taints.clear();
    world.settle();
    assert!(world.is_provisioned("web"));
    assert_eq!((world.born.len(), world.deleted.len()), (1, 0));
}

/// A cordoned node is no place: what it held is bought anew.
#[test]
fn a_cordoned_node_is_no_place() {
    let mut world = with_buffer(1);
    world.settle();
    world.snapshot.nodes[0].unschedulable = true;
    assert_eq!(world.plan().create.len(), 1);
}

/// No pool, no place.
#[test]
fn without_a_pool_everything_fails() {
    let mut world = World::new(Vec::new());
    world.snapshot.buffers = vec![buffer("web", "one", 3)];
    let plan = world.plan_and_apply();
    assert_eq!(
        provisioning(&world),
        ("False/RequiresNewCapacity".into(), "0/3 virtual pods required new capacity, 3 failed".into())
    );
    assert_eq!(plan.events.len(), 1);
    assert_eq!(plan.events[0].message, "no NodePool is ready");
}

/// A restart at any point neither loses nor doubles: a plan from a snapshot that lacks some of the claims asks for the same names.
#[test]
fn a_stale_snapshot_asks_for_the_same_names() {
    let mut world = with_buffer(30);
    let first = world.plan();
    world.apply(&first);
    let mut stale = world.clone();
    stale.snapshot.claims.truncate(11);
    let again = stale.plan();
    let names = |plan: &Plan| plan.create.iter().map(|claim| claim.name.clone()).collect::<Vec<_>>();
    let all = names(&first);
    assert!(names(&again).iter().all(|name| all.contains(name)));
    assert_eq!(names(&again).len(), 19);
}
