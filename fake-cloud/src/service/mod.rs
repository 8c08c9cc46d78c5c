//! The part that talks: watches the cluster, asks the pure functions what to do, and does it.
//!
//! * `watch`: watches, stores and queues. `fleet`: what this process knows beyond the API.
//! * `classes`: publishes what is sold. `claims`: buys and terminates. `machine`: what stands behind a node, `kind` if that
//!   is a container.
//! * `nodes`: the kubelets' nodes, and orphans. `heart`: their leases. `pods`: their pods.
//! * `admin`: health.

mod admin;
mod claims;
mod classes;
mod fleet;
mod heart;
mod kind;
mod machine;
mod nodes;
mod pods;
mod watch;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use buffer_api::{FakeNodeClass, NodeClaim, fake_node_class::Backend, labels::BUFCONF_GROUP};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::PatchParams,
    runtime::{
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::{
    sync::{oneshot, watch as signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::{
    fleet::{Fleet, Ledger},
    watch::{Change, Written, lock, objects, reconcile, wake},
};
use crate::{
    claim,
    config::Config,
    error::Error,
    identity::Identity,
    node::{self, Kubelet},
    rules::{Fate, Rules},
};

/// Name under which the cloud owns fields.
const MANAGER: &str = "fake-cloud";

/// All that the parts share.
struct World {
    client: Client,
    identity: Identity,
    kubelet: Kubelet,
    adopt: bool,
    /// What stands behind the nodes of a class that doesn't say.
    backend: Backend,
    kind: Option<kind::Kind>,
    claims: Store<NodeClaim>,
    classes: Store<FakeNodeClass>,
    nodes: Store<Node>,
    own_claims: Written<NodeClaim>,
    own_classes: Written<FakeNodeClass>,
    own_pods: Written<Pod>,
    /// One writer of a class's status at a time.
    publishing: tokio::sync::Mutex<()>,
    fleet: Mutex<Fleet>,
    ledger: Mutex<Ledger>,
    wake_claims: UnboundedSender<ObjectRef<NodeClaim>>,
    wake_nodes: UnboundedSender<ObjectRef<Node>>,
    wake_pods: UnboundedSender<ObjectRef<Pod>>,
    heart: UnboundedSender<heart::Command>,
    synced: signal::Receiver<bool>,
}

/// Runs the cloud until it is told to stop. Whatever it was doing then is taken up by the next one.
pub async fn run(config: Config, stop: CancellationToken) -> Result<(), Error> {
    let client = buffer_client::connect(config.kubeconfig.as_deref()).await?;
    let version = client.apiserver_version().await.map_err(|e| Error::Version(Box::new(e)))?.git_version;
    let (set_synced, synced) = signal::channel(false);
    let mut parts = JoinSet::new();
    if let Some(port) = config.admin_port {
        parts.spawn(admin::serve(admin::listen(port).await?, synced.clone()));
    }

    let (claims, write_claims) = reflector::store();
    let (classes, write_classes) = reflector::store();
    let (nodes, write_nodes) = reflector::store();
    let (pods, write_pods) = reflector::store();
    let (wake_claims, woken_claims) = unbounded();
    let (wake_classes, woken_classes) = unbounded();
    let (wake_nodes, woken_nodes) = unbounded();
    let (wake_pods, woken_pods) = unbounded();
    let (heart, commands) = unbounded();
    let world = Arc::new(World {
        identity: Identity::new(&config.cluster_name),
        kubelet: Kubelet { version },
        adopt: config.adopt_fake_nodes,
        backend: config.backend,
        kind: config.kind_cluster.map(|cluster| {
            kind::Kind::new(cluster, config.cluster_name, config.join_logs, config.kind_joins.into())
        }),
        claims: claims.clone(),
        classes: classes.clone(),
        nodes: nodes.clone(),
        own_claims: Written::default(),
        own_classes: Written::default(),
        own_pods: Written::default(),
        publishing: tokio::sync::Mutex::default(),
        fleet: Mutex::new(Fleet::new()),
        ledger: Mutex::new(Ledger::new()),
        wake_claims,
        wake_nodes,
        wake_pods,
        heart,
        synced,
        client: client.clone(),
    });

    // a store's own signal wakes only one of those who wait for it, and the queue waits already
    let (classes_filled, classes_wait) = oneshot::channel();
    let (claims_filled, claims_wait) = oneshot::channel();
    let (nodes_filled, nodes_wait) = oneshot::channel();
    let (pods_filled, pods_wait) = oneshot::channel();
    let all = watcher::Config::default;
    let observer = class_observer(world.clone());
    let watched = objects(Api::all(client.clone()), all(), write_classes, classes_filled, observer);
    parts.spawn(reconcile(watched, woken_classes, classes, world.clone(), classes::look));
    let observer = claim_observer(world.clone());
    let watched = objects(Api::all(client.clone()), all(), write_claims, claims_filled, observer);
    parts.spawn(reconcile(watched, woken_claims, claims, world.clone(), claims::look));
    let observer = node_observer(world.clone());
    let watched = objects(Api::all(client.clone()), all(), write_nodes, nodes_filled, observer);
    parts.spawn(reconcile(watched, woken_nodes, nodes, world.clone(), nodes::look));
    let bound = all().fields("spec.nodeName!=");
    let observer = pod_observer(world.clone());
    let watched = objects(Api::all(client.clone()), bound, write_pods, pods_filled, observer);
    parts.spawn(reconcile(watched, woken_pods, pods, world.clone(), pods::look));
    parts.spawn(heart::beat(client, commands));
    parts.spawn(kind::sweep(world.clone()));
    parts.spawn(async move {
        // keeps the queue of classes open: only the watch and timers wake them
        let _open = wake_classes;
        if tokio::try_join!(classes_wait, claims_wait, nodes_wait, pods_wait).is_ok() {
            info!("the cloud is open");
            set_synced.send_replace(true);
        }
        std::future::pending::<()>().await;
    });

    tokio::select! {
        () = stop.cancelled() => Ok(()),
        Some(ended) = parts.join_next() => match ended {
            Ok(()) => Err(Error::Ended),
            Err(error) => Err(Error::Broken(error)),
        },
    }
}

impl World {
    /// Returns when all stores are filled.
    async fn synced(&self) {
        // an error means that the cloud is stopping
        let _ = self.synced.clone().wait_for(|synced| *synced).await;
    }

    /// The node class of a claim, if it is one of ours.
    fn class_of(&self, claim: &NodeClaim) -> Option<Arc<FakeNodeClass>> {
        let class = self.classes.get(&ObjectRef::new(&claim.spec.node_class_ref.name))?;
        Some(self.own_classes.newest(class))
    }

    /// What stands behind the nodes of a class.
    fn backend_of(&self, class: &FakeNodeClass) -> Backend {
        class.spec.backend.unwrap_or(self.backend)
    }

    /// The rules of a claim's class; without a class, or with one that makes no sense, nothing goes wrong.
    fn rules_of(&self, claim: &NodeClaim) -> Rules {
        self.class_of(claim).and_then(|class| Rules::parse(&class.spec).ok()).unwrap_or_default()
    }

    /// What goes wrong with a claim's instance.
    fn fate_of(&self, claim: &NodeClaim, rules: &Rules) -> Fate {
        let class = self.class_of(claim);
        let struck = class.as_ref().and_then(|class| class.status.as_ref()).map(|status| &status.struck);
        let struck = struck.map(Vec::as_slice).unwrap_or_default();
        rules.fate(struck, claim::name(claim), &claim::fault_labels(claim))
    }

    /// The UID of the claim to whose instance a node belongs.
    fn claim_uid_of<'a>(&self, node: &'a Node) -> Option<&'a str> {
        self.identity.claim_uid(node.spec.as_ref()?.provider_id.as_deref()?)
    }

    /// Who holds the address of a node of ours: the UID of its claim, or of an adopted node itself.
    fn address_owner(&self, node: &Node) -> Option<String> {
        let adopted = || (self.adopt && is_adopted(node)).then(|| node.uid()).flatten();
        self.claim_uid_of(node).map(str::to_owned).or_else(adopted)
    }
}

/// Whether the claim is to be served by a class of this cloud.
fn is_ours(claim: &NodeClaim) -> bool {
    let class = &claim.spec.node_class_ref;
    class.group == BUFCONF_GROUP && class.kind == "FakeNodeClass"
}

/// Whether somebody else made the node, as one without a machine.
fn is_adopted(node: &Node) -> bool {
    node.annotations().get(node::FAKE_ANNOTATION).is_some_and(|value| value == "fake")
}

/// Parameters of a patch that is no server-side apply.
fn patched() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn claim_observer(world: Arc<World>) -> impl FnMut(Change<NodeClaim>) + Send + 'static {
    move |change| match change {
        Change::Applied(claim) if is_ours(claim) => lock(&world.fleet).saw(claim, &world.identity),
        Change::Applied(_) => {}
        Change::Deleted(claim) => {
            lock(&world.fleet).forget(claim);
            world.own_claims.forget(claim);
            wake(&world.wake_nodes, ObjectRef::new(claim::name(claim)));
        }
        Change::Listed(claims) => {
            let mut fleet = lock(&world.fleet);
            fleet.retain(&claims.iter().map(|claim| claim::uid(claim)).collect());
            for claim in claims.iter().filter(|claim| is_ours(claim)) {
                fleet.saw(claim, &world.identity);
            }
        }
    }
}

