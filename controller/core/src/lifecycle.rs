//! The life of a claim and its node: launched by the cloud, registered and initialised here, drained and let go at the end.
//!
//! Sources: design 5 (who writes what), reference A12 (order, time-outs) and A16 (drain). To keep a claim within seven requests,
//! `Registered` is written together with `Initialized` if the node gets there within [`PROMPT`] of its launch; a later node gets conditions that
//! say what it waits for.

use buffer_api::{
    conditions::claim as text,
    labels::{
        INITIALIZED, NOT_READY_TAINT, REGISTERED, TERMINATION_FINALIZER, UNINITIALIZED_TAINT,
        UNREACHABLE_TAINT, UNREGISTERED_TAINT,
    },
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Condition};

use crate::{
    amounts, claims,
    conditions::{Wanted, find, is_true, same},
    disrupt::{self, drift, quiet},
    duration::{self, Span},
    fit,
    index::{ClaimView, Index, NodeView},
    plan::{ClaimStatus, DeleteClaim, DeleteReason, Draft, Eviction},
    snapshot::{Claim, Pod},
};

/// A claim that is not launched by then is deleted.
pub const LAUNCH: SignedDuration = SignedDuration::from_mins(5);
/// A claim whose node is not registered by then is deleted.
pub const REGISTRATION: SignedDuration = SignedDuration::from_mins(15);
/// A claim whose node has never been ready and is not by then is deleted.
pub const FIRST_READY: SignedDuration = SignedDuration::from_mins(15);
/// Age at which a claim is replaced if it says nothing else.
pub const EXPIRE_AFTER: SignedDuration = SignedDuration::from_hours(720);
/// A node that is initialised within this time of its launch gets all its conditions in one write.
pub const PROMPT: SignedDuration = SignedDuration::from_secs(5);
/// Pods that end on a node that has been silent for so long are not waited for: nobody is there to end them.
pub const DEAD: SignedDuration = SignedDuration::from_mins(1);
/// How soon a drain is looked at again: an eviction may have been refused.
const DRAIN: SignedDuration = SignedDuration::from_secs(1);

/// Conditions of a claim that are ours; `Launched` is the cloud's.
const OURS: [&str; 4] = [text::CONSOLIDATABLE, text::DRIFTED, text::INITIALIZED, text::REGISTERED];

/// Who leaves: nobody is placed there, and whoever is there needs another place.
#[derive(Debug)]
pub struct Leaving {
    /// By node of the index.
    pub nodes: Vec<bool>,
    /// By claim of the index.
    pub claims: Vec<bool>,
}

/// Moves every claim and node on by one step. Nodes that are registered or initialised by it count as such from here on.
pub(crate) fn live(index: &mut Index<'_>, draft: &mut Draft) -> Leaving {
    let mut leaving = Leaving {
        nodes: index.nodes.iter().map(|view| view.node.deleting).collect(),
        claims: vec![false; index.claims.len()],
    };
    for at in 0..index.claims.len() {
        let leaves = advance(index, at, draft);
        leaving.claims[at] = leaves;
        if let Some(node) = index.claims[at].node.filter(|_| leaves) {
            leaving.nodes[node] = true;
        }
    }
    for (at, view) in index.nodes.iter().enumerate() {
        if is_orphan(view) {
            leaving.nodes[at] = true;
            if has_finalizer(&view.node.finalizers) {
                draft.node(&view.node.name).drop_finalizer = true;
            }
        }
    }
    leaving
}

/// Moves one claim on; whether it leaves.
fn advance(index: &mut Index<'_>, at: usize, draft: &mut Draft) -> bool {
    let view = &index.claims[at];
    if view.claim.deleting {
        leave(index, view, draft);
        return true;
    }
    if let Some(reason) = failure(index, view, draft) {
        draft.plan.delete.push(DeleteClaim { name: view.claim.name.clone(), reason });
        return true;
    }
    let (claim, node) = (view.claim, view.node);
    let waits = match node.and_then(|node| index.nodes.get_mut(node)) {
        None => Waits { registered: Some(NODE_NOT_FOUND), initialized: Some(NODE_NOT_FOUND) },
        Some(node) => arrive(node, claim, index.now, draft),
    };
    report(index, &index.claims[at], &waits, draft);
    false
}

