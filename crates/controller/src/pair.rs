//! The controllers of one kind of placements and of the release objects that they make.

use std::{collections::HashSet, sync::Arc};

use chandler_api::capi::WATCH_FILTER_LABEL;
use chandler_core::placement::PlacementFace;
use kube::{
    ResourceExt as _,
    api::ApiResource,
    core::NamespaceResourceScope,
    runtime::reflector::{ObjectRef, Store, store::Writer},
};
use tokio::sync::Semaphore;

use crate::{
    caches::{PairCaches, ReleaseCache},
    metrics::Metrics,
    placement::{self, Compose, PlacementContext, PlacementQueue},
    queue::{self, Queue, Trigger},
    release::{self, IsOurs, ReleaseContext},
    routing::{PairQueues, SharedIndex},
    run::{ManagementCaches, Shared},
    status,
    sync::Mutex,
    tasks::Tasks,
    watch::{Change, FirstList, Scope, watch},
};

/// The stores and queues of a kind of placements and of its release objects.
pub struct Pair<P: PlacementFace> {
    placements: Store<P>,
    releases: Store<P::Release>,
    cache: ReleaseCache<P::Release>,
    placement_queue: PlacementQueue<P>,
    release_queue: Trigger<P::Release>,
}

/// What only the watches of a [`Pair`] and its controllers use, each once.
pub struct PairEnds<P: PlacementFace> {
    placement_writer: Writer<P>,
    release_writer: Writer<P::Release>,
    queued_placements: Queue<P>,
    queued_releases: Queue<P::Release>,
}

impl<P: PlacementFace> Clone for Pair<P> {
    fn clone(&self) -> Self {
        Self {
            placements: self.placements.clone(),
            releases: self.releases.clone(),
            cache: self.cache.clone(),
            placement_queue: self.placement_queue.clone(),
            release_queue: self.release_queue.clone(),
        }
    }
}

impl<P> Pair<P>
where
    P: PlacementFace + kube::Resource<Scope = NamespaceResourceScope>,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Creates empty stores and queues.
    pub fn new(metrics: &Metrics, index: &SharedIndex) -> (Self, PairEnds<P>) {
        metrics.placement_kind(status::kind::<P>());
        let (placement_writer, release_writer) = (Writer::new(()), Writer::new(()));
        let (placement_trigger, queued_placements) = Trigger::new(status::kind::<P>(), metrics);
        let (release_queue, queued_releases) = Trigger::new(status::kind::<P::Release>(), metrics);
        let releases = release_writer.as_reader();
        let pair = Self {
            placements: placement_writer.as_reader(),
            cache: ReleaseCache::new(index.clone(), releases.clone()),
            releases,
            placement_queue: PlacementQueue::new(placement_trigger),
            release_queue,
        };
        (pair, PairEnds { placement_writer, release_writer, queued_placements, queued_releases })
    }

    pub fn queues(&self) -> Box<dyn PairQueues> {
        Box::new((self.placement_queue.clone(), self.release_queue.clone()))
    }

    pub fn caches(&self) -> Box<dyn PairCaches> {
        Box::new((self.placements.clone(), self.cache.clone()))
    }

    pub fn placements(&self) -> Store<P> {
        self.placements.clone()
    }

    pub fn releases(&self) -> ReleaseCache<P::Release> {
        self.cache.clone()
    }
}

/// A kind of placements and its release objects, watched.
pub struct WatchedPair<P: PlacementFace> {
    pair: Pair<P>,
    first_lists: [FirstList; 2],
    queued_placements: Queue<P>,
    queued_releases: Queue<P::Release>,
}

