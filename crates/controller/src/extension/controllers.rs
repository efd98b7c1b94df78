//! Everything that looks after extensions, put together.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use chandler_api::extensions::{Extension, ExtensionInstance};
use chandler_core::{
    identity::ClusterKey,
    placement::{PlacementFace as _, Selection},
};
use futures::future::join_all;
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject},
    runtime::reflector::{ObjectRef, Store},
};

use super::{
    ClusterContext, ConfigMapKey, ExtensionContext, Instances, Last, Offers, Packaged, Platform, Resolutions,
    Shelf, Values, answers::ExtensionAnswers, catalog_offers::CatalogOffers, cluster, publish,
};
use crate::{
    Error,
    clusters::{self, Clusters},
    caches::Watcher,
    hooks::{self, Answers, Changing, Serving, UnderWay},
    pair::Pair,
    parameters::ParameterSources,
    placement::{Desk, Templates},
    queue::{self, Queue, Trigger},
    run::{Shared, Surroundings},
    status,
    sync::Mutex,
    watch::{Scope, Watched, watch},
};

const CLUSTER: &str = "Cluster";

/// What is watched for extensions besides instances and their releases.
pub struct Department {
    platform: Platform,
    shelf: Shelf,
    extensions: Vec<(Watched<Extension>, Queue<Extension>)>,
    cluster_queue: Queue<DynamicObject>,
    wires: Wires,
}

/// Where looks at Clusters are asked for, and at instances when something else can be chosen.
#[derive(Clone)]
struct Wires {
    platform: String,
    trigger: Trigger<DynamicObject>,
    /// Known once they have been listed.
    clusters: Arc<OnceLock<Clusters>>,
    instances: Arc<OnceLock<(Desk<ExtensionInstance>, Store<ExtensionInstance>)>>,
}

impl Wires {
    /// Something else can be chosen in a namespace, or everywhere.
    fn published(&self, namespace: &str) {
        let concerned = |other: Option<&str>| namespace == self.platform || other == Some(namespace);
        if let Some((desk, instances)) = self.instances.get() {
            for instance in instances.state_filter(|one| concerned(one.metadata.namespace.as_deref())) {
                desk.placement(&instance);
            }
        }
        let all = self.clusters.get().map(Clusters::keys).unwrap_or_default();
        for cluster in all.iter().filter(|cluster| concerned(Some(&cluster.namespace))) {
            self.cluster_touched(cluster);
        }
    }
}

/// Looks at everything whenever the platform has another version.
fn follow_platform(
    wires: Wires,
    platform: Platform,
    from: Option<ConfigMapKey>,
    shared: &Shared,
) -> impl Future<Output = ()> + use<> {
    let (client, every) = (shared.client.clone(), shared.parameters_interval);
    async move {
        if let Some(from) = from {
            platform.follow(&client, &from, every, || wires.published(&platform.namespace)).await;
        }
    }
}

/// Looks at what instances want from catalogs whenever those offer something else.
async fn follow_catalogs(wires: Wires, mut changes: tokio::sync::watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some((desk, instances)) = wires.instances.get() else { continue };
        let wants = |instance: &ExtensionInstance| {
            instance.spec.extension.as_ref().is_some_and(|extension| extension.catalog.is_some())
        };
        for instance in instances.state_filter(wants) {
            desk.placement(&instance);
            if let (Ok(wanted), Some(namespace)) = (instance.selection(), instance.namespace()) {
                wires.selection_touched(&namespace, &wanted);
            }
        }
    }
}

impl Watcher for Wires {
    fn cluster_touched(&self, cluster: &ClusterKey) {
        self.trigger.look_at(clusters::reference(cluster));
    }

    fn selection_touched(&self, namespace: &str, wanted: &Selection) {
        let Some(clusters) = self.clusters.get() else { return };
        for (key, cluster) in clusters.in_namespace(namespace) {
            if wanted.matches(&key.name, cluster.labels()) {
                self.cluster_touched(&key);
            }
        }
    }
}

impl Department {
    /// Begins to watch.
    pub fn open(shared: &Shared, platform: Platform) -> Self {
        let (trigger, cluster_queue) = Trigger::new(CLUSTER, &shared.metrics);
        let wires = Wires {
            platform: platform.namespace.clone(),
            trigger,
            clusters: Arc::default(),
            instances: Arc::default(),
        };
        let shelf = Shelf::default();
        let scopes = shared.scope.clone().and_platform(&platform.namespace).into_iter();
        let extensions = scopes.map(|scope| watch_extensions(shared, &scope, &shelf, &wires)).collect();
        Self { platform, shelf, extensions, cluster_queue, wires }
    }

    pub fn watcher(&self) -> Box<dyn Watcher> {
        Box::new(self.wires.clone())
    }

    /// Returns when everything has been listed. False: a watch has ended before that.
    pub async fn is_complete(&mut self) -> bool {
        for (watched, _) in &mut self.extensions {
            if !watched.is_complete().await {
                return false;
            }
        }
        true
    }

