//! Hands Clusters over to Fleet: which objects of Fleet are wanted, and what of the add-on provider for Fleet (CAAPF) they
//! replace.

mod apply;
mod cluster;
mod group;
mod mapping;
mod metadata;
mod report;
mod settings;
mod takeover;

pub use apply::{APPLIED_ANNOTATION, WriteAction, write_action};
pub use cluster::{
    HandedOver, TemplateObject, cluster_of, existing_fleet_cluster, fleet_cluster, is_handed_over,
};
pub use group::{ClassKey, class_group, class_of, class_of_group, shared_class_group};
pub use mapping::{is_stale_mapping, mapping};
pub use report::{FleetState, is_reported, report};
pub use settings::{ClassSettings, ClusterSettings, FleetSettings, WritePolicy};
pub use takeover::{take_over_fields, without_caapf_finalizer};

/// API group of Fleet's kinds.
pub const FLEET_GROUP: &str = "fleet.cattle.io";
/// The version of Fleet's kinds.
pub const FLEET_VERSION: &str = "v1alpha1";
const API_VERSION: &str = "fleet.cattle.io/v1alpha1";

/// Label with the name of the ClusterClass.
pub const CLASS_NAME_LABEL: &str = "clusterclass-name.fleet.addons.cluster.x-k8s.io";
/// Label with the namespace of the ClusterClass.
pub const CLASS_NAMESPACE_LABEL: &str = "clusterclass-namespace.fleet.addons.cluster.x-k8s.io";
