//! Keeps a connection: connects, watches, and reports outages.

use std::sync::{Arc, Weak, atomic::Ordering};

use chandler_core::{
    failure::{Category, Failure},
    identity::{ClusterKey, ReleaseId, ToolId},
    reachability::{Outage, STABLE_AFTER},
    target::Target,
};
use tokio::{
    sync::{Notify, SemaphorePermit},
    time::Instant,
};

use super::{Connection, Connections, InventoryView, Reached};
use crate::{
    credentials,
    inventory::{InventoryWatch, WatchEnd},
    kubeconfig::target_from_kubeconfig,
    turn::in_turn,
};

/// Watches a tool's releases on a cluster for as long as the connection lives. Every attempt to connect reads the kubeconfig
/// again, so that it finds renewed credentials, and lists again, so that nothing is concluded from a list with a gap.
pub struct Follower {
    pub connections: Connections,
    pub connection: Weak<Connection>,
    pub cluster: ClusterKey,
    pub tool: ToolId,
    pub list_again: Arc<Notify>,
}

impl Follower {
    pub async fn run(self) {
        // Begins when the first attempt does: a cluster that waits for its turn has not been asked.
        let mut outage: Option<OngoingOutage> = None;
        loop {
            let turn = match &outage {
                Some(outage) => self.reporting(outage, self.connections.connects.acquire()).await,
                None => self.connections.connects.acquire().await,
            };
            let current = outage.take().unwrap_or_else(|| OngoingOutage::new(Instant::now(), 0));
            let current = match self.reporting(&current, self.open(turn.ok())).await {
                Ok((watch, reached)) => {
                    let opened = Instant::now();
                    let ended = self.follow(watch, &reached).await;
                    let is_stable = opened.elapsed() >= STABLE_AFTER;
                    let failures = if is_stable { 0 } else { current.outage.failures() };
                    match ended {
                        WatchEnd::ListAgain => continue,
                        WatchEnd::Expired if is_stable => continue,
                        WatchEnd::Expired => OngoingOutage::new(Instant::now(), failures).failed(expired()),
                        WatchEnd::Broken { failure, silent_since } => {
                            let since = silent_since.unwrap_or_else(Instant::now);
                            OngoingOutage::new(since, failures).failed(failure)
                        }
                    }
                }
                Err(failure) => current.failed(failure),
            };
            let failure = current.outage.failure();
            tracing::info!(cluster = %self.cluster, category = %failure.category, "workload cluster not available: {failure}");
            let wait = current.outage.retry_delay(&self.cluster.to_string());
            self.reporting(&current, tokio::time::sleep(wait)).await;
            outage = Some(current);
        }
    }

    /// Connects, lists the releases and opens the watch. Few clusters do so at the same time.
    async fn open(&self, turn: Option<SemaphorePermit<'_>>) -> Result<(InventoryWatch, Reached), Failure> {
        let open = async {
            let (reached, probe) = self.connections.reach(&self.cluster, self.tool).await?;
            let (client, records) = (reached.client.clone(), reached.records.clone());
            let before = self.connection.upgrade();
            let pending = before.as_ref().map(|connection| connection.lock().pending.clone());
            let answers = before.as_ref().map(|connection| connection.answers.clone()).unwrap_or_default();
            let versions = before.map(|connection| connection.health.versions());
            let pending = pending.unwrap_or_default();
            let watch = InventoryWatch::open(client, probe, records, pending, answers).await?;
            if let Some(connection) = self.connection.upgrade() {
                connection.health.list_kinds_ahead(versions.unwrap_or_default(), watch.version());
                connection.lock().reached = Some(reached.clone());
            }
            Ok((watch, reached))
        };
        in_turn(turn, open).await
    }

    /// Publishes the releases until the watch ends or the credentials are renewed.
    async fn follow(&self, watch: InventoryWatch, reached: &Reached) -> WatchEnd {
        // Before objects are listed: the inventory says which of them are kept.
        self.publish(InventoryView::Known(watch.inventory()), None);
        if let Some(connection) = self.connection.upgrade() {
            let Reached { target, shared, records, .. } = reached;
            let weak = self.connection.clone();
            let is_managed = move |release: &ReleaseId| {
                weak.upgrade().is_some_and(|connection| connection.has_installed(release))
            };
            let selector = &records.object_selector;
            connection.health.start(target.clone(), shared.clone(), selector, Arc::new(is_managed));
        }
        let publish = |inventory, release| self.publish(InventoryView::Known(inventory), Some(release));
        tokio::select! {
            ended = watch.run(&self.list_again, &self.connections.connects, publish) => ended,
            () = self.until_renewed(&reached.target) => WatchEnd::ListAgain,
        }
    }

    /// Waits until the kubeconfig differs from the one in use.
    async fn until_renewed(&self, target: &Target) {
        loop {
            let now = jiff::Timestamp::now();
            tokio::time::sleep(credentials::check_after(target, now, &self.cluster.to_string())).await;
            let text = self.connections.kubeconfig(&self.cluster).await;
            let renewed = text.ok().and_then(|text| target_from_kubeconfig(&self.cluster, &text).ok());
            if renewed.is_some_and(|renewed| renewed != *target) {
                return;
            }
        }
    }

    /// Runs `work`, and reports the outage meanwhile if it lasts long enough.
    async fn reporting<T>(&self, outage: &OngoingOutage, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep_until(outage.reported_at()) => {}
        }
        self.report(outage.outage.failure());
        work.await
    }

    /// Publishes a failure. Another message with the same category is not worth a write of every status.
    fn report(&self, failure: Failure) {
        let Some(connection) = self.connection.upgrade() else { return };
        connection.health.pause();
        let last = match &connection.lock().view {
            InventoryView::Unavailable(last) => Some(last.category),
            InventoryView::Loading | InventoryView::Known(_) => None,
        };
        if last.is_none() {
            self.connections.outages.fetch_add(1, Ordering::Relaxed);
        }
        if last != Some(failure.category) {
            self.publish(InventoryView::Unavailable(failure), None);
        }
    }

    fn publish(&self, view: InventoryView, release: Option<ReleaseId>) {
        if let Some(connection) = self.connection.upgrade() {
            let mut state = connection.lock();
            if let InventoryView::Known(inventory) = &view {
                state.pending.clone_from(inventory.pending());
            }
            state.view = view;
            drop(state);
            self.connections.notify(&self.cluster, release);
        }
    }
}

/// An outage, with its beginning on the clock of timers.
struct OngoingOutage {
    began: Instant,
    outage: Outage,
}

impl OngoingOutage {
    fn new(began: Instant, failures: u32) -> Self {
        let now = jiff::Timestamp::now();
        let since = now.checked_sub(began.elapsed()).unwrap_or(now);
        Self { began, outage: Outage::new(since, failures) }
    }

    fn failed(mut self, failure: Failure) -> Self {
        self.outage.failed(failure);
        self
    }

    fn reported_at(&self) -> Instant {
        self.began + self.outage.report_after()
    }
}

fn expired() -> Failure {
    Failure::new(Category::Unreachable, "the API server ends the watch of the releases before it has begun")
}
