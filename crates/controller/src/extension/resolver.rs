//! Resolves which versions of their extensions clusters get, again whenever an input has changed.

pub mod one_shot;
pub mod platform;
pub mod solver;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chandler_api::{
    capi::ClusterView,
    extensions::{AddonRelease, ExtensionInstance},
};
use chandler_core::{
    extension::{Demand, Kubernetes, Resolution, ResolutionInput, demand, kubernetes, resolve_and_plan},
    identity::ClusterKey,
    placement::PlacementKind as _,
    resolution::UpgradePlan,
};
use kube::{ResourceExt as _, api::DynamicObject, runtime::reflector::Store};

use self::{platform::Platform, solver::Solver};
use super::registry::{ExtensionRegistry, catalog_offers::CatalogOffers};
use crate::{
    caches::ReleaseCache,
    clusters::as_json,
    locks::{Mutex, MutexGuard},
    metrics::Metrics,
    references::{ReferenceError, References},
    routing::Router,
};

/// Resolves the versions of all clusters.
pub struct Resolver {
    pub references: References,
    pub instances: Store<ExtensionInstance>,
    pub releases: ReleaseCache<AddonRelease>,
    pub registry: ExtensionRegistry,
    pub offers: CatalogOffers,
    pub platform: Platform,
    pub router: Router,
    pub last: LastResolutions,
    pub solver: Solver,
    pub metrics: Metrics,
}

/// The last resolution of each cluster.
#[derive(Default)]
pub struct LastResolutions(Mutex<HashMap<ClusterKey, Arc<Resolved>>>);

/// The resolution of a cluster, with its input.
pub struct Resolved {
    pub demand: Demand,
    pub input: ResolutionInput,
    pub resolution: Resolution,
    /// The plan of the next Kubernetes upgrade, see [`ResolutionInput::next_upgrade`].
    pub next_upgrade: UpgradePlan,
}

impl Resolved {
    fn new(demand: Demand, input: ResolutionInput) -> Self {
        let (resolution, next_upgrade) = resolve_and_plan(&input);
        Self { demand, input, resolution, next_upgrade }
    }
}

/// Why a cluster cannot be resolved.
#[derive(Debug)]
pub enum ResolveError {
    /// The versions of an Extension are still being read; the cluster is reconciled again when they are known.
    Pending,
    UnknownKubernetes(UnknownKubernetes),
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

impl UnknownKubernetes {
    /// Returns whether a retry may succeed without an event.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::ControlPlane(error) if error.is_transient())
    }
}

impl Resolver {
    /// Returns the instances that select a cluster.
    pub fn instances(
        &self,
        key: &ClusterKey,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Arc<ExtensionInstance>> {
        self.instances.state_filter(|instance| instance.selects(key, labels))
    }

    /// Resolves a cluster.
    pub async fn resolve(
        &self,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<Arc<Resolved>, ResolveError> {
        let instances = self.instances(key, cluster.labels());
        let offers = self.offers.requested(&key.namespace, &instances).await;
        // Taken after the wait for catalogs, so that it is current.
        let mut snapshot = self.registry.snapshot();
        for (namespace, name, published) in offers {
            snapshot.insert(&namespace, &name, published);
        }
        let demand = demand(&key.namespace, &self.platform.namespace, &instances, &snapshot);
        if !snapshot.into_missing().is_empty() {
            return Err(ResolveError::Pending);
        }
        let kubernetes = self.kubernetes(key, cluster).await.map_err(ResolveError::UnknownKubernetes)?;
        let releases = self.releases.on_cluster(key);
        let releases = releases.iter().map(AsRef::as_ref);
        let input = ResolutionInput::new(&demand, releases, self.platform.version(), kubernetes);
        let same = self.same(key, &demand, &input);
        self.metrics.cache("resolution", same.is_some());
        if let Some(same) = same {
            return Ok(same);
        }
        let slot = self.solver.slot(&key.namespace).await.ok_or(ResolveError::Pending)?;
        // Another reconcile may have resolved the same meanwhile.
        if let Some(same) = self.same(key, &demand, &input) {
            return Ok(same);
        }
        let resolved = slot.run(move || Resolved::new(demand, input)).await;
        let resolved = Arc::new(resolved.ok_or(ResolveError::Pending)?);
        // Another reconcile may have decided meanwhile, from less: what it wrote counts, not what was read above.
        let replaced = self.lock().insert(key.clone(), resolved.clone());
        if replaced.is_some_and(|replaced| replaced.resolution != resolved.resolution) {
            self.router.on_resolution(key);
        }
        Ok(resolved)
    }

    /// Returns the last resolution of a cluster if it has the same input.
    fn same(&self, key: &ClusterKey, demand: &Demand, input: &ResolutionInput) -> Option<Arc<Resolved>> {
        self.last(key).filter(|last| last.input == *input && last.demand == *demand)
    }

    /// Returns the last resolution of a cluster.
    pub fn last(&self, key: &ClusterKey) -> Option<Arc<Resolved>> {
        self.lock().get(key).cloned()
    }

    pub fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }

    /// Returns the Kubernetes version of a cluster and the upgrade that it is in.
    pub async fn kubernetes(
        &self,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<Kubernetes, UnknownKubernetes> {
        kubernetes_of(&self.references, key, cluster).await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Arc<Resolved>>> {
        self.last.0.lock()
    }
}

/// Returns the Kubernetes version of a Cluster and the upgrade that it is in. Waits for its control plane object.
pub async fn kubernetes_of(
    references: &References,
    key: &ClusterKey,
    cluster: &DynamicObject,
) -> Result<Kubernetes, UnknownKubernetes> {
    let view = ClusterView::of(&cluster.data).unwrap_or_default();
    let control_plane = match &view.spec.control_plane_ref {
        Some(reference) => Some(references.get(&key.namespace, reference).await?),
        None => None,
    };
    known_kubernetes(cluster, control_plane.as_deref())
}

/// Returns the Kubernetes version of a Cluster and the upgrade that it is in.
pub fn known_kubernetes(
    cluster: &DynamicObject,
    control_plane: Option<&DynamicObject>,
) -> Result<Kubernetes, UnknownKubernetes> {
    kubernetes(&as_json(cluster), control_plane.map(as_json).as_ref()).ok_or(UnknownKubernetes::NotNamed)
}
