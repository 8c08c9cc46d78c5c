//! Requests to the cluster: objects of any kind, with bounded retries of what may pass by itself.

use std::{collections::BTreeMap, future::Future, sync::Mutex, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use buffer_api::labels;
use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
    core::GroupVersionKind,
    discovery::{ApiResource, Scope, pinned_kind},
};
use serde_json::{Value, json};
use tokio::time::{error::Elapsed, timeout};

use super::{wait::seconds, world::Key};
use crate::scenario::Target;

/// Field manager of everything that a scenario applies.
pub const FIELD_MANAGER: &str = "bufconf";

/// A request that failed, also when it was repeated.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct ApiError {
    what: String,
    #[source]
    source: Box<kube::Error>,
}

impl ApiError {
    /// HTTP status that the server refused it with; `None` where there was no answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match &*self.source {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the server does not know the kind at all.
    #[must_use]
    pub fn is_not_served(&self) -> bool {
        self.status() == Some(404) || matches!(&*self.source, kube::Error::Discovery(_))
    }

    /// With its causes, one line.
    #[must_use]
    pub fn detail(&self) -> String {
        match &*self.source {
            kube::Error::Api(status) => format!("{}: {} {}", self.what, status.code, status.message),
            kube::Error::Service(error) if error.is::<Elapsed>() => {
                format!("{}: no answer within {}", self.what, seconds(ANSWER))
            }
            other => format!("{}: {other}", self.what),
        }
    }
}

/// A kind that the server serves.
#[derive(Clone, Debug)]
pub struct Served {
    resource: ApiResource,
    namespaced: bool,
}

/// A cluster, and what of its API is known.
pub struct Cluster {
    client: Client,
    served: Mutex<BTreeMap<(String, String), Served>>,
}

