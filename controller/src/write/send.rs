//! How each write is sent.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use buffer_api::{
    CapacityBuffer, NodeClaim, NodePool,
    labels::{INSTANCE_FINALIZER, TERMINATION_FINALIZER},
};
use buffer_core::plan::{NewClaim, NodeChange};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Action, Current, Group, MANAGER, Write, node::owner};
use crate::{
    cache::{Change, Observed, Op, Slim},
    convert::{self, Interner},
    error::request_text,
    kind::{Kind, ObjectRef},
    leader::Fenced,
    metrics::Metrics,
    watch::LIVE_PODS,
};

/// Writes at the same time.
const AT_ONCE: usize = 32;
/// Longest time for one write, repetitions included.
const LONGEST: Duration = Duration::from_secs(10);
/// How often a change is made anew because somebody else was quicker.
const CONFLICTS: usize = 5;

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server said no, or could not be reached.
    #[error("{}", request_text(.0))]
    Api(kube::Error),
    /// No answer in time.
    #[error("no answer within {} s", LONGEST.as_secs())]
    Timeout,
    /// The answer makes no sense.
    #[error("reading the answer")]
    Convert(#[from] convert::Error),
}

// not by thiserror, which would make it a source too and so repeat its text
impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

impl Error {
    /// Bounded name for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Api(kube::Error::Api(status)) => match status.code {
                403 => "forbidden",
                404 => "not_found",
                409 => "conflict",
                422 => "invalid",
                429 => "too_many_requests",
                500.. => "server",
                _ => "client",
            },
            Self::Api(kube::Error::Service(error)) if error.is::<Fenced>() => "fenced",
            Self::Api(_) => "connection",
            Self::Timeout => "timeout",
            Self::Convert(_) => "answer",
        }
    }

    fn code(&self) -> u16 {
        match self {
            Self::Api(kube::Error::Api(status)) => status.code,
            _ => 0,
        }
    }

    fn is_already_there(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.reason == "AlreadyExists")
    }

    /// Longest rest of an object after this error: a disruption budget may allow an eviction any time.
    pub fn longest_rest(&self) -> Duration {
        Duration::from_secs(if self.code() == 429 { 10 } else { 60 })
    }
}

/// What came of a group.
#[derive(Debug)]
pub struct Outcome {
    /// The group's objects.
    pub objects: Vec<ObjectRef>,
    /// What the answers say.
    pub changes: Vec<Change>,
    /// Claims whose nodes' pods were listed anew.
    pub verified: Vec<String>,
    /// Objects to leave alone until the watch shows what has become of them.
    pub hold: Vec<ObjectRef>,
    /// The write that failed.
    pub failed: Option<(ObjectRef, &'static str, Error)>,
}

/// What the API server did with one write.
enum Done {
    /// It was carried out, with these answers.
    Answered(Vec<Change>),
    /// It was carried out, but the answer does not show the object.
    Unseen,
    /// The object is gone, or another one by now.
    Gone,
    /// The object was there already.
    AlreadyThere,
}

/// Puts a plan's changes to nodes before the writes that rely on them.
#[derive(Debug)]
pub struct NodesFirst {
    changed: CancellationToken,
    failed: Arc<AtomicBool>,
    guard: Arc<DropGuard>,
}

impl NodesFirst {
    /// For one plan. Drop it when all of the plan's turns are given out.
    pub fn new() -> Self {
        let changed = CancellationToken::new();
        let guard = Arc::new(changed.clone().drop_guard());
        Self { changed, failed: Arc::default(), guard }
    }

    /// The turn of a group.
    pub fn turn(&self, group: &Group) -> Turn {
        if group.changes_nodes() {
            Turn::First { failed: Arc::clone(&self.failed), _guard: Arc::clone(&self.guard) }
        } else if group.waits_for_nodes() {
            Turn::After { changed: self.changed.clone(), failed: Arc::clone(&self.failed) }
        } else {
            Turn::Any
        }
    }
}

/// When a group may go.
#[derive(Debug)]
pub enum Turn {
    /// It changes nodes.
    First {
        /// Set if a write fails.
        failed: Arc<AtomicBool>,
        /// Others wait until all of these are gone.
        _guard: Arc<DropGuard>,
    },
    /// It waits for the changes to nodes, and is dropped if one of them fails.
    After {
        /// Cancelled when they are through.
        changed: CancellationToken,
        /// Whether one has failed.
        failed: Arc<AtomicBool>,
    },
    /// Any time.
    Any,
}

/// Sends writes, a bounded number at the same time.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    interner: Arc<Interner>,
    metrics: Metrics,
    permits: Arc<Semaphore>,
}

