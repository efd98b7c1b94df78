//! Wires it all together: stores, queues, reconcilers, endpoints.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chandler_api::{
    addons::{HelmChartProxy, HelmReleaseProxy},
    capi::WATCH_FILTER_LABEL,
};
use chandler_core::{placement::PlacementFace, release::ReleaseFace, schedule::Limits};
use chandler_source::{Packages, SourceOptions, Store as PackageStore};
use chandler_tool::{PackageTool, Supervisor, SupervisorConfig};
use chandler_workload::Connections;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
    core::NamespaceResourceScope,
    runtime::reflector::{ObjectRef, Store},
};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Election, Error, HookOptions,
    clusters::{self, Clusters},
    events::Events,
    hooks,
    index::ReleaseIndex,
    metrics::Metrics,
    operations::Operations,
    placement::{self, Desk, PlacementContext},
    predecessor,
    queue::{self, Trigger},
    references::References,
    release::{self, IsOurs, Kept, Memories, ReleaseContext},
    server::{self, Served},
    watch::{Scope, Watched, watch},
};

/// How the controllers run.
#[derive(Debug)]
pub struct Options {
    /// None: all namespaces.
    pub namespace: Option<String>,
    /// Only placements whose watch-filter label has this value, and their releases. None: all.
    pub watch_filter: Option<String>,
    /// The package tool's binary.
    pub tool: PathBuf,
    /// Further arguments for it.
    pub tool_arguments: Vec<String>,
    /// Folder of the package store.
    pub store: PathBuf,
    /// How repositories and registries are asked.
    pub sources: SourceOptions,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub address: SocketAddr,
    pub limits: Limits,
    /// How often a release that follows the newest version looks for it.
    pub poll_interval: Duration,
    /// None: this process is the only one.
    pub election: Option<Election>,
    /// None: Cluster API does not ask.
    pub hooks: Option<HookOptions>,
}

/// What all controllers share.
#[derive(Clone)]
struct Shared {
    client: Client,
    scope: Scope,
    watch_filter: Option<String>,
    connections: Connections,
    packages: Arc<Packages>,
    tool: PackageTool,
    events: Events,
    metrics: Metrics,
    limits: Limits,
    poll_interval: Duration,
    hooks: Option<HookOptions>,
}

/// Runs the controllers until `stop` fires.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let Options {
        namespace,
        watch_filter,
        tool,
        tool_arguments,
        store,
        sources,
        address,
        limits,
        poll_interval,
        election,
        hooks,
    } = options;
    let scope = Scope { namespace, labels: None };
    check_served(&client, &scope).await?;
    predecessor::check(&client).await?;
    let (connections, changes) = Connections::new(client.clone());
    let mut sources = sources;
    // Whoever wants to look more often wants to see more, too.
    sources.limits.fresh = sources.limits.fresh.min(poll_interval);
    let supervisor = SupervisorConfig { arguments: tool_arguments, ..SupervisorConfig::new(tool) };
    let shared = Shared {
        events: Events::new(client.clone()),
        metrics: Metrics::new(),
        tool: PackageTool::new(Supervisor::new(supervisor)),
        packages: Arc::new(Packages::new(PackageStore::open(store)?, sources)),
        connections,
        client,
        scope,
        watch_filter,
        limits,
        poll_interval,
        hooks,
    };
    let ready = Arc::new(AtomicBool::new(false));
    let served = Served {
        metrics: shared.metrics.clone(),
        tool: shared.tool.clone(),
        connections: shared.connections.clone(),
        ready: ready.clone(),
    };
    let address = server::serve(address, served).await?;
    tracing::info!(%address, "serving /metrics, /healthz and /readyz");
    let packages = shared.packages.clone();
    let _collecting = AbortOnDropHandle::new(tokio::spawn(async move { packages.collect_regularly().await }));
    let (client, tool) = (shared.client.clone(), shared.tool.clone());
    let work = controllers::<HelmChartProxy>(shared, changes, ready);
    let ended = if let Some(election) = election {
        lead(client, election, &tool, work, &stop).await
    } else {
        stop.run_until_cancelled(work).await;
        Ok(())
    };
    tracing::info!("stopping");
    ended
}

