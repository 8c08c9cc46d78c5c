//! Instances that are containers of a kind cluster.

use std::{path::PathBuf, sync::Arc, time::Duration};

use buffer_api::{NodeClaim, conditions::claim::JOIN_FAILED, fake_node_class::Backend};
use buffer_client::chain;
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Node, Pod, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PostParams},
    runtime::reflector::ObjectRef,
};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};
use tracing::{debug, info, warn};

use super::{World, claims, lock, machine, patched};
use crate::{
    claim::{self, Launched},
    error::{Error, doing, is_gone},
    kind::{
        ATTEMPT, BACKEND, Docker, Error as DockerError, Join, Machine, Owner, Size, Template, container,
        container_name, last_lines, may_be_set_by_kubelet,
    },
    node,
    rules::Labels,
};

/// How long a join may take once the container has booted.
const JOIN_PATIENCE: Duration = Duration::from_mins(3);
/// How long the Node of a kubelet that has joined may take to appear: `kubeadm join` can return before.
const NODE_PATIENCE: Duration = Duration::from_mins(1);
/// How often something is looked for that nobody tells of.
const LOOK: Duration = Duration::from_millis(200);
/// How often containers without a claim are looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// How long a claim must be away before its container is removed.
const ORPHANED_FOR: Duration = Duration::from_secs(10);
/// How long the kubelet of a machine that is taken away may take to tell the end of its pods.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How many lines of a failed join the claim tells.
const TOLD: usize = 5;
/// The longest wait between two attempts to join.
const LONGEST_BACK_OFF: Duration = Duration::from_mins(1);
/// How long a bootstrap token is good for, should it stay behind.
const TOKEN_LIFE: jiff::SignedDuration = jiff::SignedDuration::from_mins(15);

/// The kind cluster whose nodes claims become.
pub(super) struct Kind {
    /// Its name.
    cluster: String,
    /// The name of this cloud in provider ids.
    cloud: String,
    /// Folder of the logs of joins that failed.
    logs: Option<PathBuf>,
    /// Joins at the same time: unpacking and booting are bound by the disk.
    joins: Semaphore,
    docker: Mutex<Option<Docker>>,
}

impl Kind {
    pub(super) fn new(cluster: String, cloud: String, logs: Option<PathBuf>, joins: usize) -> Self {
        Self { cluster, cloud, logs, joins: Semaphore::new(joins), docker: Mutex::default() }
    }

    /// The daemon, connected to once it is needed.
    async fn docker(&self) -> Result<Docker, DockerError> {
        let mut docker = self.docker.lock().await;
        if let Some(docker) = &*docker {
            return Ok(docker.clone());
        }
        Ok(docker.insert(Docker::connect().await?).clone())
    }

    async fn template(&self) -> Result<Template, DockerError> {
        self.docker().await?.template(&self.cluster).await
    }

    async fn machines(&self, uid: Option<&str>) -> Result<Vec<Machine>, DockerError> {
        self.docker().await?.machines(&self.cluster, &self.cloud, uid).await
    }
}

/// Why kind nodes can't be had here, if they can't.
pub(super) async fn unavailable(world: &World) -> Option<String> {
    let Some(kind) = &world.kind else {
        return Some("the cloud knows of no kind cluster; start it with --kind-cluster".to_owned());
    };
    kind.template().await.err().map(|error| chain(&error))
}

/// Whether a claim's instance is a container: one was made, or its class says so.
pub(super) fn is_kind(world: &World, claim: &NodeClaim) -> bool {
    claim.annotations().contains_key(ATTEMPT)
        || world.class_of(claim).is_some_and(|class| world.backend_of(&class) == Backend::Kind)
}

/// Whether a node is a container.
pub(super) fn is_kind_node(node: &Node) -> bool {
    node.labels().get(BACKEND).is_some_and(|backend| backend == "kind")
}

