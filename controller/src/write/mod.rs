//! The writes of a plan.
//!
//! Writes to one object are carried out in order, one after the other; so are those to a claim and its node, node first: a
//! claim says what has been done, not what will be. A buffer is said to fit only after all changes to nodes. Everything else goes
//! out at the same time.

mod node;
mod send;

use std::collections::{BTreeMap, HashSet};

use buffer_api::{CapacityBufferStatus, NodePoolStatus, conditions::buffer::PROVISIONING};
use buffer_core::{
    plan::{ClaimStatus, NewClaim, NodeChange, Plan},
    snapshot::{Claim, ObjectKey},
};

pub use node::Current;
pub use send::{NodesFirst, Outcome, Turn, Writer, predicted};

use crate::{
    cache::Cache,
    kind::{Kind, ObjectRef},
};

/// Field manager of everything that this controller applies, and name under which it reports events.
pub const MANAGER: &str = "buffer-controller";

/// Writes that belong together.
#[derive(Debug)]
pub struct Group {
    /// All objects that are written.
    pub objects: Vec<ObjectRef>,
    /// The writes, in order. A failed one ends the group.
    pub writes: Vec<Write>,
}

impl Group {
    /// Whether nodes are changed.
    pub fn changes_nodes(&self) -> bool {
        self.writes.iter().any(|write| matches!(write.action, Action::Node(..)))
    }

    /// Whether the writes say something that holds only once the plan's changes to nodes are made: that all chunks fit.
    pub fn waits_for_nodes(&self) -> bool {
        self.writes.iter().any(|write| match &write.action {
            Action::BufferStatus { status, .. } => status
                .conditions
                .iter()
                .any(|condition| condition.type_ == PROVISIONING && condition.status == "True"),
            _ => false,
        })
    }
}

/// One write.
#[derive(Debug)]
pub struct Write {
    /// What is written.
    pub object: ObjectRef,
    /// How.
    pub action: Action,
}

/// What is done to an object.
#[derive(Debug)]
pub enum Action {
    /// Apply a buffer's status.
    BufferStatus {
        /// UID of the buffer.
        uid: String,
        /// The whole status, as far as it is ours.
        status: CapacityBufferStatus,
    },
    /// Apply a pool's status.
    PoolStatus {
        /// UID of the pool.
        uid: String,
        /// The whole status, as far as it is ours.
        status: NodePoolStatus,
    },
    /// Create a claim.
    Create(Box<NewClaim>),
    /// Apply a claim's status.
    ClaimStatus {
        /// UID of the claim.
        uid: String,
        /// The status, as far as it is ours.
        status: ClaimStatus,
    },
    /// Change a node, as it is known.
    Node(NodeChange, Box<Current>),
    /// Delete a node.
    DeleteNode {
        /// UID of the node.
        uid: String,
    },
    /// List the pods of the claim's node anew before the claim is deleted.
    Verify {
        /// Name of the node.
        node: String,
    },
    /// Delete a claim.
    DeleteClaim {
        /// UID of the claim.
        uid: String,
    },
    /// Evict a pod.
    Evict {
        /// UID of the pod.
        uid: String,
        /// Delete it with this many seconds of grace, whatever protects it.
        force: Option<i64>,
    },
    /// Drop our finalizer from a claim.
    Release {
        /// Resource version of the claim as it is known.
        version: u64,
        /// Finalizers as they are known.
        finalizers: Vec<String>,
    },
}

impl Action {
    /// Name in logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BufferStatus { .. } => "buffer_status",
            Self::PoolStatus { .. } => "pool_status",
            Self::Create(_) => "claim_create",
            Self::ClaimStatus { .. } => "claim_status",
            Self::Node(..) => "node_change",
            Self::DeleteNode { .. } => "node_delete",
            Self::Verify { .. } => "node_pods_list",
            Self::DeleteClaim { .. } => "claim_delete",
            Self::Evict { force: None, .. } => "pod_evict",
            Self::Evict { force: Some(_), .. } => "pod_delete",
            Self::Release { .. } => "claim_release",
        }
    }
}