impl Writer {
    /// A writer; `interner` shares shapes with the watch of pods.
    pub fn new(client: Client, interner: Arc<Interner>, metrics: Metrics) -> Self {
        Self { client, interner, metrics, permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Carries out a group, when it is its turn.
    pub async fn send(self, group: Group, turn: Turn) -> Outcome {
        let mut outcome = Outcome {
            objects: group.objects,
            changes: Vec::new(),
            verified: Vec::new(),
            hold: Vec::new(),
            failed: None,
        };
        if let Turn::After { changed, failed } = &turn {
            changed.cancelled().await;
            if failed.load(Ordering::Relaxed) {
                return outcome;
            }
        }
        // the semaphore is never closed
        let _permit = self.permits.acquire().await;
        for write in group.writes {
            let name = write.action.name();
            let sent = tokio::time::timeout(LONGEST, self.carry_out(&write)).await;
            let sent = sent.unwrap_or(Err(Error::Timeout));
            let result = match &sent {
                Ok(Done::Answered(_) | Done::Unseen) => "ok",
                Ok(Done::Gone) => "gone",
                Ok(Done::AlreadyThere) => "already_there",
                Err(error) => error.kind(),
            };
            self.metrics.write(name, result);
            match sent {
                Ok(Done::Answered(changes)) => {
                    outcome.changes.extend(changes);
                    if matches!(write.action, Action::Verify { .. }) {
                        outcome.verified.push(write.object.key.name);
                    }
                }
                Ok(Done::AlreadyThere) => {}
                Ok(Done::Unseen | Done::Gone) => outcome.hold.push(write.object),
                Err(error) => {
                    if matches!(write.action, Action::Create(_)) {
                        outcome.changes.push(Change::Claim(Op::Retracted(write.object.clone())));
                    }
                    if let Turn::First { failed, .. } = &turn {
                        failed.store(true, Ordering::Relaxed);
                    }
                    outcome.failed = Some((write.object, name, error));
                    break;
                }
            }
        }
        outcome
    }

    async fn carry_out(&self, write: &Write) -> Result<Done, Error> {
        let done = self.dispatch(write).await;
        match done {
            Err(error) if error.code() == 404 => Ok(Done::Gone),
            // a precondition on the UID has failed
            Err(error) if error.code() == 409 && write.action.has_uid_precondition() => Ok(Done::Gone),
            Err(error) if error.is_already_there() => Ok(Done::AlreadyThere),
            done => done,
        }
    }

    async fn dispatch(&self, write: &Write) -> Result<Done, Error> {
        let key = &write.object.key;
        match &write.action {
            Action::BufferStatus { uid, status } => {
                let api = Api::namespaced(self.client.clone(), &key.namespace);
                let buffer: CapacityBuffer = apply_status(&api, &key.name, uid, json!(status)).await?;
                Ok(answered(convert::buffer(buffer)))
            }
            Action::PoolStatus { uid, status } => {
                let pool: NodePool = apply_status(&self.all(), &key.name, uid, json!(status)).await?;
                Ok(answered(convert::pool(pool)))
            }
            Action::ClaimStatus { uid, status } => {
                let mut fields = json!({"conditions": status.conditions});
                if let Some(node) = &status.node_name {
                    fields["nodeName"] = json!(node);
                }
                let claim: NodeClaim = apply_status(&self.all(), &key.name, uid, fields).await?;
                Ok(answered(convert::claim(claim)))
            }
            Action::Create(new) => {
                let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                let claim = self.all().create(&params, &claim(new)).await?;
                Ok(answered(convert::claim(claim)))
            }
            Action::Node(change, current) => self.change_node(change, current).await,
            Action::DeleteNode { uid } => {
                let deleted = self.all::<Node>().delete(&key.name, &precondition(uid)).await?;
                deletion(deleted.left(), convert::node)
            }
            Action::DeleteClaim { uid } => {
                let deleted = self.all::<NodeClaim>().delete(&key.name, &precondition(uid)).await?;
                deletion(deleted.left(), |claim| Ok(convert::claim(claim)))
            }
            Action::Verify { node } => self.list_pods(node).await,
            Action::Evict { uid, force: Some(seconds) } => {
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                let seconds = u32::try_from(*seconds).unwrap_or(u32::MAX);
                let params = DeleteParams { grace_period_seconds: Some(seconds), ..precondition(uid) };
                api.delete(&key.name, &params).await?;
                Ok(Done::Unseen)
            }
            Action::Evict { uid, force: None } => {
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                let params =
                    EvictParams { delete_options: Some(precondition(uid)), ..EvictParams::default() };
                api.evict(&key.name, &params).await?;
                Ok(Done::Unseen)
            }
            Action::Release { version, finalizers } => self.release(&key.name, *version, finalizers).await,
        }
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Changes a node as it is known, and, where somebody else has changed it meanwhile, as it is by now.
    async fn change_node(&self, change: &NodeChange, known: &Current) -> Result<Done, Error> {
        let api = self.all::<Node>();
        let mut fresh = None;
        for attempt in 0.. {
            let Some(patch) = fresh.as_ref().unwrap_or(known).patch(change) else { break };
            match patch_metadata(&api, &change.name, &patch).await {
                Err(error) if error.code() == 409 && attempt < CONFLICTS => {
                    let node = convert::node(api.get(&change.name).await?)?;
                    fresh = Some(Current::new(node.version, &node.owners, &node.value));
                }
                node => return Ok(answered(convert::node(node?)?)),
            }
        }
        // somebody else has done all of it; the watch shows it
        Ok(Done::Unseen)
    }

    /// Drops our finalizer from a claim as it is known, and, where somebody else has changed it meanwhile, as it is by now.
    async fn release(&self, name: &str, version: u64, finalizers: &[String]) -> Result<Done, Error> {
        let api = self.all::<NodeClaim>();
        let (mut version, mut finalizers) = (version, finalizers.to_vec());
        for attempt in 0.. {
            finalizers.retain(|finalizer| finalizer != TERMINATION_FINALIZER);
            let metadata = json!({"resourceVersion": version.to_string(), "finalizers": finalizers});
            match patch_metadata(&api, name, &json!({"metadata": metadata})).await {
                Err(error) if error.code() == 409 && attempt < CONFLICTS => {
                    let claim = convert::claim(api.get(name).await?);
                    (version, finalizers) = (claim.version, claim.value.finalizers);
                }
                claim => return Ok(answered(convert::claim(claim?))),
            }
        }
        Ok(Done::Unseen)
    }

    /// All live pods of a node, read consistently.
    async fn list_pods(&self, node: &str) -> Result<Done, Error> {
        let params = ListParams::default().fields(&format!("spec.nodeName={node},{LIVE_PODS}"));
        let pods = self.all::<Pod>().list(&params).await?;
        let now = Timestamp::now();
        let changes = pods.items.into_iter().map(|pod| {
            let pod = convert::pod(pod, &self.interner, now)?;
            Ok(Change::Pod(Op::Answered(pod)))
        });
        Ok(Done::Answered(changes.collect::<Result<_, Error>>()?))
    }
}

impl Action {
    fn has_uid_precondition(&self) -> bool {
        matches!(self, Self::DeleteNode { .. } | Self::DeleteClaim { .. } | Self::Evict { .. })
    }
}

fn answered<T: Slim>(object: Observed<T>) -> Done {
    Done::Answered(vec![T::change(Op::Answered(object))])
}

/// The answer to a deletion: the object as it waits for its finalizers, or nothing if it is gone.
fn deletion<K, T: Slim>(
    answer: Option<K>,
    convert: impl Fn(K) -> Result<Observed<T>, convert::Error>,
) -> Result<Done, Error> {
    match answer {
        Some(object) => Ok(answered(convert(object)?)),
        None => Ok(Done::Gone),
    }
}

fn precondition(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams::default().preconditions(preconditions)
}

/// Applies our part of a status; other managers' conditions and fields stay.
async fn apply_status<K>(api: &Api<K>, name: &str, uid: &str, status: Value) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    // with the UID, a new object of the same name does not get the status of the old one
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "uid": uid},
        "status": status,
    });
    let params = PatchParams::apply(MANAGER).force();
    Ok(api.patch_status(name, &params, &Patch::Apply(body)).await?)
}