impl<P> WatchedPair<P>
where
    P: PlacementFace + kube::Resource<Scope = NamespaceResourceScope>,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Starts to watch both kinds.
    pub fn start(shared: &Shared, pair: Pair<P>, ends: PairEnds<P>) -> Self {
        let PairEnds { placement_writer, release_writer, queued_placements, queued_releases } = ends;
        let first_lists =
            [watch_placements::<P>(shared, placement_writer), watch_releases::<P>(shared, release_writer)];
        Self { pair, first_lists, queued_placements, queued_releases }
    }

    pub fn pair(&self) -> &Pair<P> {
        &self.pair
    }

    /// Returns when both kinds have been listed; `false` if a watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        let [placements, releases] = &mut self.first_lists;
        placements.is_complete().await && releases.is_complete().await
    }

    /// Runs the controllers of both kinds.
    pub fn run(
        self,
        tasks: &mut Tasks,
        shared: &Shared,
        caches: &ManagementCaches,
        compose: Box<dyn Compose<P>>,
    ) {
        let Self { pair, first_lists: _, queued_placements, queued_releases } = self;
        tracing::info!(
            kind = %P::kind(&()),
            placements = pair.placements.len(),
            releases = pair.releases.len(),
            "watches are synchronised"
        );
        let placement_context = Arc::new(placement_context(shared, caches, &pair, compose));
        let release_context = Arc::new(release_context(shared, caches, &pair));
        tasks.spawn(queue::run(
            status::kind::<P>(),
            pair.placements,
            queued_placements,
            shared.metrics.clone(),
            placement_context,
            placement::reconcile::<P>,
        ));
        tasks.spawn(queue::run(
            status::kind::<P::Release>(),
            pair.releases,
            queued_releases,
            shared.metrics.clone(),
            release_context,
            release::reconcile::<P::Release>,
        ));
    }
}

fn placement_context<P: PlacementFace>(
    shared: &Shared,
    caches: &ManagementCaches,
    pair: &Pair<P>,
    compose: Box<dyn Compose<P>>,
) -> PlacementContext<P> {
    PlacementContext {
        client: shared.client.clone(),
        clusters: caches.clusters.clone(),
        releases: pair.cache.clone(),
        queue: pair.placement_queue.clone(),
        writes: Semaphore::new(placement::WRITES),
        written: placement::Written::default(),
        throttle: placement::StatusThrottle::default(),
        compose,
        events: shared.events.clone(),
        metrics: shared.metrics.clone(),
    }
}

fn release_context<P: PlacementFace>(
    shared: &Shared,
    caches: &ManagementCaches,
    pair: &Pair<P>,
) -> ReleaseContext<P::Release> {
    let shared = shared.clone();
    let ManagementCaches { clusters, references, catalogs } = caches.clone();
    ReleaseContext {
        secrets: release::Secrets::new(shared.client.clone(), shared.metrics.clone()),
        client: shared.client,
        clusters,
        releases: pair.cache.clone(),
        all_kinds: shared.all_kinds,
        references,
        connections: shared.kept.connections,
        packages: shared.packages,
        catalogs,
        tool: shared.tool,
        operations: shared.kept.operations,
        events: shared.events,
        metrics: shared.metrics,
        queue: pair.release_queue.clone(),
        memories: shared.kept.memories,
        poll_interval: shared.poll_interval,
        is_ours: ownership(shared.watch_filter, pair.placements.clone()),
        republished: Mutex::new(HashSet::new()),
    }
}

/// Tells the release objects that are ours to look after: with a filter, those that carry its label, and those of the
/// placements that do, whatever made them.
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

fn watch_placements<P: PlacementFace>(shared: &Shared, writer: Writer<P>) -> FirstList {
    let resource = ApiResource::erase::<P>(&());
    let labels = shared.watch_filter.as_ref().map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
    let scope = Scope { labels, ..shared.scope.clone() };
    let router = shared.router.clone();
    watch(shared.client.clone(), &scope, &resource, writer, move |change| router.on_placement::<P>(change))
}

fn watch_releases<P: PlacementFace>(shared: &Shared, writer: Writer<P::Release>) -> FirstList {
    let resource = ApiResource::erase::<P::Release>(&());
    let (router, kept, all_kinds) = (shared.router.clone(), shared.kept.clone(), shared.all_kinds.clone());
    watch(shared.client.clone(), &shared.scope, &resource, writer, move |change| {
        router.on_release::<P>(change);
        if let Change::Deleted(release) = change {
            kept.forget(&all_kinds, *release);
        }
    })
}
