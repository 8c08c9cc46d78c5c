//! The snapshot, sorted and with its references followed.

use std::collections::{BTreeMap, BTreeSet};

use buffer_api::{conditions, labels};
use jiff::Timestamp;

use crate::{
    conditions::is_true,
    offers::Catalogue,
    pools,
    snapshot::{Claim, DaemonSet, DisruptionBudget, Node, Pod, Pool, Snapshot},
};

/// A snapshot whose lists stand in a fixed order, whatever order they came in.
#[derive(Debug)]
pub struct Index<'a> {
    /// Time of the plan.
    pub now: Timestamp,
    /// Nodes by name.
    pub nodes: Vec<NodeView<'a>>,
    /// Claims by name.
    pub claims: Vec<ClaimView<'a>>,
    /// Pools by weight, heaviest first, then by name.
    pub pools: Vec<PoolView<'a>>,
    /// What the classes sell, in the order in which the pools name them.
    pub catalogues: Vec<Catalogue>,
    /// DaemonSets by key.
    pub daemons: Vec<&'a DaemonSet>,
    /// PodDisruptionBudgets by key.
    pub disruption_budgets: Vec<&'a DisruptionBudget>,
    /// Pods that no node carries, by key.
    pub unbound: Vec<&'a Pod>,
    /// UIDs of claims that a search leaves alone.
    pub tried: &'a BTreeSet<String>,
}

/// A node and what belongs to it.
#[derive(Debug)]
pub struct NodeView<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its claim in [`Index::claims`].
    pub claim: Option<usize>,
    /// The pods bound to it, by key.
    pub pods: Vec<&'a Pod>,
    /// It is registered, or will be when this plan has been carried out.
    pub registered: bool,
    /// It is ready for pods, or was once, or will be when this plan has been carried out.
    pub initialized: bool,
}

/// A claim and what belongs to it.
#[derive(Debug)]
pub struct ClaimView<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// Its node in [`Index::nodes`].
    pub node: Option<usize>,
    /// Its pool in [`Index::pools`].
    pub pool: Option<usize>,
    /// What its class sells in [`Index::catalogues`], where a pool names that class too.
    pub catalogue: Option<usize>,
}

/// A pool and what belongs to it.
#[derive(Debug)]
pub struct PoolView<'a> {
    /// The pool.
    pub pool: &'a Pool,
    /// What its class sells in [`Index::catalogues`].
    pub catalogue: Option<usize>,
    /// The conditions that it should have.
    pub health: pools::Health,
    /// Hash of its template.
    pub hash: String,
}

