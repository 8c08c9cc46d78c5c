//! The kubelets of hollow nodes, and what becomes of nodes whose claim is gone.

use std::{sync::Arc, time::Duration};

use buffer_api::{NodeClaim, conditions::claim::LAUNCHED};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{
    Api, ResourceExt,
    api::Patch,
    runtime::{controller::Action, reflector::ObjectRef},
};
use serde_json::json;
use tracing::{info, warn};

use super::{
    World,
    fleet::Kubelet,
    heart::{self, Command},
    is_adopted,
    kind::{self, Harm},
    lock, machine, patched,
    watch::wake,
};
use crate::{
    claim::{self, elapsed, remaining},
    error::{Error, doing, is_gone, is_stale},
    node::{self, next_report, ready_condition},
    rules::{Fate, Phase, Rules},
};

/// How long a claim must be away before its node is deleted.
const ORPHANED_FOR: Duration = Duration::from_secs(10);
/// A node younger than this probably has no lease yet, so that creating one is tried first.
const NEWBORN: Duration = Duration::from_secs(30);
/// When to look again at a node that was replaced while its kubelet reported; the watch shows it sooner.
const SETTLED: Duration = Duration::from_secs(5);
/// Taint by which Kubernetes is told that a node will not come back, so that its pods can be given up.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Looks at a node.
pub(super) async fn look(node: Arc<Node>, world: Arc<World>) -> Result<Action, Error> {
    let now = Timestamp::now();
    let Some(uid) = world.claim_uid_of(&node) else {
        if world.adopt && is_adopted(&node) {
            return live(&world, &node, true, now).await.map(Action::requeue);
        }
        return Ok(Action::await_change());
    };
    if lock(&world.fleet).known(uid).is_some_and(|instance| instance.away) {
        return Ok(Action::await_change());
    }
    let is_kind = kind::is_kind_node(&node);
    let claim = world.claims.get(&ObjectRef::new(&node.name_any()));
    let Some(claim) = claim.filter(|claim| claim::uid(claim) == uid) else {
        return orphan(&world, &node, uid, now).await;
    };
    let rules = world.rules_of(&claim);
    let fate = world.fate_of(&claim, &rules);
    let silence = silence(&claim, fate, now);
    if is_kind {
        return real(&world, &node, uid, silence, fate).await;
    }
    if silence == Some(Duration::ZERO) {
        return silent(&world, &node, fate).await;
    }
    let starting = starting(&world, &node, &claim, &rules, fate, now);
    let next = live(&world, &node, !fate.never_ready && starting.is_none(), now).await?;
    Ok(Action::requeue([silence, starting].into_iter().flatten().fold(next, Duration::min)))
}

/// How long until the kubelet falls silent, if it ever does.
fn silence(claim: &NodeClaim, fate: Fate, now: Timestamp) -> Option<Duration> {
    let since = claim::condition(claim, LAUNCHED).map_or(now, |c| c.last_transition_time.0);
    let after = [fate.crash, fate.disappear].into_iter().flatten().min()?;
    Some(after.saturating_sub(elapsed(since, now)))
}

/// How long until a kubelet that is starting is ready. One that was ready once stays so.
fn starting(
    world: &World,
    node: &Node,
    claim: &NodeClaim,
    rules: &Rules,
    fate: Fate,
    now: Timestamp,
) -> Option<Duration> {
    if ready_condition(node).is_some_and(|c| c.status != "False") {
        return None;
    }
    let created = node.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let seen = *lock(&world.fleet).instance(claim::uid(claim), now).marks.registered.get_or_insert(now);
    remaining(rules.delay(Phase::Ready, claim::name(claim), fate), created, seen, now)
}

/// The kubelet of a node that is up: it reports, keeps its lease, and once it is ready runs pods. Answers when it has to
/// report again.
async fn live(world: &World, node: &Node, ready: bool, now: Timestamp) -> Result<Duration, Error> {
    let (name, uid) = (node.name_any(), node.uid().unwrap_or_default());
    let ip = {
        let mut fleet = lock(&world.fleet);
        let owner = world.address_owner(node).unwrap_or_else(|| uid.clone());
        node::address(node).or_else(|| fleet.addresses.assign(&owner))
    };
    let ip = ip.ok_or_else(|| Error::Addresses(format!("the node {name}")))?;
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
    let newborn = elapsed(created, now) < NEWBORN;
    heart::tell(&world.heart, Command::Beat { node: name.clone(), uid, newborn });

    let mut next = next_report(node, now);
    if let Some(patch) = world.kubelet.report(node, ip, ready, now) {
        let nodes: Api<Node> = Api::all(world.client.clone());
        match nodes.patch_status(&name, &patched(), &Patch::Strategic(patch)).await {
            Ok(node) => next = next_report(&node, now),
            // gone, or another one of its name
            Err(error) if is_gone(&error) || is_stale(&error) => return Ok(next.max(SETTLED)),
            Err(error) => return Err(doing("reporting the status of a node")(error)),
        }
    }
    let before = lock(&world.fleet).kubelets.insert(name.clone(), Kubelet { running: ready, ip });
    if ready && before.is_none_or(|kubelet| !kubelet.running) {
        // it starts, or comes back: its pods have been waiting
        for pod in lock(&world.ledger).on(&name) {
            wake(&world.wake_pods, pod);
        }
    }
    Ok(next)
}

