//! One connection per workload cluster, shared by all its releases.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chandler_core::{
    backoff,
    digest::InputMark,
    failure::{Category, Failure},
    identity::{ClusterKey, ReleaseId},
    inventory::ReleaseInventory,
    target::Target,
};
use chandler_telemetry::RequestCounter;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{inventory, kubeconfig::target_from_kubeconfig, reach};

/// An unreachable cluster is tried at least this often.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// What is known of a cluster's releases.
#[derive(Clone, Debug)]
pub enum InventoryView {
    /// Not listed completely yet.
    Loading,
    Unavailable(Failure),
    Known(Arc<ReleaseInventory>),
}

/// Something about a cluster's releases changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryChange {
    pub cluster: ClusterKey,
    /// None: anything may have changed.
    pub release: Option<ReleaseId>,
}

/// A cluster that is being followed.
#[derive(Debug)]
pub struct Connection {
    cluster: ClusterKey,
    state: Mutex<State>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct State {
    view: InventoryView,
    reached: Option<Reached>,
}

#[derive(Clone)]
struct Reached {
    target: Target,
    client: Client,
}

impl std::fmt::Debug for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.target.fmt(f)
    }
}

impl Connection {
    /// What is known of the cluster's releases.
    pub fn inventory(&self) -> InventoryView {
        self.lock().view.clone()
    }

    /// How to reach the cluster. None: its kubeconfig has not been read yet.
    pub fn target(&self) -> Option<Target> {
        self.lock().reached.as_ref().map(|reached| reached.target.clone())
    }

    /// Writes onto a stored revision which inputs it was made from.
    pub async fn mark(&self, release: &ReleaseId, mark: &InputMark) -> Result<(), Failure> {
        let client = self.lock().reached.as_ref().map(|reached| reached.client.clone());
        let client = client.ok_or_else(|| {
            Failure::new(Category::Unreachable, format!("cluster {} is not connected", self.cluster))
        })?;
        let secrets: Api<Secret> = Api::namespaced(client, &release.namespace);
        let name = format!("sh.helm.release.v1.{}.v{}", release.name, mark.revision);
        let patch = serde_json::json!({"metadata": {"labels": {InputMark::LABEL: mark.to_string()}}});
        secrets
            .patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
            .map_err(|error| reach::failure_of(&error))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many clusters are in which state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub connecting: usize,
    /// Their releases are listed and watched.
    pub connected: usize,
    pub unavailable: BTreeMap<Category, usize>,
}

impl Census {
    pub fn total(&self) -> usize {
        self.connecting + self.connected + self.unavailable.values().sum::<usize>()
    }
}

/// All connections. Clones share them.
#[derive(Clone, Debug)]
pub struct Connections {
    management: Arc<ManagementClient>,
    open: Arc<Mutex<HashMap<ClusterKey, Arc<Connection>>>>,
    changes: mpsc::UnboundedSender<InventoryChange>,
    requests: RequestCounter,
}

struct ManagementClient(Client);

impl std::fmt::Debug for ManagementClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ManagementClient")
    }
}

impl Connections {
    /// Reads kubeconfigs with `management`; tells of changes on the channel.
    pub fn new(management: Client) -> (Self, mpsc::UnboundedReceiver<InventoryChange>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        let management = Arc::new(ManagementClient(management));
        (Self { management, open: Arc::default(), changes, requests: RequestCounter::default() }, receiver)
    }

    /// The connection to a cluster; opened if it is not.
    pub fn to(&self, cluster: &ClusterKey) -> Arc<Connection> {
        let mut open = self.lock();
        if let Some(connection) = open.get(cluster) {
            return connection.clone();
        }
        let stop = CancellationToken::new();
        let connection = Arc::new(Connection {
            cluster: cluster.clone(),
            state: Mutex::new(State { view: InventoryView::Loading, reached: None }),
            _stop: stop.clone().drop_guard(),
        });
        open.insert(cluster.clone(), connection.clone());
        let following = follow(self.clone(), Arc::downgrade(&connection), cluster.clone());
        tokio::spawn(async move { stop.run_until_cancelled(following).await });
        connection
    }

    /// Closes the connection to a cluster that is gone or has no releases left.
    pub fn close(&self, cluster: &ClusterKey) {
        self.lock().remove(cluster);
    }

    /// How the clusters that are followed are doing.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for connection in self.lock().values() {
            match &connection.lock().view {
                InventoryView::Loading => census.connecting += 1,
                InventoryView::Known(_) => census.connected += 1,
                InventoryView::Unavailable(failure) => {
                    *census.unavailable.entry(failure.category).or_default() += 1;
                }
            }
        }
        census
    }

    /// The requests made to workload clusters from here; those of the package tool are its own.
    pub fn requests(&self) -> &RequestCounter {
        &self.requests
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ClusterKey, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, cluster: &ClusterKey, release: Option<ReleaseId>) {
        // Nobody listens only while the process ends.
        let _ = self.changes.send(InventoryChange { cluster: cluster.clone(), release });
    }

    async fn reach(&self, cluster: &ClusterKey) -> Result<Reached, Failure> {
        let text = self.kubeconfig(cluster).await?;
        let target = target_from_kubeconfig(cluster, &text)?;
        let client = reach::client(&target, &self.requests).await?;
        Ok(Reached { target, client })
    }

    async fn kubeconfig(&self, cluster: &ClusterKey) -> Result<String, Failure> {
        let name = format!("{}-kubeconfig", cluster.name);
        let invalid = |message: String| Failure::new(Category::InvalidSpec, message);
        let secrets: Api<Secret> = Api::namespaced(self.management.0.clone(), &cluster.namespace);
        let secret = secrets
            .get_opt(&name)
            .await
            .map_err(|error| invalid(format!("cannot read Secret {}/{name}: {error}", cluster.namespace)))?
            .ok_or_else(|| invalid(format!("Secret {}/{name} does not exist yet", cluster.namespace)))?;
        let value = secret.data.and_then(|mut data| data.remove("value"));
        value
            .and_then(|value| String::from_utf8(value.0).ok())
            .ok_or_else(|| invalid(format!("Secret {}/{name} has no text at key `value`", cluster.namespace)))
    }
}

/// Follows a cluster for as long as its connection lives. Every new attempt reads the kubeconfig again, so renewed
/// credentials are found, and lists anew, so that nothing is concluded from a list with a gap.
async fn follow(connections: Connections, connection: std::sync::Weak<Connection>, cluster: ClusterKey) {
    let publish = |view: InventoryView, release: Option<ReleaseId>| {
        if let Some(connection) = connection.upgrade() {
            connection.lock().view = view;
            connections.tell(&cluster, release);
        }
    };
    let mut failures = 0;
    loop {
        let failure = match connections.reach(&cluster).await {
            Ok(reached) => {
                if let Some(connection) = connection.upgrade() {
                    connection.lock().reached = Some(reached.clone());
                }
                inventory::follow(reached.client, |view, release| {
                    failures = 0;
                    publish(view, release);
                })
                .await
            }
            Err(failure) => failure,
        };
        failures += 1;
        tracing::info!(%cluster, category = %failure.category, failures, "workload cluster not available: {failure}");
        publish(InventoryView::Unavailable(failure), None);
        let wait = backoff::delay(Category::Unreachable, failures, &cluster.to_string()).min(LONGEST_WAIT);
        tokio::time::sleep(wait).await;
    }
}
