//! A small world in memory: an API server, a cloud, kubelets and a scheduler that do exactly what they should, one step at a time.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeMap;

use buffer_api::{
    CapacityBufferSpec, NodePoolSpec, Quantity,
    capacity_buffer::{LocalObjectRef, ScalableRef},
    conditions,
    fake_node_class::{InstanceType, Offering},
    karpenter::{NodeClassRef, Operator, Requirement},
    labels,
};
use buffer_core::{
    plan::{NodeChange, Plan, Settings, plan},
    snapshot::{
        Buffer, Claim, Node, NodeClass, ObjectKey, Pod, PodShape, Pool, Resources, Snapshot, Template,
        Workload,
    },
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{NodeSelectorRequirement, Taint},
    apimachinery::pkg::{
        api::resource::Quantity as ApiQuantity,
        apis::meta::v1::{Condition, Time},
    },
};

pub const ON: Settings = Settings { capacity_buffer: true, search: true };

/// The world, and what happened in it.
#[derive(Clone, Debug)]
pub struct World {
    pub snapshot: Snapshot,
    pub now: Timestamp,
    pub settings: Settings,
    /// Names of all claims ever created.
    pub born: Vec<String>,
    /// Claims that were deleted by a plan.
    pub deleted: Vec<String>,
    /// Requests that the controller sent, by claim or node name.
    pub requests: BTreeMap<String, u32>,
    /// Several shapes compete: the second plan may pack them otherwise, so that other buffers are the ones that fit; but no more than that.
    pub may_repack: bool,
    /// The scheduler prefers the emptiest node, as it does by default; else the oldest.
    pub spreads: bool,
    /// How long each step takes.
    pub pace: SignedDuration,
    next: u32,
}

pub fn resources(amounts: &[(&str, &str)]) -> Resources {
    amounts.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
}

pub fn api(amounts: &[(&str, &str)]) -> BTreeMap<String, ApiQuantity> {
    amounts.iter().map(|(name, amount)| ((*name).to_owned(), ApiQuantity((*amount).to_owned()))).collect()
}

pub fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
}

pub fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub fn shape(requests: &[(&str, &str)]) -> PodShape {
    let mut requests = resources(requests);
    requests.insert("pods".to_owned(), Quantity::units(1));
    PodShape { namespace: "default".to_owned(), requests, ..PodShape::default() }
}

pub fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), value: None, time_added: None }
}

/// A type with `cpu` processors, 100m and 10Mi of which the system keeps, at a price of its size.
pub fn instance_type(name: &str, cpu: u32, memory: &str) -> InstanceType {
    let (cpu_text, pods) = (cpu.to_string(), (cpu * 16).to_string());
    let is_in = |key: &str, value: &str| NodeSelectorRequirement {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![value.to_owned()]),
    };
    InstanceType {
        name: name.to_owned(),
        capacity: api(&[("cpu", &cpu_text), ("memory", memory), ("pods", &pods)]),
        overhead: api(&[("cpu", "100m"), ("memory", "10Mi")]),
        requirements: vec![is_in(labels::ARCH, "amd64"), is_in(labels::OS, "linux")],
        offerings: ["zone-a", "zone-b"]
            .into_iter()
            .flat_map(|zone| {
                [("on-demand", 1.0), ("spot", 0.7)].into_iter().map(move |(kind, factor)| Offering {
                    zone: zone.to_owned(),
                    capacity_type: kind.to_owned(),
                    price: f64::from(cpu) * 0.025 * factor,
                })
            })
            .collect(),
    }
}

/// Types of 1 to 256 processors, 2 GiB each.
pub fn catalogue() -> Vec<InstanceType> {
    let sizes = [1_u32, 2, 4, 8, 16, 32, 64, 128, 256];
    sizes.iter().map(|cpu| instance_type(&format!("c-{cpu}x"), *cpu, &format!("{}Gi", cpu * 2))).collect()
}

pub fn pool(name: &str) -> Pool {
    let mut spec = NodePoolSpec::default();
    spec.template.spec.node_class_ref = NodeClassRef {
        group: "bufconf.dev".to_owned(),
        kind: "FakeNodeClass".to_owned(),
        name: "default".to_owned(),
    };
    if let Some(budget) = spec.disruption.budgets.first_mut() {
        "100%".clone_into(&mut budget.nodes);
    }
    Pool { name: name.to_owned(), uid: format!("uid-{name}"), generation: 1, spec, ..Pool::default() }
}

