use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{Reference, rules};
use crate::addons::rules::absolute_url;

/// A package: its repository, name and version. Credentials are only configured in catalogs, so that a user who can write a
/// source cannot send them to another host.
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
    /// Version of the chart. If unset, the version of the Extension that it belongs to, otherwise the newest version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub version: Option<String>,
}
