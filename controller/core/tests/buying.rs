//! What is bought, and what a claim says.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod world;

use buffer_api::{
    conditions,
    karpenter::{NodeClassRef, Operator, Requirement},
    labels,
};
use buffer_core::{
    plan::{NewClaim, Plan},
    snapshot::{DaemonSet, PodShape, Pool},
};
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use rstest::rstest;
use serde_json::json;
use similar_asserts::assert_eq;
use world::{
    World, api, buffer, foreign_node, key, one_chunk_pool, pod, pool, requirement, shape, strings, template,
};

fn one() -> PodShape {
    shape(&[("cpu", "1"), ("memory", "512Mi")])
}

/// A world with a buffer of so many chunks of this shape.
fn wanting(pools: Vec<Pool>, chunk: PodShape, replicas: i32) -> World {
    let mut world = World::new(pools);
    world.snapshot.templates = vec![template("chunk", chunk)];
    world.snapshot.buffers = vec![buffer("web", "chunk", replicas)];
    world
}

fn values(claim: &NewClaim, key: &str) -> Vec<String> {
    let found = claim.spec.requirements.iter().find(|own| own.key == key && own.operator == Operator::In);
    found.map(|own| own.values.clone()).unwrap_or_default()
}

fn types(plan: &Plan) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> =
        plan.create.iter().map(|claim| values(claim, labels::INSTANCE_TYPE)).collect();
    all.sort();
    all
}

fn reasons(plan: &Plan) -> Vec<String> {
    plan.events.iter().map(|event| event.message.clone()).collect()
}

fn spread(label: &str) -> Affinity {
    let term = json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": label}}});
    let rules = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    serde_json::from_value(rules).unwrap()
}

/// The cheapest sufficient types in price order; as many chunks on one claim as the greatest type holds.
#[rstest]
#[case::one(1, vec![vec!["c-2x", "c-4x", "c-8x", "c-16x", "c-32x", "c-64x", "c-128x", "c-256x"]])]
#[case::three(3, vec![vec!["c-4x", "c-8x", "c-16x", "c-32x", "c-64x", "c-128x", "c-256x"]])]
#[case::full_and_rest(300, vec![vec!["c-256x"], vec!["c-64x", "c-128x", "c-256x"]])]
fn packing(#[case] replicas: i32, #[case] want: Vec<Vec<&str>>) {
    let plan = wanting(vec![pool("any")], one(), replicas).plan();
    assert_eq!(types(&plan), want);
}

/// A claim carries what the reference says that it carries.
#[test]
fn a_claim_says_everything() {
    let mut pool = one_chunk_pool();
    pool.generation = 3;
    let template = &mut pool.spec.template;
    template.metadata.labels = strings(&[("team", "a")]);
    template.metadata.annotations = strings(&[("note", "x")]);
    template.spec.taints = vec![world::taint("dedicated", "NoSchedule")];
    template.spec.startup_taints = vec![world::taint("starting", "NoSchedule")];
    template.spec.expire_after = Some("24h".to_owned());
    template.spec.termination_grace_period = Some("1h".to_owned());
    template.spec.requirements.push(requirement(labels::CAPACITY_TYPE, &["on-demand"]));
    template.spec.requirements.push(requirement("tier", &["gold", "silver"]));
    let mut chunk = one();
    chunk.node_selector = strings(&[("tier", "silver"), (labels::ZONE, "zone-b")]);
    chunk.tolerations = vec![Toleration {
        key: Some("dedicated".to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    }];
    let plan = wanting(vec![pool], chunk, 1).plan();
    let claim = &plan.create[0];
    assert!(claim.name.starts_with("small-") && claim.name.len() == "small-".len() + 10, "{}", claim.name);
    assert_eq!((claim.pool.as_str(), claim.pool_uid.as_str()), ("small", "uid-small"));
    assert_eq!(
        claim.labels,
        strings(&[
            ("bufconf.dev/fakenodeclass", "default"),
            (labels::NODEPOOL, "small"),
            ("team", "a"),
            ("tier", "silver"),
        ])
    );
    assert_eq!(claim.annotations["note"], "x");
    assert_eq!(claim.annotations[labels::NODEPOOL_HASH].len(), 16);
    assert_eq!(values(claim, labels::INSTANCE_TYPE), ["c-2x"]);
    assert_eq!(values(claim, labels::CAPACITY_TYPE), ["on-demand"]);
    assert_eq!(values(claim, labels::ZONE), ["zone-b"]);
    assert!(!claim.spec.requirements.iter().any(|own| own.key == "tier"), "the label says it");
    assert_eq!(claim.spec.resources.requests, api(&[("cpu", "1"), ("memory", "512Mi"), ("pods", "1")]));
    assert_eq!(claim.spec.taints[0].key, "dedicated");
    assert_eq!(claim.spec.startup_taints[0].key, "starting");
    assert_eq!(claim.spec.expire_after.as_deref(), Some("24h"));
    assert_eq!(claim.spec.termination_grace_period.as_deref(), Some("1h"));
    assert_eq!(claim.spec.node_class_ref.kind, "FakeNodeClass");
}

/// Why a pool can't serve a chunk.
#[rstest]
#[case::taint(|pool: &mut Pool, _: &mut PodShape| pool.spec.template.spec.taints = vec![world::taint("x", "NoSchedule")],
    "did not tolerate the taints of NodePool \"any\"")]
