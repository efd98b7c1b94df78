//! ExtensionInstance: its releases are versions of an Extension that fit the cluster, with merged parameters.

use std::{sync::Arc, time::Duration};

use chandler_api::{
    extensions::{AddonRelease, ExtensionInstance, InstanceStatus},
    status::PlacementStatus,
};
use chandler_core::{identity::ClusterMap, placement::revisions_text, poll::Poll};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};

use super::{ComposeServices, ManagedKind};
use crate::{
    ReconcileError,
    extension::{FolderPackages, InstanceReleases, SchemaCheck, Values},
    placement::{Compose, ComposeMode, Composed},
    policies::Policies,
    values::ValuesSecrets,
};

/// How many clusters the status of an instance lists.
const MAX_LISTED_CLUSTERS: usize = 100;

impl ManagedKind for ExtensionInstance {
    fn composer(services: &ComposeServices<'_>, _: &Policies) -> Box<dyn Compose<Self>> {
        let ComposeServices { shared, caches, templates, sources, resolver } = services;
        Box::new(Composer {
            releases: InstanceReleases {
                resolver: Arc::clone(resolver),
                catalogs: caches.catalogs.clone(),
                folders: FolderPackages::new(caches.source_packages.clone(), templates.clone()),
                values: Values {
                    secrets: ValuesSecrets::new(shared.client.clone()),
                    templates: templates.clone(),
                    sources: sources.clone(),
                    schema_check: SchemaCheck::new(
                        shared.packages.clone(),
                        caches.catalogs.clone(),
                        caches.source_packages.clone(),
                    ),
                },
                clusters: caches.clusters.clone(),
            },
            parameters_interval: shared.parameters_interval,
        })
    }
}

struct Composer {
    releases: InstanceReleases,
    /// How often sources of parameters are read again.
    parameters_interval: Duration,
}

impl Compose<ExtensionInstance> for Composer {
    fn compose<'a>(
        &'a self,
        instance: &'a ExtensionInstance,
        clusters: &'a ClusterMap<Arc<DynamicObject>>,
        existing: &'a ClusterMap<Arc<AddonRelease>>,
        mode: &'a ComposeMode<'a, AddonRelease>,
    ) -> BoxFuture<'a, Result<Composed<AddonRelease>, ReconcileError>> {
        self.releases.compose(instance, clusters, existing, mode).boxed()
    }

    fn status(
        &self,
        instance: &ExtensionInstance,
        clusters: &ClusterMap<Arc<DynamicObject>>,
        releases: &ClusterMap<Arc<AddonRelease>>,
        placement: PlacementStatus,
    ) -> InstanceStatus {
        let resolution: Vec<_> =
            clusters.keys().filter_map(|key| self.releases.resolution(instance, key)).collect();
        let mut versions: Vec<_> = resolution.iter().filter_map(|one| one.version.clone()).collect();
        versions.sort();
        versions.dedup();
        let sources = self.releases.folders.progress(instance, clusters, releases);
        InstanceStatus {
            placement,
            versions: (!versions.is_empty()).then(|| versions.join(", ")),
            resolution: resolution.into_iter().take(MAX_LISTED_CLUSTERS).collect(),
            source_revisions: revisions_text(&sources, clusters.len()),
            sources,
        }
    }

    fn forget(&self, instance: &ExtensionInstance) {
        self.releases.folders.forget(instance);
    }

    /// The sources that `parametersFrom` names are polled, because not all of them can be watched.
    fn requeue_after(&self, instance: &ExtensionInstance) -> Option<Duration> {
        let polls = !instance.spec.parameters_from.is_empty();
        let seed = instance.uid().unwrap_or_default();
        polls.then(|| Poll::new(self.parameters_interval, &seed).wait(Timestamp::now()))
    }

    fn is_needed(&self, release: &AddonRelease) -> Option<String> {
        self.releases.is_needed(release)
    }
}