pub fn requirement(key: &str, values: &[&str]) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: values.iter().map(ToString::to_string).collect(),
        min_values: None,
    }
}

/// A pool of 2-processor nodes, each of which holds one chunk of 1 processor.
pub fn one_chunk_pool() -> Pool {
    let mut pool = pool("small");
    pool.spec.template.spec.requirements = vec![requirement(labels::INSTANCE_TYPE, &["c-2x"])];
    pool
}

pub fn class() -> NodeClass {
    NodeClass {
        group: "bufconf.dev".to_owned(),
        kind: "FakeNodeClass".to_owned(),
        name: "default".to_owned(),
        ready: true,
        instance_types: std::sync::Arc::new(catalogue()),
        ..NodeClass::default()
    }
}

pub fn template(name: &str, shape: PodShape) -> Template {
    Template { key: key(name), generation: 1, shape }
}

pub fn deployment(name: &str, replicas: i32, shape: PodShape) -> Workload {
    Workload { group: "apps".to_owned(), kind: "Deployment".to_owned(), key: key(name), replicas, shape }
}

/// A buffer on the PodTemplate of that name.
pub fn buffer(name: &str, template: &str, replicas: i32) -> Buffer {
    let reference = LocalObjectRef { name: template.to_owned() };
    let spec = CapacityBufferSpec {
        pod_template_ref: Some(reference),
        replicas: Some(replicas),
        ..CapacityBufferSpec::default()
    };
    Buffer { key: key(name), uid: format!("uid-{name}"), generation: 1, spec, ..Buffer::default() }
}

/// A buffer on the Deployment of that name.
pub fn percentage(name: &str, workload: &str, percentage: i32) -> Buffer {
    let reference = ScalableRef {
        api_group: Some("apps".to_owned()),
        kind: "Deployment".to_owned(),
        name: workload.to_owned(),
    };
    let spec = CapacityBufferSpec {
        scalable_ref: Some(reference),
        percentage: Some(percentage),
        ..CapacityBufferSpec::default()
    };
    Buffer { key: key(name), uid: format!("uid-{name}"), generation: 1, spec, ..Buffer::default() }
}

pub fn pod(name: &str, shape: PodShape) -> Pod {
    Pod { key: key(name), uid: format!("uid-{name}"), shape: std::sync::Arc::new(shape), ..Pod::default() }
}

/// A node that nobody here made, ready for pods.
pub fn foreign_node(name: &str, allocatable: &[(&str, &str)]) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: strings(&[(labels::HOSTNAME, name)]),
        capacity: resources(allocatable),
        allocatable: resources(allocatable),
        ready: true,
        ..Node::default()
    }
}

/// The number in front of a step of the cloud or the cluster that can be taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    Launch(String),
    Join(String),
    Ready(String),
    LoseNotReadyTaint(String),
    Schedule,
    Terminate(String),
    EndPods,
}

impl World {
    /// A world with the class, these pools and the template `one` (1 CPU, 512Mi).
    pub fn new(pools: Vec<Pool>) -> Self {
        let templates = vec![template("one", shape(&[("cpu", "1"), ("memory", "512Mi")]))];
        let snapshot = Snapshot { pools, classes: vec![class()], templates, ..Snapshot::default() };
        Self {
            snapshot,
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            settings: ON,
            born: Vec::new(),
            deleted: Vec::new(),
            requests: BTreeMap::new(),
            may_repack: false,
            spreads: false,
            pace: SignedDuration::ZERO,
            next: 0,
        }
    }

    pub fn plan(&self) -> Plan {
        plan(&self.snapshot, self.settings, self.now)
    }

    /// Plans and carries the plan out; then planning again must give nothing, unless the plan asked for it.
    pub fn plan_and_apply(&mut self) -> Plan {
        let plan = self.plan();
        self.apply(&plan);
        if plan.wake_up.is_none_or(|time| time > self.now) {
            let mut again = self.plan();
            if self.may_repack {
                again.buffers.clear();
            }
            similar_asserts::assert_eq!(
                without_notes(again),
                Plan::default(),
                "the second plan is not empty; the first was {:?}",
                without_notes(plan.clone())
            );
        }
        plan
    }

