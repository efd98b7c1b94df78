//! Runs a hub of a management cluster.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use kube::Client;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    health::{self, Health},
    keys_watch::{self, HubKeys, POLL_INTERVAL},
    kubernetes::{Kubernetes, Replica},
    metrics::Metrics,
    server::{Hub, HubError, HubOptions, Inputs},
};

/// How often a hub without keys looks for them.
const KEYS_RETRY: Duration = Duration::from_secs(2);

/// The options of a hub in a management cluster.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub hub: HubOptions,
    pub replica: Replica,
    /// The files of the Secret chandler-tunnel-keys.
    pub keys_dir: PathBuf,
    /// Listen address of /metrics, /healthz and /readyz.
    pub metrics_address: SocketAddr,
}

/// Runs until the token is canceled, or the keys are replaced: then all connections are invalid, and the process has to be
/// started again. Boxed, so that the hub is compiled with this crate.
pub fn run(
    client: Client,
    options: RunOptions,
    stop: CancellationToken,
) -> BoxFuture<'static, Result<(), HubError>> {
    run_hub(client, options, stop).boxed()
}

async fn run_hub(client: Client, options: RunOptions, stop: CancellationToken) -> Result<(), HubError> {
    let RunOptions { hub, replica, keys_dir, metrics_address } = options;
    let metrics = Metrics::new();
    let source = |source| HubError::Listen { address: metrics_address, source };
    let health_listener = TcpListener::bind(metrics_address).await.map_err(source)?;
    let kubernetes = Kubernetes::start(client, replica, metrics.clone());
    let has_keys = Arc::new(AtomicBool::new(false));
    let pump = hub.new_pump();
    let mut tasks = JoinSet::new();
    let health = Health {
        metrics: metrics.clone(),
        pump: pump.clone(),
        directory: kubernetes.directory(),
        has_keys: has_keys.clone(),
        stop: stop.clone(),
    };
    tasks.spawn(health::run(health_listener, health));

    let mut result = Ok(());
    if let Some(keys) = stop.run_until_cancelled(HubKeys::wait(&keys_dir, KEYS_RETRY)).await {
        has_keys.store(true, Ordering::Release);
        let (sender, keys) = watch::channel(Arc::new(keys));
        let (directory, reporter) = (kubernetes.directory(), kubernetes.reporter());
        let hub = Hub::start(hub, Inputs { keys, directory, reporter, metrics, pump }).await?;
        tracing::info!(addresses = ?hub.addresses(), "the hub is started");
        let watching = keys_watch::run(keys_dir, sender, POLL_INTERVAL);
        if stop.run_until_cancelled(watching).await.is_some() {
            stop.cancel();
            result = Err(HubError::KeysReplaced);
        }
        hub.shutdown().await;
    }
    kubernetes.stop().await;
    tasks.shutdown().await;
    result
}