#[case::too_big(|_: &mut Pool, chunk: &mut PodShape| chunk.requests = shape(&[("cpu", "300")]).requests,
    "no instance type of NodePool \"any\" suits and holds it")]
#[case::unknown_resource(|_: &mut Pool, chunk: &mut PodShape| chunk.requests = shape(&[("nvidia.com/gpu", "1")]).requests,
    "no instance type of NodePool \"any\" suits and holds it")]
#[case::label_that_nobody_gives(|_: &mut Pool, chunk: &mut PodShape| chunk.node_selector = strings(&[("disk", "fast")]),
    "no instance type of NodePool \"any\" suits and holds it")]
#[case::other_architecture(|_: &mut Pool, chunk: &mut PodShape| chunk.node_selector = strings(&[(labels::ARCH, "arm64")]),
    "no instance type of NodePool \"any\" suits and holds it")]
#[case::a_certain_host(|_: &mut Pool, chunk: &mut PodShape| chunk.node_selector = strings(&[(labels::HOSTNAME, "node-1")]),
    "no instance type of NodePool \"any\" suits and holds it")]
#[case::limit(|pool: &mut Pool, _: &mut PodShape| pool.spec.limits = api(&[("cpu", "1")]),
    "all available instance types exceed limits for nodepool \"any\"")]
#[case::node_limit(|pool: &mut Pool, _: &mut PodShape| pool.spec.limits = api(&[("nodes", "0")]),
    "node limits have been exhausted for nodepool \"any\"")]
#[case::min_values(|pool: &mut Pool, _: &mut PodShape| pool.spec.template.spec.requirements = vec![Requirement {
    key: labels::INSTANCE_TYPE.to_owned(), operator: Operator::Exists, values: vec![], min_values: Some(9) }],
    "the minValues of NodePool \"any\" can't be met")]
#[case::class(|pool: &mut Pool, _: &mut PodShape| pool.spec.template.spec.node_class_ref = NodeClassRef::default(),
    "no NodePool is ready")]
fn refusals(#[case] spoil: fn(&mut Pool, &mut PodShape), #[case] want: &str) {
    let (mut pool, mut chunk) = (pool("any"), one());
    assert_eq!(wanting(vec![pool.clone()], chunk.clone(), 1).plan().create.len(), 1, "it works unspoilt");
    spoil(&mut pool, &mut chunk);
    let plan = wanting(vec![pool], chunk, 1).plan();
    assert_eq!(plan.create.len(), 0);
    assert_eq!(reasons(&plan), [want]);
    assert!(plan.events[0].warning);
}

/// Requirements of pods narrow the claim.
#[rstest]
#[case::size(json!({"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["c-8x", "c-1x"]}), vec!["c-8x"])]
#[case::not_size(json!({"key": labels::INSTANCE_TYPE, "operator": "NotIn", "values": ["c-2x", "c-4x", "c-8x", "c-16x", "c-32x"]}),
    vec!["c-64x", "c-128x", "c-256x"])]
