//! What this process knows beyond the API: when it saw what, and what it is about to write. All of it can be lost.

use std::{
    collections::{HashMap, HashSet},
    net::Ipv4Addr,
};

use buffer_api::NodeClaim;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, runtime::reflector::ObjectRef};

use crate::{
    claim::{self, Marks},
    identity::Identity,
    ip,
    pod::requests::{Held, held},
};

/// Instances and their kubelets.
#[derive(Debug)]
pub(super) struct Fleet {
    /// By the claim's UID.
    instances: HashMap<String, Instance>,
    /// UIDs of the claims that have, or are about to get, an instance; by class.
    sold: HashMap<String, HashSet<String>>,
    /// By the name of the node.
    pub(super) kubelets: HashMap<String, Kubelet>,
    /// Addresses of the nodes, by the claim's UID, or the node's for adopted ones.
    pub(super) addresses: ip::Pool,
    /// Nodes whose claim was not there when asked for at this time; by UID.
    pub(super) orphans: HashMap<String, Timestamp>,
}

/// What is known of a claim's instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    pub(super) marks: Marks,
    /// Failed attempts to buy it.
    pub(super) attempts: u32,
    /// Failed attempts of its machine to join.
    pub(super) joins: u32,
    /// Before this time its machine is not tried again.
    pub(super) retry: Option<Timestamp>,
    /// The Node was made by this process, or was seen.
    pub(super) born: bool,
    /// The Node was made and has not been seen yet.
    pub(super) unseen: bool,
    /// The instance was taken away.
    pub(super) away: bool,
}

/// The kubelet of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kubelet {
    /// It is up, and runs pods.
    pub(super) running: bool,
    /// Address of the node.
    pub(super) ip: Ipv4Addr,
}

impl Fleet {
    pub(super) fn new() -> Self {
        Self {
            instances: HashMap::new(),
            sold: HashMap::new(),
            kubelets: HashMap::new(),
            addresses: ip::nodes(),
            orphans: HashMap::new(),
        }
    }

    /// What is known of a claim's instance, from now on.
    pub(super) fn instance(&mut self, uid: &str, now: Timestamp) -> &mut Instance {
        self.instances.entry(uid.to_owned()).or_insert_with(|| Instance {
            marks: Marks { seen: now, running: None, registered: None, ordered: None },
            attempts: 0,
            joins: 0,
            retry: None,
            born: false,
            unseen: false,
            away: false,
        })
    }

    /// What is known of a claim's instance.
    pub(super) fn known(&mut self, uid: &str) -> Option<&mut Instance> {
        self.instances.get_mut(uid)
    }

    /// Reserves a place in the class's quota; the number of the others.
    pub(super) fn reserve(&mut self, class: &str, uid: &str) -> usize {
        let sold = self.sold.entry(class.to_owned()).or_default();
        sold.insert(uid.to_owned());
        sold.len() - 1
    }

    /// Gives the place in the class's quota back.
    pub(super) fn unreserve(&mut self, class: &str, uid: &str) {
        if let Some(sold) = self.sold.get_mut(class) {
            sold.remove(uid);
        }
    }

    /// A claim is there.
    pub(super) fn saw(&mut self, claim: &NodeClaim, identity: &Identity) {
        let id = claim.status.as_ref().and_then(|s| s.provider_id.as_deref());
        if id.is_some_and(|id| identity.claim_uid(id) == Some(claim::uid(claim))) {
            self.reserve(&claim.spec.node_class_ref.name, claim::uid(claim));
        }
    }

    /// A claim is gone.
    pub(super) fn forget(&mut self, claim: &NodeClaim) {
        self.unreserve(&claim.spec.node_class_ref.name, claim::uid(claim));
        self.instances.remove(claim::uid(claim));
    }

    /// Only these claims are there.
    pub(super) fn retain(&mut self, uids: &HashSet<&str>) {
        self.instances.retain(|uid, _| uids.contains(uid.as_str()));
        for sold in self.sold.values_mut() {
            sold.retain(|uid| uids.contains(uid.as_str()));
        }
    }
}

/// The pods on the nodes, and what they hold.
#[derive(Debug)]
pub(super) struct Ledger {
    /// By UID.
    entries: HashMap<String, Entry>,
    /// UIDs by node.
    by_node: HashMap<String, HashSet<String>>,
    addresses: ip::Pool,
}

