//! Serves `/metrics`, `/healthz` and `/readyz`.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{
    StartupError,
    metrics::{Metrics, Sources},
};

/// The content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state that the endpoints serve.
#[derive(Clone)]
pub struct Served {
    pub metrics: Metrics,
    pub sources: Sources,
    pub ready: Arc<AtomicBool>,
}

/// Starts the server. Returns the bound address, which differs from `address` if its port is 0.
pub async fn serve(address: SocketAddr, served: Served) -> Result<SocketAddr, StartupError> {
    let listener =
        TcpListener::bind(address).await.map_err(|source| StartupError::Listen { address, source })?;
    let bound = listener.local_addr().unwrap_or(address);
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(served);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the metrics endpoint stopped");
        }
    });
    Ok(bound)
}

async fn metrics(State(served): State<Served>) -> ([(HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, OPEN_METRICS)], served.metrics.scrape(&served.sources).await)
}

async fn ready(State(served): State<Served>) -> (StatusCode, &'static str) {
    if served.ready.load(Ordering::Acquire) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "watches are not synchronized yet\n")
    }
}