#[case::new_host(json!({"key": labels::HOSTNAME, "operator": "NotIn", "values": ["node-1"]}),
    vec!["c-2x", "c-4x", "c-8x", "c-16x", "c-32x", "c-64x", "c-128x", "c-256x"])]
fn node_affinity_narrows(#[case] expression: serde_json::Value, #[case] want: Vec<&str>) {
    let mut chunk = one();
    let terms = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "never", "operator": "Exists"}]},
        {"matchExpressions": [expression]},
    ]});
    let rules = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    chunk.affinity = Some(serde_json::from_value(rules).unwrap());
    assert_eq!(types(&wanting(vec![pool("any")], chunk, 1).plan()), [want]);
}

/// Heavier pools first, then by name; what one pool's limit refuses the next one gives.
#[test]
fn pools_by_weight() {
    let (mut light, mut heavy) = (one_chunk_pool(), one_chunk_pool());
    "light".clone_into(&mut light.name);
    "heavy".clone_into(&mut heavy.name);
    heavy.spec.weight = Some(10);
    heavy.spec.limits = api(&[("nodes", "2")]);
    let plan = wanting(vec![light, heavy], one(), 5).plan();
    let of = |pool: &str| plan.create.iter().filter(|claim| claim.pool == pool).count();
    assert_eq!((of("heavy"), of("light")), (2, 3));
}

/// One chunk a node: required anti-affinity on the host name, on types of every size; a consumer needs a node of its own too (row H5).
#[test]
fn chunks_that_repel_each_other() {
    let mut chunk = one();
    chunk.labels = strings(&[("app", "web")]);
    chunk.affinity = Some(spread("web"));
    let mut world = wanting(vec![pool("any")], chunk.clone(), 3);
    world.settle();
    assert_eq!((world.born.len(), world.deleted.len()), (3, 0));
    assert!(world.is_provisioned("web"));
    let mut consumer = pod("consumer", chunk);
    consumer.node = Some(world.snapshot.nodes[0].name.clone());
    world.snapshot.pods.push(consumer);
    world.plan_and_apply();
    assert_eq!(world.born.len(), 4);
}

/// Chunks with host ports: one a node; a later group may still fill what is left of the claim.
#[test]
fn host_ports_and_filling_up() {
    let mut chunk = shape(&[("cpu", "1500m")]);
    chunk.host_ports = vec![("TCP".to_owned(), String::new(), 8080)];
    let mut small = pool("any");
    small.spec.template.spec.requirements = vec![requirement(labels::INSTANCE_TYPE, &["c-4x"])];
    let mut world = wanting(vec![small], chunk, 2);
    world.snapshot.templates.push(template("small", shape(&[("cpu", "1")])));
    world.snapshot.buffers.push(buffer("small", "small", 4));
    let plan = world.plan();
    assert_eq!(plan.create.len(), 2);
    let cpu = |claim: &NewClaim| claim.spec.resources.requests["cpu"].0.clone();
    assert_eq!(plan.create.iter().map(cpu).collect::<Vec<_>>(), ["3500m", "3500m"]);
}

