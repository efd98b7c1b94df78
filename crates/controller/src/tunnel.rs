//! The controllers of tunnels: creates a ClusterTunnel for each Cluster that is to be reached through one, the Secret from which
//! its nodes get the agent, and the proxy entry of its kubeconfig.

mod bootstrap;
mod cluster;
mod finalize;
mod hub_leases;
mod keys;
mod kubeconfig;
mod management_ca;
mod queues;
mod reconciler;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chandler_api::{capi::WATCH_FILTER_LABEL, tunnel::ClusterTunnel};
use chandler_core::{
    identity::ClusterKey,
    tunnel::{TunnelCluster, connected_agents, tunnel_problem},
};
use chandler_tunnel::{TunnelId, TunnelKey, TunnelOwner, identity::IdentityError};
use kube::{
    Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{ObjectRef, Store, store::Writer},
};

pub use self::queues::TunnelQueues;
use self::{hub_leases::HubLeases, keys::KeysSource, management_ca::ManagementCa, queues::Enqueued};
use crate::{
    ReconcileError,
    clusters::{self, Clusters},
    events::Events,
    metrics::Metrics,
    queue,
    routing::Router,
    run::{ManagementCaches, Shared},
    tasks::Tasks,
    watch::{FirstList, Scope, watch},
};

/// The kind of ClusterTunnels, for metrics and errors.
const KIND: &str = "ClusterTunnel";
/// Clusters as the controller sees them that creates and deletes their ClusterTunnels, for metrics.
const CLUSTER_KIND: &str = "TunneledCluster";
/// How often the Lease of the hub's replicas is compared with the entries in ClusterTunnels.
const HUB_CHECK: Duration = Duration::from_secs(15);

/// How tunnels work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelOptions {
    /// The namespace of Chandler, with the keys and the Lease of the hub's replicas.
    pub namespace: String,
    /// `HOST:PORT` of the hub, as agents reach it.
    pub hub_addresses: Vec<String>,
    /// `HOST:PORT` of the hub's proxy, as clients in the management cluster reach it.
    pub proxy_service: String,
    pub agent_image: String,
}

/// What the reconciles of tunnels share.
pub struct TunnelContext {
    client: Client,
    events: Events,
    metrics: Metrics,
    options: TunnelOptions,
    /// Only Clusters whose watch-filter label has this value. `None` means all.
    watch_filter: Option<String>,
    store: Store<ClusterTunnel>,
    clusters: Clusters,
    keys: KeysSource,
    leases: HubLeases,
    management_ca: ManagementCa,
}

impl TunnelContext {
    fn new(shared: &Shared, options: TunnelOptions, store: Store<ClusterTunnel>, clusters: Clusters) -> Self {
        let client = shared.client.clone();
        Self {
            events: shared.events.clone(),
            metrics: shared.metrics.clone(),
            watch_filter: shared.watch_filter.clone(),
            store,
            clusters,
            keys: KeysSource::new(client.clone(), &options),
            leases: HubLeases::new(client.clone(), options.namespace.clone()),
            management_ca: ManagementCa::new(client.clone(), options.namespace.clone()),
            client,
            options,
        }
    }

    /// Returns whether this manager reconciles a Cluster.
    fn serves(&self, cluster: &DynamicObject) -> bool {
        let label = cluster.labels().get(WATCH_FILTER_LABEL);
        self.watch_filter.as_ref().is_none_or(|filter| label == Some(filter))
    }
}

/// Returns the facts about a Cluster that decide about its tunnel.
fn facts(cluster: &DynamicObject) -> TunnelCluster {
    TunnelCluster::of(&cluster.metadata, &cluster.data)
}

/// Returns the key of a ClusterTunnel's Cluster.
fn cluster_key(tunnel: &ClusterTunnel) -> ClusterKey {
    ClusterKey::new(tunnel.namespace().unwrap_or_default(), tunnel.spec.cluster_name.clone())
}

fn tunnel_id(tunnel: &ClusterTunnel) -> Result<TunnelId, ReconcileError> {
    tunnel.spec.id.parse().map_err(|error: IdentityError| ReconcileError::InvalidTunnel(error.to_string()))
}

/// Returns the id of a ClusterTunnel together with its Cluster, for which its join tokens are valid.
fn tunnel_key(tunnel: &ClusterTunnel) -> Result<TunnelKey, ReconcileError> {
    let ClusterKey { namespace, name } = cluster_key(tunnel);
    Ok(TunnelKey { id: tunnel_id(tunnel)?, owner: TunnelOwner::of(&namespace, &name) })
}

