//! `/metrics`, `/healthz` and `/readyz`.

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

/// What tells Prometheus how to read it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the endpoints tell of.
#[derive(Clone)]
pub struct Served {
    pub metrics: Metrics,
    pub sources: Sources,
    pub ready: Arc<AtomicBool>,
}

/// Starts to serve; returns the address, which matters when port 0 was asked for.
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
        (StatusCode::SERVICE_UNAVAILABLE, "watches are not synchronised yet\n")
    }
}
