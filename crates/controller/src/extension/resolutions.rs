//! Which versions the extensions of a cluster should be at: asked again when something has changed that decides it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chandler_api::{
    capi::ClusterView,
    extensions::{AddonRelease, ExtensionInstance},
};
use chandler_core::{
    extension::{Demand, Question, Verdict, demand, kubernetes, verdict},
    identity::ClusterKey,
    placement::PlacementFace as _,
    resolution::VersionName,
};
use kube::{Resource as _, ResourceExt as _, api::DynamicObject, runtime::reflector::Store};

use super::{
    offers::Offers,
    platform::Platform,
    shelf::{Look, Shelf},
};
use crate::{clusters::as_json, index::ReleaseIndex, references::References};

/// Told that the versions of a cluster's extensions have changed.
pub type Changed = Box<dyn Fn(&ClusterKey, &BTreeMap<String, String>) + Send + Sync>;

/// What is decided for clusters.
pub struct Resolutions {
    pub references: References,
    pub instances: Store<ExtensionInstance>,
    pub releases: ReleaseIndex<AddonRelease>,
    pub shelf: Shelf,
    pub offers: Offers,
    pub platform: Platform,
    pub changed: Changed,
    pub last: Last,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// Something is still being found out; who waits is looked at again.
    Awaited,
    Because(String),
}

impl Resolutions {
    /// The instances that select a cluster.
    pub fn instances(
        &self,
        key: &ClusterKey,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Arc<ExtensionInstance>> {
        self.instances.state_filter(|instance| {
            instance.namespace().as_deref() == Some(&key.namespace)
                && instance.selection().is_ok_and(|wanted| wanted.matches(&key.name, labels))
        })
    }

    /// What is decided for a cluster now.
    pub async fn of(&self, key: &ClusterKey, cluster: &DynamicObject) -> Result<Arc<Resolved>, Undecided> {
        let mut look = Look::at(&self.shelf);
        let instances = self.instances(key, cluster.labels());
        self.offers.lay_out(&key.namespace, &instances, &mut look).await;
        let demand = demand(&key.namespace, &self.platform.namespace, &instances, &look);
        if look.awaits() {
            return Err(Undecided::Awaited);
        }
        let question = Question {
            universe: demand.universe.clone(),
            wanted: demand.wanted.clone(),
            platform: self.platform.version(),
            running: self.running(key),
            kubernetes: self.kubernetes(key, cluster).await.map_err(Undecided::Because)?,
        };
        let last = self.lock().get(key).cloned();
        if let Some(last) = last.as_ref().filter(|last| last.question == question && last.demand == demand) {
            return Ok(last.clone());
        }
        let resolved = Arc::new(Resolved { verdict: verdict(&question), demand, question });
        self.lock().insert(key.clone(), resolved.clone());
        if last.is_some_and(|last| last.verdict.chosen != resolved.verdict.chosen) {
            (self.changed)(key, cluster.labels());
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

    /// The versions that the cluster's releases were told to be at.
    fn running(&self, key: &ClusterKey) -> BTreeMap<String, VersionName> {
        let releases = self.releases.on_cluster(key);
        let standing = releases.iter().filter(|release| release.meta().deletion_timestamp.is_none());
        standing
            .filter_map(|release| {
                let version = VersionName::parse(release.spec.version.as_deref()?)?;
                Some((release.spec.extension.clone()?, version))
            })
            .collect()
    }

    async fn kubernetes(
        &self,
        key: &ClusterKey,
        cluster: &DynamicObject,
    ) -> Result<chandler_core::extension::Kubernetes, String> {
        let view = ClusterView::of(&cluster.data).unwrap_or_default();
        let control_plane = match &view.spec.control_plane_ref {
            Some(reference) => {
                let found = self.references.get(&key.namespace, reference).await;
                Some(found.map_err(|error| format!("the cluster's Kubernetes version is unknown: {error}"))?)
            }
            None => None,
        };
        let control_plane = control_plane.as_deref().map(as_json);
        kubernetes(&as_json(cluster), control_plane.as_ref()).ok_or_else(|| {
            "the cluster's Kubernetes version is unknown: neither its topology nor its control plane names one"
                .to_owned()
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Arc<Resolved>>> {
        self.last.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