async fn patch_metadata<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    Ok(api.patch(name, &params, &Patch::Merge(patch)).await?)
}

/// The claim to create, with the finalizers of both sides: the instance can't be bought and forgotten.
fn claim(new: &NewClaim) -> NodeClaim {
    NodeClaim {
        metadata: ObjectMeta {
            name: Some(new.name.clone()),
            labels: Some(new.labels.clone()),
            annotations: Some(new.annotations.clone()),
            finalizers: Some(vec![TERMINATION_FINALIZER.to_owned(), INSTANCE_FINALIZER.to_owned()]),
            owner_references: Some(vec![owner::<NodePool>(&new.pool, &new.pool_uid)]),
            ..ObjectMeta::default()
        },
        spec: new.spec.clone(),
        status: None,
    }
}

/// What a claim that is being created will look like.
pub fn predicted(new: &NewClaim, now: Timestamp) -> Change {
    let value = buffer_core::snapshot::Claim {
        name: new.name.clone(),
        labels: new.labels.clone(),
        annotations: new.annotations.clone(),
        created: Some(now),
        finalizers: vec![TERMINATION_FINALIZER.to_owned(), INSTANCE_FINALIZER.to_owned()],
        spec: new.spec.clone(),
        ..buffer_core::snapshot::Claim::default()
    };
    Change::Claim(Op::Predicted(ObjectRef::cluster(Kind::Claim, &new.name), value))
}
