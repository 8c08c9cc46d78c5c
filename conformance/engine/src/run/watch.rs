//! The watches that write into the world. They live as long as the [`Watches`] value.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt as _;
use kube::{
    api::{Api, DynamicObject},
    runtime::watcher::{self, Event},
};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::{
    cluster::{ApiError, Cluster},
    world::{Key, Watched, World, key_of},
};

/// How long a broken watch waits before it tries again.
const RETRY: Duration = Duration::from_millis(500);

/// What every scenario watches: buffers, pods, nodes, claims where they are served, events.
const ALWAYS: [(&str, &str); 5] = [
    ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer"),
    ("v1", "Pod"),
    ("v1", "Node"),
    ("karpenter.sh/v1", "NodeClaim"),
    ("v1", "Event"),
];

/// The running watches of a scenario.
pub struct Watches {
    cluster: Arc<Cluster>,
    world: World,
    running: Vec<AbortOnDropHandle<()>>,
}

impl Watches {
    /// Starts the watches that every scenario has. A kind that is not served is left out.
    pub async fn start(cluster: Arc<Cluster>, world: World) -> Result<Self, ApiError> {
        let mut all = Self { cluster, world, running: Vec::new() };
        for (api_version, kind) in ALWAYS {
            let watched =
                Watched { api_version: api_version.to_owned(), kind: kind.to_owned(), namespace: None };
            match all.add(watched).await {
                Err(error) if error.is_not_served() => tracing::debug!(kind, "not served, not watched"),
                other => other?,
            }
        }
        Ok(all)
    }

    /// Starts a single watch.
    pub async fn only(cluster: Arc<Cluster>, world: World, watched: Watched) -> Result<Self, ApiError> {
        let mut all = Self { cluster, world, running: Vec::new() };
        all.add(watched).await?;
        Ok(all)
    }

    /// Sees to it that an object is watched.
    pub async fn cover(&mut self, key: &Key) -> Result<(), ApiError> {
        let watched = Watched {
            api_version: key.api_version.clone(),
            kind: key.kind.clone(),
            namespace: key.namespace.clone(),
        };
        self.add(watched).await
    }

    async fn add(&mut self, watched: Watched) -> Result<(), ApiError> {
        let served = self.cluster.served(&watched.api_version, &watched.kind).await?;
        if self.world.watch_begins(&watched) {
            let api = self.cluster.api(&served, watched.namespace.as_deref());
            let task = tokio::spawn(follow(api, self.world.clone(), watched));
            self.running.push(AbortOnDropHandle::new(task));
        }
        Ok(())
    }
}

async fn follow(api: Api<DynamicObject>, world: World, watched: Watched) {
    let mut listed = BTreeSet::<Key>::new();
    let mut events = pin!(watcher::watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                let object = json!(object);
                listed.extend(key_of(&watched, &object));
                world.seen(&watched, object);
            }
            Ok(Event::InitDone) => world.synced(&watched, &listed),
            Ok(Event::Apply(object)) => world.seen(&watched, json!(object)),
            Ok(Event::Delete(object)) => world.gone(&watched, &json!(object)),
            Err(error) => {
                tracing::debug!(kind = watched.kind, %error, "a watch broke");
                world.watch_failed(&watched, error.to_string());
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
