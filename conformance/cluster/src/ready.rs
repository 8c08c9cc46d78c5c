//! Waiting until a control plane is of use.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::ServiceAccount,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use crate::{
    Error,
    plane::{API_SERVER, CONTROLLER_MANAGER, Plane, SCHEDULER},
};

/// How often is asked for something that can't be watched yet.
const INTERVAL: Duration = Duration::from_millis(25);
/// How long a control plane may take; measured are 4 s on two idle cores.
const PATIENCE: Duration = Duration::from_secs(90);
/// The API server delays the first create of a custom resource until its CRD is this long established.
const CRD_AGE: SignedDuration = SignedDuration::from_secs(2);
/// The field manager of the CRDs.
const MANAGER: &str = "bufconf";

/// Why a probe has no result.
enum Miss {
    /// Not yet; the text says what was seen.
    Yet(String),
    /// Never.
    Ever(Error),
}

impl Miss {
    /// A server that starts refuses connections, answers 403, 404, 429 or 5xx; what it calls invalid stays invalid.
    fn from_kube(error: &kube::Error, final_codes: &[u16]) -> Self {
        match error {
            kube::Error::Api(status) if final_codes.contains(&status.code) => {
                Self::Ever(Error::Failed(status.message.clone()))
            }
            _ => Self::Yet(buffer_client::chain(error)),
        }
    }
}

async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Result<T, Miss>) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(Miss::Ever(error)) => return Err(error),
            Err(Miss::Yet(last)) if start.elapsed() > PATIENCE => {
                return Err(Error::NotReady { what: what.to_owned(), after: PATIENCE, last });
            }
            Err(Miss::Yet(_)) => sleep(INTERVAL).await,
        }
    }
}

/// Reads the CRD manifests of a configuration.
pub(crate) fn manifests(texts: &[String]) -> Result<Vec<DynamicObject>, Error> {
    let mut objects = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let wrong = |reason: String| Error::Manifest { number: index + 1, reason };
        for document in serde_yaml::Deserializer::from_str(text) {
            let value = serde_json::Value::deserialize(document).map_err(|error| wrong(error.to_string()))?;
            // An empty document, as a trailing separator leaves one.
            if value.is_null() {
                continue;
            }
            let object: DynamicObject =
                serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
            let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
            if kind != "CustomResourceDefinition" {
                return Err(wrong(format!("kind is \"{kind}\", not CustomResourceDefinition")));
            }
            if object.metadata.name.is_none() {
                return Err(wrong("metadata.name is missing".to_owned()));
            }
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Waits for the API server. The CRDs are installed as early as possible, because they must grow old.
pub(crate) async fn api_server(plane: &Plane, crds: &[DynamicObject]) -> Result<(), Error> {
    let client = buffer_client::connect(Some(&plane.kubeconfig)).await?;
    install(&client, crds).await?;
    healthy(API_SERVER, &client, "/readyz").await
}

/// Waits for the other servers and for what they make, and until the CRDs can be used without delay.
pub(crate) async fn whole(plane: &Plane, crds: &[DynamicObject]) -> Result<(), Error> {
    let client = buffer_client::connect(Some(&plane.kubeconfig)).await?;
    for name in [CONTROLLER_MANAGER, SCHEDULER] {
        let mut config = Config::new(url(plane, name)?);
        config.root_cert = Some(vec![plane.ca_der.clone()]);
        healthy(name, &buffer_client::client(config)?, "/healthz").await?;
    }
    account(&client).await?;
    aged(&client, crds).await
}

/// Prepares a cluster that is up: installs the CRDs and waits until pods and custom resources can be made without delay.
pub(crate) async fn cluster(client: &Client, crds: &[DynamicObject]) -> Result<(), Error> {
    install(client, crds).await?;
    account(client).await?;
    aged(client, crds).await
}

/// Waits for the default service account. Pods are refused before it is there.
async fn account(client: &Client) -> Result<(), Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    until("the default service account", async || match accounts.get_opt("default").await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Miss::Yet("it does not exist".to_owned())),
        Err(error) => Err(Miss::from_kube(&error, &[])),
    })
    .await
}

fn url(plane: &Plane, server: &str) -> Result<http::Uri, Error> {
    let port = plane.ports.get(server).copied().unwrap_or_default();
    http::Uri::builder()
        .scheme("https")
        .authority(format!("127.0.0.1:{port}"))
        .path_and_query("/")
        .build()
        .map_err(|error| Error::Failed(error.to_string()))
}

async fn healthy(name: &str, client: &Client, path: &str) -> Result<(), Error> {
    until(name, async || {
        let request =
            http::Request::get(path).body(Vec::new()).map_err(|error| Miss::Yet(error.to_string()))?;
        client.request_text(request).await.map(|_| ()).map_err(|error| Miss::from_kube(&error, &[]))
    })
    .await
}

/// Waits until a child's health URL answers 200.
pub(crate) async fn answers(name: &str, url: &str) -> Result<(), Error> {
    // The URL is on loopback: no proxy of the environment.
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(2))).proxy(None).build().into();
    until(name, async || {
        let (agent, url) = (agent.clone(), url.to_owned());
        match tokio::task::spawn_blocking(move || agent.get(&url).call().map(|_| ())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Miss::Yet(error.to_string())),
            Err(error) => Err(Miss::Yet(error.to_string())),
        }
    })
    .await
}

async fn install(client: &Client, crds: &[DynamicObject]) -> Result<(), Error> {
    let api: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::erase::<CustomResourceDefinition>(&()));
    let params = PatchParams::apply(MANAGER).force();
    for crd in crds {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        until(name, async || {
            api.patch(name, &params, &Patch::Apply(crd))
                .await
                .map(|_| ())
                .map_err(|error| Miss::from_kube(&error, &[400, 409, 415, 422]))
        })
        .await?;
    }
    Ok(())
}

/// Waits until every CRD is established and old enough.
async fn aged(client: &Client, crds: &[DynamicObject]) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        let since = until(name, async || {
            let crd = api.get(name).await.map_err(|error| Miss::from_kube(&error, &[404]))?;
            established(&crd)
        })
        .await?;
        let left = CRD_AGE - Timestamp::now().duration_since(since);
        if let Ok(left) = Duration::try_from(left) {
            sleep(left).await;
        }
    }
    Ok(())
}

fn established(crd: &CustomResourceDefinition) -> Result<Timestamp, Miss> {
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut seen = "no conditions".to_owned();
    for condition in conditions {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Established", "True") => {
                return Ok(condition
                    .last_transition_time
                    .as_ref()
                    .map_or_else(Timestamp::now, |time| time.0));
            }
            ("NamesAccepted", "False") => {
                let message = condition.message.clone().unwrap_or_default();
                return Err(Miss::Ever(Error::Failed(format!("CRD names not accepted: {message}"))));
            }
            (type_, status) => seen = format!("{type_}={status}"),
        }
    }
    Err(Miss::Yet(seen))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("kind: Pod\napiVersion: v1\nmetadata: {name: a}", "kind is \"Pod\"")]
    #[case("kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1", "metadata.name is missing")]
    #[case("a: [", "CRD manifest 2")]
    fn a_wrong_manifest_is_named(#[case] text: &str, #[case] wanted: &str) {
        let error = manifests(&[String::new(), text.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn several_documents_are_read() {
        let one =
            "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\nmetadata: {name: a}\n";
        let objects = manifests(&[format!("---\n{one}---\n{one}---\n")]).unwrap();
        assert_eq!(objects.len(), 2);
    }
}
