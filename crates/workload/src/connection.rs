//! One connection per workload cluster and package tool, shared by all releases of that tool.

mod follower;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chandler_core::{
    addresses::AddressPolicy,
    digest::InputMark,
    failure::{Category, Failure},
    identity::{ClusterKey, ReleaseId, ToolId},
    inventory::{PendingRecords, ReleaseInventory, ReleaseRecords},
    target::Target,
    tunnel::ProxyPolicy,
};
use chandler_telemetry::RequestCounter;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource as _,
    api::{DynamicObject, Patch, PatchParams},
    core::Request as ResourceRequest,
};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::follower::Follower;
use crate::{
    answers::Answers,
    budget::ResponseBudgets,
    health::HealthWatches,
    inventory,
    kubeconfig::target_from_kubeconfig,
    probe::Probe,
    reach::{self, ClientOptions, SharedClient, TargetClient},
    request::ClusterClient,
};

/// Maximum number of concurrent attempts to connect, for records and for objects of releases together.
const CONCURRENT_CONNECTS: usize = 64;
/// Maximum number of clusters whose objects are listed at the same time: each of them needs memory for a page.
const CONCURRENT_LISTS: usize = 32;

/// Returns where a package tool records its releases.
pub type RecordsOf =
    Arc<dyn Fn(ToolId) -> BoxFuture<'static, Result<Arc<ReleaseRecords>, Failure>> + Send + Sync>;

/// The releases of a tool on a cluster, as far as they are known.
#[derive(Clone, Debug)]
pub enum InventoryView {
    /// Not listed completely yet.
    Loading,
    Unavailable(Failure),
    Known(Arc<ReleaseInventory>),
}

/// A change of a cluster's releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryChange {
    pub cluster: ClusterKey,
    /// `None` means that any release may have changed.
    pub release: Option<ReleaseId>,
}

/// A cluster whose releases of one tool are watched.
#[derive(Debug)]
pub struct Connection {
    cluster: ClusterKey,
    /// The uid of the Cluster. Another Cluster with the same name has other releases.
    uid: Option<String>,
    state: Mutex<State>,
    list_again: Arc<Notify>,
    answers: Answers,
    health: HealthWatches,
    _stop: DropGuard,
}

#[derive(Debug)]
struct State {
    view: InventoryView,
    /// The pending releases that were known last, also while the cluster is not available.
    pending: PendingRecords,
    reached: Option<Reached>,
}

#[derive(Clone)]
struct Reached {
    target: Arc<Target>,
    client: ClusterClient,
    shared: SharedClient,
    records: Arc<ReleaseRecords>,
}

impl std::fmt::Debug for Reached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.target.fmt(f)
    }
}

impl Connection {
    /// Returns the cluster's releases, as far as they are known.
    pub fn inventory(&self) -> InventoryView {
        self.lock().view.clone()
    }

    /// Returns whether Chandler has created a revision of a release, as far as the releases are known.
    fn has_installed(&self, release: &ReleaseId) -> bool {
        let state = self.lock();
        let InventoryView::Known(inventory) = &state.view else { return false };
        let revisions = inventory.revisions(release);
        revisions.is_some_and(|revisions| revisions.values().any(|seen| seen.mark.is_some()))
    }

    /// Returns how to reach the cluster. `None` means that its kubeconfig has not been read yet.
    pub fn target(&self) -> Option<Target> {
        self.lock().reached.as_ref().map(|reached| Target::clone(&reached.target))
    }

    /// Returns since when the cluster answers without a long break. `None` if it does not.
    pub fn answers_since(&self) -> Option<Timestamp> {
        self.answers.since()
    }

    /// Returns the watches of the objects of the tool's releases. They are open only while the cluster is available.
    pub fn health(&self) -> &HealthWatches {
        &self.health
    }

    /// Reads the kubeconfig and lists the releases again. The last known releases stay valid until then.
    pub fn list_again(&self) {
        self.list_again.notify_one();
    }