/// Works while it leads. Whoever may not act any more stops its driver before anyone else may begin.
async fn lead(
    client: Client,
    election: Election,
    tool: &PackageTool,
    work: impl Future<Output = ()>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Some(won) = stop.run_until_cancelled(election.win(client)).await else { return Ok(()) };
    let mut leadership = won?;
    let lost = tokio::select! {
        () = work => None,
        why = leadership.keep() => Some(why),
        () = stop.cancelled() => None,
    };
    tool.supervisor().kill().await;
    if let Some(why) = lost {
        return Err(Error::LostLeadership(why));
    }
    leadership.resign().await;
    Ok(())
}

/// Runs the pair of controllers of one face.
async fn controllers<P>(
    shared: Shared,
    mut changes: tokio::sync::mpsc::UnboundedReceiver<chandler_workload::InventoryChange>,
    ready: Arc<AtomicBool>,
) where
    P: PlacementFace + Resource<Scope = NamespaceResourceScope>,
    P::Release: Resource<Scope = NamespaceResourceScope>,
{
    let (placement_trigger, placement_queue) = Trigger::<P>::new();
    let (release_trigger, release_queue) = Trigger::<P::Release>::new();
    let desk = Desk::new(placement_trigger);
    let index = ReleaseIndex::new(P::OWNER_LABEL);
    let kept = Kept {
        memories: Memories::default(),
        operations: Operations::new(shared.limits, shared.metrics.clone()),
        connections: shared.connections.clone(),
    };
    let mut placements = watch_placements::<P>(&shared, desk.clone());
    let mut releases =
        watch_releases::<P>(&shared, desk.clone(), index.clone(), release_trigger.clone(), kept.clone());
    index.attach(releases.store.clone());
    let mut clusters =
        watch_clusters::<P>(&shared, &placements.store, &index, desk.clone(), release_trigger.clone());
    if !(placements.is_complete().await && releases.is_complete().await && clusters.is_complete().await) {
        tracing::error!("a watch ended before its first list was complete");
        return;
    }
    let (placements, releases, clusters) = (placements.store, releases.store, Clusters::new(clusters.store));
    let references =
        references(&shared, &placements, &index, &clusters, desk.clone(), release_trigger.clone());
    ready.store(true, Ordering::Release);
    tracing::info!(placements = placements.len(), releases = releases.len(), "watches are synchronised");
    let _hooks = match serve_hooks(&shared, &index, &kept).await {
        Ok(serving) => serving,
        Err(error) => return tracing::error!(%error, "hooks are not served"),
    };
    let placement_context = Arc::new(PlacementContext::<P> {
        client: shared.client.clone(),
        clusters: clusters.clone(),
        index: index.clone(),
        desk,
        writes: Semaphore::new(placement::WRITES),
        written: placement::Written::default(),
        told: placement::Told::default(),
        references: references.clone(),
        tool: shared.tool.clone(),
        events: shared.events.clone(),
        metrics: shared.metrics.clone(),
    });
    let release_context = Arc::new(ReleaseContext::<P::Release> {
        secrets: release::Secrets::new(shared.client.clone()),
        client: shared.client,
        clusters,
        index: index.clone(),
        references,
        connections: kept.connections,
        packages: shared.packages,
        tool: shared.tool,
        operations: kept.operations,
        events: shared.events,
        metrics: shared.metrics,
        trigger: release_trigger.clone(),
        memories: kept.memories,
        poll_interval: shared.poll_interval,
        is_ours: ownership(shared.watch_filter, placements.clone()),
        republished: Mutex::default(),
    });
    let mut published = release_context.packages.changes();
    let (followers, follower_trigger) = (releases.clone(), release_trigger.clone());
    let following_sources = async move {
        while published.changed().await.is_ok() {
            release::on_source_change(&followers, &follower_trigger);
        }
    };
    let following = async move {
        while let Some(change) = changes.recv().await {
            release::on_inventory_change(&index, &release_trigger, &change);
        }
    };
    tokio::join!(
        queue::run(placements, placement_queue, placement_context, placement::reconcile::<P>),
        queue::run(releases, release_queue, release_context, release::reconcile::<P::Release>),
        following,
        following_sources,
    );
}

/// Serves hooks, if they are wanted, until what it returns is dropped.
async fn serve_hooks<R: ReleaseFace>(
    shared: &Shared,
    index: &ReleaseIndex<R>,
    kept: &Kept,
) -> Result<Option<hooks::Serving>, Error> {
    let Some(options) = shared.hooks.clone() else { return Ok(None) };
    let (index, operations) = (index.clone(), kept.operations.clone());
    let changing = hooks::UnderWay(Box::new(move |cluster| {
        let on_cluster = index.on_cluster(cluster).into_iter();
        let changing =
            on_cluster.filter(|release| operations.running(&release.uid().unwrap_or_default()).is_some());
        changing.filter_map(|release| Some(release.desired().ok()?.release.name)).collect()
    }));
    let namespace = shared.scope.namespace.as_deref();
    let filter = shared.watch_filter.as_deref();
    hooks::serve(shared.client.clone(), options, namespace, filter, Arc::new(changing)).await.map(Some)
}

