//! The seam between kinds and the placement engine: HelmChartProxy is one face of a placement, others can join it.

use std::{collections::BTreeMap, fmt::Debug};

use chandler_api::{reasons::PlacementVocabulary, status::PlacementStatus};
use kube_core::Resource;
use serde::{Serialize, de::DeserializeOwned};

use super::{Selection, SelectionError};
use crate::{
    identity::ClusterKey,
    release::{ReleaseKind, Strategy},
};

/// A kind whose objects put a package on clusters.
pub trait PlacementKind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind of its release objects.
    type Release: ReleaseKind;
    /// What is written about it.
    type Status: AsRef<PlacementStatus> + Clone + Debug + Default + PartialEq + Serialize + Send + Sync;
    /// Keeps the object until its releases are gone.
    const FINALIZER: &'static str;
    /// Label on a release object that names its placement.
    const OWNER_LABEL: &'static str;
    /// What its conditions are called.
    const VOCABULARY: PlacementVocabulary;

    /// Which clusters of the namespace it wants.
    fn selection(&self) -> Result<Selection, SelectionError>;
    fn strategy(&self) -> Strategy;
    /// Whether it wants a cluster with these labels.
    fn wants(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> bool {
        self.meta().namespace.as_deref() == Some(&cluster.namespace)
            && self.selection().is_ok_and(|wanted| wanted.matches(&cluster.name, labels))
    }
    /// Returns whether the versions that Extensions publish decide about its releases.
    fn follows_extensions(&self) -> bool {
        false
    }
    /// Returns whether the packages that catalogs offer decide about its releases.
    fn follows_catalogs(&self) -> bool {
        false
    }
    /// Whether `existing` already asks for what `wanted` does.
    fn same_request(existing: &Self::Release, wanted: &Self::Release) -> bool;
    /// Whether both are the same release of the same package, so that one can become the other by an upgrade.
    fn same_identity(existing: &Self::Release, wanted: &Self::Release) -> bool;
    /// The cluster that a release object belongs to.
    fn cluster_of(release: &Self::Release) -> Option<ClusterKey>;
    /// What was written about it last.
    fn status(&self) -> Option<&Self::Status>;
}
