//! The agent: keeps connections to all hubs of the list, and follows the list.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chandler_tunnel::{
    Budget, HubEndpoint, Pump, Settings as WireSettings,
    join_message::{About, HubList},
};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{Settings, issued, issued_by},
    credentials::Credentials,
    hub::Hub,
    hub_list::{self, ListError},
    join::JoinError,
    status::{Connection, Status},
};

/// The bytes that may wait in buffers. A hub serves many clusters, an agent only one.
const BUFFER_BYTES: usize = 16 << 20;
/// How long open streams may take to end when the agent stops. Less than the 30 s that Kubernetes gives a Pod.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// The name of the node, set by Pods that do not use the network of their node.
const NODE_VARIABLE: &str = "NODE_NAME";

/// An agent that is ready to run.
pub struct Agent {
    shared: Arc<Shared>,
}

/// What all connections share.
pub struct Shared {
    pub settings: Settings,
    pub credentials: Credentials,
    pub status: watch::Sender<Status>,
    pub pump: Pump,
    pub wire: WireSettings,
    pub about: About,
    /// Connections that hubs have drained, until their streams have ended.
    pub draining: TaskTracker,
    /// The newest list of hubs.
    hubs: watch::Sender<Vec<HubEndpoint>>,
    /// By what the newest list is compared with others, see [`issued_by`]. Held while a list is compared and stored: an older
    /// list must not replace a newer one.
    newest: Mutex<Option<Timestamp>>,
    slots: AtomicU64,
}

impl Shared {
    /// Returns the number of a new slot.
    pub fn next_slot(&self) -> u64 {
        self.slots.fetch_add(1, Ordering::Relaxed)
    }

    /// Stores a list of hubs that arrived through the tunnel, then uses it. A list that is older than the current one is ignored:
    /// while a cluster moves, two installations send lists.
    pub async fn set_hubs(&self, list: HubList, sender: &HubEndpoint) -> Result<(), ListError> {
        let now = Timestamp::now();
        hub_list::check(&list.hubs, sender, now)?;
        let mut newest = self.newest.lock().await;
        if issued(&list.hubs) < *newest {
            tracing::info!("ignored a list of hubs that is older than the current one");
            return Ok(());
        }
        let json = serde_json::to_string(&list)?;
        let state = self.settings.state.clone();
        // The disk may be slow, and streams continue meanwhile.
        tokio::task::spawn_blocking(move || state.set_hubs(&json)).await??;
        tracing::info!(hubs = list.hubs.len(), "got a new list of hubs");
        *newest = issued_by(&list.hubs, now);
        self.hubs.send_replace(list.hubs);
        Ok(())
    }
}

/// A hub of the list, or of `agent.yaml`.
struct RunningHub {
    endpoint: watch::Sender<HubEndpoint>,
    stop: CancellationToken,
}

impl RunningHub {
    fn is(&self, hub: &HubEndpoint) -> bool {
        hub_list::is_same(&self.endpoint.borrow(), hub)
    }
}

impl Agent {
    /// Reads what the agent has stored. Creates its key if there is none.
    pub fn new(settings: Settings) -> Result<Self, JoinError> {
        let shared = Shared {
            credentials: Credentials::open(&settings)?,
            status: watch::Sender::default(),
            pump: Pump::new(Budget::new(BUFFER_BYTES)),
            wire: WireSettings { drain_timeout: DRAIN_TIMEOUT, ..WireSettings::tunnel() },
            about: About { node: node_name(), version: env!("CARGO_PKG_VERSION").to_owned() },
            draining: TaskTracker::new(),
            hubs: watch::Sender::new(settings.config.hubs.clone()),
            newest: Mutex::new(issued_by(&settings.config.hubs, Timestamp::now())),
            slots: AtomicU64::default(),
            settings,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the connections of the agent, now and later.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Keeps all connections until `stop` is canceled, then drains them.
    pub async fn run(self, stop: CancellationToken) {
        let (mut hubs, mut status) = (self.shared.hubs.subscribe(), self.shared.status.subscribe());
        let mut running = Vec::new();
        let mut tasks = JoinSet::new();
        // Since when there are hubs of `agent.yaml` to try again.
        let mut unconnected_since = None;
        loop {
            let list = hubs.borrow_and_update().clone();
            for hub in &list {
                self.start_or_update(hub, &mut running, &mut tasks, &stop);
            }
            let connected: Vec<_> = status.borrow_and_update().connections.values().cloned().collect();
            // A list could be wrong. Old connections are closed only when there are new ones, through which to fix it.
            stop_obsolete(&mut running, &list, &connected);
            let mut fallback = hub_list::fallback(&self.shared.settings.file_hubs, &list, &connected);
            fallback.retain(|hub| !running.iter().any(|running| running.is(hub)));
            if fallback.is_empty() {
                unconnected_since = None;
            } else {
                unconnected_since.get_or_insert_with(Instant::now);
            }
            let due = unconnected_since.unwrap_or_else(Instant::now) + self.shared.settings.fallback_after;
            tokio::select! {
                changed = hubs.changed() => if changed.is_err() { break },
                changed = status.changed() => if changed.is_err() { break },
                () = sleep_until(due), if unconnected_since.is_some() => {
                    tracing::warn!(
                        "no hub of an installation in the list can be reached; trying those of the configuration file too"
                    );
                    for hub in &fallback {
                        self.start_or_update(hub, &mut running, &mut tasks, &stop);
                    }
                }
                () = stop.cancelled() => break,
            }
        }
        while tasks.join_next().await.is_some() {}
        self.shared.draining.close();
        self.shared.draining.wait().await;
    }

    fn start_or_update(
        &self,
        hub: &HubEndpoint,
        running: &mut Vec<RunningHub>,
        tasks: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) {
        if let Some(running) = running.iter().find(|running| running.is(hub)) {
            running.endpoint.send_if_modified(|endpoint| update(endpoint, hub));
            return;
        }
        let (sender, endpoint) = watch::channel(hub.clone());
        let stop = stop.child_token();
        tasks.spawn(Hub { shared: self.shared.clone(), endpoint, stop: stop.clone() }.run());
        running.push(RunningHub { endpoint: sender, stop });
    }
}

/// Replaces the entry of a hub. Returns whether it differs.
fn update(endpoint: &mut HubEndpoint, hub: &HubEndpoint) -> bool {
    let differs =
        endpoint.ca_bundle != hub.ca_bundle || endpoint.token.expose_secret() != hub.token.expose_secret();
    if differs {
        *endpoint = hub.clone();
    }
    differs
}

/// Stops the hubs that are no longer in the list.
fn stop_obsolete(running: &mut Vec<RunningHub>, list: &[HubEndpoint], connected: &[Connection]) {
    running.retain(|running| {
        let hub = running.endpoint.borrow();
        let is_obsolete = hub_list::is_obsolete(&hub, list, connected);
        if is_obsolete {
            tracing::info!(hub = hub.address, "the hub is no longer in the list");
            running.stop.cancel();
        }
        !is_obsolete
    });
}

/// Returns the name of this machine, which users see in the status of the tunnel.
fn node_name() -> String {
    let set = std::env::var(NODE_VARIABLE).ok().filter(|name| !name.is_empty());
    let name = set.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    name.unwrap_or_default().trim().to_owned()
}
