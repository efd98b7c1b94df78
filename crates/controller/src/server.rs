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
    /// Whether the watches are synchronized.
    pub ready: Arc<AtomicBool>,
    /// Whether this manager waits because another one holds the Lease.
    pub standby: Arc<AtomicBool>,
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
    readiness(served.standby.load(Ordering::Acquire), served.ready.load(Ordering::Acquire))
}

/// A standby is ready: it can take over at any time. A leader is ready when its caches are.
fn readiness(standby: bool, synchronized: bool) -> (StatusCode, &'static str) {
    match (standby, synchronized) {
        (true, _) => (StatusCode::OK, "ok: standby, another manager leads\n"),
        (false, true) => (StatusCode::OK, "ok\n"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "watches are not synchronized yet\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_ready_and_a_leader_is_ready_once_its_caches_are() {
        let rows = [
            ("start, before the Lease is read", false, false, 503),
            ("standby", true, false, 200),
            ("leader, before its caches are synchronized", false, false, 503),
            ("leader", false, true, 200),
        ];
        for (case, standby, synchronized, code) in rows {
            assert_eq!(readiness(standby, synchronized).0.as_u16(), code, "{case}");
        }
        assert_ne!(readiness(true, false).1, readiness(false, true).1, "the body names a standby");
    }
}
