//! `probe`: the oracle's proof with real pods and the real scheduler.
//!
//! The nodes that are there now are recorded first, by UID. Pods of the buffer's template are then bound by required affinity to
//! exactly those nodes. Nodes that are born meanwhile, because a correct subject refills at once, don't matter.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{
    api::core::v1::{
        Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::api::DeleteParams;
use serde_json::json;

use super::Held;
use crate::{
    run::{
        capacity::{Buffer, nodes, target},
        context::Context,
        oracle::{NotJudged, fit, state},
        outcome::Failure,
        wait::{Unmet, eventually, seconds},
        world::{Key, State},
    },
    scenario::Probe,
    waits::Wait,
};

/// Image of pods whose template names none.
const IMAGE: &str = "registry.k8s.io/pause:3.10.2";
/// Most pods of a probe: a subject can put any number into a status.
const MOST: u64 = 2_000;
/// Requests in flight.
const AT_ONCE: usize = 16;
/// Most characters of the buffer's name in the names of its pods.
const NAME: usize = 40;

pub(super) async fn probe(context: &Context, step: &Probe, within: Option<Wait>) -> Held {
    let buffer = Buffer::read(context, &step.buffer, step.namespace.as_deref()).await?;
    let spec = buffer.template.spec.clone().ok_or(NotJudged::NoSpec)?;
    let count = match step.count {
        Some(count) => u64::from(count),
        None => context
            .world
            .read(|state| buffer.replicas(state))
            .ok_or_else(|| Failure::Broken(format!("status.replicas of {} is not set", buffer.key)))?,
    };
    if count > MOST {
        return Err(Failure::Broken(format!("{count} pods are more than a probe makes, which are {MOST}")));
    }
    let there = nodes(context).await?.into_iter().filter(|node| fit::excluded(&spec, node).is_none());
    let recorded: BTreeMap<String, String> = there.map(|node| (node.name, node.uid)).collect();
    let wanted = format!("{count} pods of {} bound to {} nodes that were there", buffer.key, recorded.len());

    // without a node the pods would have no affinity at all, and be bound anywhere
    let spec = if recorded.is_empty() { spec } else { pinned(spec, recorded.keys()) };
    let mut keys = Vec::new();
    for number in 1..=count {
        let name: String = buffer.key.name.chars().take(NAME).collect();
        let name = format!("probe-{}-{number}", name.trim_end_matches(['-', '.']));
        keys.push(context.key(&target("v1", "Pod", &name, buffer.key.namespace.as_deref())).await?);
    }
    if !recorded.is_empty() {
        let body = json!(pod(&buffer, &spec));
        stream::iter(keys.clone())
            .map(|key| {
                let body = body.clone();
                async move { context.apply(&key, body).await }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
    }
    let check = |state: &State| all_bound(state, &keys, &recorded);
    let bound = context.wait(within.unwrap_or(Wait::Bind), wanted, check).await;
    let removed = remove(context, &keys).await;
    // What was found out stands, whatever became of the pods afterwards.
    let bound = bound?;
    removed?;
    Ok(Some(bound))
}

/// The template's pod, owned by the buffer so that no workload with a matching selector adopts it.
fn pod(buffer: &Buffer, spec: &PodSpec) -> Pod {
    let template = buffer.template.metadata.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: buffer.key.api_version.clone(),
        kind: buffer.key.kind.clone(),
        name: buffer.key.name.clone(),
        uid: buffer.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let metadata = ObjectMeta {
        labels: template.labels,
        annotations: template.annotations,
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: Some(spec.clone()), status: None }
}

/// The spec, bound to these nodes: each term of its own once for every node, for `metadata.name` takes one value a term.
fn pinned<'a>(mut spec: PodSpec, nodes: impl Iterator<Item = &'a String>) -> PodSpec {
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        if container.image.as_deref().unwrap_or_default().is_empty() {
            container.image = Some(IMAGE.to_owned());
        }
    }
    let own = fit::affinity_terms(&spec).map_or_else(|| vec![NodeSelectorTerm::default()], <[_]>::to_vec);
    let mut terms = Vec::new();
    for node in nodes {
        let here = NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.clone()]),
        };
        for term in &own {
            let mut term = term.clone();
            term.match_fields.get_or_insert_default().push(here.clone());
            terms.push(term);
        }
    }
    let affinity = spec.affinity.get_or_insert_with(Affinity::default);
    let nodes = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    nodes.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: terms });
    spec
}

