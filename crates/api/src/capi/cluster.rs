use serde::Deserialize;
use serde_json::Value;

/// The part of a Cluster that Chandler reads, without its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterView {
    /// Desired state.
    pub spec: ClusterSpecView,
    /// Observed state.
    pub status: ClusterStatusView,
}

/// The part of a Cluster's spec that Chandler reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterSpecView {
    /// Whether reconciliation of the cluster is paused.
    pub paused: bool,
    /// The object that manages the control plane.
    #[serde(rename = "controlPlaneRef")]
    pub control_plane_ref: Option<ContractReference>,
    /// The object that manages the infrastructure.
    #[serde(rename = "infrastructureRef")]
    pub infrastructure_ref: Option<ContractReference>,
    /// The class of the cluster.
    pub topology: Option<TopologyView>,
}

/// The part of a Cluster's topology that Chandler reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TopologyView {
    /// The ClusterClass.
    pub class_ref: ClassReference,
}

/// A reference to a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClassReference {
    /// Name of the class.
    pub name: String,
    /// Namespace of the class. Empty means that of the Cluster.
    pub namespace: String,
}

/// A reference to an object of another provider in the namespace of the Cluster. The labels of its CRD determine the
/// version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContractReference {
    /// API group of the kind.
    pub api_group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// The part of a Cluster's status that Chandler reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterStatusView {
    /// How far the cluster is initialized.
    pub initialization: Initialization,
}

/// How far a cluster is initialized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Initialization {
    /// Whether the control plane accepts requests.
    pub control_plane_initialized: bool,
}

impl ClusterView {
    /// Parses a Cluster as the API server returns it.
    pub fn of(cluster: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(cluster)
    }
}
