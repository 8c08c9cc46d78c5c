//! Health, on loopback: `/livez` answers as soon as the process runs, `/readyz` once the cloud knows the cluster.

use std::net::Ipv4Addr;

use axum::{Router, http::StatusCode, routing::get};
use buffer_client::chain;
use tokio::{net::TcpListener, sync::watch};
use tracing::error;

use crate::error::Error;

/// Takes the port.
pub(super) async fn listen(port: u16) -> Result<TcpListener, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|source| Error::Admin { port, source })
}

/// Answers for ever.
pub(super) async fn serve(listener: TcpListener, synced: watch::Receiver<bool>) {
    let ready = move || {
        let synced = *synced.borrow();
        async move {
            if synced { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "not synced") }
        }
    };
    let router = Router::new().route("/livez", get(async || "ok")).route("/readyz", get(ready));
    if let Err(failure) = axum::serve(listener, router).await {
        error!(error = chain(&failure), "the admin port broke down");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(port: u16, path: &str) -> String {
        let mut stream =
            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn ready_only_when_synced() {
        let listener = listen(0).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (set, synced) = watch::channel(false);
        tokio::spawn(serve(listener, synced));
        assert_eq!(ask(port, "/livez").await, "HTTP/1.1 200 OK");
        assert_eq!(ask(port, "/readyz").await, "HTTP/1.1 503 Service Unavailable");
        set.send_replace(true);
        assert_eq!(ask(port, "/readyz").await, "HTTP/1.1 200 OK");
        let taken = self::listen(port).await.expect_err("in use").to_string();
        assert_eq!(taken, format!("listening on 127.0.0.1:{port}"));
    }
}
