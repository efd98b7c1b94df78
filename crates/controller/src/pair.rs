//! The pair of controllers of one face: placements, and the release objects they make.

use std::{collections::BTreeMap, sync::Arc};

use chandler_api::capi::WATCH_FILTER_LABEL;
use chandler_core::{
    cluster_conditions::Addon,
    identity::{ClusterKey, ReleaseId},
    naming,
    placement::PlacementFace,
    release::{Claimant, ReleaseFace},
};
use kube::{
    ResourceExt as _,
    api::ApiResource,
    core::NamespaceResourceScope,
    runtime::reflector::{ObjectRef, Store},
};
use tokio::sync::Semaphore;

use crate::{
    caches::Face,
    index::ReleaseIndex,
    metrics::ReleaseCounts,
    placement::{self, Compose, Desk, PlacementContext},
    queue::{self, Queue, Trigger},
    release::{self, IsOurs, ReleaseContext},
    run::{Shared, Surroundings},
    status,
    sync::Mutex,
    watch::{Scope, Watched, watch},
};

/// A kind of placements and the kind of their release objects, watched.
pub struct Pair<P: PlacementFace> {
    placements: Watched<P>,
    releases: Watched<P::Release>,
    placement_queue: Queue<P>,
    release_queue: Queue<P::Release>,
    wires: Wires<P>,
}

/// Where looks at objects of the pair are asked for.
struct Wires<P: PlacementFace> {
    desk: Desk<P>,
    index: ReleaseIndex<P::Release>,
    trigger: Trigger<P::Release>,
    placements: Store<P>,
    releases: Store<P::Release>,
}

impl<P: PlacementFace> Clone for Wires<P> {
    fn clone(&self) -> Self {
        Self {
            desk: self.desk.clone(),
            index: self.index.clone(),
            trigger: self.trigger.clone(),
            placements: self.placements.clone(),
            releases: self.releases.clone(),
        }
    }
}

impl<P> Pair<P>
where
    P: PlacementFace + kube::Resource<Scope = NamespaceResourceScope>,
    P::Release: kube::Resource<Scope = NamespaceResourceScope>,
{
    /// Begins to watch both kinds.
    pub fn watch(shared: &Shared) -> Self {
        let (placement_trigger, placement_queue) = Trigger::<P>::new(status::kind::<P>(), &shared.metrics);
        let (trigger, release_queue) = Trigger::new(status::kind::<P::Release>(), &shared.metrics);
        let desk = Desk::new(placement_trigger);
        let index = ReleaseIndex::new(P::OWNER_LABEL);
        let placements = watch_placements::<P>(shared, desk.clone());
        let releases = watch_releases::<P>(shared, desk.clone(), index.clone(), trigger.clone());
        index.attach(releases.store.clone());
        let wires = Wires {
            desk,
            index,
            trigger,
            placements: placements.store.clone(),
            releases: releases.store.clone(),
        };
        Self { placements, releases, placement_queue, release_queue, wires }
    }

    /// The pair, as other faces see it.
    pub fn face(&self) -> Box<dyn Face> {
        Box::new(self.wires.clone())
    }

    /// Asks placements to look at themselves.
    pub fn desk(&self) -> Desk<P> {
        self.wires.desk.clone()
    }

    pub fn placements(&self) -> Store<P> {
        self.wires.placements.clone()
    }

    pub fn releases(&self) -> ReleaseIndex<P::Release> {
        self.wires.index.clone()
    }

    /// Returns when both kinds have been listed. False: a watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        self.placements.is_complete().await && self.releases.is_complete().await
    }

    /// Looks after the objects of both kinds.
    pub async fn run(self, shared: Shared, around: Surroundings, compose: Box<dyn Compose<P>>) {
        let Wires { desk, index, trigger, placements, releases } = self.wires;
        let Surroundings { clusters, references, catalogs } = around;
        tracing::info!(
            kind = %P::kind(&()),
            placements = placements.len(),
            releases = releases.len(),
            "watches are synchronised"
        );
        let placement_context = Arc::new(PlacementContext::<P> {
            client: shared.client.clone(),
            clusters: clusters.clone(),
            index: index.clone(),
            desk,
            writes: Semaphore::new(placement::WRITES),
            written: placement::Written::default(),
            told: placement::Told::default(),
            compose,
            events: shared.events.clone(),
        });
        let metrics = shared.metrics.clone();
        let release_context = Arc::new(ReleaseContext::<P::Release> {
            secrets: release::Secrets::new(shared.client.clone(), shared.metrics.clone()),
            client: shared.client,
            clusters,
            index,
            faces: shared.faces,
            references,
            connections: shared.kept.connections,
            packages: shared.packages,
            catalogs,
            tool: shared.tool,
            operations: shared.kept.operations,
            events: shared.events,
            metrics: shared.metrics,
            trigger,
            memories: shared.kept.memories,
            poll_interval: shared.poll_interval,
            is_ours: ownership(shared.watch_filter, placements.clone()),
            republished: Mutex::default(),
        });
        tokio::join!(
            queue::run(
                status::kind::<P>(),
                placements,
                self.placement_queue,
                metrics.clone(),
                placement_context,
                placement::reconcile::<P>
            ),
            queue::run(
                status::kind::<P::Release>(),
                releases,
                self.release_queue,
                metrics,
                release_context,
                release::reconcile::<P::Release>
            ),
        );
    }
}

