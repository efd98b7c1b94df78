use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{Reference, rules};
use crate::addons::rules::absolute_url;

/// A package: its repository, name and version, or its folder in a Source. Credentials are only configured in catalogs and
/// Sources, so that a user who can write a source cannot send them to another host.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["repository", "catalog", "sourceRef"]),
    validation = rules::chart_or_path()
)]
#[serde(rename_all = "camelCase")]
pub struct PackageSource {
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = absolute_url())]
    #[schemars(length(max = 2048))]
    pub repository: Option<String>,
    /// The ExtensionCatalog whose repository and credentials are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<Reference>,
    /// The Source with the files of the package: a chart, a kustomization or plain manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<Reference>,
    /// Folder of the package in the Source. If unset, its root. Go templates in it can refer to `.Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// Name of the chart in the repository. Required, except with `sourceRef`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253))]
    pub chart: String,
    /// Version of the chart. If unset, the version of the Extension that it belongs to, otherwise the newest version. With
    /// `sourceRef`, a Git tag that is used instead of the revision of the Source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub version: Option<String>,
}
