//! What is known of the cluster: slim values, with own writes in them before the watch shows them.

mod table;

use std::{collections::BTreeSet, sync::Arc};

use buffer_core::snapshot::{
    Buffer, Claim, DaemonSet, DisruptionBudget, Node, NodeClass, ObjectKey, Pod, Pool, Quota, Snapshot,
    Template, Workload,
};
use jiff::Timestamp;
use tokio::time::Instant;

pub use table::{Observed, Op, Row, Table, version};

use crate::kind::{Kind, ObjectRef};

/// Wraps the operations on one type of objects.
pub trait Slim: Sized + Send + 'static {
    /// The change that carries an operation.
    fn change(op: Op<Self>) -> Change;
}

macro_rules! changes {
    ($($variant:ident($type:ty)),* $(,)?) => {
        /// A change of one of the tables.
        #[derive(Debug)]
        pub enum Change {
            $($variant(Op<$type>)),*
        }

        impl Change {
            /// The object and resource version that a change is about, where the API server gave one.
            pub fn subject(&self) -> Option<(&ObjectRef, u64)> {
                match self {
                    $(Self::$variant(op) => op.subject()),*
                }
            }

            /// The kind whose list a change ends.
            pub fn list_done(&self) -> Option<Kind> {
                match self {
                    $(Self::$variant(op) => op.list_done()),*
                }
            }
        }

        $(impl Slim for $type {
            fn change(op: Op<Self>) -> Change {
                Change::$variant(op)
            }
        })*
    };
}

changes! {
    Buffer(Buffer),
    Quota(Quota),
    Template(Template),
    Workload(Workload),
    Pod(Pod),
    DaemonSet(DaemonSet),
    DisruptionBudget(DisruptionBudget),
    Node(Node),
    Claim(Claim),
    Pool(Pool),
    Class(NodeClass),
}

/// All tables.
#[derive(Debug, Default)]
pub struct Cache {
    buffers: Table<Buffer>,
    quotas: Table<Quota>,
    templates: Table<Template>,
    workloads: Table<Workload>,
    pods: Table<Pod>,
    daemon_sets: Table<DaemonSet>,
    disruption_budgets: Table<DisruptionBudget>,
    nodes: Table<Node>,
    claims: Table<Claim>,
    pools: Table<Pool>,
    classes: Table<NodeClass>,
}

impl Cache {
    /// Takes a change in. True if the planner may now decide otherwise.
    pub fn apply(&mut self, change: Change, now: Instant) -> bool {
        let buffers = self.buffers.values();
        match change {
            Change::Template(op) => self.templates.apply(op, now, |template| {
                buffers.iter().any(|buffer| {
                    let reference = buffer.spec.pod_template_ref.as_ref();
                    refers(buffer, &template.key, reference.map(|reference| &reference.name))
                })
            }),
            Change::Quota(op) => self.quotas.apply(op, now, |quota| {
                buffers.iter().any(|buffer| buffer.key.namespace == quota.key.namespace)
            }),
            Change::Workload(op) => self.workloads.apply(op, now, |workload| {
                buffers.iter().any(|buffer| {
                    let reference = buffer.spec.scalable_ref.as_ref();
                    let reference = reference.filter(|reference| reference.kind == workload.kind);
                    refers(buffer, &workload.key, reference.map(|reference| &reference.name))
                })
            }),
            // the scheduler has yet to look at a pod that is neither bound nor unschedulable
            Change::Pod(op) => self.pods.apply(op, now, |pod| pod.node.is_some() || pod.unschedulable),
            Change::Class(mut op) => {
                self.keep_instance_types(&mut op);
                self.classes.apply(op, now, |_| true)
            }
            Change::Buffer(op) => self.buffers.apply(op, now, |_| true),
            Change::DaemonSet(op) => self.daemon_sets.apply(op, now, |_| true),
            Change::DisruptionBudget(op) => self.disruption_budgets.apply(op, now, |_| true),
            Change::Node(op) => self.nodes.apply(op, now, |_| true),
            Change::Claim(op) => self.claims.apply(op, now, |_| true),
            Change::Pool(op) => self.pools.apply(op, now, |_| true),
        }
    }

    /// Equal lists of instance types stay the same list: the planner may key what it has worked out by it.
    fn keep_instance_types(&self, op: &mut Op<NodeClass>) {
        if let Op::Applied(new) | Op::Listed(new) = op
            && let Some((_, old)) = self.classes.get(&new.object)
            && old.instance_types == new.value.instance_types
        {
            new.value.instance_types = Arc::clone(&old.instance_types);
        }
    }

    /// Moves the values out for the planner. Nothing else may be done with the cache before [`Cache::restore`].
    pub fn lend(&mut self) -> Snapshot {
        Snapshot {
            buffers: self.buffers.lend(),
            quotas: self.quotas.lend(),
            templates: self.templates.lend(),
            workloads: self.workloads.lend(),
            pods: self.pods.lend(),
            daemon_sets: self.daemon_sets.lend(),
            disruption_budgets: self.disruption_budgets.lend(),
            nodes: self.nodes.lend(),
            claims: self.claims.lend(),
            pools: self.pools.lend(),
            classes: self.classes.lend(),
            tried: BTreeSet::new(),
        }
    }

    /// Takes the values of [`Cache::lend`] back, unchanged.
    pub fn restore(&mut self, snapshot: Snapshot) {
        self.buffers.restore(snapshot.buffers);
        self.quotas.restore(snapshot.quotas);
        self.templates.restore(snapshot.templates);
        self.workloads.restore(snapshot.workloads);
        self.pods.restore(snapshot.pods);
        self.daemon_sets.restore(snapshot.daemon_sets);
        self.disruption_budgets.restore(snapshot.disruption_budgets);
        self.nodes.restore(snapshot.nodes);
        self.claims.restore(snapshot.claims);
        self.pools.restore(snapshot.pools);
        self.classes.restore(snapshot.classes);
    }

