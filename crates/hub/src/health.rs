//! Serves `/healthz`, `/readyz` and `/metrics`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use chandler_tunnel::Pump;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{directory::DirectoryReceiver, metrics::Metrics};

/// The content type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the endpoints serve.
#[derive(Clone)]
pub struct Health {
    pub metrics: Metrics,
    pub pump: Pump,
    pub directory: DirectoryReceiver,
    /// Whether the keys are read.
    pub has_keys: Arc<AtomicBool>,
    /// Canceled when the hub begins to stop.
    pub stop: CancellationToken,
}

/// Serves until the future is dropped.
pub async fn run(listener: TcpListener, health: Health) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(health);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the metrics endpoint stopped");
    }
}

async fn metrics(State(health): State<Health>) -> ([(HeaderName, &'static str); 1], String) {
    health.metrics.set_traffic(health.pump.traffic());
    health.metrics.set_buffered(health.pump.budget().used());
    ([(CONTENT_TYPE, OPEN_METRICS)], health.metrics.text())
}

async fn ready(State(health): State<Health>) -> (StatusCode, &'static str) {
    let listed = health.directory.borrow().is_listed();
    readiness(health.stop.is_cancelled(), health.has_keys.load(Ordering::Acquire), listed)
}

/// A hub that stops is not ready, so that its Service sends no more clients.
fn readiness(stopping: bool, has_keys: bool, listed: bool) -> (StatusCode, &'static str) {
    match (stopping, has_keys, listed) {
        (true, _, _) => (StatusCode::SERVICE_UNAVAILABLE, "the hub is shutting down\n"),
        (false, false, _) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the keys of the tunnels cannot be read yet\n")
        }
        (false, true, false) => (StatusCode::SERVICE_UNAVAILABLE, "ClusterTunnels are not listed yet\n"),
        (false, true, true) => (StatusCode::OK, "ok\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_is_ready_between_its_first_list_and_its_end() {
        let rows = [
            ("no keys", false, false, true, 503),
            ("not listed", false, true, false, 503),
            ("listed", false, true, true, 200),
            ("stopping", true, true, true, 503),
        ];
        for (case, stopping, has_keys, listed, code) in rows {
            assert_eq!(readiness(stopping, has_keys, listed).0.as_u16(), code, "{case}");
        }
    }
}