impl Cluster {
    /// The cluster behind a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, served: Mutex::default() }
    }

    /// The kind as the server serves it.
    pub async fn served(&self, api_version: &str, kind: &str) -> Result<Served, ApiError> {
        let name = (api_version.to_owned(), kind.to_owned());
        let known = |served: &BTreeMap<_, Served>| served.get(&name).cloned();
        if let Some(served) = self.served.lock().ok().as_deref().and_then(known) {
            return Ok(served);
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let what = format!("looking for {kind} in {api_version}");
        let (resource, capabilities) = request(what, || pinned_kind(&self.client, &gvk)).await?;
        let served = Served { resource, namespaced: capabilities.scope == Scope::Namespaced };
        if let Ok(mut all) = self.served.lock() {
            all.insert(name, served.clone());
        }
        Ok(served)
    }

    /// The object that is meant, in `home` unless it names a namespace.
    pub async fn key(&self, target: &Target, home: &str) -> Result<Key, ApiError> {
        let served = self.served(&target.api_version, &target.kind).await?;
        let namespace = served.namespaced.then(|| target.namespace.as_deref().unwrap_or(home).to_owned());
        Ok(Key {
            api_version: target.api_version.clone(),
            kind: target.kind.clone(),
            namespace,
            name: target.name.clone(),
        })
    }

    /// API version in which the server prefers to serve a kind of a group.
    pub async fn preferred(&self, group: &str, kind: &str) -> Result<String, ApiError> {
        let what = format!("looking for {kind} in group \"{group}\"");
        let found = request(what.clone(), || kube::discovery::group(&self.client, group)).await?;
        let missing = || {
            let source = kube::error::DiscoveryError::MissingKind(kind.to_owned());
            ApiError { what, source: Box::new(kube::Error::Discovery(source)) }
        };
        let (resource, _) = found.recommended_kind(kind).ok_or_else(missing)?;
        Ok(resource.api_version)
    }

    /// The API of a kind, in one namespace or, without, in all of them.
    #[must_use]
    pub fn api(&self, served: &Served, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) if served.namespaced => {
                Api::namespaced_with(self.client.clone(), namespace, &served.resource)
            }
            _ => Api::all_with(self.client.clone(), &served.resource),
        }
    }

    async fn api_of(&self, key: &Key) -> Result<Api<DynamicObject>, ApiError> {
        let served = self.served(&key.api_version, &key.kind).await?;
        Ok(self.api(&served, key.namespace.as_deref()))
    }

    /// Reads an object; `None` where it is not there.
    pub async fn get(&self, key: &Key) -> Result<Option<Value>, ApiError> {
        let api = self.api_of(key).await?;
        let object = request(format!("reading {key}"), || api.get_opt(&key.name)).await?;
        Ok(object.map(|object| json!(object)))
    }

    /// A consistent list of all objects of a kind, of all namespaces unless one is named.
    pub async fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Value>, ApiError> {
        let served = self.served(api_version, kind).await?;
        let api = self.api(&served, namespace);
        // no resource version: the server answers from a quorum, never from an old cache
        let list =
            request(format!("listing {kind}s"), || async { api.list(&ListParams::default()).await }).await?;
        Ok(list.items.into_iter().map(|object| json!(object)).collect())
    }

    /// Server-side apply.
    pub async fn apply(&self, key: &Key, body: &Value) -> Result<(), ApiError> {
        let api = self.api_of(key).await?;
        let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
        let patch = Patch::Apply(body);
        request(format!("applying {key}"), || api.patch(&key.name, &params, &patch)).await?;
        Ok(())
    }

    /// Creates an object.
    pub async fn create(&self, key: &Key, body: &Value) -> Result<(), ApiError> {
        let api = self.api_of(key).await?;
        let what = format!("creating {key}");
        let object: DynamicObject = match serde_json::from_value(body.clone()) {
            Ok(object) => object,
            Err(error) => return Err(ApiError { what, source: Box::new(kube::Error::SerdeError(error)) }),
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        request(what, || api.create(&params, &object)).await?;
        Ok(())
    }

    /// Merges a patch into an object.
    pub async fn merge(&self, key: &Key, patch: &Value) -> Result<(), ApiError> {
        self.patch(key, None, &Patch::Merge(patch)).await
    }

    /// JSON patch of an object or of a subresource of it.
    pub async fn json_patch(
        &self,
        key: &Key,
        subresource: Option<&str>,
        operations: Value,
    ) -> Result<(), ApiError> {
        let patch = match serde_json::from_value(operations) {
            Ok(patch) => Patch::Json::<Value>(patch),
            Err(error) => {
                let source = Box::new(kube::Error::SerdeError(error));
                return Err(ApiError { what: format!("patching {key}"), source });
            }
        };
        self.patch(key, subresource, &patch).await
    }

    /// Sets the replicas of a workload through its scale subresource.
    pub async fn scale(&self, key: &Key, replicas: u32) -> Result<(), ApiError> {
        let patch = json!({"spec": {"replicas": replicas}});
        self.patch(key, Some("scale"), &Patch::Merge(&patch)).await
    }

    async fn patch<P>(&self, key: &Key, subresource: Option<&str>, patch: &Patch<P>) -> Result<(), ApiError>
    where
        P: serde::Serialize + std::fmt::Debug + Sync,
    {
        let api = self.api_of(key).await?;
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        request(format!("patching {key}"), || async {
            match subresource {
                Some(subresource) => api.patch_subresource(subresource, &key.name, &params, patch).await,
                None => api.patch(&key.name, &params, patch).await,
            }
        })
        .await?;
        Ok(())
    }

    /// Deletes an object and returns once the server has accepted that; false where it was not there.
    pub async fn delete(&self, key: &Key, params: &DeleteParams) -> Result<bool, ApiError> {
        let api = self.api_of(key).await?;
        let deleted = request(format!("deleting {key}"), || api.delete(&key.name, params)).await;
        match deleted {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the API server answers.
    pub async fn answers(&self) -> Result<(), ApiError> {
        request("asking the API server for its version".to_owned(), || self.client.apiserver_version())
            .await?;
        Ok(())
    }
}

/// How the dependents of a deleted object fare.
#[must_use]
pub fn delete_params(propagation: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(propagation), ..DeleteParams::default() }
}

/// Puts the labels of run and scenario, and the namespace, on an object that is about to be created.
#[must_use]
pub fn labelled(mut body: Value, key: &Key, run: &str, scenario: &str) -> Value {
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    let metadata = &mut body["metadata"];
    metadata["name"] = json!(key.name);
    if let Some(namespace) = &key.namespace {
        metadata["namespace"] = json!(namespace);
    }
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][labels::RUN] = json!(run);
    metadata["labels"][labels::SCENARIO] = json!(scenario);
    body
}

/// The longest time that is waited for an answer; then the server hangs, and asking again would only hang again.
const ANSWER: Duration = Duration::from_secs(20);

/// A request, repeated for about three seconds while the failure may pass by itself.
async fn request<T, F, R>(what: String, mut send: F) -> Result<T, ApiError>
where
    F: FnMut() -> R,
    R: Future<Output = Result<T, kube::Error>>,
{
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(1))
        .with_max_times(6);
    let attempt = || {
        let answer = timeout(ANSWER, send());
        async { answer.await.map_err(|elapsed| kube::Error::Service(elapsed.into())).flatten() }
    };
    attempt
        .retry(backoff)
        .when(may_pass)
        .notify(|error, after| tracing::debug!(what, %error, ?after, "repeating a request"))
        .await
        .map_err(|source| ApiError { what: what.clone(), source: Box::new(source) })
}

/// Whether a failure may pass by itself: no answer, or the server is overloaded or starting.
fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::Service(error) => !error.is::<Elapsed>(),
        kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