/// Daemons take their share of every new node, and of existing ones as long as their pods are not there.
#[test]
fn daemons_take_their_share() {
    let daemon = DaemonSet { key: key("agent"), shape: shape(&[("cpu", "1")]) };
    let mut world = wanting(vec![pool("any")], one(), 1);
    world.snapshot.daemon_sets = vec![daemon.clone()];
    let plan = world.plan();
    assert_eq!(types(&plan)[0][0], "c-4x", "1.9 processors no longer hold chunk and daemon");
    assert_eq!(plan.create[0].spec.resources.requests["cpu"].0, "2");

    // A daemon for other nodes takes nothing.
    let mut elsewhere = daemon.clone();
    elsewhere.shape.node_selector = strings(&[(labels::OS, "windows")]);
    world.snapshot.daemon_sets = vec![elsewhere];
    assert_eq!(types(&world.plan())[0][0], "c-2x");

    let mut world = wanting(Vec::new(), one(), 2);
    world.snapshot.nodes = vec![foreign_node("node", &[("cpu", "3"), ("memory", "8Gi"), ("pods", "10")])];
    world.snapshot.daemon_sets = vec![daemon];
    world.plan_and_apply();
    assert!(world.is_provisioned("web"), "the daemon has room beside two chunks");
    let mut running = pod("agent-1", shape(&[("cpu", "1")]));
    (running.daemon, running.node) = (true, Some("node".to_owned()));
    world.snapshot.pods.push(running);
    world.plan_and_apply();
    assert!(world.is_provisioned("web"), "what runs is not counted twice");
    world.snapshot.daemon_sets[0].shape.requests = shape(&[("cpu", "2")]).requests;
    world.plan_and_apply();
    assert!(!world.is_provisioned("web"));
}

/// Existing nodes first, also those that nobody here made (row H3).
#[test]
fn existing_nodes_first() {
    let mut world = wanting(vec![one_chunk_pool()], one(), 3);
    world.snapshot.nodes = vec![foreign_node("node-1", &[("cpu", "2"), ("memory", "8Gi"), ("pods", "10")])];
    let mut cordoned = foreign_node("node-2", &[("cpu", "64"), ("memory", "8Gi"), ("pods", "10")]);
    cordoned.unschedulable = true;
    let mut silent = foreign_node("node-3", &[("cpu", "64"), ("memory", "8Gi"), ("pods", "10")]);
    silent.ready = false;
    world.snapshot.nodes.extend([cordoned, silent]);
    let plan = world.plan_and_apply();
    assert_eq!(plan.create.len(), 1);
    let (_, _, message) = world.provisioning("web").unwrap();
    assert_eq!(message, "1/3 virtual pods required new capacity, 0 failed");
}

/// Real pods come first: the buffer gets what they leave.
#[test]
fn real_pods_come_first() {
    let mut world = wanting(Vec::new(), shape(&[("cpu", "2")]), 1);
    world.snapshot.nodes = vec![foreign_node("node", &[("cpu", "2"), ("memory", "8Gi"), ("pods", "10")])];
    world.plan_and_apply();
    assert!(world.is_provisioned("web"));
    let mut real = pod("real", shape(&[("cpu", "1")]));
    real.unschedulable = true;
    world.snapshot.pods.push(real);
    world.plan_and_apply();
    assert!(!world.is_provisioned("web"));
}

/// Two buffers of one shape are one group; what fits goes to the first by name.
#[test]
fn equal_shapes_share() {
    let mut world = wanting(Vec::new(), one(), 2);
    world.snapshot.buffers.push(buffer("zoo", "chunk", 2));
    world.snapshot.nodes = vec![foreign_node("node", &[("cpu", "3"), ("memory", "8Gi"), ("pods", "10")])];
    let plan = world.plan_and_apply();
    assert!(world.is_provisioned("web"));
    let (_, _, message) = world.provisioning("zoo").unwrap();
    assert_eq!(message, "0/2 virtual pods required new capacity, 1 failed");
    assert_eq!(plan.events.len(), 1, "only the buffer that misses something is told");
}

/// A rule that is not implemented places the chunk nowhere and says so.
#[test]
fn unknown_rules_are_said() {
    let mut chunk = one();
    let term = json!({"topologyKey": labels::ZONE, "labelSelector": {}});
    let rules = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    chunk.affinity = Some(serde_json::from_value(rules).unwrap());
    let plan = wanting(vec![pool("any")], chunk, 1).plan();
    assert_eq!(plan.create.len(), 0);
    assert_eq!(reasons(&plan), ["required pod affinity is not supported"]);
}

