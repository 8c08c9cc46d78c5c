//! From a snapshot to what has to be done.

use std::collections::BTreeMap;

use buffer_api::{CapacityBufferStatus, NodePoolStatus, karpenter::NodeClaimSpec};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Condition};

use crate::{
    assign::assign,
    buffers::{self, Active, Share},
    claims,
    demand::{Group, Source, demand},
    disrupt,
    index::Index,
    lifecycle,
    place::{self, Outcome},
    pools,
    snapshot::{Labels, ObjectKey, Snapshot},
};

/// Reason of the event on a pod or buffer that finds no place.
const FAILED_SCHEDULING: &str = "FailedScheduling";

/// How the planner behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// Feature gate `CapacityBuffer`. Off: buffers are left alone, everything else works.
    pub capacity_buffer: bool,
    /// Look for nodes that have drifted or are underutilised. That takes long, so it is for times at which nothing else happens:
    /// see [`Plan::search`].
    pub search: bool,
}

/// What has to be done. An empty plan means that nothing has to change until [`Plan::wake_up`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Buffer statuses that differ from what is stored.
    pub buffers: Vec<BufferStatus>,
    /// Pool statuses that differ from what is stored.
    pub pools: Vec<PoolStatus>,
    /// Claims to create.
    pub create: Vec<NewClaim>,
    /// Claims whose conditions or node name differ from what is stored.
    pub claims: Vec<ClaimStatus>,
    /// Changes to nodes: registration, initialisation, taints before and after a disruption, finalizers.
    pub nodes: Vec<NodeChange>,
    /// Claims to delete, by name, with the reason.
    pub delete: Vec<DeleteClaim>,
    /// Nodes to drain: pods to evict now.
    pub evict: Vec<Eviction>,
    /// Finalizers to drop from claims, by claim name: `karpenter.sh/termination`, once the node is drained.
    pub release: Vec<String>,
    /// Events to record.
    pub events: Vec<Event>,
    /// All is at rest, and there are nodes that a plan with [`Settings::search`] might find something better for.
    pub search: bool,
    /// When to plan again even if nothing changes; `now` itself means at once, on the state that this plan leaves.
    pub wake_up: Option<Timestamp>,
}

impl Plan {
    /// UIDs of the claims that the plan marks for removal or buys a replacement for: for a while they belong into [`Snapshot::tried`].
    pub fn tries<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a str> {
        let marked = self.nodes.iter().filter(|change| change.add_taints.contains(&disrupt::mark()));
        let provider = |change: &NodeChange| {
            let node = snapshot.nodes.iter().find(|node| node.name == change.name);
            node.and_then(|node| node.provider_id.as_deref())
        };
        let claim = |provider: &str| {
            let mut all = snapshot.claims.iter();
            all.find(|claim| claim.status.provider_id.as_deref() == Some(provider))
        };
        let marked = marked.filter_map(provider).filter_map(claim).map(|claim| claim.uid.as_str());
        let replaced = self.create.iter().filter_map(|claim| claim.annotations.get(claims::REPLACES));
        marked.chain(replaced.flat_map(|uids| uids.split(',')))
    }

    /// Whether carrying it out changes nothing, events apart.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        let Self { buffers, pools, create, claims, nodes, delete, evict, release, .. } = self;
        buffers.is_empty()
            && pools.is_empty()
            && create.is_empty()
            && claims.is_empty()
            && nodes.is_empty()
            && delete.is_empty()
            && evict.is_empty()
            && release.is_empty()
    }
}

/// The whole status that a buffer should have, as far as this controller owns it.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferStatus {
    /// Buffer.
    pub key: ObjectKey,
    /// Status; its conditions are only those that this controller owns.
    pub status: CapacityBufferStatus,
}

/// The whole status that a pool should have, as far as this controller owns it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStatus {
    /// Pool.
    pub name: String,
    /// Status.
    pub status: NodePoolStatus,
}