/// The writes of a plan, grouped. `verified` names the claims whose nodes' pods were listed for this very plan: only those
/// may be deleted without need, the others are verified first.
pub fn groups(plan: Plan, cache: &Cache, verified: &HashSet<String>) -> Vec<Group> {
    let mut builder = Builder { cache, groups: BTreeMap::new(), group_of_node: BTreeMap::new() };
    builder.nodes_of_claims(&plan);
    for change in plan.nodes {
        builder.node(change);
    }
    for buffer in plan.buffers {
        // a buffer that is gone needs no status
        if let Some(uid) = cache.buffer_uid(&buffer.key).map(str::to_owned) {
            let action = Action::BufferStatus { uid, status: buffer.status };
            builder.push(Kind::Buffer, buffer.key, action);
        }
    }
    for pool in plan.pools {
        if let Some(uid) = cache.pool_uid(&pool.name).map(str::to_owned) {
            builder.push_cluster(Kind::Pool, pool.name, Action::PoolStatus { uid, status: pool.status });
        }
    }
    for claim in plan.create {
        builder.push_cluster(Kind::Claim, claim.name.clone(), Action::Create(Box::new(claim)));
    }
    for status in plan.claims {
        if let Some((_, claim)) = cache.claim(&status.name) {
            let (name, uid) = (status.name.clone(), claim.uid.clone());
            builder.push_cluster(Kind::Claim, name, Action::ClaimStatus { uid, status });
        }
    }
    for delete in plan.delete {
        let Some((_, claim)) = cache.claim(&delete.name) else { continue };
        let node = claim
            .status
            .node_name
            .clone()
            .filter(|_| delete.reason.is_voluntary() && !verified.contains(&delete.name));
        let action = match node {
            Some(node) => Action::Verify { node },
            None => Action::DeleteClaim { uid: claim.uid.clone() },
        };
        builder.push_cluster(Kind::Claim, delete.name, action);
    }
    for eviction in plan.evict {
        builder.push(Kind::Pod, eviction.pod, Action::Evict { uid: eviction.uid, force: eviction.force });
    }
    for name in plan.release {
        if let Some((row, claim)) = cache.claim(&name) {
            let action = Action::Release { version: row.version, finalizers: claim.finalizers.clone() };
            builder.push_cluster(Kind::Claim, name, action);
        }
    }
    builder.groups.into_values().collect()
}

/// Collects writes by the object that their group is named after.
struct Builder<'a> {
    cache: &'a Cache,
    groups: BTreeMap<ObjectRef, Group>,
    /// Claim by node, for claims that are written too.
    group_of_node: BTreeMap<String, ObjectRef>,
}

impl Builder<'_> {
    fn nodes_of_claims(&mut self, plan: &Plan) {
        let with_status = plan.claims.iter().map(|status| (&status.name, status.node_name.as_ref()));
        let deleted = plan.delete.iter().map(|delete| (&delete.name, None));
        let released = plan.release.iter().map(|name| (name, None));
        for (name, node) in with_status.chain(deleted).chain(released) {
            let known =
                self.cache.claim(name).and_then(|(_, claim): (_, &Claim)| claim.status.node_name.as_ref());
            if let Some(node) = node.or(known) {
                self.group_of_node.insert(node.clone(), ObjectRef::cluster(Kind::Claim, name));
            }
        }
    }

    fn node(&mut self, change: NodeChange) {
        let Some((row, node)) = self.cache.node(&change.name) else { return };
        let object = row.object.clone();
        let group = self.group_of_node.get(&change.name).unwrap_or(&object).clone();
        let uid = change.delete.then(|| node.uid.clone());
        let current = Current::new(row.version, &row.owners, node);
        if current.patch(&change).is_some() {
            self.add(
                &group,
                Write { object: object.clone(), action: Action::Node(change, Box::new(current)) },
            );
        }
        if let Some(uid) = uid {
            self.add(&group, Write { object, action: Action::DeleteNode { uid } });
        }
    }

    fn push(&mut self, kind: Kind, key: ObjectKey, action: Action) {
        let object = ObjectRef::new(kind, key);
        self.add(&object.clone(), Write { object, action });
    }

    fn push_cluster(&mut self, kind: Kind, name: String, action: Action) {
        self.push(kind, ObjectKey { namespace: String::new(), name }, action);
    }

    fn add(&mut self, group: &ObjectRef, write: Write) {
        let group = self
            .groups
            .entry(group.clone())
            .or_insert_with(|| Group { objects: vec![group.clone()], writes: Vec::new() });
        if !group.objects.contains(&write.object) {
            group.objects.push(write.object.clone());
        }
        group.writes.push(write);
    }
}