    /// Labels the record of a revision with the inputs that it was made from.
    pub async fn mark(&self, release: &ReleaseId, mark: &InputMark) -> Result<(), Failure> {
        let reached = self.lock().reached.clone();
        let Reached { client, records, .. } = reached.ok_or_else(|| {
            Failure::new(Category::Unreachable, format!("cluster {} is not connected", self.cluster))
        })?;
        let resource = inventory::resource(&records)?;
        let path = DynamicObject::url_path(&resource, Some(&release.namespace));
        let name = records.object_name(release, mark.revision);
        let labels = serde_json::json!({"metadata": {"labels": {InputMark::LABEL: mark.to_string()}}});
        let request =
            ResourceRequest::new(path).patch_metadata(&name, &PatchParams::default(), &Patch::Merge(labels));
        let request = request.map_err(|error| reach::failure_of(&kube::Error::BuildRequest(error)))?;
        client.read(request).await.map(|_| ()).map_err(|error| error.failure())
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

type OpenConnections = HashMap<ClusterKey, BTreeMap<ToolId, Arc<Connection>>>;

/// All connections. Clones share them.
#[derive(Clone, Debug)]
pub struct Connections {
    management: Arc<ManagementClient>,
    records_of: Records,
    open: Arc<Mutex<OpenConnections>>,
    changes: mpsc::UnboundedSender<InventoryChange>,
    connects: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    outages: Arc<AtomicU64>,
    clients: ClientOptions,
    proxies: Arc<ProxyPolicy>,
}

/// [`RecordsOf`] with a `Debug` of its own.
#[derive(Clone)]
struct Records(RecordsOf);

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Records")
    }
}

struct ManagementClient(Client);

impl std::fmt::Debug for ManagementClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ManagementClient")
    }
}

impl Connections {
    /// Reads kubeconfigs with `management`; sends changes on the channel. Watches that send nothing for `watch_silence` are
    /// opened again. A kubeconfig with a proxy that `proxies` refuses, or with addresses that `addresses` refuses, is not used.
    pub fn new(
        management: Client,
        records_of: RecordsOf,
        watch_silence: Duration,
        proxies: ProxyPolicy,
        addresses: AddressPolicy,
    ) -> (Self, mpsc::UnboundedReceiver<InventoryChange>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        let management = Arc::new(ManagementClient(management));
        let connections = Self {
            management,
            records_of: Records(records_of),
            open: Arc::default(),
            changes,
            connects: Arc::new(Semaphore::new(CONCURRENT_CONNECTS)),
            lists: Arc::new(Semaphore::new(CONCURRENT_LISTS)),
            outages: Arc::default(),
            clients: ClientOptions {
                requests: RequestCounter::default(),
                watch_silence,
                addresses: Arc::new(addresses),
                budgets: ResponseBudgets::default(),
            },
            proxies: Arc::new(proxies),
        };
        (connections, receiver)
    }