/// Makes a container and has it join the cluster as the claim's Node. A container that an earlier process has left is
/// adopted if its Node is there; else it is removed, for nobody can tell how far its join has come.
pub(super) async fn start(world: &World, claim: &NodeClaim) -> Result<(), Error> {
    let Some(kind) = &world.kind else { return Ok(()) };
    let (name, uid) = (claim::name(claim), claim::uid(claim));
    let Ok(_turn) = kind.joins.acquire().await else { return Ok(()) };
    if !is_wanted(world, name, uid) {
        return Ok(());
    }
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node = nodes.get_opt(name).await.map_err(doing("reading a node"))?;
    if let Some(node) = node {
        if world.claim_uid_of(&node) != Some(uid) {
            return Err(Error::ForeignNode(name.to_owned()));
        }
        // the watch is about to show it
        return Ok(());
    }
    let attempt = attempt(claim) + 1;
    let cleared = async {
        for old in kind.machines(Some(uid)).await? {
            kind.docker().await?.remove(&old.name).await?;
        }
        kind.template().await
    };
    let template = match cleared.await {
        Ok(template) => template,
        Err(error) => return failed(world, claim, None, &error.into()).await,
    };
    // the number is written first: whoever comes next uses another one, and another name
    let Some(claim) = count(world, claim, attempt).await? else { return Ok(()) };
    let owner = Owner { cloud: &kind.cloud, claim: name, uid, attempt };
    let container = container_name(&kind.cluster, owner);
    let unwanted = async {
        while is_wanted(world, name, uid) {
            tokio::time::sleep(LOOK).await;
        }
    };
    let joined = tokio::select! {
        joined = join(world, kind, &claim, &template, owner) => joined,
        // its deletion takes the container away
        () = unwanted => return Ok(()),
    };
    match joined {
        Ok(()) => {
            info!(claim = name, container, "joined");
            Ok(())
        }
        Err(error) => failed(world, &claim, Some(&container), &error).await,
    }
}

/// Whether the claim is there, and to stay, as the watch shows it.
fn is_wanted(world: &World, name: &str, uid: &str) -> bool {
    let claim = world.claims.get(&ObjectRef::new(name));
    claim.is_some_and(|claim| claim::uid(&claim) == uid && claim.metadata.deletion_timestamp.is_none())
}