/// A node of ours whose claim is gone: the cloud takes it away.
pub(crate) fn is_orphan(view: &NodeView<'_>) -> bool {
    view.claim.is_none() && (has_finalizer(&view.node.finalizers) || view.has_taint(UNREGISTERED_TAINT))
}

/// A taint that goes by itself while a node starts. Source: reference A8, "known ephemeral taints".
pub(crate) fn is_ephemeral(taint: &Taint) -> bool {
    match taint.key.as_str() {
        NOT_READY_TAINT | UNREACHABLE_TAINT => true,
        UNINITIALIZED_TAINT => taint.effect == "NoSchedule" && taint.value.as_deref() == Some("true"),
        UNREGISTERED_TAINT => taint.effect == "NoExecute",
        key => key.starts_with("readiness.k8s.io/"),
    }
}

fn has_finalizer(finalizers: &[String]) -> bool {
    finalizers.iter().any(|finalizer| finalizer == TERMINATION_FINALIZER)
}

/// Why a claim has to be given up, if it has to.
fn failure(index: &Index<'_>, view: &ClaimView<'_>, draft: &mut Draft) -> Option<DeleteReason> {
    let claim = view.claim;
    let stored = &claim.status.conditions;
    let launched = find(stored, text::LAUNCHED);
    if launched.is_some_and(|own| own.status == "False" && own.reason == text::INSUFFICIENT_CAPACITY) {
        return Some(DeleteReason::InsufficientCapacity);
    }
    let node = index.node_of(view);
    let was_there = is_true(stored, text::REGISTERED) || claim.status.node_name.is_some();
    if node.map_or(was_there, |view| view.node.deleting) {
        return Some(DeleteReason::NodeGone);
    }
    let created = claim.created;
    if let Some(end) = expires(claim) {
        if end <= index.now {
            return Some(DeleteReason::Expired);
        }
        draft.wake(end);
    }
    // A node that is there is registered by this plan.
    let (since, patience) = match node {
        _ if !view.is_launched() => (launched.map(|own| own.last_transition_time.0).or(created), LAUNCH),
        None => (created, REGISTRATION),
        Some(view) if !view.was_initialized() && !view.node.ready => {
            (view.node.ready_since.or(created), FIRST_READY)
        }
        Some(_) => return None,
    };
    let deadline = since?.checked_add(patience).ok()?;
    if deadline <= index.now {
        return Some(DeleteReason::Liveness);
    }
    draft.wake(deadline);
    None
}

/// When a claim is to be replaced, whatever budgets and pods say. A text that is no duration never comes to an end.
fn expires(claim: &Claim) -> Option<Timestamp> {
    let span = claim.spec.expire_after.as_deref().map_or(Ok(Span::After(EXPIRE_AFTER)), duration::parse);
    match span {
        Ok(Span::After(span)) => claim.created?.checked_add(span).ok(),
        Ok(Span::Never) | Err(_) => None,
    }
}

/// Registers the node of a claim, and initialises it if nothing keeps it from that.
///
/// A node that is Ready loses its last taint in a moment, by the controller manager; until then nothing runs on it anyway. So its
/// registration waits for that, if the launch was not long ago, and both steps are one write.
fn arrive(node: &mut NodeView<'_>, claim: &Claim, now: Timestamp, draft: &mut Draft) -> Waits {
    let blocker = blocker(node, claim);
    if !node.was_registered()
        && blocker == Some(EPHEMERAL)
        && prompt_until(claim).is_some_and(|end| now < end)
    {
        return Waits { registered: Some(NODE_NOT_FOUND), initialized: blocker };
    }
    if !node.was_registered() {
        register(node, claim, draft);
        node.registered = true;
    }
    if blocker.is_none() && !node.was_initialized() {
        draft.node(&node.node.name).set_labels.insert(INITIALIZED.to_owned(), "true".to_owned());
        node.initialized = true;
    }
    Waits { registered: None, initialized: blocker.filter(|_| !node.initialized) }
}

