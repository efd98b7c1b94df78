use serde::Deserialize;
use serde_json::Value;

/// What Chandler reads of a Cluster, besides its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterView {
    /// Desired state.
    pub spec: ClusterSpecView,
    /// Observed state.
    pub status: ClusterStatusView,
}

/// What Chandler reads of a Cluster's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterSpecView {
    /// Whether reconciliation of the cluster is paused.
    pub paused: bool,
    /// The object that runs the control plane.
    #[serde(rename = "controlPlaneRef")]
    pub control_plane_ref: Option<ContractReference>,
    /// The object that stands for the infrastructure.
    #[serde(rename = "infrastructureRef")]
    pub infrastructure_ref: Option<ContractReference>,
}

/// Names an object of another provider, in the Cluster's own namespace. Its version is for its definition to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContractReference {
    /// Group of the kind.
    pub api_group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// What Chandler reads of a Cluster's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterStatusView {
    /// How far the cluster has come up.
    pub initialization: Initialization,
}

/// How far a cluster has come up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Initialization {
    /// The control plane answers requests.
    pub control_plane_initialized: bool,
}

impl ClusterView {
    /// Reads the view off a Cluster as the API server returns it.
    pub fn of(cluster: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(cluster)
    }
}
