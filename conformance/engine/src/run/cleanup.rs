//! Clean-up, in order: buffers, workloads, pods gone, pool with its claims and nodes, namespace.
//!
//! It runs after success, failure, panic and interruption alike, and never gives up half-way: what does not go is told as a leak.
//! Nothing is deleted that does not carry the run's label, claims and nodes of a pool that the run itself created excepted.

use std::{collections::BTreeSet, time::Duration};

use buffer_api::labels;
use conformance_report::model::Leak;
use futures::{StreamExt as _, stream};
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};

use super::{
    cluster::delete_params,
    context::Context,
    outcome::Failure,
    wait::{Unmet, eventually},
    world::{Key, State},
};
use crate::{scenario::Isolation, waits::Wait};

/// Requests in flight.
const AT_ONCE: usize = 16;

/// Removes everything that the scenario has created, and tells what is left.
pub async fn clean_up(context: &mut Context, created_pool: bool) -> Vec<Leak> {
    let created = context.record.lock().created.clone();
    let home = context.scope.namespace.clone();
    let is_namespace = |key: &&Key| key.kind == "Namespace" && key.name == home;
    let (namespaced, global): (Vec<Key>, Vec<Key>) =
        created.into_iter().filter(|key| !is_namespace(&key)).rev().partition(|key| key.namespace.is_some());
    let (buffers, others): (Vec<Key>, Vec<Key>) =
        namespaced.into_iter().partition(|key| key.kind == "CapacityBuffer");

    remove(context, &buffers, false).await;
    gone(context, &buffers).await;
    remove(context, &others, false).await;
    pods_gone(context, &others).await;

    // a class is what others are built on: it stays until they are gone
    let (classes, pools): (Vec<Key>, Vec<Key>) =
        global.iter().cloned().partition(|key| key.kind.ends_with("Class"));
    remove(context, &pools, false).await;
    nodes_gone(context, created_pool).await;
    remove(context, &classes, false).await;
    gone(context, &global).await;

    let namespace =
        Key { api_version: "v1".to_owned(), kind: "Namespace".to_owned(), namespace: None, name: home };
    remove(context, std::slice::from_ref(&namespace), false).await;

    let outside = others.iter().filter(|key| key.namespace.as_deref() != Some(namespace.name.as_str()));
    let candidates: Vec<&Key> = buffers.iter().chain(outside).chain(&global).collect();
    leaks(context, &candidates).await
}

/// Deletes what is there and ours.
async fn remove(context: &Context, keys: &[Key], now: bool) {
    stream::iter(keys.to_vec())
        .for_each_concurrent(AT_ONCE, |key| async move {
            if let Err(failure) = remove_one(context, &key, now).await {
                tracing::warn!(object = %key, ?failure, "could not be deleted");
            }
        })
        .await;
}

async fn remove_one(context: &Context, key: &Key, now: bool) -> Result<(), Failure> {
    let Some(object) = context.cluster().get(key).await? else {
        return Ok(());
    };
    let label = |name: &str| object["metadata"]["labels"][name].as_str();
    let of_our_pool = context.scope.pool.is_some()
        && matches!(key.kind.as_str(), "Node" | "NodeClaim")
        && label(labels::POOL) == context.scope.pool.as_deref();
    let in_our_namespace = key.kind == "Pod" && key.namespace.as_deref() == Some(&context.scope.namespace);
    if label(labels::RUN) != Some(&context.scope.run) && !of_our_pool && !in_our_namespace {
        return Err(Failure::Broken("it does not carry the label of this run".to_owned()));
    }
    let mut params = delete_params(PropagationPolicy::Background);
    if key.kind == "Pod" {
        params = DeleteParams { grace_period_seconds: Some(u32::from(!now)), ..params };
    }
    context.cluster().delete(key, &params).await?;
    Ok(())
}

/// Waits until the objects are gone, at most for the patience of a clean-up.
async fn gone(context: &mut Context, keys: &[Key]) {
    for key in keys {
        if let Err(failure) = context.cover(key).await {
            tracing::warn!(object = %key, ?failure, "can't be watched");
            return;
        }
    }
    let left = |state: &State| -> Result<(), Unmet> {
        let left: Vec<_> =
            keys.iter().filter(|key| state.object(key).is_some()).map(Key::to_string).collect();
        if left.is_empty() { Ok(()) } else { Err(Unmet::new(left.join(", "))) }
    };
    until(context, left).await;
}

