//! Thin typed views of the Cluster API kinds Chandler reads. Only the fields it looks at are named.

mod cluster;

pub use cluster::{ClusterView, ContractReference, Initialization};

/// Group of the Cluster kind.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";
/// The version Chandler reads.
pub const CLUSTER_VERSION: &str = "v1beta2";
/// Labels of a provider's definition that list the versions which keep a contract, newest contract first.
pub const CONTRACT_LABELS: [&str; 2] = ["cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1"];
/// Label that ties an object to its Cluster.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label that leaves an object to the manager that runs with this filter.
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";
/// Annotation that pauses an object, whatever its value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation that `clusterctl move` puts on what it deletes here because it lives on elsewhere.
pub const DELETE_FOR_MOVE_ANNOTATION: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