fn all_bound(state: &State, keys: &[Key], recorded: &BTreeMap<String, String>) -> Result<(), Unmet> {
    if recorded.is_empty() && !keys.is_empty() {
        return Err(Unmet::new("no Ready node that takes such pods"));
    }
    let mut lines = Vec::new();
    let mut bound = 0;
    for key in keys {
        let pod = state.pod(key);
        match pod.and_then(|pod| pod.node.as_deref()) {
            // a node that was rebuilt under its old name is another node
            Some(node) if state.node(node).map(|node| &node.uid) == recorded.get(node) => bound += 1,
            Some(node) => lines.push(format!("  {}: on {node}, which was rebuilt or is gone\n", key.name)),
            None => lines.push(format!("  {}: {}\n", key.name, why_unbound(state, key, pod))),
        }
    }
    if bound == keys.len() {
        return Ok(());
    }
    Err(Unmet { seen: format!("{bound} of {} are bound", keys.len()), diff: Some(lines.concat()) })
}

fn why_unbound(state: &State, key: &Key, pod: Option<&state::Pod>) -> String {
    if pod.is_none() {
        return "not there".to_owned();
    }
    let conditions = state.object(key).and_then(|pod| pod.pointer("/status/conditions"));
    let mut conditions = conditions.and_then(|all| all.as_array()).into_iter().flatten();
    let scheduled = conditions.find(|condition| condition["type"] == "PodScheduled");
    scheduled
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or("the scheduler has said nothing")
        .to_owned()
}

async fn remove(context: &Context, keys: &[Key]) -> Result<(), Failure> {
    let params = DeleteParams::default().grace_period(1);
    let params = &params;
    stream::iter(keys.to_vec())
        .map(|key| async move { context.cluster().delete(&key, params).await })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<bool>>()
        .await?;
    let patience = context.patience(Wait::Cleanup);
    let gone = eventually(&context.world, patience, |state| {
        let left: Vec<_> = keys.iter().filter(|key| state.pod(key).is_some()).map(|key| &*key.name).collect();
        if left.is_empty() { Ok(()) } else { Err(Unmet::new(left.join(", "))) }
    });
    gone.await.map(drop).map_err(|missed| {
        let left = missed.last.seen;
        Failure::Broken(format!("pods of the probe are not gone after {}: {left}", seconds(missed.elapsed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn pinned_to(spec: Value, nodes: &[&str]) -> Value {
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        json!(pinned(serde_json::from_value(spec).unwrap(), nodes.iter()))
    }

    fn here(node: &str) -> Value {
        json!({"key": "metadata.name", "operator": "In", "values": [node]})
    }

    #[test]
    fn one_term_a_node() {
        let spec =
            pinned_to(json!({"containers": [{"name": "c", "image": "x"}, {"name": "d"}]}), &["a", "b"]);
        similar_asserts::assert_eq!(
            spec,
            json!({
                "containers": [{"name": "c", "image": "x"}, {"name": "d", "image": IMAGE}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchFields": [here("a")]},
                    {"matchFields": [here("b")]},
                ]}}},
            })
        );
    }

    #[test]
    fn terms_of_the_template_are_kept_and_so_is_everything_else() {
        let zone = |zone: &str| json!([{"key": "zone", "operator": "In", "values": [zone]}]);
        let preferred = json!([{"weight": 1, "preference": {"matchExpressions": zone("c")}}]);
        let spec = pinned_to(
            json!({"containers": [], "affinity": {
                "podAntiAffinity": {},
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": zone("a")}, {"matchExpressions": zone("b")},
                    ]},
                },
            }}),
            &["n"],
        );
        similar_asserts::assert_eq!(
            spec["affinity"],
            json!({
                "podAntiAffinity": {},
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": zone("a"), "matchFields": [here("n")]},
                        {"matchExpressions": zone("b"), "matchFields": [here("n")]},
                    ]},
                },
            })
        );
    }
}