/// Until when a claim's node is awaited without a word; nothing where it is not launched.
fn prompt_until(claim: &Claim) -> Option<Timestamp> {
    let launched = find(&claim.status.conditions, text::LAUNCHED).filter(|own| own.status == "True")?;
    launched.last_transition_time.0.checked_add(PROMPT).ok()
}

/// Reason and message of a step that has not been taken yet.
type Blocker = (&'static str, &'static str);
const EPHEMERAL: Blocker = ("KnownEphemeralTaintsExist", "Known ephemeral taints still exist");
const NODE_NOT_FOUND: Blocker = ("NodeNotFound", "Node not registered with cluster");

/// What a claim waits for; nothing where the step is done.
struct Waits {
    registered: Option<Blocker>,
    initialized: Option<Blocker>,
}

fn register(node: &NodeView<'_>, claim: &Claim, draft: &mut Draft) {
    let has_taint = |taint: &Taint| {
        node.node
            .taints
            .iter()
            .any(|own| (&own.key, &own.effect, &own.value) == (&taint.key, &taint.effect, &taint.value))
    };
    let change = draft.node(&node.node.name);
    for (key, value) in &claim.labels {
        if node.node.labels.get(key) != Some(value) {
            change.set_labels.insert(key.clone(), value.clone());
        }
    }
    change.set_labels.insert(REGISTERED.to_owned(), "true".to_owned());
    for (key, value) in claim.annotations.iter().filter(|(key, _)| *key != claims::BOUGHT_FOR) {
        if node.node.annotations.get(key) != Some(value) {
            change.set_annotations.insert(key.clone(), value.clone());
        }
    }
    let taints = claim.spec.taints.iter().chain(&claim.spec.startup_taints);
    change.add_taints.extend(taints.filter(|taint| !has_taint(taint)).cloned());
    let unregistered = node.node.taints.iter().filter(|taint| taint.key == UNREGISTERED_TAINT);
    change.remove_taints.extend(unregistered.map(|taint| (taint.key.clone(), taint.effect.clone())));
    change.add_finalizer = !has_finalizer(&node.node.finalizers);
    change.owner = Some((claim.name.clone(), claim.uid.clone()));
}

/// What keeps a node from taking pods. A node that is about to be registered is judged as it will be then.
fn blocker(node: &NodeView<'_>, claim: &Claim) -> Option<Blocker> {
    let taints = || node.node.taints.iter().filter(|taint| taint.key != UNREGISTERED_TAINT);
    let is_startup = |taint: &Taint| {
        claim.spec.startup_taints.iter().any(|own| (&own.key, &own.effect) == (&taint.key, &taint.effect))
    };
    if !node.node.ready {
        return Some(("NodeNotReady", "Node status is NotReady"));
    }
    let startup_comes = !node.was_registered() && !claim.spec.startup_taints.is_empty();
    if startup_comes || taints().any(is_startup) {
        return Some(("StartupTaintsExist", "Start-up taints still exist"));
    }
    if taints().any(is_ephemeral) {
        return Some(EPHEMERAL);
    }
    // A request that is not a quantity can't be waited for.
    let requests = amounts::parse(&claim.spec.resources.requests).unwrap_or_default();
    let missing = requests.iter().any(|(name, amount)| {
        amount.is_positive() && !amounts::get(&node.node.allocatable, name).is_positive()
    });
    missing.then_some(("ResourceNotRegistered", "A requested resource is not registered"))
}