    pub fn advance(&mut self, span: SignedDuration) {
        self.now = self.now.checked_add(span).unwrap();
    }

    fn request(&mut self, name: &str) {
        *self.requests.entry(name.to_owned()).or_default() += 1;
    }

    fn second(&self) -> Timestamp {
        Timestamp::from_second(self.now.as_second()).unwrap()
    }

    /// Carries a plan out as the API server would.
    pub fn apply(&mut self, plan: &Plan) {
        let tried: Vec<String> = plan.tries(&self.snapshot).map(ToOwned::to_owned).collect();
        self.snapshot.tried.extend(tried);
        for status in &plan.buffers {
            let buffer = self.snapshot.buffers.iter_mut().find(|buffer| buffer.key == status.key).unwrap();
            assert_ne!(buffer.status, status.status, "a status that says nothing new was written");
            buffer.status = status.status.clone();
        }
        for status in &plan.pools {
            let pool = self.snapshot.pools.iter_mut().find(|pool| pool.name == status.name).unwrap();
            pool.status = status.status.clone();
        }
        for change in &plan.nodes {
            self.change_node(change);
        }
        for status in &plan.claims {
            self.request(&status.name);
            let claim = self.snapshot.claims.iter_mut().find(|claim| claim.name == status.name).unwrap();
            claim.status.node_name.clone_from(&status.node_name);
            claim.status.conditions.retain(|condition| condition.type_ == conditions::claim::LAUNCHED);
            claim.status.conditions.extend(status.conditions.clone());
        }
        for new in &plan.create {
            if self.snapshot.claims.iter().any(|claim| claim.name == new.name) {
                continue;
            }
            self.request(&new.name);
            self.next += 1;
            self.born.push(new.name.clone());
            self.snapshot.claims.push(Claim {
                name: new.name.clone(),
                uid: format!("claim-{}", self.next),
                labels: new.labels.clone(),
                annotations: new.annotations.clone(),
                created: Some(self.second()),
                finalizers: vec![
                    labels::TERMINATION_FINALIZER.to_owned(),
                    labels::INSTANCE_FINALIZER.to_owned(),
                ],
                spec: new.spec.clone(),
                ..Claim::default()
            });
        }
        for eviction in &plan.evict {
            let pod = self.snapshot.pods.iter_mut().find(|pod| pod.uid == eviction.uid).unwrap();
            assert!(!pod.deleting && pod.key == eviction.pod);
            pod.deleting = true;
            pod.deleted_at = Some(Timestamp::from_second(self.now.as_second()).unwrap());
            // a pod of a workload is made anew at once
            if let Some(name) = pod.key.name.strip_prefix("w-") {
                let (stem, number) = name.rsplit_once('-').unwrap();
                let next = format!("w-{stem}-{}", number.parse::<u32>().unwrap() + 100);
                let mut again = self::pod(&next, (*pod.shape).clone());
                again.created = Some(self.now);
                self.snapshot.pods.push(again);
            }
        }
        for delete in &plan.delete {
            self.request(&delete.name);
            self.deleted.push(delete.name.clone());
            let claim = self.snapshot.claims.iter_mut().find(|claim| claim.name == delete.name).unwrap();
            claim.deleting = true;
            claim.deleted_at = Some(Timestamp::from_second(self.now.as_second()).unwrap());
        }
        for name in &plan.release {
            self.request(name);
            let claim = self.snapshot.claims.iter_mut().find(|claim| claim.name == *name).unwrap();
            claim.finalizers.retain(|finalizer| finalizer != labels::TERMINATION_FINALIZER);
        }
        self.snapshot.claims.retain(|claim| !(claim.deleting && claim.finalizers.is_empty()));
    }

