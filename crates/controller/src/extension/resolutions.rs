//! Which versions the extensions of a cluster should be at: asked again when something has changed that decides it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chandler_api::{
    capi::ClusterView,
    extensions::{AddonRelease, ExtensionInstance},
};
use chandler_core::{
    extension::{Demand, Kubernetes, Question, Verdict, demand, kubernetes, verdict},
    identity::ClusterKey,
    placement::PlacementFace as _,
};
use kube::{ResourceExt as _, api::DynamicObject, runtime::reflector::Store};

use super::{
    catalog_offers::CatalogOffers,
    platform::Platform,
    shelf::{Look, Shelf},
};
use crate::{
    caches::ReleaseCache,
    clusters::as_json,
    metrics::Metrics,
    references::{ReferenceError, References},
    routing::Router,
    sync::{Mutex, MutexGuard},
};

/// What is decided for clusters.
pub struct Resolutions {
    pub references: References,
    pub instances: Store<ExtensionInstance>,
    pub releases: ReleaseCache<AddonRelease>,
    pub shelf: Shelf,
    pub offers: CatalogOffers,
    pub platform: Platform,
    pub router: Router,
    pub last: Last,
    pub metrics: Metrics,
}

/// What was asked last, and answered.
#[derive(Default)]
pub struct Last(Mutex<HashMap<ClusterKey, Arc<Resolved>>>);

/// What is decided for a cluster.
pub struct Resolved {
    pub demand: Demand,
    pub question: Question,
    pub verdict: Verdict,
}

/// Why nothing can be decided for a cluster.
#[derive(Debug)]
pub enum Undecided {
    /// Something is still being found out; who waits is looked at again.
    Awaited,
    Because(UnknownKubernetes),
}

/// Why the Kubernetes version of a cluster is unknown.
#[derive(Debug, thiserror::Error)]
pub enum UnknownKubernetes {
    #[error("the cluster's Kubernetes version is unknown: {0}")]
    ControlPlane(#[from] ReferenceError),
    #[error(
        "the cluster's Kubernetes version is unknown: neither its topology nor its control plane names one"
    )]
    NotNamed,
}

impl Resolutions {
    /// The instances that select a cluster.
    pub fn instances(
        &self,
        key: &ClusterKey,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Arc<ExtensionInstance>> {
        self.instances.state_filter(|instance| instance.wants(key, labels))
    }

    /// What is decided for a cluster now.
    pub async fn of(&self, key: &ClusterKey, cluster: &DynamicObject) -> Result<Arc<Resolved>, Undecided> {
        let mut look = Look::at(&self.shelf);
        let instances = self.instances(key, cluster.labels());
        self.offers.lay_out(&key.namespace, &instances, &mut look).await;
        let demand = demand(&key.namespace, &self.platform.namespace, &instances, &look);
        if !look.awaited().is_empty() {
            return Err(Undecided::Awaited);
        }
        let kubernetes = self.kubernetes(key, cluster).await.map_err(Undecided::Because)?;
        let releases = self.releases.on_cluster(key);
        let releases = releases.iter().map(AsRef::as_ref);
        let question = Question::new(&demand, releases, self.platform.version(), kubernetes);
        let last = self.lock().get(key).cloned();
        let same = last.as_ref().filter(|last| last.question == question && last.demand == demand);
        self.metrics.cache("resolution", same.is_some());
        if let Some(same) = same {
            return Ok(same.clone());
        }
        let resolved = Arc::new(Resolved { verdict: verdict(&question), demand, question });
        // Another reconcile may have decided meanwhile, from less: what it wrote counts, not what was read above.
        let replaced = self.lock().insert(key.clone(), resolved.clone());
        if replaced.is_some_and(|replaced| replaced.verdict != resolved.verdict) {
            self.router.on_resolution(key);
        }
        Ok(resolved)
    }

    /// What was decided for a cluster last.
    pub fn last(&self, key: &ClusterKey) -> Option<Arc<Resolved>> {
        self.lock().get(key).cloned()
    }

    pub fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }

    async fn kubernetes(
        &self,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<Kubernetes, UnknownKubernetes> {
        let view = ClusterView::of(&cluster.data).unwrap_or_default();
        let control_plane = match &view.spec.control_plane_ref {
            Some(reference) => Some(self.references.get(&key.namespace, reference).await?),
            None => None,
        };
        known_kubernetes(cluster, control_plane.as_deref())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Arc<Resolved>>> {
        self.last.0.lock()
    }
}

/// What a Cluster and its control plane say about their Kubernetes.
pub fn known_kubernetes(
    cluster: &DynamicObject,
    control_plane: Option<&DynamicObject>,
) -> Result<Kubernetes, UnknownKubernetes> {
    kubernetes(&as_json(cluster), control_plane.map(as_json).as_ref()).ok_or(UnknownKubernetes::NotNamed)
}
