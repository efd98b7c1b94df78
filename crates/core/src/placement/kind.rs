//! The interface that a kind of placements implements.

use std::{collections::BTreeMap, fmt::Debug};

use chandler_api::{
    extensions::{PlacementKindName, PlacementReference, Reference},
    reasons::PlacementVocabulary,
    status::PlacementStatus,
};
use kube_core::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{KubernetesVersions, KubernetesVersionsError, Selection, SelectionError};
use crate::{
    identity::ClusterKey,
    policy::PolicyOverrides,
    release::{ReleaseKind, Strategy},
};

/// A kind whose objects install a package on clusters.
pub trait PlacementKind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind of its release objects.
    type Release: ReleaseKind;
    type Status: AsRef<PlacementStatus> + Clone + Debug + Default + PartialEq + Serialize + Send + Sync;
    /// The name of the kind, as a policy refers to it.
    const KIND_NAME: PlacementKindName;
    /// Finalizer that keeps the object until its releases are removed.
    const FINALIZER: &'static str;
    /// Label of a release object that names its placement.
    const OWNER_LABEL: &'static str;
    /// The names of its condition types and reasons.
    const VOCABULARY: PlacementVocabulary;

    /// Returns the selection of clusters in its namespace.
    fn selection(&self) -> Result<Selection, SelectionError>;
    fn strategy(&self) -> Strategy;
    /// Returns the AddonPolicy of its releases.
    fn policy(&self) -> Option<Reference>;
    /// Returns its options that win over its policy.
    fn policy_overrides(&self) -> PolicyOverrides;
    /// Returns the part of its spec that its release objects share: all but the selection of clusters and what does not reach
    /// release objects.
    fn shared_spec(&self) -> Value;
    /// Returns whether it names no version of its package, so that the newest one is installed.
    fn follows_newest_version(&self) -> bool;
    /// Returns how a policy refers to it.
    fn reference(&self) -> PlacementReference {
        PlacementReference { kind: Self::KIND_NAME, name: self.meta().name.clone().unwrap_or_default() }
    }
    /// Returns whether it selects a cluster with these labels.
    fn selects(&self, cluster: &ClusterKey, labels: &BTreeMap<String, String>) -> bool {
        self.meta().namespace.as_deref() == Some(&cluster.namespace)
            && self.selection().is_ok_and(|selection| selection.matches(&cluster.name, labels))
    }
    /// Returns whether its releases depend on the versions that Extensions publish.
    fn follows_extensions(&self) -> bool {
        false
    }
    /// Returns the Extension that it installs.
    fn extension(&self) -> Option<Reference> {
        None
    }
    /// Returns the catalogs that offer its packages.
    fn catalogs(&self) -> Vec<Reference> {
        Vec::new()
    }
    /// Returns whether its releases depend on the files of a Source.
    fn follows_sources(&self) -> bool {
        false
    }
    /// Returns the versions that it names for Kubernetes versions. `None` means that its version does not follow Kubernetes.
    fn kubernetes_versions(&self) -> Option<Result<KubernetesVersions, KubernetesVersionsError>> {
        None
    }
    /// Returns whether `existing` already has the spec and metadata of `desired`.
    fn same_request(existing: &Self::Release, desired: &Self::Release) -> bool;
    /// Returns whether both are the same release, so that an upgrade can turn one into the other.
    fn same_identity(existing: &Self::Release, desired: &Self::Release) -> bool;
    /// Returns the cluster of a release object.
    fn cluster_of(release: &Self::Release) -> Option<ClusterKey>;
    fn status(&self) -> Option<&Self::Status>;
}

/// Returns a spec as JSON without some of its fields.
pub(super) fn spec_without(spec: &impl Serialize, fields: &[&str]) -> Value {
    let mut spec = serde_json::to_value(spec).unwrap_or_default();
    if let Some(object) = spec.as_object_mut() {
        object.retain(|field, _| !fields.contains(&field.as_str()));
    }
    spec
}