/// Writes the claim's conditions if they say something new and it is time to say it.
fn report(index: &Index<'_>, view: &ClaimView<'_>, waits: &Waits, draft: &mut Draft) {
    let claim = view.claim;
    let stored = &claim.status.conditions;
    if waits.initialized.is_some() {
        let Some(time) = prompt_until(claim) else { return };
        if time > index.now {
            draft.wake(time);
            return;
        }
    }
    let condition = |kind: &'static str, waits: Option<Blocker>| {
        let (status, (reason, message)) = waits.map_or(("True", (kind, "")), |blocker| ("Unknown", blocker));
        Wanted { kind, status, reason, message: message.to_owned() }
    };
    let mut wanted =
        vec![condition(text::REGISTERED, waits.registered), condition(text::INITIALIZED, waits.initialized)];
    if waits.initialized.is_none() {
        wanted.extend(quiet::consolidatable(index, view, draft));
        wanted.extend(drift::drifted(index, view));
    }
    let conditions: Vec<Condition> =
        wanted.into_iter().map(|wanted| wanted.over(stored, None, index.now)).collect();
    let registered = waits.registered.is_none();
    let node_name = index.node_of(view).filter(|_| registered).map(|view| view.node.name.clone());
    if node_name != claim.status.node_name || !same(stored, &conditions, &OURS) {
        draft.plan.claims.push(ClaimStatus { name: claim.name.clone(), node_name, conditions });
    }
}

/// Drains the node of a claim that is being deleted, then lets both go.
fn leave(index: &Index<'_>, view: &ClaimView<'_>, draft: &mut Draft) {
    let claim = view.claim;
    let Some(node) = index.node_of(view) else {
        release(claim, draft);
        return;
    };
    let silent_until = node.node.ready_since.filter(|_| !node.node.ready);
    let dead = silent_until.and_then(|since| since.checked_add(DEAD).ok()).is_some_and(|time| {
        if time > index.now {
            draft.wake(time);
        }
        time <= index.now
    });
    let deadline = deadline(claim);
    let out_of_time = deadline.is_some_and(|time| time <= index.now);
    let mark = disrupt::mark();
    let to_drain: Vec<&Pod> = node
        .pods
        .iter()
        .copied()
        .filter(|pod| !pod.daemon && !pod.mirror && !fit::tolerates(&pod.shape.tolerations, [&mark]))
        .filter(|pod| !(dead && pod.deleting || out_of_time))
        .collect();
    // A node that was never registered carries a taint that keeps pods off as well.
    let marked = node.has_taint(&mark.key) || node.has_taint(UNREGISTERED_TAINT);
    if marked && to_drain.is_empty() {
        if has_finalizer(&node.node.finalizers) {
            draft.node(&node.node.name).drop_finalizer = true;
        }
        release(claim, draft);
        return;
    }
    if !marked {
        draft.node(&node.node.name).add_taints.push(mark);
        if to_drain.is_empty() {
            draft.wake(index.now);
        }
    }
    if !node.node.deleting {
        draft.node(&node.node.name).delete = true;
    }
    if let Some(time) = deadline {
        draft.wake(time);
    }
    let evictions: Vec<Eviction> = to_drain
        .iter()
        .filter(|pod| !pod.deleting)
        .filter_map(|pod| eviction(pod, deadline, index.now, draft))
        .collect();
    if !evictions.is_empty() {
        draft.wake(later(index.now, DRAIN));
    }
    draft.plan.evict.extend(evictions);
}

/// Until when the node of a claim that is being deleted may be drained.
fn deadline(claim: &Claim) -> Option<Timestamp> {
    let span = duration::parse(claim.spec.termination_grace_period.as_deref()?);
    match span {
        Ok(Span::After(span)) => claim.deleted_at?.checked_add(span).ok(),
        Ok(Span::Never) | Err(_) => None,
    }
}

/// How a pod is made to leave. One that would not have its grace before the deadline is deleted, whatever protects it; until then
/// one that forbids disruption is waited for. Source: reference A16.
fn eviction(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp, draft: &mut Draft) -> Option<Eviction> {
    let evict = |force| Some(Eviction { pod: pod.key.clone(), uid: pod.uid.clone(), force });
    if let Some(deadline) = deadline {
        let last = deadline.checked_sub(SignedDuration::from_secs(pod.grace_seconds)).unwrap_or(now);
        if last <= now {
            return evict(Some(deadline.duration_since(now).as_secs().max(1)));
        }
        draft.wake(last);
    }
    if pod.do_not_disrupt { None } else { evict(None) }
}

fn release(claim: &Claim, draft: &mut Draft) {
    if has_finalizer(&claim.finalizers) {
        draft.plan.release.push(claim.name.clone());
    }
}

fn later(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.checked_add(span).unwrap_or(now)
}