/// Tells the release objects that are ours to look after: with a filter, those that carry its label, and those of the
/// placements that do, whoever made them.
fn ownership<P: PlacementFace>(filter: Option<String>, placements: Store<P>) -> IsOurs<P::Release> {
    let Some(filter) = filter else { return Box::new(|_| true) };
    let kind = P::kind(&());
    Box::new(move |release| {
        let owner = release.owner_references().iter().find(|owner| owner.kind == kind);
        release.labels().get(WATCH_FILTER_LABEL) == Some(&filter)
            || owner.is_some_and(|owner| {
                let namespace = release.namespace().unwrap_or_default();
                placements.get(&ObjectRef::new(&owner.name).within(&namespace)).is_some()
            })
    })
}

fn watch_placements<P: PlacementFace>(shared: &Shared, desk: Desk<P>) -> Watched<P> {
    let resource = ApiResource::erase::<P>(&());
    let labels = shared.watch_filter.as_ref().map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
    let scope = Scope { labels, ..shared.scope.clone() };
    watch(shared.client.clone(), &scope, &resource, (), move |placement: &P| desk.placement(placement))
}

fn watch_releases<P: PlacementFace>(
    shared: &Shared,
    desk: Desk<P>,
    index: ReleaseIndex<P::Release>,
    trigger: Trigger<P::Release>,
    kept: Kept,
) -> Watched<P::Release> {
    let resource = ApiResource::erase::<P::Release>(&());
    watch(shared.client.clone(), &shared.scope, &resource, (), move |object: &P::Release| {
        if index.is_gone(object) {
            kept.forget(&index, object);
        } else {
            index.note(object);
        }
        trigger.look_at(ObjectRef::from_obj(object));
        // Whoever claims the same release may have it now, or not any more.
        for rival in
            object.desired().iter().flat_map(|desired| index.claiming(&desired.cluster, &desired.release))
        {
            trigger.look_at(ObjectRef::from_obj(&*rival));
        }
        desk.release(object);
    })
}

fn watch_clusters<P: PlacementFace>(
    shared: &Shared,
    placements: &Store<P>,
    index: &ReleaseIndex<P::Release>,
    desk: Desk<P>,
    releases: Trigger<P::Release>,
) -> Watched<DynamicObject> {
    let (placements, index) = (placements.clone(), index.clone());
    let resource = clusters::resource();
    let touched = move |cluster: &DynamicObject| {
        let Some(key) = clusters::key(cluster) else { return };
        desk.cluster(&placements, &index, &key, cluster.labels());
        for release in index.on_cluster(&key) {
            releases.look_at(ObjectRef::from_obj(&*release));
        }
    };
    watch(shared.client.clone(), &shared.scope, &resource, resource.clone(), touched)
}

/// A change of what a Cluster refers to is a change of the Cluster, as far as templates and charts look at it.
fn references<P: PlacementFace>(
    shared: &Shared,
    placements: &Store<P>,
    index: &ReleaseIndex<P::Release>,
    clusters: &Clusters,
    desk: Desk<P>,
    releases: Trigger<P::Release>,
) -> References {
    let (placements, index, clusters) = (placements.clone(), index.clone(), clusters.clone());
    References::new(shared.client.clone(), shared.scope.clone(), move |key| {
        if let Some(cluster) = clusters.get(key) {
            desk.cluster(&placements, &index, key, cluster.labels());
        }
        for release in index.on_cluster(key) {
            releases.look_at(ObjectRef::from_obj(&*release));
        }
    })
}

/// Says at once what is missing, instead of watching what will never come.
async fn check_served(client: &Client, scope: &Scope) -> Result<(), Error> {
    let kinds = [
        ApiResource::erase::<HelmChartProxy>(&()),
        ApiResource::erase::<HelmReleaseProxy>(&()),
        clusters::resource(),
    ];
    for resource in kinds {
        let api: Api<DynamicObject> = match &scope.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let kind = format!("{} {}", resource.api_version, resource.kind);
        api.list_metadata(&ListParams::default().limit(1))
            .await
            .map_err(|source| Error::NotServed { kind, source })?;
    }
    Ok(())
}