    fn change_node(&mut self, change: &NodeChange) {
        assert_ne!(change, &NodeChange { name: change.name.clone(), ..NodeChange::default() }, "no change");
        let node = self.snapshot.nodes.iter_mut().find(|node| node.name == change.name).unwrap();
        node.labels.extend(change.set_labels.clone());
        node.annotations.extend(change.set_annotations.clone());
        node.taints
            .retain(|taint| !change.remove_taints.contains(&(taint.key.clone(), taint.effect.clone())));
        node.taints.extend(change.add_taints.clone());
        if change.add_finalizer {
            node.finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
        }
        if change.drop_finalizer {
            node.finalizers.clear();
        }
        node.deleting |= change.delete;
        let name = node.provider_id.clone().unwrap_or_default();
        let name = self
            .snapshot
            .claims
            .iter()
            .find(|claim| claim.status.provider_id.as_deref() == Some(&name))
            .map_or(change.name.clone(), |claim| claim.name.clone());
        self.request(&name);
        self.drop_finished_nodes();
    }

    fn drop_finished_nodes(&mut self) {
        let gone: Vec<String> = self
            .snapshot
            .nodes
            .iter()
            .filter(|node| node.deleting && node.finalizers.is_empty())
            .map(|node| node.name.clone())
            .collect();
        self.snapshot.nodes.retain(|node| !gone.contains(&node.name));
        self.snapshot.pods.retain(|pod| pod.node.as_ref().is_none_or(|node| !gone.contains(node)));
    }

