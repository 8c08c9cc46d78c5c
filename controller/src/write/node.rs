//! What a change makes of a node.

use buffer_api::{NodeClaim, labels::TERMINATION_FINALIZER};
use buffer_core::{
    plan::NodeChange,
    snapshot::{Labels, Node},
};
use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::Resource;
use serde_json::{Map, Value, json};

/// A node as far as a change needs to know it.
#[derive(Clone, Debug)]
pub struct Current {
    version: u64,
    labels: Labels,
    annotations: Labels,
    taints: Vec<Taint>,
    finalizers: Vec<String>,
    owners: Vec<OwnerReference>,
}

impl Current {
    /// Takes what a change needs.
    pub fn new(version: u64, owners: &[OwnerReference], node: &Node) -> Self {
        Self {
            version,
            labels: node.labels.clone(),
            annotations: node.annotations.clone(),
            taints: node.taints.clone(),
            finalizers: node.finalizers.clone(),
            owners: owners.to_vec(),
        }
    }

    /// The JSON merge patch that makes the change, bound to the resource version since lists are replaced whole; `None` where
    /// the node is as wanted.
    pub fn patch(&self, change: &NodeChange) -> Option<Value> {
        let mut metadata = Map::new();
        let mut spec = Map::new();
        for (field, wanted, current) in [
            ("labels", &change.set_labels, &self.labels),
            ("annotations", &change.set_annotations, &self.annotations),
        ] {
            let differing: Map<_, _> = wanted
                .iter()
                .filter(|&(key, value)| current.get(key) != Some(value))
                .map(|(key, value)| (key.clone(), json!(value)))
                .collect();
            if !differing.is_empty() {
                metadata.insert(field.to_owned(), Value::Object(differing));
            }
        }
        let finalizers = self.finalizers(change);
        if finalizers != self.finalizers {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        if let Some((name, uid)) = &change.owner
            && !self.owners.iter().any(|owner| owner.uid == *uid)
        {
            let mut owners = self.owners.clone();
            owners.push(owner::<NodeClaim>(name, uid));
            metadata.insert("ownerReferences".to_owned(), json!(owners));
        }
        let taints = self.taints(change);
        if taints != self.taints {
            spec.insert("taints".to_owned(), json!(taints));
        }
        if metadata.is_empty() && spec.is_empty() {
            return None;
        }
        metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        Some(json!({"metadata": metadata, "spec": spec}))
    }

    fn finalizers(&self, change: &NodeChange) -> Vec<String> {
        let mut finalizers = self.finalizers.clone();
        if change.drop_finalizer {
            finalizers.retain(|finalizer| finalizer != TERMINATION_FINALIZER);
        } else if change.add_finalizer && !finalizers.iter().any(|f| f == TERMINATION_FINALIZER) {
            finalizers.push(TERMINATION_FINALIZER.to_owned());
        }
        finalizers
    }

    fn taints(&self, change: &NodeChange) -> Vec<Taint> {
        let removed = |taint: &Taint| {
            change.remove_taints.iter().any(|(key, effect)| *key == taint.key && *effect == taint.effect)
        };
        let mut taints: Vec<_> = self.taints.iter().filter(|taint| !removed(taint)).cloned().collect();
        for new in &change.add_taints {
            match taints.iter_mut().find(|taint| taint.key == new.key && taint.effect == new.effect) {
                Some(known) if known.value == new.value => {}
                Some(known) => known.clone_from(new),
                None => taints.push(new.clone()),
            }
        }
        taints
    }
}

/// A reference to the owner `name` of kind `K`, which can't go before what it owns where deletion is foreground.
pub fn owner<K: Resource<DynamicType = ()>>(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        block_owner_deletion: Some(true),
        controller: None,
    }
}

#[cfg(test)]
mod tests {
    use similar_asserts::assert_eq;

    use super::*;

    fn taint(key: &str, effect: &str, value: Option<&str>) -> Taint {
        Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            value: value.map(str::to_owned),
            time_added: None,
        }
    }

    fn current() -> Current {
        let node = Node {
            labels: [("a".to_owned(), "1".to_owned())].into(),
            taints: vec![taint("unregistered", "NoExecute", None), taint("not-ready", "NoSchedule", None)],
            finalizers: vec!["other".to_owned()],
            ..Node::default()
        };
        Current::new(41, &[], &node)
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn registration_is_one_patch() {
        let change = NodeChange {
            name: text("n"),
            set_labels: [(text("a"), text("1")), (text("b"), text("2"))].into(),
            add_taints: vec![taint("pool", "NoSchedule", Some("x"))],
            remove_taints: vec![(text("unregistered"), text("NoExecute"))],
            add_finalizer: true,
            owner: Some((text("c"), text("uid"))),
            ..NodeChange::default()
        };
        assert_eq!(
            current().patch(&change),
            Some(json!({
                "metadata": {
                    "resourceVersion": "41",
                    "labels": {"b": "2"},
                    "finalizers": ["other", "karpenter.sh/termination"],
                    "ownerReferences": [{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "uid",
                        "blockOwnerDeletion": true}],
                },
                "spec": {"taints": [
                    {"key": "not-ready", "effect": "NoSchedule"},
                    {"key": "pool", "effect": "NoSchedule", "value": "x"},
                ]},
            }))
        );
    }

    #[test]
    fn a_node_that_is_as_wanted_is_left_alone() {
        let change = NodeChange {
            set_labels: [(text("a"), text("1"))].into(),
            add_taints: vec![taint("not-ready", "NoSchedule", None)],
            remove_taints: vec![(text("not-ready"), text("NoExecute"))],
            drop_finalizer: true,
            ..NodeChange::default()
        };
        assert_eq!(current().patch(&change), None);
    }

    #[test]
    fn a_taint_of_the_same_key_and_effect_is_replaced() {
        let change = NodeChange {
            add_taints: vec![taint("not-ready", "NoSchedule", Some("v"))],
            ..NodeChange::default()
        };
        let patch = current().patch(&change).unwrap();
        let taints = patch["spec"]["taints"].as_array().unwrap();
        assert_eq!((taints.len(), &taints[1]["value"]), (2, &json!("v")));
    }

    #[test]
    fn only_our_finalizer_is_dropped() {
        let mut current = current();
        current.finalizers.push(TERMINATION_FINALIZER.to_owned());
        let change = NodeChange { drop_finalizer: true, ..NodeChange::default() };
        let patch = current.patch(&change).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
    }
}
