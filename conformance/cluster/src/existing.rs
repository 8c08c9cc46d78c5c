//! A cluster that somebody else made: any kubeconfig, if the cluster is marked as one to throw away.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::Error;

/// The `ConfigMap` in `kube-system` that marks a cluster as disposable.
pub const MARKER: &str = "bufconf-disposable";

/// Whether the caller was told to use the cluster as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// The marker is looked for.
    Marker,
    /// The user has said so on the command line: no marker is needed.
    Given,
}

/// Connects to the cluster of a kubeconfig, or of the default chain (`KUBECONFIG`, `~/.kube/config`, in-cluster).
///
/// Fails with [`Error::Unreachable`] when its API server does not answer and with [`Error::NotDisposable`] when nothing says
/// that it may be filled and emptied.
pub async fn connect(kubeconfig: Option<&Path>, consent: Consent) -> Result<Client, Error> {
    let config = buffer_client::config(kubeconfig).await?;
    let server = config.cluster_url.to_string();
    let client = buffer_client::client(config)?;
    let unreachable = |source| Error::Unreachable { server: server.clone(), source: Box::new(source) };
    client.apiserver_version().await.map_err(unreachable)?;
    if consent == Consent::Marker {
        let markers: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        if markers.get_opt(MARKER).await.map_err(unreachable)?.is_none() {
            return Err(Error::NotDisposable { server, marker: MARKER });
        }
    }
    Ok(client)
}
