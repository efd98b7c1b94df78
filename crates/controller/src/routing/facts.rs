//! The facts about objects that the index stores.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use chandler_api::{
    addons::HelmChartProxy,
    capi::ClusterView,
    extensions::{AddonPolicy, ExtensionInstance, PlacementKindName, PlacementReference, Reference},
};
use chandler_core::{
    fleet::{ClassKey, class_of},
    identity::{ClusterKey, ReleaseId},
    placement::{PlacementKind, Selection, visible_to_templates},
    policy::is_suspended,
    release::{ReleaseKind as _, replaces_unsafe_crds},
    rollout::RolloutRequests,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _, api::DynamicObject};
use serde_json::Value;

use super::ObjectKey;
use crate::{
    clusters::{self, as_json},
    status,
};

/// A hash that differs between two versions of an object if more than its status has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision(u64);

impl Revision {
    /// Hashes generation, labels, annotations and deletion, but not the status and other server-managed metadata.
    pub fn of(object: &ObjectMeta) -> Self {
        let ObjectMeta { uid, generation, labels, annotations, deletion_timestamp, .. } = object;
        let mut hasher = DefaultHasher::new();
        (uid, generation, labels, annotations, deletion_timestamp.is_some()).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Hashes the part of a Cluster that templates can read, which excludes the conditions that Chandler writes.
    fn of_cluster(cluster: &Value) -> Self {
        let mut hasher = DefaultHasher::new();
        visible_to_templates(cluster).to_string().hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A placement.
#[derive(Clone, Debug)]
pub struct Placement {
    pub key: ObjectKey,
    /// The key without the namespace.
    pub reference: PlacementReference,
    pub uid: Option<String>,
    pub revision: Revision,
    pub paused: bool,
    /// Whether its annotation suspends its releases.
    pub suspended: bool,
    pub deleting: bool,
    /// Whether its annotation lets its releases replace any CRD.
    pub replaces_unsafe_crds: bool,
    /// The targets of aborted rollouts.
    pub aborted: BTreeSet<String>,
    /// The policy of its releases.
    pub policy: Option<Reference>,
    /// `None` if its selector is invalid.
    pub selection: Option<Selection>,
    pub follows_extensions: bool,
    /// The Extension that it installs.
    pub extension: Option<Reference>,
    /// The catalogs that offer its packages.
    pub catalogs: Vec<Reference>,
    /// Whether its package is made of the files of a Source.
    pub follows_sources: bool,
}

impl Placement {
    pub fn of<P: PlacementKind>(placement: &P) -> Self {
        Self {
            key: ObjectKey::of(placement),
            reference: placement.reference(),
            uid: placement.uid(),
            revision: Revision::of(placement.meta()),
            paused: status::is_paused(placement),
            suspended: is_suspended(placement),
            deleting: placement.meta().deletion_timestamp.is_some(),
            replaces_unsafe_crds: replaces_unsafe_crds(placement),
            aborted: RolloutRequests::of(placement).aborted,
            policy: placement.policy(),
            selection: placement.selection().ok(),
            follows_extensions: placement.follows_extensions(),
            extension: placement.extension(),
            catalogs: placement.catalogs(),
            follows_sources: placement.follows_sources(),
        }
    }

    /// Returns the key of a placement in the same namespace.
    pub fn beside(&self, other: &PlacementReference) -> ObjectKey {
        let kind = match other.kind {
            PlacementKindName::HelmChartProxy => status::kind::<HelmChartProxy>(),
            PlacementKindName::ExtensionInstance => status::kind::<ExtensionInstance>(),
        };
        ObjectKey::new(kind, &self.key.namespace, &other.name)
    }

    /// Returns whether it selects a cluster of its own namespace.
    pub fn selects(&self, cluster: &Cluster) -> bool {
        self.selection.as_ref().is_some_and(|selection| selection.matches(&cluster.key.name, &cluster.labels))
    }
}

/// An AddonPolicy.
#[derive(Clone, Debug)]
pub struct Policy {
    pub key: ObjectKey,
    pub uid: Option<String>,
    pub revision: Revision,
    /// The placements whose releases have to be ready first, in the namespace of the placement that uses the policy.
    pub depends_on: Vec<PlacementReference>,
}

impl Policy {
    pub fn of(policy: &AddonPolicy) -> Self {
        Self {
            key: ObjectKey::of(policy),
            uid: policy.uid(),
            revision: Revision::of(policy.meta()),
            depends_on: policy.spec.depends_on.clone(),
        }
    }
}

/// A release object.
#[derive(Clone, Debug)]
pub struct Release {
    pub key: ObjectKey,
    pub uid: Option<String>,
    pub revision: Revision,
    /// The placement in its owner reference, and its cluster.
    pub placement: Option<(ObjectKey, ClusterKey)>,
    /// The value of the label that names its placement.
    pub owner: Option<String>,
    /// Known even if its spec is invalid otherwise.
    pub cluster: Option<ClusterKey>,
    /// `None` if its spec is invalid.
    pub claim: Option<(ClusterKey, ReleaseId)>,
    /// Names of the release objects that have to be ready first.
    pub depends_on: Vec<String>,
    /// Whether its package depends on what sources offer.
    pub follows_sources: bool,
}

impl Release {
    pub fn of<P: PlacementKind>(release: &P::Release) -> Self {
        let kind = status::kind::<P>();
        let desired = release.desired().ok();
        let owner = release.owner_references().iter().find(|owner| owner.kind == kind);
        let cluster = P::cluster_of(release);
        let placement = owner.zip(cluster.clone()).map(|(owner, cluster)| {
            (ObjectKey::new(kind, cluster.namespace.clone(), owner.name.clone()), cluster)
        });
        let follows_sources = desired
            .as_ref()
            .is_some_and(|desired| desired.package.version.is_none() || desired.access.catalog.is_some());
        let (claim, depends_on) = match desired {
            Some(desired) => (Some((desired.cluster, desired.release)), desired.depends_on),
            None => (None, Vec::new()),
        };
        Self {
            key: ObjectKey::of(release),
            uid: release.uid(),
            revision: Revision::of(release.meta()),
            placement,
            owner: release.labels().get(P::OWNER_LABEL).cloned(),
            cluster,
            claim,
            depends_on,
            follows_sources,
        }
    }

    /// Returns whether one of the two depends on the other.
    pub fn is_ordered_with(&self, other: &Self) -> bool {
        let depends_on = |one: &Self, other: &Self| one.depends_on.contains(&other.key.name);
        self.key.kind == other.key.kind && (depends_on(self, other) || depends_on(other, self))
    }
}

/// A Cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub key: ClusterKey,
    pub uid: Option<String>,
    pub revision: Revision,
    pub labels: BTreeMap<String, String>,
    pub class: Option<ClassKey>,
}

impl Cluster {
    /// Returns `None` for an object without a namespace.
    pub fn of(cluster: &DynamicObject) -> Option<Self> {
        let (view, object) = (ClusterView::of(&cluster.data).unwrap_or_default(), as_json(cluster));
        Some(Self {
            key: clusters::key(cluster)?,
            uid: cluster.uid(),
            revision: Revision::of_cluster(&object),
            labels: cluster.labels().clone(),
            class: class_of(&object, &view),
        })
    }
}
