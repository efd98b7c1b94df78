//! The controllers of one kind of placements and of the release objects that they make.

use std::{collections::HashSet, sync::Arc};

use chandler_api::capi::WATCH_FILTER_LABEL;
use chandler_core::{
    placement::PlacementKind,
    policy::{PolicyState, is_suspended, last_on_cluster_delete},
    release::{ReleaseKind, awaits_policy_values, replaces_unsafe_crds},
    rollout::aborted_revision,
};
use futures::{FutureExt as _, future::BoxFuture};
use kube::{
    ResourceExt as _,
    api::ApiResource,
    core::NamespaceResourceScope,
    runtime::{
        reflector::{ObjectRef, Store, store::Writer},
        watcher::Event,
    },
};

use crate::{
    caches::{PairCache, PairCaches, ReleaseCache, placement_of, placement_ref},
    clusters::Clusters,
    kinds::{ComposeServices, ManagedKind},
    locks::Mutex,
    metrics::Metrics,
    placement::{self, Compose, FollowedVersion, PlacementContext, PlacementQueue, RecentWrites},
    policies::Policies,
    queue::{self, Queue, Trigger},
    release::{self, IsOurs, PlacementState, PlacementStateOf, ReleaseContext},
    routing::{PairQueues, Router, SharedIndex},
    run::{ManagementCaches, Shared},
    status,
    tasks::Tasks,
    values::ValuesSecrets,
    watch::{Change, FirstList, Scope, watch},
};

/// The stores and queues of a kind of placements and of its release objects.
pub struct Pair<P: PlacementKind> {
    placements: Store<P>,
    releases: Store<P::Release>,
    cache: ReleaseCache<P::Release>,
    policies: Policies,
    placement_queue: PlacementQueue<P>,
    release_queue: Trigger<P::Release>,
}

/// The writing and receiving ends of a [`Pair`], for its watches and controllers.
pub struct PairEnds<P: PlacementKind> {
    placement_writer: Writer<P>,
    release_writer: Writer<P::Release>,
    queued_placements: Queue<P>,
    queued_releases: Queue<P::Release>,
}

impl<P> PairEnds<P>
where
    P: PlacementKind,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Stores objects that were listed once and are not watched.
    pub fn fill(&mut self, placements: Vec<P>, releases: Vec<P::Release>, router: &Router) {
        for placement in placements {
            router.on_placement::<P>(&Change::Applied(&placement));
            self.placement_writer.apply_watcher_event(&Event::Apply(placement));
        }
        for release in releases {
            router.on_release::<P>(&Change::Applied(&release));
            self.release_writer.apply_watcher_event(&Event::Apply(release));
        }
    }
}

impl<P: PlacementKind> Clone for Pair<P> {
    fn clone(&self) -> Self {
        Self {
            placements: self.placements.clone(),
            releases: self.releases.clone(),
            cache: self.cache.clone(),
            policies: self.policies.clone(),
            placement_queue: self.placement_queue.clone(),
            release_queue: self.release_queue.clone(),
        }
    }
}

impl<P> Pair<P>
where
    P: ManagedKind,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Creates empty stores and queues.
    pub fn new(metrics: &Metrics, index: &SharedIndex, policies: &Policies) -> (Self, PairEnds<P>) {
        metrics.placement_kind(status::kind::<P>());
        let (placement_writer, release_writer) = (Writer::new(()), Writer::new(()));
        let (placement_trigger, queued_placements) = Trigger::new(status::kind::<P>(), metrics);
        let (release_queue, queued_releases) = Trigger::new(status::kind::<P::Release>(), metrics);
        let releases = release_writer.as_reader();
        let pair = Self {
            placements: placement_writer.as_reader(),
            cache: ReleaseCache::new(index.clone(), releases.clone()),
            releases,
            policies: policies.clone(),
            placement_queue: PlacementQueue::new(placement_trigger),
            release_queue,
        };
        (pair, PairEnds { placement_writer, release_writer, queued_placements, queued_releases })
    }

    fn queues(&self) -> Box<dyn PairQueues> {
        Box::new((self.placement_queue.clone(), self.release_queue.clone()))
    }

    fn caches(&self) -> Box<dyn PairCaches> {
        Box::new(PairCache {
            placements: self.placements.clone(),
            releases: self.cache.clone(),
            policies: self.policies.clone(),
        })
    }

    /// Returns what composes the release objects of its placements.
    pub fn composer(&self, services: &ComposeServices<'_>) -> Box<dyn Compose<P>>
    where
        P: ManagedKind,
    {
        P::composer(services, &self.policies)
    }

    pub fn placements(&self) -> Store<P> {
        self.placements.clone()
    }

    pub fn releases(&self) -> ReleaseCache<P::Release> {
        self.cache.clone()
    }
}