/// A claim to create. Creating it twice is harmless: its name is a function of the demand.
#[derive(Clone, Debug, PartialEq)]
pub struct NewClaim {
    /// Name.
    pub name: String,
    /// Pool, which becomes its owner.
    pub pool: String,
    /// UID of the pool.
    pub pool_uid: String,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
    /// Spec.
    pub spec: NodeClaimSpec,
}

/// What a claim's status should say, as far as this controller owns it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimStatus {
    /// Claim.
    pub name: String,
    /// `status.nodeName`.
    pub node_name: Option<String>,
    /// Conditions that this controller owns.
    pub conditions: Vec<Condition>,
}

/// A change to a node. The shell reads the node, applies the change and writes it back with its resource version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeChange {
    /// Node.
    pub name: String,
    /// Labels to set.
    pub set_labels: Labels,
    /// Annotations to set.
    pub set_annotations: Labels,
    /// Taints to add (same key and effect replaced).
    pub add_taints: Vec<Taint>,
    /// Taints to remove, by key and effect.
    pub remove_taints: Vec<(String, String)>,
    /// Finalizer to add.
    pub add_finalizer: bool,
    /// Finalizer to drop.
    pub drop_finalizer: bool,
    /// Claim (name, UID) that should own the node.
    pub owner: Option<(String, String)>,
    /// Delete the node (a claim is being deleted).
    pub delete: bool,
}

/// A claim to delete. Voluntary deletions are checked once more against a consistent list of the node's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct DeleteClaim {
    /// Claim.
    pub name: String,
    /// Why.
    pub reason: DeleteReason,
}

/// Why a claim is deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeleteReason {
    /// Nothing runs on its node, and no buffer needs it (voluntary).
    Empty,
    /// It is not as its pool wants it any more, and all that is on its node fits elsewhere (voluntary).
    Drifted,
    /// All that is on its node fits elsewhere, for less (voluntary).
    Underutilized,
    /// It has reached the age at which it is to be replaced.
    Expired,
    /// All its offerings failed.
    InsufficientCapacity,
    /// Its node was deleted.
    NodeGone,
    /// It was not launched, not registered or not ready in time.
    Liveness,
}

impl DeleteReason {
    /// Whether the claim could stay as well. Such a deletion is checked once more against a consistent list of the node's pods.
    #[must_use]
    pub fn is_voluntary(self) -> bool {
        matches!(self, Self::Empty | Self::Drifted | Self::Underutilized)
    }

    /// Name in events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Underutilized => "Underutilized",
            Self::Expired => "Expired",
            Self::InsufficientCapacity => "InsufficientCapacity",
            Self::NodeGone => "NodeGone",
            Self::Liveness => "Liveness",
        }
    }
}

/// A pod to evict through the eviction API, or to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    /// Pod.
    pub pod: ObjectKey,
    /// UID of the pod.
    pub uid: String,
    /// The claim's `terminationGracePeriod` leaves no time to ask: delete the pod with this many seconds of grace.
    pub force: Option<i64>,
}

/// An event to record, at most once in 15 minutes for the same object, reason and message.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What it is about.
    pub about: EventObject,
    /// Reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
    /// Warning rather than Normal.
    pub warning: bool,
}

/// What an event is about.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum EventObject {
    /// A node, by name and UID.
    Node(String, String),
    /// A claim, by name and UID.
    Claim(String, String),
    /// A pool, by name and UID.
    Pool(String, String),
    /// A buffer, by key and UID.
    Buffer(ObjectKey, String),
    /// A pod, by key and UID.
    Pod(ObjectKey, String),
}

