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
    let failed = |error: kube::Error| {
        let (server, source) = (server.clone(), Box::new(error));
        match *source {
            kube::Error::Api(_) => Error::Query { server, source },
            _ => Error::Unreachable { server, source },
        }
    };
    client.apiserver_version().await.map_err(failed)?;
    if consent == Consent::Marker {
        let markers: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        if markers.get_opt(MARKER).await.map_err(failed)?.is_none() {
            return Err(Error::NotDisposable { server, marker: MARKER });
        }
    }
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cluster_that_is_not_there_is_unreachable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let port = crate::ports::free(1).unwrap()[0];
        let config = serde_json::json!({
            "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        });
        std::fs::write(&path, config.to_string()).unwrap();
        let error = connect(Some(&path), Consent::Given).await.err().unwrap();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        let error = connect(Some(&dir.path().join("none")), Consent::Given).await.err().unwrap();
        assert!(matches!(error, Error::Client(_)), "{error:?}");
    }
}
