//! `/metrics`, `/healthz` and `/readyz`.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use chandler_tool::PackageTool;
use chandler_workload::Connections;
use tokio::net::TcpListener;

use crate::{Error, metrics::Metrics};

/// What the endpoints tell of.
#[derive(Clone)]
pub struct Served {
    pub metrics: Metrics,
    pub tool: PackageTool,
    pub connections: Connections,
    pub ready: Arc<AtomicBool>,
}

/// Starts to serve; returns the address, which matters when port 0 was asked for.
pub async fn serve(address: SocketAddr, served: Served) -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
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

async fn metrics(State(served): State<Served>) -> String {
    let (starts, process) = served.tool.supervisor().stats().await;
    served.metrics.tool(starts, process.map_or(0, |process| process.resident_bytes));
    served.metrics.connections(served.connections.count());
    served.metrics.text()
}

async fn ready(State(served): State<Served>) -> (StatusCode, &'static str) {
    if served.ready.load(Ordering::Acquire) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "watches are not synchronised yet\n")
    }
}
