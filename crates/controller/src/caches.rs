//! What concerns a cluster, a release or a source concerns every face: they share clusters and what runs on them.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use chandler_core::{
    cluster_conditions::Addon,
    identity::{ClusterKey, ReleaseId},
    placement::Selection,
    release::Claimant,
};

use crate::metrics::ReleaseCounts;

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
    /// Releases of a cluster by the uid of their objects.
    fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)>;
    /// The release objects, by how they are doing.
    fn release_counts(&self) -> ReleaseCounts;
    /// What is meant to be on a cluster, and whether it is ready.
    fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon>;
}

/// Whoever looks after what all faces together mean for a Cluster.
pub trait Watcher: Send + Sync {
    /// A Cluster, something it refers to, or an add-on of it was touched.
    fn cluster_touched(&self, cluster: &ClusterKey);
    /// A placement that wants, or wanted, these clusters was touched.
    fn selection_touched(&self, namespace: &str, wanted: &Selection);
}

/// All faces. Clones share them; they are told once, before anything runs.
#[derive(Clone, Default)]
pub struct Faces(Arc<OnceLock<All>>);

struct All {
    faces: Vec<Box<dyn Face>>,
    watcher: Box<dyn Watcher>,
}

impl Faces {
    pub fn are(&self, faces: Vec<Box<dyn Face>>, watcher: Box<dyn Watcher>) {
        // Told once, when the process starts.
        let _ = self.0.set(All { faces, watcher });
    }

    pub fn cluster_touched(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) {
        self.all().for_each(|face| face.cluster_touched(cluster, labels));
        self.addon_touched(cluster);
    }

    /// A release object of a cluster was touched.
    pub fn addon_touched(&self, cluster: &ClusterKey) {
        if let Some(all) = self.0.get() {
            all.watcher.cluster_touched(cluster);
        }
    }

    /// A placement was touched.
    pub fn selection_touched(&self, namespace: &str, wanted: &Selection) {
        if let Some(all) = self.0.get() {
            all.watcher.selection_touched(namespace, wanted);
        }
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

    pub fn release_counts(&self) -> Vec<ReleaseCounts> {
        self.all().map(Face::release_counts).collect()
    }

    pub fn uses(&self, cluster: &ClusterKey) -> bool {
        self.all().any(|face| face.uses(cluster))
    }

    pub fn addons(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> Vec<Addon> {
        self.all().flat_map(|face| face.addons(cluster, labels)).collect()
    }

    pub fn releases(&self, cluster: &ClusterKey) -> Vec<(String, String)> {
        self.all().flat_map(|face| face.releases(cluster)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &dyn Face> {
        self.0.get().into_iter().flat_map(|all| &all.faces).map(AsRef::as_ref)
    }
}
