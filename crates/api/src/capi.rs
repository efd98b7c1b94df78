//! Thin typed views of the Cluster API kinds Chandler reads. Only the fields it looks at are named.

mod cluster;

pub use cluster::{ClusterView, Initialization, Topology};

/// Group of the Cluster kind.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";
/// The version Chandler reads.
pub const CLUSTER_VERSION: &str = "v1beta2";
/// Label that ties an object to its Cluster.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Annotation that pauses an object, whatever its value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
