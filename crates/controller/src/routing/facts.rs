//! What the index remembers of objects.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use chandler_core::{
    identity::{ClusterKey, ReleaseId},
    placement::{PlacementKind, Selection, visible_to_templates},
    release::ReleaseKind as _,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _, api::DynamicObject};

use super::ObjectKey;
use crate::{
    clusters::{self, as_json},
    status,
};

/// Differs between two versions of an object if more than its status has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision(u64);

impl Revision {
    /// Generation, labels, annotations and deletion; not the status, and not what the API server keeps for itself.
    fn of(object: &ObjectMeta) -> Self {
        let ObjectMeta { uid, generation, labels, annotations, deletion_timestamp, .. } = object;
        let mut hasher = DefaultHasher::new();
        (uid, generation, labels, annotations, deletion_timestamp.is_some()).hash(&mut hasher);
        Self(hasher.finish())
    }

    /// All that templates see of a Cluster, so without the conditions that Chandler writes to it.
    fn of_cluster(cluster: &DynamicObject) -> Self {
        let mut hasher = DefaultHasher::new();
        visible_to_templates(&as_json(cluster)).to_string().hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A placement.
#[derive(Clone, Debug)]
pub struct Placement {
    pub key: ObjectKey,
    pub uid: Option<String>,
    pub revision: Revision,
    /// `None` if its selector is invalid.
    pub selection: Option<Selection>,
    pub follows_extensions: bool,
    pub follows_catalogs: bool,
}

impl Placement {
    pub fn of<P: PlacementKind>(placement: &P) -> Self {
        Self {
            key: ObjectKey::of(placement),
            uid: placement.uid(),
            revision: Revision::of(placement.meta()),
            selection: placement.selection().ok(),
            follows_extensions: placement.follows_extensions(),
            follows_catalogs: placement.follows_catalogs(),
        }
    }

    /// Returns whether it selects a cluster of its own namespace.
    pub fn selects(&self, cluster: &Cluster) -> bool {
        self.selection.as_ref().is_some_and(|wanted| wanted.matches(&cluster.key.name, &cluster.labels))
    }
}

/// A release object.
#[derive(Clone, Debug)]
pub struct Release {
    pub key: ObjectKey,
    pub uid: Option<String>,
    pub revision: Revision,
    /// The placement that its owner reference names, and the cluster that it is for.
    pub placement: Option<(ObjectKey, ClusterKey)>,
    /// Value of the label that names its placement.
    pub owner: Option<String>,
    /// `None` if its spec is invalid.
    pub claim: Option<(ClusterKey, ReleaseId)>,
    /// Names of the release objects that have to be ready first.
    pub depends_on: Vec<String>,
    /// Whether what sources offer decides about its package.
    pub follows_sources: bool,
}

impl Release {
    pub fn of<P: PlacementKind>(release: &P::Release) -> Self {
        let kind = status::kind::<P>();
        let desired = release.desired().ok();
        let owner = release.owner_references().iter().find(|owner| owner.kind == kind);
        let placement = owner.zip(P::cluster_of(release)).map(|(owner, cluster)| {
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
            claim,
            depends_on,
            follows_sources,
        }
    }

    /// Returns whether one of the two has to wait for the other.
    pub fn is_ordered_with(&self, other: &Self) -> bool {
        let waits_for = |one: &Self, other: &Self| one.depends_on.contains(&other.key.name);
        self.key.kind == other.key.kind && (waits_for(self, other) || waits_for(other, self))
    }
}

/// A Cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub key: ClusterKey,
    pub uid: Option<String>,
    pub revision: Revision,
    pub labels: BTreeMap<String, String>,
}

impl Cluster {
    /// Returns `None` for an object without a namespace.
    pub fn of(cluster: &DynamicObject) -> Option<Self> {
        Some(Self {
            key: clusters::key(cluster)?,
            uid: cluster.uid(),
            revision: Revision::of_cluster(cluster),
            labels: cluster.labels().clone(),
        })
    }
}
