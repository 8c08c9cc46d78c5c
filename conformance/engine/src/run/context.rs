//! What the steps of one case have at hand.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use conformance_report::model::{StepResult, Violation};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    cluster::{ApiError, Cluster, labelled},
    outcome::Failure,
    wait::{Unmet, eventually},
    watch::Watches,
    world::{Key, Scope, State, World},
};
use crate::{
    implementation::Implementation,
    scenario::{Isolation, Target},
    waits::{Wait, Waits},
};

/// What a run and all its scenarios share.
pub struct Shared {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The declaration of the subject.
    pub implementation: Implementation,
    /// The waits in force.
    pub waits: Waits,
    /// Path of the kubeconfig that hooks get.
    pub kubeconfig: Option<PathBuf>,
}

/// What one case has come to; it survives the task that runs the steps.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Steps that ended.
    pub steps: Vec<StepResult>,
    /// Marked assertions that were violated.
    pub violations: Vec<Violation>,
    /// Why nothing is known.
    pub unknown: Option<String>,
    /// Everything that the scenario asked the server to create, in that order.
    pub created: Vec<Key>,
}

/// Progress that the runner and the task of the steps share.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Progress>>);

impl Record {
    /// The progress. Never kept across an await.
    pub fn lock(&self) -> MutexGuard<'_, Progress> {
        // it is whole after every statement, also if its task panicked
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the steps of one case have at hand.
pub struct Context {
    /// What the whole run shares.
    pub shared: Arc<Shared>,
    /// What is known of the cluster.
    pub world: World,
    /// What belongs to the scenario.
    pub scope: Scope,
    /// What may happen on the plane meanwhile.
    pub isolation: Isolation,
    /// What has come of it so far.
    pub record: Record,
    /// Moments that have a name.
    pub marks: BTreeMap<String, Instant>,
    /// The watches that write into the world.
    pub watches: Watches,
    /// What may be refused was refused: the steps that follow have nothing to look at.
    pub settled: bool,
}

impl Context {
    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// How long is waited at most.
    #[must_use]
    pub fn patience(&self, wait: Wait) -> Duration {
        self.shared.waits.patience(wait)
    }

    /// The object that a scenario means.
    pub async fn key(&self, target: &Target) -> Result<Key, ApiError> {
        self.cluster().key(target, &self.scope.namespace).await
    }

    /// Sees to it that an object is watched and that the watch knows whether it is there.
    pub async fn cover(&mut self, key: &Key) -> Result<(), Failure> {
        self.watches.cover(key).await?;
        let complete = |state: &State| if state.complete() { Ok(()) } else { Err(Unmet::default()) };
        eventually(&self.world, self.patience(Wait::Observe), complete)
            .await
            .map_err(|_| Failure::Broken(format!("the watch of {key} has not listed anything")))?;
        Ok(())
    }

    /// After a write: whoever looks at the object from now on sees the write, where the object is watched at all.
    pub async fn wrote(&mut self, key: &Key) -> Result<(), Failure> {
        if self.world.read(|state| state.is_watched(key)) { self.catch_up(key).await } else { Ok(()) }
    }

    /// Sees to it that what the watch knows of an object is not older than what the server answers now.
    ///
    /// A step right after a write would else take what was there before it for what came of it.
    pub async fn catch_up(&mut self, key: &Key) -> Result<(), Failure> {
        self.cover(key).await?;
        let live = self.cluster().get(key).await?;
        let caught_up = |state: &State| {
            let seen = state.tracked(key);
            let known = match &live {
                None => seen.is_none_or(|seen| seen.now.is_none()),
                Some(live) => seen.is_some_and(|seen| {
                    let newest =
                        seen.now.as_ref().or_else(|| seen.versions.last().map(|(_, version)| version));
                    newest.is_some_and(|newest| resource_version(newest) >= resource_version(live))
                }),
            };
            if known { Ok(()) } else { Err(Unmet::default()) }
        };
        eventually(&self.world, self.patience(Wait::Observe), caught_up)
            .await
            .map_err(|_| Failure::Broken(format!("the watch of {key} stays behind the server")))?;
        Ok(())
    }

    /// Applies an object with the labels of run and scenario, and remembers it for the clean-up.
    pub async fn apply(&self, key: &Key, body: Value) -> Result<(), ApiError> {
        let body = labelled(body, key, &self.scope.run, &self.scope.scenario);
        self.remember(key);
        self.cluster().apply(key, &body).await
    }

    /// Remembers an object for the clean-up, before it is created: a request that fails may have been carried out.
    pub fn remember(&self, key: &Key) {
        let mut progress = self.record.lock();
        if !progress.created.contains(key) {
            progress.created.push(key.clone());
        }
    }

    /// Waits until the world is as wanted.
    ///
    /// A time-out is the subject's only if the suite could see: watches deliver and the API server answers.
    pub async fn wait(
        &self,
        wait: Wait,
        wanted: impl Into<String>,
        check: impl FnMut(&State) -> Result<(), Unmet>,
    ) -> Result<Duration, Failure> {
        match eventually(&self.world, self.patience(wait), check).await {
            Ok(elapsed) => Ok(elapsed),
            Err(missed) => {
                self.trust_eyes().await?;
                Err(Failure::Unmet { wanted: wanted.into(), missed })
            }
        }
    }

    /// Fails if what was seen may be old.
    pub async fn trust_eyes(&self) -> Result<(), Failure> {
        self.cluster().answers().await?;
        match self.world.read(State::broken) {
            Some(broken) => Err(Failure::Broken(broken)),
            None => Ok(()),
        }
    }
}

/// The version of an object; a later one is a greater number.
fn resource_version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