    /// Returns the connection to a cluster for a tool; opens it if needed. `uid` is that of the Cluster, if known.
    pub fn to(&self, cluster: &ClusterKey, uid: Option<&str>, tool: ToolId) -> Arc<Connection> {
        let mut open = self.lock();
        let known = open.get(cluster).and_then(|tools| tools.get(&tool));
        if let Some(connection) = known.filter(|known| uid.is_none() || known.uid.as_deref() == uid) {
            return connection.clone();
        }
        let (stop, list_again) = (CancellationToken::new(), Arc::new(Notify::new()));
        let health = HealthWatches::new(
            cluster.clone(),
            self.changes.clone(),
            self.connects.clone(),
            self.lists.clone(),
            self.clients.budgets.kept(&cluster.namespace),
        );
        let connection = Arc::new(Connection {
            cluster: cluster.clone(),
            uid: uid.map(str::to_owned),
            state: Mutex::new(State {
                view: InventoryView::Loading,
                pending: PendingRecords::default(),
                reached: None,
            }),
            list_again: list_again.clone(),
            answers: Answers::default(),
            health: health.clone(),
            _stop: stop.clone().drop_guard(),
        });
        open.entry(cluster.clone()).or_default().insert(tool, connection.clone());
        let follower = Follower {
            connections: self.clone(),
            connection: Arc::downgrade(&connection),
            cluster: cluster.clone(),
            tool,
            list_again,
        };
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(health.run()).await });
        tokio::spawn(async move { stop.run_until_cancelled(Box::pin(follower.run())).await });
        connection
    }

    /// Closes the connections to a cluster that is gone or has no releases left.
    pub fn close(&self, cluster: &ClusterKey) {
        self.lock().remove(cluster);
    }

    /// Stops watching objects on a cluster because of a release, whatever its tool. Opens no connection.
    pub fn forget(&self, cluster: &ClusterKey, release: &ReleaseId) {
        for connection in self.lock().get(cluster).into_iter().flat_map(BTreeMap::values) {
            connection.health.forget(release);
        }
    }

    /// Counts the connected clusters by state. A cluster counts once, by the worst state of its connections.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for tools in self.lock().values() {
            let views: Vec<_> = tools.values().map(|connection| connection.inventory()).collect();
            let failure = views.iter().find_map(|view| match view {
                InventoryView::Unavailable(failure) => Some(failure.category),
                _ => None,
            });
            if let Some(category) = failure {
                *census.unavailable.entry(category).or_default() += 1;
            } else if views.iter().any(|view| matches!(view, InventoryView::Loading)) {
                census.connecting += 1;
            } else {
                census.connected += 1;
            }
        }
        census
    }

    /// Returns the requests made to workload clusters from here. A package tool counts its own.
    pub fn requests(&self) -> &RequestCounter {
        &self.clients.requests
    }

    /// Returns how often a cluster was reported as unavailable.
    pub fn outages(&self) -> u64 {
        self.outages.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, cluster: &ClusterKey, release: Option<ReleaseId>) {
        // The receiver is dropped only while the process ends.
        let _ = self.changes.send(InventoryChange { cluster: cluster.clone(), release });
    }

    /// Reads how to reach a cluster. Opens no connection to it.
    pub async fn read_target(&self, cluster: &ClusterKey) -> Result<Target, Failure> {
        let text = self.kubeconfig(cluster).await?;
        let target = target_from_kubeconfig(cluster, &text)?;
        self.proxies.check(target.proxy.as_ref())?;
        reach::check_addresses(&target, &self.clients.addresses)?;
        Ok(target)
    }

    async fn reach(&self, cluster: &ClusterKey, tool: ToolId) -> Result<(Reached, Probe), Failure> {
        let records = (self.records_of.0)(tool).await?;
        let target = self.read_target(cluster).await?;
        let TargetClient { client, probe, shared } = reach::client(&target, &self.clients)?;
        Ok((Reached { target: Arc::new(target), client, shared, records }, probe))
    }

    async fn kubeconfig(&self, cluster: &ClusterKey) -> Result<String, Failure> {
        let name = format!("{}-kubeconfig", cluster.name);
        let invalid = |message: String| Failure::new(Category::InvalidSpec, message);
        let secrets: Api<Secret> = Api::namespaced(self.management.0.clone(), &cluster.namespace);
        let secret = secrets
            .get_opt(&name)
            .await
            .map_err(|error| unreadable(&error, &format!("Secret {}/{name}", cluster.namespace)))?
            .ok_or_else(|| invalid(format!("Secret {}/{name} does not exist yet", cluster.namespace)))?;
        let value = secret.data.and_then(|mut data| data.remove("value"));
        value
            .and_then(|value| String::from_utf8(value.0).ok())
            .ok_or_else(|| invalid(format!("Secret {}/{name} has no text at key `value`", cluster.namespace)))
    }
}

/// Returns why a kubeconfig cannot be read. A management cluster that does not answer says nothing about the workload
/// cluster, so that is not reported at once.
fn unreadable(error: &kube::Error, secret: &str) -> Failure {
    let category = match error {
        kube::Error::Api(status) if status.code < 500 => Category::InvalidSpec,
        _ => Category::Internal,
    };
    Failure::new(category, format!("cannot read {secret}: {error}"))
}