/// The watched stores and the queues of a kind of placements and of its release objects.
struct WatchedPair<P: PlacementKind> {
    pair: Pair<P>,
    first_lists: [FirstList; 2],
    queued_placements: Queue<P>,
    queued_releases: Queue<P::Release>,
}

/// A kind of placements and its release objects, before they are watched.
pub trait KindController: Send {
    fn resources(&self) -> [ApiResource; 2];
    fn queues(&self) -> Box<dyn PairQueues>;
    fn caches(&self) -> Box<dyn PairCaches>;
    /// Starts to watch both kinds.
    fn watch(self: Box<Self>, shared: &Shared) -> Box<dyn WatchedKind>;
}

/// A kind of placements and its release objects, watched.
pub trait WatchedKind: Send {
    /// Returns when both kinds have been listed; `false` if a watch has ended before that.
    fn is_complete(&mut self) -> BoxFuture<'_, bool>;
    /// Runs the controllers of both kinds.
    fn run(self: Box<Self>, tasks: &mut Tasks, services: &ComposeServices<'_>);
}

impl<P> KindController for (Pair<P>, PairEnds<P>)
where
    P: ManagedKind,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    fn resources(&self) -> [ApiResource; 2] {
        [ApiResource::erase::<P>(&()), ApiResource::erase::<P::Release>(&())]
    }

    fn queues(&self) -> Box<dyn PairQueues> {
        self.0.queues()
    }

    fn caches(&self) -> Box<dyn PairCaches> {
        self.0.caches()
    }

    fn watch(self: Box<Self>, shared: &Shared) -> Box<dyn WatchedKind> {
        let (pair, ends) = *self;
        let PairEnds { placement_writer, release_writer, queued_placements, queued_releases } = ends;
        let first_lists =
            [watch_placements(shared, placement_writer), watch_releases(shared, &pair, release_writer)];
        Box::new(WatchedPair { pair, first_lists, queued_placements, queued_releases })
    }
}

impl<P> WatchedKind for WatchedPair<P>
where
    P: ManagedKind,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    fn is_complete(&mut self) -> BoxFuture<'_, bool> {
        async {
            let [placements, releases] = &mut self.first_lists;
            placements.is_complete().await && releases.is_complete().await
        }
        .boxed()
    }

    fn run(self: Box<Self>, tasks: &mut Tasks, services: &ComposeServices<'_>) {
        let Self { pair, first_lists: _, queued_placements, queued_releases } = *self;
        let ComposeServices { shared, caches, .. } = services;
        tracing::info!(
            kind = %P::kind(&()),
            placements = pair.placements.len(),
            releases = pair.releases.len(),
            "watches are synchronised"
        );
        let written = Arc::default();
        let release_context = Arc::new(release_context(shared, caches, &pair, &written));
        let followed_version = followed_version(&release_context);
        let composer = pair.composer(services);
        let placement_context =
            Arc::new(placement_context(shared, caches, &pair, composer, written, followed_version));
        tasks.spawn(queue::run(
            status::kind::<P>(),
            (),
            pair.placements,
            queued_placements,
            shared.metrics.clone(),
            placement_context,
            placement::reconcile::<P>,
        ));
        tasks.spawn(queue::run(
            status::kind::<P::Release>(),
            (),
            pair.releases,
            queued_releases,
            shared.metrics.clone(),
            release_context,
            release::reconcile::<P::Release>,
        ));
    }
}

fn placement_context<P: PlacementKind>(
    shared: &Shared,
    caches: &ManagementCaches,
    pair: &Pair<P>,
    compose: Box<dyn Compose<P>>,
    written: Arc<RecentWrites<P, P::Release>>,
    followed_version: FollowedVersion,
) -> PlacementContext<P> {
    PlacementContext {
        client: shared.client.clone(),
        clusters: caches.clusters.clone(),
        releases: pair.cache.clone(),
        queue: pair.placement_queue.clone(),
        written,
        throttle: placement::StatusThrottle::default(),
        compose,
        policies: pair.policies.clone(),
        values_secrets: ValuesSecrets::new(shared.client.clone()),
        rollout_targets: placement::RolloutTargets::default(),
        followed_version,
        poll_interval: shared.poll_interval,
        health: shared.health,
        events: shared.events.clone(),
        metrics: shared.metrics.clone(),
    }
}

fn followed_version<R: ReleaseKind>(context: &Arc<ReleaseContext<R>>) -> FollowedVersion {
    let context = context.clone();
    Box::new(move |followed| {
        let context = context.clone();
        async move { context.followed_version(followed).await }.boxed()
    })
}

