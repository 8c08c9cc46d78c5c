//! One watch a kind, each in a task of its own: objects are converted there, and only slim values go on.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use buffer_api::{CapacityBuffer, FakeNodeClass, NodeClaim, NodePool};
use buffer_client::chain;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::Job,
    core::v1::{Node, Pod, PodTemplate, ReplicationController, ResourceQuota},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::sleep,
};
use tracing::warn;

use crate::{
    cache::{Change, Observed, Op, Slim, version},
    convert::{self, Interner},
    error::request_text,
    kind::{Kind, ObjectRef},
    metrics::Metrics,
};

/// Pods that have not ended.
pub const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// How long a failed watch waits; twice as long each time in a row.
const FIRST_DELAY: Duration = Duration::from_millis(250);
/// Longest wait of a failed watch.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// All watches.
#[derive(Debug)]
pub struct Watches {
    /// The kinds that are watched.
    pub kinds: Vec<Kind>,
    troubles: Troubles,
    /// They end with this value.
    tasks: JoinSet<()>,
}

/// Last error of each watch that has one.
type Troubles = Arc<Mutex<BTreeMap<Kind, String>>>;

/// What the tasks share.
#[derive(Clone)]
struct Shared {
    client: Client,
    sender: mpsc::Sender<Change>,
    troubles: Troubles,
    metrics: Metrics,
}

impl Watches {
    /// Starts to watch. Buffers, and what only buffers refer to, are watched with their feature gate on.
    pub fn start(
        client: &Client,
        buffers: bool,
        interner: &Arc<Interner>,
        metrics: &Metrics,
        sender: mpsc::Sender<Change>,
    ) -> Self {
        let shared = Shared {
            client: client.clone(),
            sender,
            troubles: Troubles::default(),
            metrics: metrics.clone(),
        };
        let mut watches =
            Self { kinds: Vec::new(), troubles: Arc::clone(&shared.troubles), tasks: JoinSet::new() };
        if buffers {
            watches.add(&shared, Kind::Buffer, |buffer: CapacityBuffer| Ok(convert::buffer(buffer)));
            watches.add(&shared, Kind::Quota, |quota: ResourceQuota| convert::quota(quota));
            watches.add(&shared, Kind::Template, |template: PodTemplate| convert::template(template));
            watches.add(&shared, Kind::Deployment, |set: Deployment| convert::deployment(set));
            watches.add(&shared, Kind::StatefulSet, |set: StatefulSet| convert::stateful_set(set));
            watches.add(&shared, Kind::ReplicaSet, |set: ReplicaSet| convert::replica_set(set));
            watches.add(&shared, Kind::ReplicationController, |set: ReplicationController| {
                convert::replication_controller(set)
            });
            watches.add(&shared, Kind::Job, |job: Job| convert::job(job));
        }
        let interner = Arc::clone(interner);
        watches.add(&shared, Kind::Pod, move |pod: Pod| convert::pod(pod, &interner, Timestamp::now()));
        watches.add(&shared, Kind::DaemonSet, |set: DaemonSet| convert::daemon_set(set));
        watches.add(&shared, Kind::DisruptionBudget, |budget: PodDisruptionBudget| {
            Ok(convert::disruption_budget(budget))
        });
        watches.add(&shared, Kind::Node, |node: Node| convert::node(node));
        watches.add(&shared, Kind::Claim, |claim: NodeClaim| Ok(convert::claim(claim)));
        watches.add(&shared, Kind::Pool, |pool: NodePool| Ok(convert::pool(pool)));
        watches.add(&shared, Kind::Class, |class: FakeNodeClass| Ok(convert::class(class)));
        watches
    }

    fn add<K, T>(
        &mut self,
        shared: &Shared,
        kind: Kind,
        convert: impl Fn(K) -> Result<Observed<T>, convert::Error> + Send + Sync + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        T: Slim,
    {
        self.kinds.push(kind);
        self.tasks.spawn(watch(shared.clone(), kind, convert));
    }

    /// Waits for the panic of a watch: there is no other way for one to end.
    pub async fn panicked(&mut self) -> JoinError {
        loop {
            match self.tasks.join_next().await {
                Some(Err(panic)) => return panic,
                Some(Ok(())) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// The last error of a kind's watch.
    pub fn trouble(&self, kind: Kind) -> Option<String> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).get(&kind).cloned()
    }
}

/// Watches a kind until nobody listens any more. Errors are repeated with back-off, for ever.
async fn watch<K, T>(
    shared: Shared,
    kind: Kind,
    convert: impl Fn(K) -> Result<Observed<T>, convert::Error> + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    T: Slim,
{
    let Shared { client, sender, troubles, metrics } = shared;
    let mut config = watcher::Config::default();
    if kind == Kind::Pod {
        config = config.fields(LIVE_PODS);
    }
    let mut events = watcher(Api::<K>::all(client), config).boxed();
    // kube's own back-off starts anew with each attempt, since each begins with an `Init`
    let mut delay = FIRST_DELAY;
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => {
                if !matches!(event, watcher::Event::Init) {
                    delay = FIRST_DELAY;
                }
                event
            }
            Ok(None) => return,
            Err(error) => {
                metrics.error("watch");
                let text = trouble::<K>(&error);
                warn!(kind = kind.name(), error = text, "watch failed, will be repeated");
                troubles.lock().unwrap_or_else(PoisonError::into_inner).insert(kind, text);
                sleep(delay).await;
                delay = (2 * delay).min(LONGEST_DELAY);
                continue;
            }
        };
        let op = match event {
            watcher::Event::Init => Ok(Op::Init(kind)),
            watcher::Event::InitApply(object) => convert(object).map(Op::Listed),
            watcher::Event::InitDone => Ok(Op::InitDone(kind)),
            watcher::Event::Apply(object) => convert(object).map(Op::Applied),
            watcher::Event::Delete(object) => {
                let meta = object.meta();
                let key = buffer_core::snapshot::ObjectKey {
                    namespace: meta.namespace.clone().unwrap_or_default(),
                    name: meta.name.clone().unwrap_or_default(),
                };
                let version = version(meta.resource_version.as_deref());
                Ok(Op::Deleted(ObjectRef::new(kind, key), version))
            }
        };
        match op {
            Ok(op) => {
                if sender.send(T::change(op)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                metrics.error("convert");
                warn!(kind = kind.name(), error = chain(&error), "object left out");
            }
        }
    }
}

/// What to tell about a failed watch.
fn trouble<K: Resource<DynamicType = ()>>(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
            let (group, version, plural) = (K::group(&()), K::version(&()), K::plural(&()));
            format!(
                "the server has no {plural}.{group}/{version}: is its CustomResourceDefinition installed?"
            )
        }
        watcher::Error::InitialListFailed(error) => format!("listing: {}", request_text(error)),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            format!("watching: {}", request_text(error))
        }
        watcher::Error::WatchError(status) => format!("watching: {} ({})", status.message, status.code),
        watcher::Error::NoResourceVersion => chain(error),
    }
}
