//! Identifiers of clusters and releases as distinct types.

use std::{collections::BTreeMap, fmt};

use chandler_api::capi::{CLUSTER_GROUP, CLUSTER_VERSION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The key of a Cluster on the management cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// Namespace on the management cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub name: String,
}

/// A value per Cluster, sorted by namespace and name.
pub type ClusterMap<T> = BTreeMap<ClusterKey, T>;

/// A package tool of this manager, by its position among the `--tool` flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolId(pub usize);

/// The identifier of a release on a workload cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseId {
    /// Namespace on the workload cluster.
    pub namespace: String,
    /// Name of the release.
    pub name: String,
}

impl ClusterKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// Returns the reference to a Cluster that owns an object. It blocks no deletion.
pub fn cluster_owner(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: format!("{CLUSTER_GROUP}/{CLUSTER_VERSION}"),
        kind: "Cluster".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

impl ReleaseId {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