/// Returns the context of the reconciler of release objects.
pub fn release_context<P: PlacementKind>(
    shared: &Shared,
    caches: &ManagementCaches,
    pair: &Pair<P>,
    written: &Arc<RecentWrites<P, P::Release>>,
) -> ReleaseContext<P::Release> {
    let shared = shared.clone();
    let ManagementCaches { clusters, references, catalogs, source_packages, tunnels: _ } = caches.clone();
    let placement_state =
        placement_state(pair, clusters.clone(), written.clone(), shared.watch_filter.clone());
    let placement_exists = release::placement_exists::<P>(&shared.client, shared.watch_filter.as_deref());
    ReleaseContext {
        secrets: release::Secrets::new(
            shared.client.clone(),
            shared.metrics.clone(),
            shared.require_login_hosts,
        ),
        client: shared.client,
        clusters,
        releases: pair.cache.clone(),
        all_kinds: shared.all_kinds,
        references,
        caches: shared.release_caches,
        packages: shared.packages,
        catalogs,
        source_packages,
        tenancies: shared.tenancies,
        tools: shared.tools,
        events: shared.events,
        metrics: shared.metrics,
        queue: pair.release_queue.clone(),
        poll_interval: shared.poll_interval,
        health: shared.health,
        max_timeout: shared.quotas.max_timeout,
        is_ours: ownership(shared.watch_filter, pair.placements.clone()),
        placement_state,
        placement_exists,
        republished: Mutex::new(HashSet::new()),
    }
}

/// Returns the predicate for the release objects that this manager reconciles: with a watch filter, those with its label and
/// those of placements with its label.
fn ownership<P: PlacementKind>(filter: Option<String>, placements: Store<P>) -> IsOurs<P::Release> {
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

/// Returns the lookup of the state of a release object's placement.
fn placement_state<P: PlacementKind>(
    pair: &Pair<P>,
    clusters: Clusters,
    written: Arc<RecentWrites<P, P::Release>>,
    filter: Option<String>,
) -> PlacementStateOf<P::Release> {
    let Pair { placements, placement_queue, policies, .. } = pair.clone();
    Box::new(move |release| {
        let Some(placement) = placement_of(&placements, release) else {
            let on_cluster_delete = last_on_cluster_delete(release);
            let is_watched = filter.is_none() || release.labels().get(WATCH_FILTER_LABEL) == filter.as_ref();
            let is_uncached = is_watched && placement_ref::<P>(release).is_some();
            return PlacementState { is_uncached, on_cluster_delete, ..PlacementState::default() };
        };
        let policy = policies.of(&*placement);
        let deleting = placement.meta().deletion_timestamp.is_some();
        let cluster = P::cluster_of(release).and_then(|key| Some((clusters.get(&key)?, key)));
        PlacementState {
            is_uncached: false,
            paused: status::is_paused(&*placement),
            // A placement that is being deleted changes its release objects no more.
            is_applied: deleting
                || placement_queue.is_applied(&placement)
                    && !awaits_policy_values(&policy, release)
                    && !written.is_outdated(&ObjectRef::from_obj(&*placement), release),
            suspended: is_suspended(&*placement),
            is_unselected: !deleting
                && cluster.is_some_and(|(cluster, key)| !placement.selects(&key, cluster.labels())),
            replace_unsafe_crds: replaces_unsafe_crds(&*placement),
            on_cluster_delete: policy.on_cluster_delete(release),
            aborted_from: aborted_revision(&*placement, release),
            policy: match policy {
                // Users delete a placement together with its policy.
                PolicyState::Missing(_) if deleting => PolicyState::None,
                state => state,
            },
        }
    })
}

fn watch_placements<P: PlacementKind>(shared: &Shared, writer: Writer<P>) -> FirstList {
    let resource = ApiResource::erase::<P>(&());
    let labels = shared.watch_filter.as_ref().map(|filter| format!("{WATCH_FILTER_LABEL}={filter}"));
    let scope = Scope { labels, ..shared.scope.clone() };
    let router = shared.router.clone();
    watch(shared.client.clone(), &scope, &resource, writer, move |change| router.on_placement::<P>(change))
}

fn watch_releases<P: PlacementKind>(
    shared: &Shared,
    pair: &Pair<P>,
    writer: Writer<P::Release>,
) -> FirstList {
    let resource = ApiResource::erase::<P::Release>(&());
    let placement_queue = pair.placement_queue.clone();
    let (router, release_caches, all_kinds) =
        (shared.router.clone(), shared.release_caches.clone(), shared.all_kinds.clone());
    watch(shared.client.clone(), &shared.scope, &resource, writer, move |change| {
        if let Change::Deleted(release) = change {
            // Before the placement is enqueued, which creates the object again.
            placement_queue.record_deleted(release);
        }
        router.on_release::<P>(change);
        match change {
            Change::Applied(release) => release_caches.on_applied(*release),
            Change::Deleted(release) => release_caches.forget(&all_kinds, *release),
        }
    })
}
