//! The leases of all nodes, kept by one task with one timer wheel.

use std::{collections::HashMap, future::Future, pin::Pin, time::Duration};

use buffer_client::chain;
use futures::{
    StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
    stream::FuturesUnordered,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{Patch, PostParams},
};
use serde_json::json;
use tokio_util::time::{DelayQueue, delay_queue::Key};
use tracing::{debug, warn};

use super::patched;
use crate::{chance, error::is_gone};

/// Namespace of the nodes' leases.
const NAMESPACE: &str = "kube-node-lease";
/// How often a lease is renewed, and how long it lasts: a kubelet's values.
const RENEW_EVERY: Duration = Duration::from_secs(10);
const LASTS_SECONDS: i32 = 40;
/// When a renewal that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Renewals at the same time; more would only wait in the API server's queue.
const AT_ONCE: usize = 32;

/// What the heart is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Keep the lease of a node.
    Beat {
        /// Name of the node.
        node: String,
        /// UID of the node, the owner of the lease.
        uid: String,
        /// The node has just been born, so that there is no lease yet.
        newborn: bool,
    },
    /// Let the lease of a node run out.
    Stop(String),
}

/// Stops the lease of a node.
pub(super) fn stop(heart: &UnboundedSender<Command>, node: &str) {
    tell(heart, Command::Stop(node.to_owned()));
}

/// Tells the heart something.
pub(super) fn tell(heart: &UnboundedSender<Command>, command: Command) {
    if heart.unbounded_send(command).is_err() {
        debug!("the cloud is stopping");
    }
}

struct Beating {
    uid: String,
    newborn: bool,
    /// The place in the timer wheel; none while a renewal is under way.
    due: Option<Key>,
}

/// A renewal under way: the node, its UID, and whether the lease was renewed.
type Renewal = Pin<Box<dyn Future<Output = (String, String, bool)> + Send>>;

/// Keeps the leases, for ever.
pub(super) async fn beat(client: Client, mut commands: UnboundedReceiver<Command>) {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    let mut nodes: HashMap<String, Beating> = HashMap::new();
    let mut wheel: DelayQueue<String> = DelayQueue::new();
    let mut renewals: FuturesUnordered<Renewal> = FuturesUnordered::new();
    loop {
        tokio::select! {
            command = commands.next() => match command {
                None => return,
                Some(Command::Stop(node)) => {
                    if let Some(Beating { due: Some(key), .. }) = nodes.remove(&node) {
                        wheel.try_remove(&key);
                    }
                }
                Some(Command::Beat { node, uid, newborn }) => {
                    let known = nodes.get(&node).is_some_and(|beating| beating.uid == uid);
                    if !known {
                        if let Some(Beating { due: Some(key), .. }) = nodes.remove(&node) {
                            wheel.try_remove(&key);
                        }
                        let due = Some(wheel.insert(node.clone(), Duration::ZERO));
                        nodes.insert(node, Beating { uid, newborn, due });
                    }
                }
            },
            Some((node, uid, renewed)) = renewals.next() => {
                // the node may be gone, or be another one of the same name that has its own place
                if let Some(beating) = nodes.get_mut(&node).filter(|b| b.uid == uid && b.due.is_none()) {
                    beating.newborn &= !renewed;
                    let after = if renewed {
                        chance::jitter(RENEW_EVERY, &[&node, &Timestamp::now().to_string()])
                    } else {
                        RETRY
                    };
                    beating.due = Some(wheel.insert(node, after));
                }
            }
            Some(due) = wheel.next(), if renewals.len() < AT_ONCE => {
                let node = due.into_inner();
                if let Some(beating) = nodes.get_mut(&node) {
                    beating.due = None;
                    let (uid, newborn) = (beating.uid.clone(), beating.newborn);
                    renewals.push(Box::pin(renew(leases.clone(), node, uid, newborn)));
                }
            }
        }
    }
}

/// Renews a lease, or creates it where it isn't there.
async fn renew(leases: Api<Lease>, node: String, uid: String, newborn: bool) -> (String, String, bool) {
    let create =
        async || leases.create(&PostParams::default(), &lease(&node, &uid, Timestamp::now())).await.map(drop);
    let renew = async || {
        let patch = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
        leases.patch(&node, &patched(), &Patch::Merge(patch)).await.map(drop)
    };
    let result = if newborn {
        match create().await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => renew().await,
            result => result,
        }
    } else {
        match renew().await {
            Err(error) if is_gone(&error) => create().await,
            result => result,
        }
    };
    let renewed = result.map_err(|error| warn!(node, error = chain(&error), "renewing the lease"));
    (node, uid, renewed.is_ok())
}

fn lease(node: &str, uid: &str, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(LASTS_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}