/// Decides what has to be done at the time `now`.
///
/// The order of the snapshot's lists does not matter. Planning again after the plan has been carried out gives an empty one, apart from events
/// (repeated as long as they hold); the exceptions are steps that must be seen first (a mark on a node, a deletion), whose plan
/// has its wake-up at `now`. So nobody has to be woken by the echo of a plan's own writes. Nodes are to be changed before
/// statuses are written: the statuses speak of the nodes as they will be.
#[must_use]
pub fn plan(snapshot: &Snapshot, settings: Settings, now: Timestamp) -> Plan {
    let mut index = Index::new(snapshot, now);
    let mut draft = Draft::default();
    let leaving = lifecycle::live(&mut index, &mut draft);
    let index = index;

    let active = if settings.capacity_buffer { buffers::active(snapshot) } else { Vec::new() };
    let chunks = active.iter().enumerate().filter_map(|(at, active)| {
        let chunks = active.resolution.chunks.as_ref()?;
        Some((at, chunks.shape, u64::try_from(chunks.replicas).unwrap_or(0)))
    });
    let groups = demand(&index, &leaving.nodes, chunks);

    let assignment = assign(&index, &leaving, &groups);
    draft.plan.create.clone_from(&assignment.create);
    if let Some(time) = place::next_deadline(&index, &leaving) {
        draft.wake(time);
    }
    let outcomes = &assignment.outcomes;
    if outcomes.iter().any(|outcome| outcome.failed > 0) {
        // An offering that can't be bought now may be what was missing.
        index
            .catalogues
            .iter()
            .filter_map(|catalogue| catalogue.next_available)
            .for_each(|time| draft.wake(time));
    }

    disrupt::disrupt(&index, &leaving, &assignment, &groups, settings.search, &mut draft);
    let shares = buffers::shares(active.len(), &groups, outcomes);
    draft.plan.events.extend(failures(&active, &shares, &groups, outcomes));
    if settings.capacity_buffer {
        draft.plan.buffers = buffers::statuses(snapshot, &active, &shares, now);
    }
    pools::report(&index, &leaving, &mut draft);
    if !draft.plan.delete.is_empty() {
        draft.wake(now);
    }
    draft.finish()
}

/// A warning on each buffer, and on the first pod of each group, that finds no place.
fn failures(
    active: &[Active<'_>],
    shares: &[Share],
    groups: &[Group<'_>],
    outcomes: &[Outcome],
) -> Vec<Event> {
    let mut events = Vec::new();
    for (group, outcome) in groups.iter().zip(outcomes).filter(|(_, outcome)| outcome.failed > 0) {
        let mut warn = |about| {
            let message = outcome.reason.clone().unwrap_or_default();
            events.push(Event { about, reason: FAILED_SCHEDULING, message, warning: true });
        };
        match &group.source {
            Source::Pods(pods) => {
                if let Some(pod) = pods.first() {
                    warn(EventObject::Pod(pod.key.clone(), pod.uid.clone()));
                }
            }
            Source::Buffers(members) => {
                let missing =
                    members.iter().filter(|(at, _)| shares.get(*at).is_some_and(|share| share.failed > 0));
                for buffer in missing.filter_map(|(at, _)| active.get(*at)).map(|active| active.buffer) {
                    warn(EventObject::Buffer(buffer.key.clone(), buffer.uid.clone()));
                }
            }
        }
    }
    events
}

/// A plan in the making.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) plan: Plan,
    nodes: BTreeMap<String, NodeChange>,
}

impl Draft {
    /// The change to a node; all parts of the planner add to the same one.
    pub(crate) fn node(&mut self, name: &str) -> &mut NodeChange {
        self.nodes
            .entry(name.to_owned())
            .or_insert_with(|| NodeChange { name: name.to_owned(), ..NodeChange::default() })
    }

    /// Plans again at that time, if not earlier.
    pub(crate) fn wake(&mut self, time: Timestamp) {
        self.plan.wake_up = Some(self.plan.wake_up.map_or(time, |earliest| earliest.min(time)));
    }

    fn finish(self) -> Plan {
        Plan { nodes: self.nodes.into_values().collect(), ..self.plan }
    }
}
