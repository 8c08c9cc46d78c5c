//! The one place that makes a Kubernetes client: loopback-fast, HTTP/2.
//!
//! kube's own connector leaves Nagle's algorithm on (the first request of each connection then waits 40 ms, kube-rs issue
//! 2056) and speaks HTTP/1.1 only. This one sets `TCP_NODELAY` and offers HTTP/2.
//!
//! Errors of clients carry their causes apart; [`chain()`] puts them in one line. [`stop_at_signal`] is how those who use a
//! client for long are told to end.

mod chain;
mod gate;
mod stop;

use std::{path::Path, time::Duration};

pub use chain::chain;
pub use gate::Gate;
use http::{HeaderValue, Request, Response, header::USER_AGENT};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig},
};
pub use stop::stop_at_signal;
use tower::{
    BoxError, ServiceBuilder,
    retry::{Policy, RetryLayer},
};

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig could not be read or makes no sense.
    #[error("reading the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// Neither a kubeconfig nor an in-cluster environment was found.
    #[error("no kubeconfig and not inside a cluster")]
    Infer(#[from] kube::config::InferConfigError),
    /// Certificates, keys or headers of the configuration can't be used.
    #[error("setting up the connection")]
    Setup(#[source] Box<kube::Error>),
    /// The TLS server name of the kubeconfig is not a name.
    #[error("the TLS server name \"{0}\" is not valid")]
    ServerName(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Setup(Box::new(error))
    }
}

/// A client for the current context of a kubeconfig file, or, without one, for what the environment gives
/// (`KUBECONFIG`, `~/.kube/config`, in-cluster).
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    client(config(kubeconfig).await?)
}

/// The configuration that [`connect`] uses.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    Ok(match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    })
}

/// A client for a configuration. Requests that the server asks to repeat (429, 503, 504) are repeated, evictions are not.
pub fn client(config: Config) -> Result<Client, Error> {
    behind(config, None)
}

/// The same, behind a gate.
pub fn gated_client(config: Config, gate: Gate) -> Result<Client, Error> {
    behind(config, Some(gate))
}

/// Makes requests say in their `User-Agent` from whom they are. Characters that a header can't hold become `_`.
pub fn set_user_agent(config: &mut Config, agent: &str) {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '_' };
    let agent: String = agent.chars().map(printable).collect();
    if let Ok(value) = HeaderValue::from_str(&agent) {
        config.headers.push((USER_AGENT, value));
    }
}

fn behind(config: Config, gate: Option<Gate>) -> Result<Client, Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(config.connect_timeout.or(Some(Duration::from_secs(10))));
    let mut tls =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server = name.clone().try_into().map_err(|_| Error::ServerName(name.clone()))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(server));
    }
    let connector = tls.enable_http1().enable_http2().wrap_connector(http);
    let hyper = HyperClient::builder(TokioExecutor::new()).build::<_, Body>(connector);

    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(Retry(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(gate::gated(gate, hyper));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Repeats what the server asks to repeat, but no evictions: there, 429 is the answer of a disruption budget, which may stand
/// for hours, and the caller has to know.
#[derive(Clone)]
struct Retry(RetryPolicy);

impl<T> Policy<Request<Body>, Response<T>, BoxError> for Retry {
    type Future = <RetryPolicy as Policy<Request<Body>, Response<T>, BoxError>>::Future;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<T>, BoxError>,
    ) -> Option<Self::Future> {
        if is_eviction(request) { None } else { self.0.retry(request, result) }
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let policy: &mut dyn Policy<_, Response<T>, BoxError, Future = Self::Future> = &mut self.0;
        if is_eviction(request) { None } else { policy.clone_request(request) }
    }
}

fn is_eviction(request: &Request<Body>) -> bool {
    request.uri().path().ends_with("/eviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn evictions_are_not_repeated() {
        let repeats = |path: &str| {
            let mut policy = Retry(RetryPolicy::server_retry());
            let mut request = Request::post(path).body(Body::empty()).unwrap();
            let mut result = Ok(Response::builder().status(429).body(()).unwrap());
            policy.retry(&mut request, &mut result).is_some()
        };
        assert!(repeats("/api/v1/namespaces/ns/pods"));
        assert!(!repeats("/api/v1/namespaces/ns/pods/p/eviction"));
    }
}