    /// All steps that cloud and cluster could take now.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for claim in &self.snapshot.claims {
            let name = claim.name.clone();
            let node = self.snapshot.nodes.iter().find(|node| node.provider_id == claim.status.provider_id);
            if claim.deleting {
                if !claim.finalizers.contains(&labels::TERMINATION_FINALIZER.to_owned()) {
                    steps.push(Step::Terminate(name));
                }
            } else if claim.status.provider_id.is_none() {
                if claim.status.conditions.is_empty() {
                    steps.push(Step::Launch(name));
                }
            } else if claim.status.node_name.is_none() && node.is_none() {
                steps.push(Step::Join(name));
            }
        }
        for node in &self.snapshot.nodes {
            if node.provider_id.is_some() && !node.ready && node.ready_since.is_none() {
                steps.push(Step::Ready(node.name.clone()));
            }
            if node.ready && node.taints.iter().any(|taint| taint.key == labels::NOT_READY_TAINT) {
                steps.push(Step::LoseNotReadyTaint(node.name.clone()));
            }
        }
        if self.snapshot.pods.iter().any(|pod| pod.deleting) {
            steps.push(Step::EndPods);
        }
        let waiting = self.snapshot.pods.iter().filter(|pod| pod.node.is_none() && !pod.deleting);
        if waiting.into_iter().any(|pod| !pod.unschedulable || self.schedule(pod).is_some()) {
            steps.push(Step::Schedule);
        }
        steps
    }

    pub fn take(&mut self, step: &Step) {
        match step {
            Step::Launch(name) => self.launch(name),
            Step::Join(name) => self.join(name),
            Step::Ready(name) => {
                let now = self.second();
                let node = self.snapshot.nodes.iter_mut().find(|node| node.name == *name).unwrap();
                node.ready = true;
                node.ready_since = Some(now);
            }
            Step::LoseNotReadyTaint(name) => {
                let node = self.snapshot.nodes.iter_mut().find(|node| node.name == *name).unwrap();
                node.taints.retain(|taint| taint.key != labels::NOT_READY_TAINT);
            }
            Step::Schedule => {
                for at in 0..self.snapshot.pods.len() {
                    let pod = &self.snapshot.pods[at];
                    if pod.node.is_none() && !pod.deleting {
                        let to = self.schedule(pod);
                        self.snapshot.pods[at].unschedulable = to.is_none();
                        self.snapshot.pods[at].bound_at = to.as_ref().map(|_| self.second());
                        self.snapshot.pods[at].node = to;
                    }
                }
            }
            Step::EndPods => self.snapshot.pods.retain(|pod| !pod.deleting),
            Step::Terminate(name) => {
                let claim = self.snapshot.claims.iter().find(|claim| claim.name == *name).unwrap();
                if let Some(id) = claim.status.provider_id.clone() {
                    for node in &mut self.snapshot.nodes {
                        node.deleting |= node.provider_id.as_ref() == Some(&id);
                    }
                }
                self.snapshot.claims.retain(|claim| claim.name != *name);
                self.drop_finished_nodes();
            }
        }
    }

    /// The cloud buys the cheapest offering that the claim allows.
    fn launch(&mut self, name: &str) {
        let now = self.second();
        let types = std::sync::Arc::clone(&self.snapshot.classes[0].instance_types);
        let unavailable = self.snapshot.classes[0].unavailable.clone();
        let claim = self.snapshot.claims.iter_mut().find(|claim| claim.name == name).unwrap();
        let allowed = |key: &str, value: &str| {
            claim.spec.requirements.iter().filter(|own| own.key == key).all(|own| match own.operator {
                Operator::In => own.values.iter().any(|own| own == value),
                Operator::NotIn => own.values.iter().all(|own| own != value),
                Operator::Exists => true,
                _ => false,
            })
        };
        let mut offers: Vec<(&InstanceType, &Offering)> = types
            .iter()
            .filter(|kind| allowed(labels::INSTANCE_TYPE, &kind.name))
            .flat_map(|kind| kind.offerings.iter().map(move |offering| (kind, offering)))
            .filter(|(kind, offering)| {
                allowed(labels::ZONE, &offering.zone)
                    && allowed(labels::CAPACITY_TYPE, &offering.capacity_type)
                    && !unavailable.iter().any(|own| {
                        (&own.instance_type, &own.zone, &own.capacity_type)
                            == (&kind.name, &offering.zone, &offering.capacity_type)
                    })
            })
            .collect();
        offers.sort_by(|(_, one), (_, two)| one.price.total_cmp(&two.price));
        let condition = |status: &str, reason: &str| Condition {
            last_transition_time: Time(now),
            message: String::new(),
            observed_generation: None,
            reason: reason.to_owned(),
            status: status.to_owned(),
            type_: conditions::claim::LAUNCHED.to_owned(),
        };
        let Some((kind, offering)) = offers.first() else {
            claim.status.conditions.push(condition("False", conditions::claim::INSUFFICIENT_CAPACITY));
            return;
        };
        claim.status.provider_id = Some(format!("fake://{}", claim.uid));
        claim.status.capacity = kind.capacity.clone();
        claim.status.allocatable = allocatable(kind);
        claim.labels.extend(strings(&[
            (labels::INSTANCE_TYPE, &kind.name),
            (labels::ZONE, &offering.zone),
            (labels::CAPACITY_TYPE, &offering.capacity_type),
            (labels::ARCH, "amd64"),
            (labels::OS, "linux"),
        ]));
        claim.status.conditions.push(condition("True", conditions::claim::LAUNCHED));
    }

    /// The kubelet makes its Node.
    fn join(&mut self, name: &str) {
        self.next += 1;
        let claim = self.snapshot.claims.iter().find(|claim| claim.name == name).unwrap();
        let parse = |amounts: &BTreeMap<String, ApiQuantity>| -> Resources {
            amounts.iter().map(|(name, amount)| (name.clone(), amount.0.parse().unwrap())).collect()
        };
        let keys = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE, labels::ARCH, labels::OS];
        let mut node_labels: BTreeMap<String, String> =
            keys.iter().map(|key| ((*key).to_owned(), claim.labels[*key].clone())).collect();
        // Names that sort otherwise than those of the claims.
        let name = format!("node-{}-{name}", (self.next * 7) % 10);
        node_labels.insert(labels::HOSTNAME.to_owned(), name.clone());
        let node = Node {
            uid: format!("node-{}", self.next),
            name,
            labels: node_labels,
            taints: vec![
                taint(labels::UNREGISTERED_TAINT, "NoExecute"),
                taint(labels::NOT_READY_TAINT, "NoSchedule"),
            ],
            provider_id: claim.status.provider_id.clone(),
            capacity: parse(&claim.status.capacity),
            allocatable: parse(&claim.status.allocatable),
            ..Node::default()
        };
        self.snapshot.nodes.push(node);
    }

    /// Where the scheduler would put a pod.
    fn schedule(&self, pod: &Pod) -> Option<String> {
        let mut nodes: Vec<&Node> = self.snapshot.nodes.iter().collect();
        nodes.sort_by_key(|node| &node.uid);
        if self.spreads {
            let cpu = |amounts: &Resources| amounts.get("cpu").copied().unwrap_or_default();
            let free = |node: &Node| {
                let there = self.snapshot.pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name));
                there.fold(cpu(&node.allocatable), |free, pod| free.minus(cpu(&pod.shape.requests)))
            };
            nodes.sort_by_key(|node| std::cmp::Reverse(free(node)));
        }
        let found = nodes.into_iter().find(|node| {
            node.ready
                && !node.unschedulable
                && !node.taints.iter().any(|taint| {
                    taint.effect != "PreferNoSchedule"
                        && !pod.shape.tolerations.iter().any(|own| own.key.as_ref() == Some(&taint.key))
                })
                && pod.shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
                && pod.shape.requests.iter().all(|(resource, amount)| {
                    let used = self
                        .snapshot
                        .pods
                        .iter()
                        .filter(|other| other.node.as_ref() == Some(&node.name))
                        .filter_map(|other| other.shape.requests.get(resource));
                    let used = used.fold(Quantity::ZERO, |sum, amount| sum.plus(*amount));
                    used.plus(*amount) <= node.allocatable.get(resource).copied().unwrap_or_default()
                })
        });
        found.map(|node| node.name.clone())
    }

    /// Lets everything happen, in the order that `choose` picks (a number below the one it is given), a plan after each step, until
    /// nothing happens any more.
    pub fn settle_with(&mut self, mut choose: impl FnMut(usize) -> usize, mut check: impl FnMut(&Self)) {
        for _ in 0..10_000 {
            let plan = self.plan_and_apply();
            check(self);
            let steps = self.steps();
            if steps.is_empty() {
                if without_notes(plan) == Plan::default() {
                    return;
                }
                continue;
            }
            let step = steps[choose(steps.len())].clone();
            self.take(&step);
            self.advance(self.pace);
        }
        panic!("the world does not settle");
    }

    pub fn settle(&mut self) {
        self.settle_with(|_| 0, |_| {});
    }

    /// The `Provisioning` condition of a buffer: status, reason and message.
    pub fn provisioning(&self, buffer: &str) -> Option<(String, String, String)> {
        self.condition(buffer, conditions::buffer::PROVISIONING)
    }

    pub fn condition(&self, buffer: &str, kind: &str) -> Option<(String, String, String)> {
        let buffer = self.snapshot.buffers.iter().find(|own| own.key.name == buffer)?;
        let condition = buffer.status.conditions.iter().find(|condition| condition.type_ == kind)?;
        Some((condition.status.clone(), condition.reason.clone(), condition.message.clone()))
    }

    pub fn is_provisioned(&self, buffer: &str) -> bool {
        self.provisioning(buffer).is_some_and(|(status, _, _)| status == "True")
    }

    /// How many more copies of a shape fit on nodes that take pods now, counted without the planner.
    pub fn headroom(&self, shape: &PodShape) -> u64 {
        let nodes = self
            .snapshot
            .nodes
            .iter()
            .filter(|node| node.ready && !node.unschedulable && !node.deleting && node.taints.is_empty());
        let rooms = nodes.map(|node| {
            shape
                .requests
                .iter()
                .map(|(resource, amount)| {
                    let on_node =
                        self.snapshot.pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name));
                    let used = on_node.filter_map(|pod| pod.shape.requests.get(resource));
                    let free = used
                        .fold(node.allocatable.get(resource).copied().unwrap_or_default(), |free, used| {
                            free.minus(*used)
                        });
                    free.fits(*amount).unwrap_or(u64::MAX)
                })
                .min()
                .unwrap_or(u64::MAX)
        });
        rooms.sum()
    }
}

pub fn allocatable(kind: &InstanceType) -> BTreeMap<String, ApiQuantity> {
    kind.capacity
        .iter()
        .map(|(name, amount)| {
            let overhead = kind.overhead.get(name).map_or(Quantity::ZERO, |own| own.0.parse().unwrap());
            let amount: Quantity = amount.0.parse().unwrap();
            (name.clone(), amount.minus(overhead).into())
        })
        .collect()
}

/// A plan without events and wake-up time, which are repeated as long as they hold.
pub fn without_notes(plan: Plan) -> Plan {
    Plan { events: Vec::new(), wake_up: None, search: false, ..plan }
}

/// Picks numbers by a seed (SplitMix64).
pub fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |count| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % count as u64).unwrap_or(0)
    }
}
