//! Watches: a store, a stream of objects to look at, and what others have to know of each change.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt::Debug,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use buffer_client::chain;
use futures::{
    Stream, StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
    stream,
};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt,
        controller::{Action, Config, Error as ControllerError, applier},
        reflector::{ObjectRef, Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::World;
use crate::error::Error;

/// How long a reconciliation that failed waits before it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// An object that changed.
pub(super) enum Change<'a, K> {
    /// It is there.
    Applied(&'a K),
    /// It is gone.
    Deleted(&'a K),
    /// These and no others are there.
    Listed(&'a [Arc<K>]),
}

/// Watches all objects of a kind: keeps the store, tells `observe` of each change after the store has it, says once that
/// the store is filled, and yields what to look at.
pub(super) fn objects<K>(
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
    mut observe: impl FnMut(Change<K>) + Send + 'static,
) -> impl Stream<Item = ObjectRef<K>> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let kind = K::kind(&()).into_owned();
    let store = writer.as_reader();
    let mut filled = Some(filled);
    watcher(api, config)
        // who wrote which field is a large part of an object, and is never asked here
        .map(|event| event.map(|e| e.modify(|object| object.meta_mut().managed_fields = None)))
        .default_backoff()
        .reflect(writer)
        .filter_map(move |event| {
            let found = match event {
                Ok(Event::Apply(object)) => {
                    observe(Change::Applied(&object));
                    vec![ObjectRef::from_obj(&object)]
                }
                Ok(Event::Delete(object)) => {
                    observe(Change::Deleted(&object));
                    Vec::new()
                }
                Ok(Event::InitDone) => {
                    let all = store.state();
                    observe(Change::Listed(&all));
                    // nobody is told if the cloud is stopping already
                    let _ = filled.take().map(|filled| filled.send(()));
                    all.iter().map(|object| ObjectRef::from_obj(object.as_ref())).collect()
                }
                Ok(Event::Init | Event::InitApply(_)) => Vec::new(),
                Err(error) => {
                    warn!(kind, error = chain(&error), "watch failed, it is started again");
                    Vec::new()
                }
            };
            std::future::ready((!found.is_empty()).then_some(found))
        })
        .flat_map(stream::iter)
}

/// Looks at each object that a stream yields, one time after the other for the same object and side by side for
/// different ones. Nothing is looked at before all stores are filled.
pub(super) async fn reconcile<K, F>(
    objects: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    woken: UnboundedReceiver<ObjectRef<K>>,
    store: Store<K>,
    world: Arc<World>,
    look: impl Fn(Arc<K>, Arc<World>) -> F + Copy + Send + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone,
    F: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let queue = stream::select(objects, woken).map(Ok::<_, Infallible>);
    let reconciler = move |object: Arc<K>, world: Arc<World>| {
        Box::pin(async move {
            world.synced().await;
            look(object, world).await
        })
    };
    applier(reconciler, |_, _, _| Action::requeue(RETRY), world, store, queue, Config::default())
        .for_each(|result| {
            match result {
                // gone in the meantime
                Ok(_) | Err(ControllerError::ObjectNotFound(_)) => {}
                Err(ControllerError::ReconcilerFailed(error, object)) => {
                    warn!(%object, error = chain(&error), "failed, it is tried again");
                }
                Err(error) => debug!(error = chain(&error), "queue"),
            }
            std::future::ready(())
        })
        .await;
}

/// Objects as this process last wrote them, until the watch shows them. Without this a decision could be made twice.
#[derive(Debug)]
pub(super) struct Written<K>(Mutex<HashMap<String, Arc<K>>>);

impl<K> Default for Written<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Resource> Written<K> {
    /// Remembers an object that was written.
    pub(super) fn put(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        if let Some(uid) = object.meta().uid.clone() {
            lock(&self.0).insert(uid, object.clone());
        }
        object
    }

    /// The newer one of what the watch shows and of what was written.
    pub(super) fn newest(&self, seen: Arc<K>) -> Arc<K> {
        let Some(uid) = &seen.meta().uid else { return seen };
        let mut written = lock(&self.0);
        match written.get(uid) {
            Some(own) if version(own.as_ref()) > version(seen.as_ref()) => own.clone(),
            Some(_) => {
                written.remove(uid);
                seen
            }
            None => seen,
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, object: &K) {
        if let Some(uid) = &object.meta().uid {
            lock(&self.0).remove(uid);
        }
    }
}

/// Resource versions of one kind can be compared as numbers.
fn version(object: &impl Resource) -> Option<u128> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

/// Asks for another look at an object.
pub(super) fn wake<K: Resource>(queue: &UnboundedSender<ObjectRef<K>>, object: ObjectRef<K>) {
    if queue.unbounded_send(object).is_err() {
        debug!("the cloud is stopping");
    }
}

/// Locks a mutex. What it guards is always consistent, also after a panic elsewhere.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn node(version: &str) -> Node {
        let mut node = Node::default();
        node.metadata.uid = Some("u".to_owned());
        node.metadata.resource_version = Some(version.to_owned());
        node
    }

    #[test]
    fn the_newer_one_counts() {
        let written = Written::default();
        written.put(node("10"));
        let newest = |seen: &str| written.newest(Arc::new(node(seen))).metadata.resource_version.clone();
        assert_eq!(newest("9").as_deref(), Some("10"), "numbers, not texts");
        assert_eq!(newest("11").as_deref(), Some("11"));
        assert_eq!(newest("9").as_deref(), Some("9"), "forgotten once the watch was ahead");
    }
}