/// A class whose rules changed concerns its claims and their nodes.
fn class_observer(world: Arc<World>) -> impl FnMut(Change<FakeNodeClass>) + Send + 'static {
    let mut known = HashMap::new();
    move |change| {
        let (Change::Applied(_) | Change::Listed(_)) = change else {
            if let Change::Deleted(class) = change {
                known.remove(&class.name_any());
                world.own_classes.forget(class);
            }
            return;
        };
        for class in world.classes.state() {
            let struck = class.status.as_ref().map(|status| status.struck.clone());
            let now = (class.metadata.generation, classes::is_ready(&class), struck);
            if known.get(&class.name_any()) == Some(&now) {
                continue;
            }
            known.insert(class.name_any(), now);
            for claim in world.claims.state() {
                if is_ours(&claim) && claim.spec.node_class_ref.name == class.name_any() {
                    wake(&world.wake_claims, ObjectRef::from_obj(&claim));
                    wake(&world.wake_nodes, ObjectRef::new(claim::name(&claim)));
                }
            }
        }
    }
}

fn node_observer(world: Arc<World>) -> impl FnMut(Change<Node>) + Send + 'static {
    let saw = |world: &World, fleet: &mut Fleet, node: &Node| {
        if let Some(uid) = world.claim_uid_of(node)
            && let Some(instance) = fleet.known(uid)
        {
            (instance.born, instance.unseen) = (true, false);
        }
        if let (Some(owner), Some(ip)) = (world.address_owner(node), node::address(node)) {
            fleet.addresses.reserve(&owner, ip);
        }
    };
    move |change| match change {
        Change::Applied(node) => saw(&world, &mut lock(&world.fleet), node),
        Change::Deleted(node) => {
            let mut fleet = lock(&world.fleet);
            // the node may have come and gone without having been seen
            saw(&world, &mut fleet, node);
            if let Some(owner) = world.address_owner(node) {
                fleet.addresses.release(&owner);
            }
            fleet.kubelets.remove(&node.name_any());
            fleet.orphans.remove(&node.uid().unwrap_or_default());
            heart::stop(&world.heart, &node.name_any());
            wake(&world.wake_claims, ObjectRef::new(&node.name_any()));
        }
        Change::Listed(nodes) => {
            let mut fleet = lock(&world.fleet);
            let names: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
            let gone: Vec<String> =
                fleet.kubelets.keys().filter(|name| !names.contains(*name)).cloned().collect();
            for name in gone {
                fleet.kubelets.remove(&name);
                heart::stop(&world.heart, &name);
                wake(&world.wake_claims, ObjectRef::new(&name));
            }
            for node in nodes {
                saw(&world, &mut fleet, node);
            }
        }
    }
}

fn pod_observer(world: Arc<World>) -> impl FnMut(Change<Pod>) + Send + 'static {
    move |change| match change {
        Change::Applied(pod) => lock(&world.ledger).saw(pod),
        Change::Deleted(pod) => {
            lock(&world.ledger).forget(&pod.uid().unwrap_or_default());
            world.own_pods.forget(pod);
        }
        Change::Listed(pods) => {
            let mut ledger = lock(&world.ledger);
            ledger.retain(&pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect());
            for pod in pods {
                ledger.saw(pod);
            }
        }
    }
}
