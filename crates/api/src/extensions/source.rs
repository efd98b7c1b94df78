use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{Reference, rules};
use crate::addons::rules::absolute_url;

/// A package: where it is, its name and its version. Credentials belong to catalogs, so that whoever may write a source
/// cannot send them elsewhere.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::one_of(&["repository", "catalog"]))]
pub struct PackageSource {
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = absolute_url())]
    #[schemars(length(max = 2048))]
    pub repository: Option<String>,
    /// The ExtensionCatalog whose repository and credentials are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<Reference>,
    /// Name of the chart in the repository.
    #[schemars(length(min = 1, max = 253))]
    pub chart: String,
    /// Version of the chart. Unset: in an Extension the version it belongs to, elsewhere the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub version: Option<String>,
}
