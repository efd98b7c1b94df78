//! What concerns a cluster, a release or a source concerns every face: they share clusters and what runs on them.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use chandler_core::{
    identity::{ClusterKey, ReleaseId},
    release::Claimant,
};

/// One pair of kinds, as the others see it.
pub trait Face: Send + Sync {
    /// A Cluster, or something it refers to, was touched.
    fn cluster_touched(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>);
    /// A release of a cluster was touched. None: all of them.
    fn release_touched(&self, cluster: &ClusterKey, release: Option<&ReleaseId>);
    /// Some source offers something else now.
    fn source_changed(&self);
    /// Who claims a release: more than one is a collision.
    fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant>;
    /// Whether any release object is of this cluster.
    fn uses(&self, cluster: &ClusterKey) -> bool;
}

/// All faces. Clones share them; they are told once, before anything runs.
#[derive(Clone, Default)]
pub struct Faces(Arc<OnceLock<Vec<Box<dyn Face>>>>);

impl Faces {
    pub fn are(&self, faces: Vec<Box<dyn Face>>) {
        // Told once, when the process starts.
        let _ = self.0.set(faces);
    }

    pub fn cluster_touched(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) {
        self.all().for_each(|face| face.cluster_touched(cluster, labels));
    }

    pub fn release_touched(&self, cluster: &ClusterKey, release: Option<&ReleaseId>) {
        self.all().for_each(|face| face.release_touched(cluster, release));
    }

    pub fn source_changed(&self) {
        self.all().for_each(Face::source_changed);
    }

    pub fn claimants(&self, cluster: &ClusterKey, release: &ReleaseId) -> Vec<Claimant> {
        self.all().flat_map(|face| face.claimants(cluster, release)).collect()
    }

    pub fn uses(&self, cluster: &ClusterKey) -> bool {
        self.all().any(|face| face.uses(cluster))
    }

    fn all(&self) -> impl Iterator<Item = &dyn Face> {
        self.0.get().into_iter().flatten().map(AsRef::as_ref)
    }
}