/// Waits until the pods of the scenario's namespace, and those that it created elsewhere, are gone. The kubelets have half of the
/// patience; then the pods are removed without asking them.
async fn pods_gone(context: &Context, created: &[Key]) {
    let ours = |state: &State| -> Vec<Key> {
        let pods = state.of_kind("Pod").map(|(key, _)| key);
        let home = Some(context.scope.namespace.as_str());
        pods.filter(|key| key.namespace.as_deref() == home || created.contains(key)).cloned().collect()
    };
    let none = |state: &State| {
        let left: Vec<_> = ours(state).iter().map(Key::to_string).collect();
        if left.is_empty() { Ok(()) } else { Err(Unmet::new(left.join(", "))) }
    };
    if !until_for(context, context.patience(Wait::Cleanup) / 2, none).await {
        let stuck = context.world.read(ours);
        remove(context, &stuck, true).await;
        until(context, none).await;
    }
}

/// Waits until the pool has as many claims and nodes as before the first step. Those of a pool that was created are deleted.
async fn nodes_gone(context: &Context, created_pool: bool) {
    if context.scope.pool.is_none() && context.isolation != Isolation::Own {
        return;
    }
    let more = |state: &State| {
        let (nodes, claims) = (state.count("Node"), state.count("NodeClaim"));
        if nodes.now <= nodes.baseline && claims.now <= claims.baseline {
            return Ok(());
        }
        Err(Unmet::new(format!("{} nodes, {} claims", nodes.now, claims.now)))
    };
    if created_pool {
        remove(context, &left(context, "NodeClaim"), false).await;
    }
    if !until(context, more).await && created_pool {
        // the subject does not take them away
        remove(context, &left(context, "Node"), false).await;
        until_for(context, context.patience(Wait::Cleanup) / 2, more).await;
    }
}

/// Nodes or claims of the scenario that are still there.
fn left(context: &Context, kind: &str) -> Vec<Key> {
    context.world.read(|state| {
        let ours = state.of_kind(kind).filter(|(key, object)| state.scope().contains(key, object));
        ours.map(|(key, _)| key.clone()).collect()
    })
}

async fn until(context: &Context, check: impl FnMut(&State) -> Result<(), Unmet>) -> bool {
    until_for(context, context.patience(Wait::Cleanup), check).await
}

async fn until_for(
    context: &Context,
    patience: Duration,
    check: impl FnMut(&State) -> Result<(), Unmet>,
) -> bool {
    if let Err(error) = context.cluster().answers().await {
        // nothing will change that could be seen
        tracing::warn!(error = error.detail(), "the cluster is gone");
        return false;
    }
    match eventually(&context.world, patience, check).await {
        Ok(_) => true,
        Err(missed) => {
            tracing::warn!(left = missed.last.seen, "still there after {:?}", missed.elapsed);
            false
        }
    }
}

/// Everything of the candidates, and of claims and nodes born since the start, that is still there.
async fn leaks(context: &Context, candidates: &[&Key]) -> Vec<Leak> {
    let mut kept = BTreeSet::new();
    for key in candidates {
        match context.cluster().get(key).await {
            Ok(Some(object)) if is_ours(context, &object) => drop(kept.insert((*key).clone())),
            Ok(_) => {}
            Err(error) => {
                // not known to be gone
                tracing::warn!(object = %key, %error, "can't be looked for");
                kept.insert((*key).clone());
            }
        }
    }
    let born = |kind: &'static str| {
        context.world.read(|state| {
            let lives = state.lives(kind).filter(|(_, life)| !life.before && !life.lost);
            lives.map(|(_, life)| life.name.clone()).collect::<Vec<_>>()
        })
    };
    let judged = context.scope.pool.is_some() || context.isolation == Isolation::Own;
    let nodes = ["Node", "NodeClaim"].into_iter().filter(|_| judged);
    let nodes = nodes.flat_map(|kind| born(kind).into_iter().map(move |name| (kind, name)));
    let nodes = nodes.map(|(kind, name)| Leak {
        kind: kind.to_owned(),
        namespace: None,
        name,
        scenario: context.scope.scenario.clone(),
    });
    let objects = kept.into_iter().map(|key| Leak {
        kind: key.kind,
        namespace: key.namespace,
        name: key.name,
        scenario: context.scope.scenario.clone(),
    });
    let mut leaks: Vec<_> = objects.chain(nodes).collect();
    leaks.sort();
    leaks.dedup();
    leaks
}

fn is_ours(context: &Context, object: &Value) -> bool {
    object["metadata"]["labels"][labels::RUN] == json!(context.scope.run)
}