/// The watched ClusterTunnels. Without tunnels, there are none.
#[derive(Clone, Default)]
pub struct Tunnels(Option<Store<ClusterTunnel>>);

/// ClusterTunnels by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelCounts {
    pub connected: usize,
    pub disconnected: usize,
    /// No agent has ever been connected.
    pub pending: usize,
}

impl Tunnels {
    /// Returns why the add-ons of a Cluster are not ready, if the reason is its tunnel.
    pub fn problem(&self, cluster: &DynamicObject) -> Option<String> {
        let store = self.0.as_ref()?;
        let key = clusters::key(cluster)?;
        if !facts(cluster).enabled {
            return None;
        }
        let tunnel = store.get(&ObjectRef::new(&key.name).within(&key.namespace));
        tunnel_problem(tunnel.as_deref())
    }

    /// Counts the ClusterTunnels. Returns `None` without tunnels.
    pub fn counts(&self) -> Option<TunnelCounts> {
        let mut counts = TunnelCounts::default();
        let none = BTreeMap::new();
        for tunnel in self.0.as_ref()?.state() {
            let seen = tunnel.status.as_ref().is_some_and(|status| status.last_seen.is_some());
            if connected_agents(&tunnel, &none).next().is_some() {
                counts.connected += 1;
            } else if seen {
                counts.disconnected += 1;
            } else {
                counts.pending += 1;
            }
        }
        Some(counts)
    }
}

/// The controllers of tunnels.
pub struct TunnelControllers {
    options: TunnelOptions,
    scope: Scope,
    writer: Writer<ClusterTunnel>,
    enqueued: Enqueued,
}

/// The controllers of tunnels, watched.
pub struct WatchedTunnels {
    options: TunnelOptions,
    store: Store<ClusterTunnel>,
    first_list: FirstList,
    enqueued: Enqueued,
}

impl TunnelControllers {
    pub fn new(scope: Scope, options: TunnelOptions, queues: &TunnelQueues, metrics: &Metrics) -> Self {
        metrics.tunnels_enabled();
        Self { options, scope, writer: Writer::new(()), enqueued: queues.activate(metrics) }
    }

    pub fn tunnels(&self) -> Tunnels {
        Tunnels(Some(self.writer.as_reader()))
    }

    /// Starts to watch ClusterTunnels.
    pub fn watch(self, shared: &Shared) -> WatchedTunnels {
        let Self { options, scope, writer, enqueued } = self;
        let (store, router) = (writer.as_reader(), shared.router.clone());
        let resource = ApiResource::erase::<ClusterTunnel>(&());
        let first_list = watch(shared.client.clone(), &scope, &resource, writer, move |change| {
            router.on_tunnel(change);
        });
        WatchedTunnels { options, store, first_list, enqueued }
    }
}

impl WatchedTunnels {
    /// Returns when everything has been listed; `false` if the watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        self.first_list.is_complete().await
    }

    /// Reconciles tunnels.
    pub fn run(self, tasks: &mut Tasks, shared: &Shared, caches: &ManagementCaches) {
        let Self { options, store, first_list: _, enqueued } = self;
        let context = Arc::new(TunnelContext::new(shared, options, store.clone(), caches.clusters.clone()));
        let maintained = context.clone();
        tasks.spawn(async move { maintained.keys.maintain().await });
        tasks.spawn(follow_hubs(context.clone(), shared.router.clone()));
        let Enqueued { clusters: cluster_queue, tunnels: tunnel_queue } = enqueued;
        tasks.spawn(queue::run(
            CLUSTER_KIND,
            clusters::resource(),
            caches.clusters.store(),
            cluster_queue,
            shared.metrics.clone(),
            context.clone(),
            cluster::reconcile,
        ));
        let metrics = shared.metrics.clone();
        tasks.spawn(queue::run(KIND, (), store, tunnel_queue, metrics, context, reconciler::reconcile));
    }
}

/// Enqueues the ClusterTunnels with entries of replicas that have died. A replica that dies causes no event.
async fn follow_hubs(context: Arc<TunnelContext>, router: Router) {
    loop {
        tokio::time::sleep(HUB_CHECK).await;
        for tunnel in context.store.state() {
            let Some(status) = tunnel.status.as_ref() else { continue };
            if !context.leases.dead_in(status).await.is_empty() {
                router.enqueue_tunnel(&cluster_key(&tunnel));
            }
        }
    }
}