/// The kubelet of a node is silent. If the machine is gone, then, as a cloud controller manager does, the node is deleted
/// once Kubernetes has noticed the silence.
async fn silent(world: &World, node: &Node, fate: Fate) -> Result<Action, Error> {
    let name = node.name_any();
    lock(&world.fleet).kubelets.remove(&name);
    heart::stop(&world.heart, &name);
    let noticed = ready_condition(node).is_some_and(|c| c.status == "Unknown");
    let leaving = node.metadata.deletion_timestamp.is_some();
    if takes_the_machine(fate) && noticed && !leaving {
        warn!(node = name, "the instance has disappeared, its node is deleted");
        give_up(world, node).await?;
        machine::delete(world, node).await?;
    }
    Ok(Action::await_change())
}

/// Whether the machine is gone once its kubelet is silent. A crash leaves it where it is.
fn takes_the_machine(fate: Fate) -> bool {
    fate.disappear.is_some_and(|after| fate.crash.is_none_or(|crash| after <= crash))
}

/// A node with a real kubelet. What a fault asks for is done to its container; and if that is gone, by whomever, the node is
/// deleted once Kubernetes has noticed the silence.
async fn real(
    world: &World,
    node: &Node,
    uid: &str,
    silence: Option<Duration>,
    fate: Fate,
) -> Result<Action, Error> {
    let harm = match silence {
        Some(Duration::ZERO) if takes_the_machine(fate) => Harm::Gone,
        Some(Duration::ZERO) => Harm::Frozen,
        _ => Harm::None,
    };
    kind::strike(world, uid, harm).await?;
    let noticed = ready_condition(node).is_some_and(|c| c.status == "Unknown");
    if noticed && node.metadata.deletion_timestamp.is_none() && !kind::runs(world, uid).await? {
        warn!(node = node.name_any(), "the container is gone, its node is deleted");
        give_up(world, node).await?;
        machine::delete(world, node).await?;
    }
    Ok(silence.filter(|wait| !wait.is_zero()).map_or_else(Action::await_change, Action::requeue))
}

/// Says that the node will not come back, so that its pods don't have to be drained.
async fn give_up(world: &World, node: &Node) -> Result<(), Error> {
    let mut taints = node.spec.clone().and_then(|s| s.taints).unwrap_or_default();
    if taints.iter().any(|taint| taint.key == OUT_OF_SERVICE) {
        return Ok(());
    }
    taints.push(Taint {
        key: OUT_OF_SERVICE.to_owned(),
        value: Some("nodeshutdown".to_owned()),
        effect: "NoExecute".to_owned(),
        ..Taint::default()
    });
    // the list of taints is one value: only this version of it may be replaced
    let patch = json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "spec": {"taints": taints},
    });
    let nodes: Api<Node> = Api::all(world.client.clone());
    match nodes.patch(&node.name_any(), &patched(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(doing("tainting a node")(error)),
    }
}

/// A node of ours without a claim is deleted after two live reads, ten seconds apart, have said that the claim is gone.
/// Until then it lives.
async fn orphan(world: &World, node: &Node, uid: &str, now: Timestamp) -> Result<Action, Error> {
    let node_uid = node.uid().unwrap_or_default();
    if !kind::is_kind_node(node) {
        live(world, node, true, now).await?;
    }
    let since = lock(&world.fleet).orphans.get(&node_uid).copied();
    if let Some(since) = since
        && let Some(wait) = remaining(ORPHANED_FOR, None, since, now)
    {
        return Ok(Action::requeue(wait));
    }
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let claim = claims.get_opt(&node.name_any()).await.map_err(doing("looking for the claim of a node"))?;
    if claim.is_some_and(|claim| claim::uid(&claim) == uid) {
        // the watch is behind
        lock(&world.fleet).orphans.remove(&node_uid);
        return Ok(Action::requeue(ORPHANED_FOR));
    }
    if since.is_none() {
        lock(&world.fleet).orphans.insert(node_uid, now);
        return Ok(Action::requeue(ORPHANED_FOR));
    }
    if node.metadata.deletion_timestamp.is_none() {
        info!(node = node.name_any(), "the claim is gone, so the node goes too");
        machine::delete(world, node).await?;
    }
    Ok(Action::await_change())
}
