//! The admin port: liveness, readiness and metrics, on loopback only.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use buffer_client::chain;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{error::Error, metrics::Metrics};

/// What the port tells.
#[derive(Clone, Debug)]
pub struct Admin {
    ready: Arc<AtomicBool>,
    metrics: Metrics,
}

impl Admin {
    /// Not ready yet.
    pub fn new(metrics: Metrics) -> Self {
        Self { ready: Arc::default(), metrics }
    }

    /// Every watch has delivered its list.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Serves on `port` until the shutdown.
    pub async fn serve(&self, port: u16, shutdown: CancellationToken) -> Result<(), Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(|source| Error::AdminPort { port, source })?;
        info!(port, "admin port open");
        let router = self.router();
        tokio::spawn(async move {
            let served =
                axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await;
            if let Err(error) = served {
                error!(error = chain(&error), "admin port failed");
            }
        });
        Ok(())
    }

    fn router(&self) -> Router {
        Router::new()
            .route("/livez", get(async || "ok"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }
}

async fn readyz(State(admin): State<Admin>) -> impl IntoResponse {
    if admin.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the first lists have not arrived yet")
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match admin.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