/// At most 200 claims of a pool are on their way; the rest follows as they arrive.
#[test]
fn claims_in_flight_are_bounded() {
    let mut world = wanting(vec![one_chunk_pool()], one(), 450);
    let plan = world.plan_and_apply();
    assert_eq!(plan.create.len(), 200);
    let (_, _, message) = world.provisioning("web").unwrap();
    assert_eq!(message, "450/450 virtual pods required new capacity, 0 failed");
    let arrived = world.born[0].clone();
    for step in [world::Step::Launch(arrived.clone()), world::Step::Join(arrived)] {
        world.take(&step);
    }
    world.plan_and_apply();
    let node = world.snapshot.nodes[0].name.clone();
    world.take(&world::Step::Ready(node.clone()));
    world.take(&world::Step::LoseNotReadyTaint(node));
    assert_eq!(world.plan().create.len(), 1);
}

/// Conditions and resources of pools.
#[rstest]
#[case::fine(|_: &mut World| {}, ["True/Ready", "True/NodeClassReady", "True/ValidationSucceeded"])]
#[case::no_class(|world: &mut World| world.snapshot.classes.clear(),
    ["False/NodeClassNotFound", "False/NodeClassNotFound", "True/ValidationSucceeded"])]
#[case::class_not_ready(|world: &mut World| world.snapshot.classes[0].ready = false,
    ["False/NodeClassNotReady", "False/NodeClassNotReady", "True/ValidationSucceeded"])]
#[case::class_goes(|world: &mut World| world.snapshot.classes[0].deleting = true,
    ["False/NodeClassTerminating", "False/NodeClassTerminating", "True/ValidationSucceeded"])]
#[case::bad_span(|world: &mut World| "soon".clone_into(&mut world.snapshot.pools[0].spec.disruption.consolidate_after),
    ["False/NodePoolValidationFailed", "True/NodeClassReady", "False/NodePoolValidationFailed"])]
#[case::bad_budget(|world: &mut World| "all".clone_into(&mut world.snapshot.pools[0].spec.disruption.budgets[0].nodes),
    ["False/NodePoolValidationFailed", "True/NodeClassReady", "False/NodePoolValidationFailed"])]
#[case::bad_limit(|world: &mut World| world.snapshot.pools[0].spec.limits = api(&[("cpu", "x")]),
    ["False/NodePoolValidationFailed", "True/NodeClassReady", "False/NodePoolValidationFailed"])]
#[case::bad_requirement(|world: &mut World| world.snapshot.pools[0].spec.template.spec.requirements = vec![requirement("a", &[])],
    ["False/NodePoolValidationFailed", "True/NodeClassReady", "False/NodePoolValidationFailed"])]
fn pool_conditions(#[case] spoil: fn(&mut World), #[case] want: [&str; 3]) {
    let mut world = wanting(vec![pool("any")], one(), 1);
    spoil(&mut world);
    let plan = world.plan_and_apply();
    let status = &world.snapshot.pools[0].status;
    let kinds =
        [conditions::pool::READY, conditions::pool::NODE_CLASS_READY, conditions::pool::VALIDATION_SUCCEEDED];
    let said = kinds.map(|kind| {
        let own = status.conditions.iter().find(|own| own.type_ == kind).unwrap();
        assert_eq!(own.observed_generation, Some(1));
        format!("{}/{}", own.status, own.reason)
    });
    assert_eq!(said, want);
    assert_eq!(plan.create.len(), usize::from(want[0] == "True/Ready"));
    assert_eq!(status.resources["nodes"].0, "0");
}

/// `status.resources` follows the launched claims, once they have come to rest.
#[test]
fn pool_resources() {
    let mut world = wanting(vec![one_chunk_pool()], one(), 2);
    world.settle();
    assert_eq!(world.snapshot.pools[0].status.resources["nodes"].0, "0", "not while claims are fresh");
    let wake_up = world.plan().wake_up.unwrap();
    assert_eq!(wake_up, world.now.checked_add(jiff::SignedDuration::from_secs(5)).unwrap());
    world.now = wake_up;
    world.plan_and_apply();
    let resources = &world.snapshot.pools[0].status.resources;
    assert_eq!((resources["nodes"].0.as_str(), resources["cpu"].0.as_str()), ("2", "4"));
    assert_eq!((resources["pods"].0.as_str(), resources["ephemeral-storage"].0.as_str()), ("64", "0"));
}
