//! Typed views of the Cluster API kinds that Chandler reads, with only the fields that it uses.

mod cluster;

pub use cluster::{ClusterView, ContractReference, Initialization};

/// API group of the Cluster kind.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";
/// The version of the Cluster kind that Chandler reads.
pub const CLUSTER_VERSION: &str = "v1beta2";
/// Labels of a provider's CRD that list the versions which implement a contract, newest contract first.
pub const CONTRACT_LABELS: [&str; 2] = ["cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1"];
/// Label with the name of the Cluster that an object belongs to.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label that assigns an object to the manager that runs with this watch filter.
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";
/// Annotation that pauses an object, whatever its value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation that `clusterctl move` puts on objects before it deletes them from the source management cluster.
pub const DELETE_FOR_MOVE_ANNOTATION: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