#[cfg(test)]
mod tests {
    use buffer_api::{NodeClaimStatus, labels};
    use buffer_core::{
        plan::{BufferStatus, DeleteClaim, DeleteReason},
        snapshot::Node,
    };
    use similar_asserts::assert_eq;
    use tokio::time::Instant;

    use super::*;
    use crate::cache::{Change, Observed, Op};

    fn cache() -> Cache {
        let (mut cache, now) = (Cache::default(), Instant::now());
        let observed = |kind, name: &str| (ObjectRef::cluster(kind, name), 7);
        for name in ["bound", "fresh"] {
            let (object, version) = observed(Kind::Claim, name);
            let node_name = (name == "bound").then(|| "n".to_owned());
            let status = NodeClaimStatus { node_name, ..NodeClaimStatus::default() };
            let value = Claim { name: name.to_owned(), uid: "cu".to_owned(), status, ..Claim::default() };
            let claim = Observed { object, version, owners: Vec::new(), protected_until: None, value };
            cache.apply(Change::Claim(Op::Applied(claim)), now);
        }
        for name in ["n", "m"] {
            let (object, version) = observed(Kind::Node, name);
            let value = Node { name: name.to_owned(), uid: "nu".to_owned(), ..Node::default() };
            let node = Observed { object, version, owners: Vec::new(), protected_until: None, value };
            cache.apply(Change::Node(Op::Applied(node)), now);
        }
        cache
    }

    fn shown(groups: &[Group]) -> Vec<Vec<String>> {
        let show = |write: &Write| format!("{} {}", write.action.name(), write.object.key.name);
        groups.iter().map(|group| group.writes.iter().map(show).collect()).collect()
    }

    fn label(node: &str) -> NodeChange {
        let set_labels = [(labels::REGISTERED.to_owned(), "true".to_owned())].into();
        NodeChange { name: node.to_owned(), set_labels, ..NodeChange::default() }
    }

    #[test]
    fn a_claim_waits_for_its_node() {
        let status = |name: &str, node: Option<&str>| ClaimStatus {
            name: name.to_owned(),
            node_name: node.map(str::to_owned),
            conditions: Vec::new(),
        };
        let plan = Plan {
            nodes: vec![label("n"), label("m")],
            claims: vec![status("fresh", Some("m")), status("bound", None)],
            release: vec!["bound".to_owned()],
            ..Plan::default()
        };
        let groups = groups(plan, &cache(), &HashSet::new());
        assert_eq!(
            shown(&groups),
            [
                vec!["node_change n", "claim_status bound", "claim_release bound"],
                vec!["node_change m", "claim_status fresh"],
            ]
        );
        assert_eq!(groups[0].objects.len(), 2);
    }

    #[test]
    fn a_claim_is_verified_before_it_is_deleted_without_need() {
        let delete = |reason| Plan {
            delete: vec![DeleteClaim { name: "bound".to_owned(), reason }],
            ..Plan::default()
        };
        let (cache, verified) = (cache(), HashSet::from(["bound".to_owned()]));
        let none = HashSet::new();
        for reason in [DeleteReason::Empty, DeleteReason::Drifted, DeleteReason::Underutilized] {
            assert_eq!(shown(&groups(delete(reason), &cache, &none)), [["node_pods_list bound"]]);
            assert_eq!(shown(&groups(delete(reason), &cache, &verified)), [["claim_delete bound"]]);
        }
        for reason in [DeleteReason::NodeGone, DeleteReason::Expired] {
            assert_eq!(shown(&groups(delete(reason), &cache, &none)), [["claim_delete bound"]]);
        }
    }

    #[test]
    fn what_is_gone_or_as_wanted_is_not_written() {
        let key = ObjectKey { namespace: "ns".to_owned(), name: "gone".to_owned() };
        let plan = Plan {
            buffers: vec![BufferStatus { key, status: CapacityBufferStatus::default() }],
            nodes: vec![NodeChange { name: "n".to_owned(), ..NodeChange::default() }, label("gone")],
            release: vec!["gone".to_owned()],
            ..Plan::default()
        };
        assert_eq!(shown(&groups(plan, &cache(), &HashSet::new())), [] as [Vec<String>; 0]);
    }

    #[test]
    fn a_node_is_changed_before_it_is_deleted() {
        let change = NodeChange { delete: true, ..label("n") };
        let plan = Plan { nodes: vec![change], ..Plan::default() };
        let groups = groups(plan, &cache(), &HashSet::new());
        assert_eq!(shown(&groups), [["node_change n", "node_delete n"]]);
    }
}