impl<P: PlacementFace> Face for Wires<P> {
    fn cluster_touched(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) {
        self.desk.cluster(&self.placements, &self.index, cluster, labels);
        self.release_touched(cluster, None);
    }

    fn release_touched(&self, cluster: &ClusterKey, release: Option<&ReleaseId>) {
        let concerned = match release {
            Some(release) => self.index.claiming(cluster, release),
            None => self.index.on_cluster(cluster),
        };
        for release in concerned {
            self.trigger.look_at(ObjectRef::from_obj(&*release));
        }
    }

    fn source_changed(&self) {
        let moves_with_it = |release: &P::Release| {
            release
                .desired()
                .is_ok_and(|desired| desired.package.version.is_none() || desired.access.catalog.is_some())
        };
        for release in self.releases.state_filter(moves_with_it) {
            self.trigger.look_at(ObjectRef::from_obj(&*release));
        }
    }

    fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant> {
        self.index.claiming(cluster, release).iter().map(|object| release::claimant(&**object)).collect()
    }

    fn uses(&self, cluster: &ClusterKey) -> bool {
        !self.index.on_cluster(cluster).is_empty()
    }

    fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)> {
        let named = |release: Arc<P::Release>| Some((release.uid()?, release.desired().ok()?.release.name));
        self.index.on_cluster(cluster).into_iter().filter_map(named).collect()
    }

    fn release_counts(&self) -> ReleaseCounts {
        ReleaseCounts::of(&self.releases.state())
    }

    fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon> {
        let releases = self.index.on_cluster(cluster);
        let wanting = self.placements.state_filter(|placement| placement.wants(cluster, labels));
        let unplaced = wanting.iter().map(|placement| placement.name_any()).filter(|name| {
            let owner = naming::label_value(name);
            !releases.iter().any(|release| release.labels().get(P::OWNER_LABEL) == Some(&owner))
        });
        let unplaced = unplaced.map(|name| Addon::not_ready(&name, "it is not on the cluster yet"));
        releases.iter().map(|release| addon::<P>(release)).chain(unplaced).collect()
    }
}

fn addon<P: PlacementFace>(release: &P::Release) -> Addon {
    let name = release.labels().get(P::OWNER_LABEL).cloned().unwrap_or_else(|| release.name_any());
    match release.readiness() {
        Some(ready) if ready.status == "True" => Addon::ready(&name),
        Some(ready) => Addon::not_ready(&name, &ready.message),
        None => Addon::not_ready(&name, ""),
    }
}

/// Whether one of two release objects has to wait for the other.
fn are_neighbours<R: ReleaseFace>(one: &R, other: &R) -> bool {
    let needs = |one: &R, other: &R| {
        one.desired().is_ok_and(|desired| desired.depends_on.contains(&other.name_any()))
    };
    needs(one, other) || needs(other, one)
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
    let faces = shared.faces.clone();
    watch(shared.client.clone(), &scope, &resource, (), move |placement: &P| {
        desk.placement(placement);
        if let (Ok(wanted), Some(namespace)) = (placement.selection(), placement.namespace()) {
            faces.selection_touched(&namespace, &wanted);
        }
    })
}

fn watch_releases<P: PlacementFace>(
    shared: &Shared,
    desk: Desk<P>,
    index: ReleaseIndex<P::Release>,
    trigger: Trigger<P::Release>,
) -> Watched<P::Release> {
    let resource = ApiResource::erase::<P::Release>(&());
    let (kept, faces) = (shared.kept.clone(), shared.faces.clone());
    watch(shared.client.clone(), &shared.scope, &resource, (), move |object: &P::Release| {
        if index.is_gone(object) {
            kept.forget(&faces, object);
        } else {
            index.note(object);
        }
        trigger.look_at(ObjectRef::from_obj(object));
        // Whoever claims the same release may have it now, or not any more.
        if let Ok(desired) = object.desired() {
            faces.release_touched(&desired.cluster, Some(&desired.release));
            faces.addon_touched(&desired.cluster);
            if P::Release::ORDERED {
                let others = index.on_cluster(&desired.cluster);
                for neighbour in others.iter().filter(|other| are_neighbours(&***other, object)) {
                    trigger.look_at(ObjectRef::from_obj(&**neighbour));
                    desk.release(neighbour);
                }
            }
        }
        desk.release(object);
    })
}