impl<'a> Index<'a> {
    /// Sorts a snapshot and follows its references.
    pub fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        let (nodes, claims) = (nodes(snapshot), sorted(&snapshot.claims, |claim| &claim.name));
        let mut index = Self {
            now,
            nodes,
            claims: Vec::new(),
            pools: Vec::new(),
            catalogues: Vec::new(),
            daemons: sorted(&snapshot.daemon_sets, |set| &set.key),
            disruption_budgets: sorted(&snapshot.disruption_budgets, |budget| &budget.key),
            unbound: Vec::new(),
            tried: &snapshot.tried,
        };
        index.add_pools(snapshot);
        index.add_claims(claims);
        index.add_pods(snapshot);
        index
    }

    fn add_pools(&mut self, snapshot: &'a Snapshot) {
        let mut known = BTreeMap::new();
        let mut pools = sorted(&snapshot.pools, |pool| &pool.name);
        pools.sort_by_key(|pool| std::cmp::Reverse(pool.spec.weight.unwrap_or(0)));
        for pool in pools {
            let reference = &pool.spec.template.spec.node_class_ref;
            let class = snapshot.classes.iter().find(|class| {
                (&class.group, &class.kind, &class.name)
                    == (&reference.group, &reference.kind, &reference.name)
            });
            let catalogue = class.map(|class| {
                *known.entry((&class.group, &class.kind, &class.name)).or_insert_with(|| {
                    self.catalogues.push(Catalogue::new(class, self.now));
                    self.catalogues.len() - 1
                })
            });
            let (health, hash) = (pools::health(pool, class), pools::template_hash(pool));
            self.pools.push(PoolView { pool, catalogue, health, hash });
        }
    }

    fn add_claims(&mut self, claims: Vec<&'a Claim>) {
        let by_provider: BTreeMap<&str, usize> = self
            .nodes
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(at, view)| {
                Some((view.node.provider_id.as_deref().filter(|id| !id.is_empty())?, at))
            })
            .collect();
        for claim in claims {
            let node = claim.status.provider_id.as_deref().and_then(|id| by_provider.get(id).copied());
            let owner = claim.labels.get(labels::NODEPOOL);
            let pool = owner.and_then(|name| self.pools.iter().position(|view| view.pool.name == *name));
            let class = &claim.spec.node_class_ref;
            let same_class =
                self.pools.iter().find(|view| view.pool.spec.template.spec.node_class_ref == *class);
            let catalogue = same_class.and_then(|view| view.catalogue);
            if let Some(view) = node.and_then(|at| self.nodes.get_mut(at)) {
                view.claim.get_or_insert(self.claims.len());
            }
            self.claims.push(ClaimView { claim, node, pool, catalogue });
        }
    }

    fn add_pods(&mut self, snapshot: &'a Snapshot) {
        let by_name: BTreeMap<&str, usize> =
            self.nodes.iter().enumerate().map(|(at, view)| (view.node.name.as_str(), at)).collect();
        let mut bound: Vec<Vec<&Pod>> = vec![Vec::new(); self.nodes.len()];
        for pod in &snapshot.pods {
            match pod.node.as_deref() {
                None => self.unbound.push(pod),
                Some(node) => {
                    if let Some(pods) = by_name.get(node).and_then(|at| bound.get_mut(*at)) {
                        pods.push(pod);
                    }
                }
            }
        }
        self.unbound.sort_by(|one, two| one.key.cmp(&two.key));
        for (view, mut pods) in self.nodes.iter_mut().zip(bound) {
            pods.sort_by(|one, two| one.key.cmp(&two.key));
            view.pods = pods;
        }
    }

    /// The claim of a node.
    pub fn claim_of(&self, node: &NodeView<'a>) -> Option<&ClaimView<'a>> {
        node.claim.and_then(|at| self.claims.get(at))
    }

    /// The node of a claim.
    pub fn node_of(&self, claim: &ClaimView<'a>) -> Option<&NodeView<'a>> {
        claim.node.and_then(|at| self.nodes.get(at))
    }

    /// The pool of a claim.
    pub fn pool_of(&self, claim: &ClaimView<'a>) -> Option<&PoolView<'a>> {
        claim.pool.and_then(|at| self.pools.get(at))
    }

    /// Names of all claims.
    pub fn claim_names(&self) -> BTreeSet<&str> {
        self.claims.iter().map(|view| view.claim.name.as_str()).collect()
    }
}

impl NodeView<'_> {
    /// Pods that would have to find another place if the node went: neither daemons nor mirrors nor those that end anyway.
    pub fn reschedulable(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().copied().filter(|pod| !pod.daemon && !pod.mirror && !pod.deleting)
    }

    /// The node has a taint.
    pub fn has_taint(&self, key: &str) -> bool {
        self.node.taints.iter().any(|taint| taint.key == key)
    }

    /// The node was registered before this plan: it carries the label.
    pub fn was_registered(&self) -> bool {
        is_set(self.node, labels::REGISTERED)
    }

    /// The node was initialised before this plan: it carries the label.
    pub fn was_initialized(&self) -> bool {
        is_set(self.node, labels::INITIALIZED)
    }
}

impl ClaimView<'_> {
    /// The instance runs.
    pub fn is_launched(&self) -> bool {
        is_true(&self.claim.status.conditions, conditions::claim::LAUNCHED)
    }
}

fn is_set(node: &Node, label: &str) -> bool {
    node.labels.get(label).is_some_and(|value| value == "true")
}

fn nodes(snapshot: &Snapshot) -> Vec<NodeView<'_>> {
    let nodes = sorted(&snapshot.nodes, |node| &node.name).into_iter();
    nodes
        .map(|node| NodeView {
            node,
            claim: None,
            pods: Vec::new(),
            registered: is_set(node, labels::REGISTERED),
            initialized: is_set(node, labels::INITIALIZED),
        })
        .collect()
}

/// References to all items in the order of a key.
pub fn sorted<T, K: Ord>(items: &[T], key: impl Fn(&T) -> &K) -> Vec<&T> {
    let mut all: Vec<&T> = items.iter().collect();
    all.sort_by(|one, two| key(one).cmp(key(two)));
    all
}
