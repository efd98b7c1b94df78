//! The kinds that are watched for Fleet.

use chandler_api::addons::FleetAddonConfig;
use chandler_core::fleet::{FLEET_GROUP, FLEET_VERSION};
use kube::api::{ApiResource, GroupVersionKind};

pub use crate::clusters::class_resource as classes;

/// The hand-over of Clusters, for metrics and errors.
pub const CLUSTER: &str = "FleetCluster";
/// The groups of ClusterClasses, for metrics and errors.
pub const CLASS: &str = "ClusterGroup";
/// The mappings between namespaces, for metrics and errors.
pub const MAPPING: &str = "BundleNamespaceMapping";
/// The config, for metrics and errors.
pub const CONFIG: &str = "FleetAddonConfig";

pub fn fleet_clusters() -> ApiResource {
    fleet("Cluster", "clusters")
}

pub fn groups() -> ApiResource {
    fleet("ClusterGroup", "clustergroups")
}

pub fn mappings() -> ApiResource {
    fleet("BundleNamespaceMapping", "bundlenamespacemappings")
}

pub fn configs() -> ApiResource {
    ApiResource::erase::<FleetAddonConfig>(&())
}

fn fleet(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(FLEET_GROUP, FLEET_VERSION, kind), plural)
}