    /// Looks after Extensions, their instances, and what both mean for Clusters.
    pub async fn run(
        self,
        shared: Shared,
        pair: Pair<ExtensionInstance>,
        around: Surroundings,
        templates: Templates,
    ) -> Result<(), Error> {
        let Surroundings { clusters, references, catalogs } = around.clone();
        let (desk, instances, releases) = (pair.desk(), pair.placements(), pair.releases());
        let (wires, platform) = (self.wires, self.platform);
        let version_from = shared.platform_version_from.clone();
        if let Some(from) = &version_from {
            // Before anything is refused for want of it.
            platform.read(&shared.client, from).await;
        }
        // Both are told once.
        let _ = wires.clusters.set(clusters.clone());
        let _ = wires.instances.set((desk.clone(), instances.clone()));
        let (placements, index) = (instances.clone(), releases.clone());
        let trigger = wires.trigger.clone();
        let changed = move |cluster: &ClusterKey, labels: &BTreeMap<String, String>| {
            desk.cluster(&placements, &index, cluster, labels);
            trigger.look_at(clusters::reference(cluster));
        };
        let resolutions = Arc::new(Resolutions {
            references: references.clone(),
            instances,
            releases,
            shelf: self.shelf.clone(),
            offers: CatalogOffers::new(catalogs.clone()),
            platform: platform.clone(),
            changed: Box::new(changed),
            last: Last::default(),
            metrics: shared.metrics.clone(),
        });
        let compose = Instances {
            resolutions: resolutions.clone(),
            values: Values {
                client: shared.client.clone(),
                templates,
                sources: ParameterSources::new(shared.client.clone()),
                packaged: Packaged::new(shared.packages.clone(), catalogs.clone()),
                evaluated: Mutex::default(),
            },
            clusters: clusters.clone(),
            parameters_interval: shared.parameters_interval,
        };
        let under_way = UnderWay(changing(&shared));
        let answers =
            ExtensionAnswers { under_way, resolutions: resolutions.clone(), clusters: clusters.clone() };
        let _hooks = serve_hooks(&shared, Arc::new(answers)).await?;
        let cluster_context = Arc::new(ClusterContext {
            client: shared.client.clone(),
            resolutions,
            faces: shared.faces.clone(),
            events: shared.events.clone(),
        });
        let following_platform = follow_platform(wires.clone(), platform, version_from, &shared);
        let following_catalogs = follow_catalogs(wires.clone(), catalogs.catalogs.changes());
        let publishing = Arc::new(ExtensionContext {
            client: shared.client.clone(),
            shelf: self.shelf,
            offers: Offers { packages: shared.packages.clone(), catalogs },
            poll_interval: shared.poll_interval,
            on_change: Box::new(move |namespace| wires.published(namespace)),
        });
        for key in clusters.keys() {
            cluster_context.faces.addon_touched(&key);
        }
        let extensions = self.extensions.into_iter().map(|(watched, queue)| {
            queue::run(
                status::kind::<Extension>(),
                watched.store,
                queue,
                shared.metrics.clone(),
                publishing.clone(),
                publish::reconcile,
            )
        });
        tokio::join!(
            join_all(extensions),
            following_catalogs,
            following_platform,
            queue::run(
                CLUSTER,
                clusters.store(),
                self.cluster_queue,
                shared.metrics.clone(),
                cluster_context,
                cluster::reconcile
            ),
            pair.run(shared, around, Box::new(compose)),
        );
        Ok(())
    }
}

/// Tells the add-ons of a cluster that are being changed.
fn changing(shared: &Shared) -> Changing {
    let (faces, operations) = (shared.faces.clone(), shared.kept.operations.clone());
    Box::new(move |cluster| {
        let all = faces.releases(cluster).into_iter();
        all.filter(|(uid, _)| operations.running(uid).is_some()).map(|(_, name)| name).collect()
    })
}

/// Serves hooks, if they are wanted, until what it returns is dropped.
async fn serve_hooks(shared: &Shared, answers: Arc<dyn Answers>) -> Result<Option<Serving>, Error> {
    let Some(options) = shared.hooks.clone() else { return Ok(None) };
    let (namespace, filter) = (shared.scope.namespace.as_deref(), shared.watch_filter.as_deref());
    hooks::serve(shared.client.clone(), options, namespace, filter, answers).await.map(Some)
}

fn watch_extensions(
    shared: &Shared,
    scope: &Scope,
    shelf: &Shelf,
    wires: &Wires,
) -> (Watched<Extension>, Queue<Extension>) {
    let (trigger, queue) = Trigger::new(status::kind::<Extension>(), &shared.metrics);
    let store: Arc<OnceLock<Store<Extension>>> = Arc::default();
    let (known, shelf, wires) = (store.clone(), shelf.clone(), wires.clone());
    let resource = ApiResource::erase::<Extension>(&());
    let watched = watch(shared.client.clone(), scope, &resource, (), move |extension: &Extension| {
        let (namespace, name) = (extension.namespace().unwrap_or_default(), extension.name_any());
        let reference = ObjectRef::from_obj(extension);
        if known.get().is_some_and(|store| store.get(&reference).is_none()) {
            shelf.remove(&namespace, &name);
            wires.published(&namespace);
        } else {
            shelf.awaits(&namespace, &name);
            trigger.look_at(reference);
        }
    });
    // Told once, before anything can be gone again.
    let _ = store.set(watched.store.clone());
    (watched, queue)
}
