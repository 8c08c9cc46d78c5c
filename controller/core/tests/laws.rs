//! Laws that hold for every cluster.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod world;

use std::time::{Duration, Instant};

use buffer_api::{Quantity, labels};
use buffer_core::plan::{Plan, plan};
use proptest::prelude::*;
use rstest::rstest;
use world::{ON, World, buffer, foreign_node, one_chunk_pool, pod, pool, shape, template};

/// Of a node: processors, GiB of memory, whether it is tainted.
type NodeRow = (u32, u32, bool);
/// Of a pod: tenths of a processor, and the node that it runs on.
type PodRow = (u32, Option<usize>);
/// Of a buffer: tenths of a processor and 128 MiB of a chunk, replicas, and which rule the chunk has.
type BufferRow = (u32, u32, i32, usize);
/// Of a pool: limit of processors, weight, number of instance types.
type PoolRow = (Option<u32>, i32, usize);
type Rows = (Vec<NodeRow>, Vec<PodRow>, Vec<BufferRow>, Vec<PoolRow>);

/// A cluster with nodes of others, pods (some pending), templates, buffers and pools of all sorts.
fn any_rows() -> impl Strategy<Value = Rows> {
    let node = (1..9_u32, 1..17_u32, any::<bool>());
    let pod = (1..30_u32, prop::option::of(0..6_usize));
    let wanted = (1..40_u32, 1..20_u32, 0..40_i32, 0..3_usize);
    let limit = prop::option::of(1..40_u32);
    (
        prop::collection::vec(node, 0..6),
        prop::collection::vec(pod, 0..12),
        prop::collection::vec(wanted, 0..5),
        prop::collection::vec((limit, 0..3_i32, 1..6_usize), 0..3),
    )
}

fn build(nodes: &[NodeRow], pods: &[PodRow], buffers: &[BufferRow], pools: &[PoolRow]) -> World {
    let mut world = World::new(Vec::new());
    // Real pods without room go first wherever they fit.
    world.may_repack = pods.iter().any(|(_, node)| node.is_none_or(|node| node >= nodes.len()));
    for (at, (cpu, memory, tainted)) in nodes.iter().enumerate() {
        let (cpu, memory) = (cpu.to_string(), format!("{memory}Gi"));
        let mut node =
            foreign_node(&format!("node-{at}"), &[("cpu", &cpu), ("memory", &memory), ("pods", "20")]);
        if *tainted {
            node.taints.push(world::taint("example.com/keep-off", "NoSchedule"));
        }
        world.snapshot.nodes.push(node);
    }
    for (at, (cpu, node)) in pods.iter().enumerate() {
        let cpu = format!("{}m", cpu * 100);
        let mut pod = pod(&format!("pod-{at}"), shape(&[("cpu", &cpu), ("memory", "100Mi")]));
        pod.node = node.filter(|node| *node < nodes.len()).map(|node| format!("node-{node}"));
        pod.unschedulable = pod.node.is_none();
        world.snapshot.pods.push(pod);
    }
    for (at, (cpu, memory, replicas, rule)) in buffers.iter().enumerate() {
        let (cpu, memory) = (format!("{}m", cpu * 100), format!("{}Mi", memory * 128));
        let mut chunk = shape(&[("cpu", &cpu), ("memory", &memory)]);
        match rule {
            1 => chunk.node_selector = world::strings(&[(labels::ZONE, "zone-a")]),
            2 => chunk.host_ports = vec![("TCP".to_owned(), String::new(), 80)],
            _ => {}
        }
        world.snapshot.templates.push(template(&format!("t-{at}"), chunk));
        world.snapshot.buffers.push(buffer(&format!("b-{at}"), &format!("t-{at}"), *replicas));
    }
    for (at, (limit, weight, types)) in pools.iter().enumerate() {
        let mut pool = pool(&format!("pool-{at}"));
        pool.spec.weight = Some(*weight);
        let names = ["c-1x", "c-2x", "c-4x", "c-8x", "c-16x", "c-32x"];
        pool.spec.template.spec.requirements =
            vec![world::requirement(labels::INSTANCE_TYPE, &names[..=*types])];
        if let Some(limit) = limit {
            pool.spec.limits = world::api(&[("cpu", &limit.to_string()), ("nodes", "5")]);
        }
        world.snapshot.pools.push(pool);
    }
    world
}

fn shuffle<T>(items: &mut [T], choose: &mut impl FnMut(usize) -> usize) {
    for at in (1..items.len()).rev() {
        items.swap(at, choose(at + 1));
    }
}

fn parse(
    amounts: &std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    name: &str,
) -> Quantity {
    amounts.get(name).map_or(Quantity::ZERO, |amount| amount.0.parse().unwrap())
}

/// Chunks and pods that a plan can't place.
fn failed(plan: &Plan) -> i64 {
    plan.buffers
        .iter()
        .flat_map(|status| &status.status.conditions)
        .filter_map(|condition| {
            condition.message.split_once(", ")?.1.strip_suffix(" failed")?.parse::<i64>().ok()
        })
        .sum()
}