/// How many attempts were made for a claim.
fn attempt(claim: &NodeClaim) -> u32 {
    claim.annotations().get(ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Writes the number of the attempt; `None` if the claim has changed meanwhile.
async fn count(world: &World, claim: &NodeClaim, attempt: u32) -> Result<Option<Arc<NodeClaim>>, Error> {
    let patch = json!({"metadata": {
        "uid": claim.metadata.uid,
        "annotations": {ATTEMPT: attempt.to_string()},
    }});
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    match claims.patch(claim::name(claim), &patched(), &Patch::Merge(patch)).await {
        Ok(claim) => Ok(Some(world.own_claims.put(claim))),
        Err(error) if is_gone(&error) || crate::error::is_stale(&error) => Ok(None),
        Err(error) => Err(doing("counting an attempt")(error)),
    }
}

/// From nothing to a Node with all its labels.
async fn join(
    world: &World,
    kind: &Kind,
    claim: &NodeClaim,
    template: &Template,
    owner: Owner<'_>,
) -> Result<(), Error> {
    let instance = claim::instance(claim).unwrap_or_default();
    let size = Size::of(&instance)?;
    let mut labels: Labels = claim.metadata.labels.clone().unwrap_or_default();
    labels.extend(instance.labels);
    labels.insert(BACKEND.to_owned(), "kind".to_owned());
    labels.insert(buffer_api::labels::HOSTNAME.to_owned(), owner.claim.to_owned());
    // first of all: the controller manager needs a moment to sign for it
    let token = Token::create(world, owner.claim).await?;
    let command = Join {
        endpoint: &template.endpoint,
        token: &token.value,
        node: owner.claim,
        provider_id: &world.identity.provider_id(owner.uid),
        labels: &labels,
        taints: &node::taints(claim),
        size,
    }
    .command();
    let joined = execute(kind, template, owner, command).await;
    token.remove(world).await?;
    joined?;
    let appeared = async {
        while world.nodes.get(&ObjectRef::new(owner.claim)).is_none() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(NODE_PATIENCE, appeared).await.map_err(|_| Error::Late("the Node"))?;
    let rest: Labels = labels.into_iter().filter(|(key, _)| !may_be_set_by_kubelet(key)).collect();
    if !rest.is_empty() {
        let nodes: Api<Node> = Api::all(world.client.clone());
        let patch = json!({"metadata": {"labels": rest}});
        nodes
            .patch(owner.claim, &patched(), &Patch::Merge(patch))
            .await
            .map_err(doing("labelling a node"))?;
    }
    Ok(())
}

/// Makes a container, and runs a command in it once it has booted.
async fn execute(
    kind: &Kind,
    template: &Template,
    owner: Owner<'_>,
    command: Vec<String>,
) -> Result<(), Error> {
    let docker = kind.docker().await?;
    let name = container_name(&kind.cluster, owner);
    docker.start(&name, container(template, &kind.cluster, owner)).await?;
    docker.booted(&name).await?;
    let ended = tokio::time::timeout(JOIN_PATIENCE, docker.execute(&name, command)).await;
    ended.map_err(|_| Error::Late("kubeadm join"))??;
    Ok(())
}

/// What is done about a join that failed: the container goes with all that it did, its log is kept, the claim tells the end
/// of it, and after a while there is another attempt.
async fn failed(
    world: &World,
    claim: &NodeClaim,
    container: Option<&str>,
    error: &Error,
) -> Result<(), Error> {
    let (name, uid) = (claim::name(claim), claim::uid(claim));
    let mut why = chain(error);
    if let Some(output) = error.output() {
        why = format!("{why}: {}", last_lines(output, TOLD));
        if let (Some(kind), Some(container)) = (&world.kind, container) {
            kind.keep_log(container, output).await?;
        }
    }
    if let (Some(kind), Some(container)) = (&world.kind, container) {
        let removed = async { kind.docker().await?.remove(container).await };
        if let Err(error) = removed.await {
            // the next attempt begins with it
            warn!(container, error = chain(&error), "can't be removed");
        }
    }
    let nodes: Api<Node> = Api::all(world.client.clone());
    if let Some(node) = nodes.get_opt(name).await.map_err(doing("reading a node"))?
        && world.claim_uid_of(&node) == Some(uid)
    {
        machine::delete(world, &node).await?;
    }
    let wait = {
        let mut fleet = lock(&world.fleet);
        let instance = fleet.instance(uid, Timestamp::now());
        let wait = Duration::from_secs(1 << instance.joins.min(6)).min(LONGEST_BACK_OFF);
        instance.joins += 1;
        instance.born = false;
        instance.unseen = false;
        instance.retry = Some(Timestamp::now() + wait);
        wait
    };
    warn!(claim = name, why, "the join failed, it is tried again in {} s", wait.as_secs());
    let message = format!("attempt {}: {why}", attempt(claim));
    let provider_id = world.identity.provider_id(uid);
    let instance = claim::instance(claim).unwrap_or_default();
    let unknown = Launched { status: "Unknown", reason: JOIN_FAILED, message: &message };
    let newest = world.own_claims.newest(Arc::new(claim.clone()));
    let status = claim::status(&newest, Some((&provider_id, &instance)), unknown, Timestamp::now());
    claims::write(world, &newest, status).await?;
    Ok(())
}

impl Kind {
    /// Keeps the whole log of a join that failed.
    async fn keep_log(&self, container: &str, log: &str) -> Result<(), Error> {
        let Some(folder) = &self.logs else { return Ok(()) };
        let path = folder.join(format!("{container}.log"));
        let failed = |source| Error::Log { path: path.clone(), source };
        tokio::fs::create_dir_all(folder).await.map_err(failed)?;
        let mut file = tokio::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .await
            .map_err(failed)?;
        tokio::io::AsyncWriteExt::write_all(&mut file, log.as_bytes()).await.map_err(failed)?;
        tokio::io::AsyncWriteExt::flush(&mut file).await.map_err(failed)
    }
}

/// Takes all containers of a claim away, once the kubelet has told the end of its last pods: a machine takes a while to shut
/// down.
pub(super) async fn stop(world: &World, claim: &NodeClaim) -> Result<(), Error> {
    let machines = machines(world, claim::uid(claim)).await?;
    if machines.iter().any(|machine| machine.running)
        && tokio::time::timeout(LAST_WORDS, ended(world, claim::name(claim))).await.is_err()
    {
        warn!(claim = claim::name(claim), "its kubelet does not end its pods, it is not waited for");
    }
    remove(world, machines).await
}

/// The containers of a claim.
async fn machines(world: &World, uid: &str) -> Result<Vec<Machine>, Error> {
    match &world.kind {
        Some(kind) => Ok(kind.machines(Some(uid)).await?),
        None => Ok(Vec::new()),
    }
}

/// Waits until no pod that is being deleted is left on a node.
async fn ended(world: &World, node: &str) {
    let pods: Api<Pod> = Api::all(world.client.clone());
    let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
    loop {
        match pods.list(&there).await {
            Ok(pods) if pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()) => return,
            Ok(_) => {}
            Err(error) => debug!(node, error = chain(&error), "its pods can't be listed"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn remove(world: &World, machines: Vec<Machine>) -> Result<(), Error> {
    let Some(kind) = &world.kind else { return Ok(()) };
    for machine in machines {
        kind.docker().await?.remove(&machine.name).await?;
        info!(container = machine.name, "removed");
    }
    Ok(())
}

/// What a fault of its class asks for is done to the machine of a claim.
pub(super) async fn strike(world: &World, uid: &str, harm: Harm) -> Result<(), Error> {
    let machines = machines(world, uid).await?;
    let Some(kind) = &world.kind else { return Ok(()) };
    if harm == Harm::Gone {
        return remove(world, machines).await;
    }
    let frozen = harm == Harm::Frozen;
    for machine in machines.into_iter().filter(|machine| machine.running && machine.frozen != frozen) {
        info!(container = machine.name, frozen, "frozen, or thawed");
        kind.docker().await?.freeze(&machine.name, frozen).await?;
    }
    Ok(())
}

/// What a fault does to a machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Harm {
    /// Nothing: it runs, again if it was frozen.
    None,
    /// All its processes stand still.
    Frozen,
    /// It is gone.
    Gone,
}

/// Whether the machine of a claim is there and runs.
pub(super) async fn runs(world: &World, uid: &str) -> Result<bool, Error> {
    Ok(machines(world, uid).await?.iter().any(|machine| machine.running))
}

/// Removes what a cloud that was killed has left behind: containers whose claim is gone, and those of an attempt that is not the
/// claim's last one. Docker may have made such a container after its successor had looked for it. Two live reads, ten seconds
/// apart, must have said so.
pub(super) async fn sweep(world: Arc<World>) {
    world.synced().await;
    let Some(kind) = &world.kind else { return std::future::pending().await };
    let mut before = Vec::new();
    loop {
        let orphans = match orphans(&world, kind).await {
            Ok(orphans) => orphans,
            Err(error) => {
                warn!(error = chain(&error), "containers that no claim has can't be looked for");
                Vec::new()
            }
        };
        for orphan in orphans.iter().filter(|orphan| before.contains(*orphan)) {
            let removed = async { kind.docker().await?.remove(&orphan.name).await };
            match removed.await {
                Ok(()) => info!(container = orphan.name, "removed, no claim has it"),
                Err(error) => warn!(container = orphan.name, error = chain(&error), "can't be removed"),
            }
        }
        let wait = if orphans.is_empty() { SWEEP } else { ORPHANED_FOR };
        before = orphans;
        tokio::time::sleep(wait).await;
    }
}

async fn orphans(world: &World, kind: &Kind) -> Result<Vec<Machine>, Error> {
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let mut orphans = Vec::new();
    for machine in kind.machines(None).await? {
        let claim = claims.get_opt(&machine.claim).await.map_err(doing("looking for a claim"))?;
        let is_its = |claim: &NodeClaim| {
            claim::uid(claim) == machine.uid && claim.annotations().get(ATTEMPT) == Some(&machine.attempt)
        };
        if !claim.as_ref().is_some_and(is_its) {
            orphans.push(machine);
        }
    }
    Ok(orphans)
}

/// A bootstrap token that one node joins with.
struct Token {
    id: String,
    value: String,
}

impl Token {
    /// Makes one. Its secret is as random as a UUID.
    async fn create(world: &World, node: &str) -> Result<Self, Error> {
        let random = uuid::Uuid::new_v4().simple().to_string();
        let (id, secret) = (&random[..6], &random[16..]);
        let expiration = (Timestamp::now() + TOKEN_LIFE).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let data = [
            ("token-id", id),
            ("token-secret", secret),
            ("description", &format!("for the node {node}")),
            ("expiration", &expiration),
            ("usage-bootstrap-authentication", "true"),
            ("usage-bootstrap-signing", "true"),
            // kubeadm binds the rights to join to this group
            ("auth-extra-groups", "system:bootstrappers:kubeadm:default-node-token"),
        ];
        let secret_object = Secret {
            metadata: ObjectMeta { name: Some(format!("bootstrap-token-{id}")), ..ObjectMeta::default() },
            type_: Some("bootstrap.kubernetes.io/token".to_owned()),
            data: Some(
                data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec()))).into(),
            ),
            ..Secret::default()
        };
        let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "kube-system");
        secrets
            .create(&PostParams::default(), &secret_object)
            .await
            .map_err(doing("creating a bootstrap token"))?;
        Ok(Self { id: id.to_owned(), value: format!("{id}.{secret}") })
    }

    async fn remove(&self, world: &World) -> Result<(), Error> {
        let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "kube-system");
        match secrets.delete(&format!("bootstrap-token-{}", self.id), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(doing("removing a bootstrap token")(error)),
        }
    }
}