    /// Lets time pass: protections of pods that have run out, own writes that the watch never showed.
    pub fn expire(&mut self, now: Instant, time: Timestamp) {
        self.pods.end_protection(time, |pod| pod.do_not_disrupt = false);
        self.claims.expire(now);
        self.buffers.expire(now);
        self.pools.expire(now);
        self.nodes.expire(now);
        self.pods.expire(now);
    }

    /// When the next protection of a pod ends.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.pods.next_end_of_protection()
    }

    /// All buffers.
    pub fn buffers(&self) -> &[Buffer] {
        self.buffers.values()
    }

    /// UID of a buffer.
    pub fn buffer_uid(&self, key: &ObjectKey) -> Option<&str> {
        self.buffers.get(&ObjectRef::new(Kind::Buffer, key.clone())).map(|(_, buffer)| buffer.uid.as_str())
    }

    /// UID of a pool.
    pub fn pool_uid(&self, name: &str) -> Option<&str> {
        self.pools.get(&ObjectRef::cluster(Kind::Pool, name)).map(|(_, pool)| pool.uid.as_str())
    }

    /// A node with what the API server needs to know for a change.
    pub fn node(&self, name: &str) -> Option<(&Row, &Node)> {
        self.nodes.get(&ObjectRef::cluster(Kind::Node, name))
    }

    /// A claim with what the API server needs to know for a change.
    pub fn claim(&self, name: &str) -> Option<(&Row, &Claim)> {
        self.claims.get(&ObjectRef::cluster(Kind::Claim, name))
    }
}

fn refers(buffer: &Buffer, key: &ObjectKey, name: Option<&String>) -> bool {
    buffer.key.namespace == key.namespace && name == Some(&key.name)
}

#[cfg(test)]
mod tests {
    use buffer_api::{CapacityBufferSpec, capacity_buffer::ScalableRef, fake_node_class::InstanceType};
    use rstest::rstest;

    use super::*;

    fn observed<T>(object: ObjectRef, version: u64, value: T) -> Observed<T> {
        Observed { object, version, owners: Vec::new(), protected_until: None, value }
    }

    fn pod(version: u64, node: Option<&str>, unschedulable: bool) -> Change {
        let key = ObjectKey { namespace: "ns".to_owned(), name: "p".to_owned() };
        let value = Pod { key: key.clone(), node: node.map(str::to_owned), unschedulable, ..Pod::default() };
        Change::Pod(Op::Applied(observed(ObjectRef::new(Kind::Pod, key), version, value)))
    }

    #[test]
    fn a_pod_wakes_once_the_scheduler_has_decided() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        assert!(!cache.apply(pod(1, None, false), now), "nobody has looked at it");
        assert!(cache.apply(pod(2, None, true), now), "it fits nowhere");
        assert!(!cache.apply(pod(3, None, true), now), "still");
        assert!(cache.apply(pod(4, Some("n"), false), now), "bound");
        assert!(!cache.apply(pod(5, Some("n"), false), now), "runs, in words that nobody reads");
    }

    #[rstest]
    #[case::referenced("web", "Deployment", true)]
    #[case::other_name("api", "Deployment", false)]
    #[case::other_kind("web", "StatefulSet", false)]
    fn a_workload_wakes_if_a_buffer_refers_to_it(
        #[case] name: &str,
        #[case] kind: &str,
        #[case] wakes: bool,
    ) {
        let (mut cache, now) = (Cache::default(), Instant::now());
        let key = |name: &str| ObjectKey { namespace: "ns".to_owned(), name: name.to_owned() };
        let reference =
            ScalableRef { api_group: None, kind: "Deployment".to_owned(), name: "web".to_owned() };
        let spec = CapacityBufferSpec { scalable_ref: Some(reference), ..CapacityBufferSpec::default() };
        let buffer = Buffer { key: key("b"), spec, ..Buffer::default() };
        let buffer = observed(ObjectRef::new(Kind::Buffer, key("b")), 1, buffer);
        assert!(cache.apply(Change::Buffer(Op::Applied(buffer)), now));
        let workload = Workload { kind: kind.to_owned(), key: key(name), replicas: 3, ..Workload::default() };
        let workload = observed(ObjectRef::new(Kind::Deployment, key(name)), 2, workload);
        assert_eq!(cache.apply(Change::Workload(Op::Applied(workload)), now), wakes);
    }

    #[test]
    fn an_equal_catalogue_stays_the_same_list() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        let class = |ready| NodeClass {
            name: "c".to_owned(),
            ready,
            instance_types: Arc::new(vec![InstanceType::default()]),
            ..NodeClass::default()
        };
        let object = ObjectRef::cluster(Kind::Class, "c");
        assert!(cache.apply(Change::Class(Op::Applied(observed(object.clone(), 1, class(false)))), now));
        let first = Arc::clone(&cache.classes.values()[0].instance_types);
        assert!(cache.apply(Change::Class(Op::Applied(observed(object, 2, class(true)))), now));
        assert!(Arc::ptr_eq(&first, &cache.classes.values()[0].instance_types));
    }

    #[test]
    fn lending_and_restoring_keeps_everything() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.apply(pod(1, Some("n"), false), now);
        let snapshot = cache.lend();
        assert_eq!(snapshot.pods.len(), 1);
        cache.restore(snapshot);
        assert!(!cache.apply(pod(1, Some("n"), false), now));
    }
}