proptest! {

    #[test]
    fn the_order_of_the_lists_means_nothing(rows in any_rows(), seed in any::<u64>()) {
        let mut world = build(&rows.0, &rows.1, &rows.2, &rows.3);
        world.plan_and_apply();
        let steps = world.steps();
        for step in steps.iter().take(3) {
            world.take(step);
        }
        let plan = world.plan();
        let mut choose = world::random(seed);
        let mut shuffled = world.clone();
        shuffle(&mut shuffled.snapshot.buffers, &mut choose);
        shuffle(&mut shuffled.snapshot.templates, &mut choose);
        shuffle(&mut shuffled.snapshot.pods, &mut choose);
        shuffle(&mut shuffled.snapshot.nodes, &mut choose);
        shuffle(&mut shuffled.snapshot.claims, &mut choose);
        shuffle(&mut shuffled.snapshot.pools, &mut choose);
        prop_assert_eq!(shuffled.plan(), plan);
    }

    /// Whatever the cluster, it comes to rest, each plan is complete, no limit is ever exceeded and nothing is bought that is not used.
    #[test]
    fn the_world_settles_within_its_limits(rows in any_rows(), seed in any::<u64>(), search in any::<bool>()) {
        let mut world = build(&rows.0, &rows.1, &rows.2, &rows.3);
        world.settings.search = search;
        world.settle_with(world::random(seed), |world| {
            for pool in &world.snapshot.pools {
                let claims = world.snapshot.claims.iter().filter(|claim| claim.labels[labels::NODEPOOL] == pool.name);
                let sizes = claims.map(|claim| parse(&claim.status.capacity, "cpu"));
                let total = sizes.fold(Quantity::ZERO, Quantity::plus);
                assert!(pool.spec.limits.is_empty() || total <= parse(&pool.spec.limits, "cpu"), "limit exceeded");
                let nodes = world.snapshot.claims.iter().filter(|claim| claim.labels[labels::NODEPOOL] == pool.name).count();
                assert!(pool.spec.limits.is_empty() || nodes <= 5, "too many nodes");
            }
        });
        // The scheduler may put real pods elsewhere than the plan did, so that less is needed in the end; a search finds better nodes.
        if !search && rows.1.iter().all(|(_, node)| node.is_some_and(|node| node < rows.0.len())) {
            prop_assert_eq!(world.deleted.len(), 0, "bought and thrown away");
        }
    }

    /// For one buffer: with one more node never fewer chunks are placed.
    #[test]
    fn more_capacity_never_places_fewer(
        nodes in prop::collection::vec((1..9_u32, 1..17_u32, Just(false)), 1..6),
        wanted in (1..40_u32, 1..20_u32, 0..40_i32, Just(0_usize)),
    ) {
        let fewer = build(&nodes[1..], &[], &[wanted], &[]);
        let more = build(&nodes, &[], &[wanted], &[]);
        prop_assert!(failed(&more.plan()) <= failed(&fewer.plan()));
    }

    /// A buffer is True exactly when the oracle, which knows nothing of the planner, finds room for all its chunks.
    #[test]
    fn the_oracle_agrees(rows in any_rows()) {
        let mut world = build(&rows.0, &rows.1, &rows.2, &rows.3);
        world.snapshot.buffers.truncate(1);
        world.snapshot.pods.retain(|pod| pod.node.is_some());
        world.snapshot.templates.iter_mut().for_each(|template| {
            template.shape.node_selector.clear();
            template.shape.host_ports.clear();
        });
        world.plan_and_apply();
        for buffer in &world.snapshot.buffers {
            let wanted = u64::try_from(buffer.status.replicas.unwrap_or(0)).unwrap();
            let template = world.snapshot.templates.iter().find(|own| own.key.name == "t-0").unwrap();
            let fits = world.headroom(&template.shape) >= wanted;
            prop_assert_eq!(world.is_provisioned(&buffer.key.name), wanted > 0 && fits);
        }
    }
}

/// The greatest number of chunks is planned at once, and bought for in small portions.
#[rstest]
#[case::without_limits(false)]
#[case::with_limits(true)]
fn the_greatest_buffer(#[case] limited: bool) {
    let mut any = pool("any");
    if limited {
        any.spec.limits = world::api(&[("cpu", "1000")]);
    }
    let mut world = World::new(vec![any, one_chunk_pool()]);
    world.snapshot.buffers = vec![buffer("web", "one", i32::MAX), buffer("web-2", "one", i32::MAX)];
    let start = Instant::now();
    let plan = world.plan_and_apply();
    assert!(start.elapsed() < Duration::from_secs(5), "a sum over single chunks would take hours");
    let of_any = plan.create.iter().filter(|claim| claim.pool == "any").count();
    // 1000 processors hold three machines of 256, one of 128, one of 64 and so on.
    assert!(if limited { of_any < 12 } else { of_any == 200 }, "{of_any} claims");
    assert!(plan.create.len() <= 400);
    assert!(world.plan().create.is_empty(), "no more while those are in flight");
}

/// Sums of amounts beyond every machine saturate.
#[test]
fn huge_amounts_do_not_overflow() {
    let mut world = World::new(vec![pool("any")]);
    world.snapshot.templates.push(template("huge", shape(&[("cpu", "9E"), ("memory", "9E")])));
    world.snapshot.buffers = vec![buffer("web", "huge", i32::MAX)];
    let mut bound = pod("bound", shape(&[("cpu", "9E")]));
    bound.node = Some("node".to_owned());
    let mut second = pod("second", shape(&[("cpu", "9E")]));
    second.node = Some("node".to_owned());
    world.snapshot.pods = vec![bound, second];
    world.snapshot.nodes.push(foreign_node("node", &[("cpu", "4"), ("memory", "4Gi"), ("pods", "10")]));
    let plan = plan(&world.snapshot, ON, world.now);
    assert_eq!(plan.create.len(), 0);
    assert_eq!(failed(&plan), i64::from(i32::MAX));
}