#[derive(Debug)]
struct Entry {
    node: String,
    object: ObjectRef<Pod>,
    /// What the pod holds once the node has taken it.
    held: Option<Held>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new(), by_node: HashMap::new(), addresses: ip::pods() }
    }

    /// A pod is there.
    pub(super) fn saw(&mut self, pod: &Pod) {
        let (Some(uid), Some(node)) = (pod.uid(), pod.spec.as_ref().and_then(|s| s.node_name.clone())) else {
            return;
        };
        let status = pod.status.as_ref();
        if let Some(ip) = status.and_then(|s| s.pod_ip.as_ref()).and_then(|ip| ip.parse().ok())
            && pod.spec.as_ref().is_none_or(|s| s.host_network != Some(true))
        {
            self.addresses.reserve(&uid, ip);
        }
        let ended = status.is_some_and(|s| matches!(s.phase.as_deref(), Some("Succeeded" | "Failed")));
        let taken = status.is_some_and(|s| s.start_time.is_some());
        let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry {
            node: node.clone(),
            object: ObjectRef::from_obj(pod),
            held: None,
        });
        if ended {
            entry.held = None;
        } else if taken && entry.held.is_none() {
            // what the API server accepted can be read
            entry.held = held(pod).ok();
        }
        self.by_node.entry(node).or_default().insert(uid);
    }

    /// The node takes a pod.
    pub(super) fn hold(&mut self, uid: &str, held: Held) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.held = Some(held);
        }
    }

    /// A pod is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.addresses.release(uid);
        if let Some(entry) = self.entries.remove(uid)
            && let Some(uids) = self.by_node.get_mut(&entry.node)
        {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_node.remove(&entry.node);
            }
        }
    }

    /// Only these pods are there.
    pub(super) fn retain(&mut self, uids: &HashSet<&str>) {
        let gone: Vec<String> =
            self.entries.keys().filter(|uid| !uids.contains(uid.as_str())).cloned().collect();
        for uid in gone {
            self.forget(&uid);
        }
    }

    /// The pods on a node.
    pub(super) fn on(&self, node: &str) -> Vec<ObjectRef<Pod>> {
        let uids = self.by_node.get(node).into_iter().flatten();
        uids.filter_map(|uid| self.entries.get(uid)).map(|entry| entry.object.clone()).collect()
    }

    /// Whether the pod is still there.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// What the node's other pods hold.
    pub(super) fn others(&self, node: &str, uid: &str) -> Vec<&Held> {
        let uids = self.by_node.get(node).into_iter().flatten().filter(|other| *other != uid);
        uids.filter_map(|uid| self.entries.get(uid)?.held.as_ref()).collect()
    }

    /// The pod's address.
    pub(super) fn address(&mut self, uid: &str) -> Option<Ipv4Addr> {
        self.addresses.assign(uid)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::needless_pass_by_value, reason = "literals are handed in")]

    use serde_json::json;

    use super::*;

    fn pod(uid: &str, status: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "d", "uid": uid},
            "spec": {"nodeName": "n", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": status,
        }))
        .expect("a pod")
    }

    #[test]
    fn only_pods_that_were_taken_hold_something() {
        let mut ledger = Ledger::new();
        ledger.saw(&pod("new", json!({"phase": "Pending"})));
        ledger.saw(&pod("old", json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})));
        assert_eq!(ledger.others("n", "new").len(), 1);
        assert_eq!(ledger.others("n", "old").len(), 0);
        ledger.hold("new", held(&pod("new", json!({}))).expect("quantities"));
        assert_eq!(ledger.others("n", "old").len(), 1);
        ledger.saw(&pod("old", json!({"phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z"})));
        assert_eq!(ledger.others("n", "new").len(), 0);
        assert_eq!(ledger.on("n").len(), 2);
    }

    #[test]
    fn a_restart_keeps_addresses() {
        let mut ledger = Ledger::new();
        ledger.saw(&pod("a", json!({"phase": "Running", "podIP": "100.64.0.1"})));
        assert_eq!(ledger.address("b"), Some(Ipv4Addr::new(100, 64, 0, 2)));
        assert_eq!(ledger.address("a"), Some(Ipv4Addr::new(100, 64, 0, 1)));
        ledger.retain(&HashSet::from(["b"]));
        assert!(ledger.on("n").is_empty());
    }

    #[test]
    fn the_quota_counts_others_only() {
        let mut fleet = Fleet::new();
        assert_eq!(fleet.reserve("class", "a"), 0);
        assert_eq!(fleet.reserve("class", "a"), 0);
        assert_eq!(fleet.reserve("class", "b"), 1);
        fleet.unreserve("class", "a");
        assert_eq!(fleet.reserve("class", "c"), 1);
        assert_eq!(fleet.reserve("other", "d"), 0);
    }
}
