use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{KeyReference, SecretName, SourceRef, rules};
use crate::addons::{
    Timeout,
    rules::{absolute_url, go_duration, no_login},
};

/// A Helm repository, a registry or a folder of charts in a Source that offers packages.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "ExtensionCatalog",
    plural = "extensioncatalogs",
    shortname = "extcat",
    category = "chandler",
    doc = "A Helm repository, a registry or a folder of charts in a Source that offers packages.",
    namespaced,
    status = "CatalogStatus",
    derive = "PartialEq",
    crates(kube_core = "kube_core"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Packages", type_ = "integer", json_path = ".status.packages"),
    printcolumn(name = "Read", type_ = "date", json_path = ".status.readAt"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Source", type_ = "string", priority = 1, json_path = ".spec.source.sourceRef.name"),
    printcolumn(name = "Revision", type_ = "string", priority = 1, json_path = ".status.revision"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["url", "source"]),
    validation = rules::catalog_access_requires_url()
)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionCatalogSpec {
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry. A new value must not contain a user name or
    /// password.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = absolute_url(), validation = no_login())]
    pub url: String,
    /// The folder of a Source whose charts the catalog offers. Credentials, certificate authority and signatures are those of
    /// the Source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CatalogSource>,
    /// Interval at which the repository is read, as a Go duration. A folder of a Source is also read whenever the Source has
    /// another revision.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub interval: Timeout,
    /// Key of a Secret in the same namespace with a Docker config that contains the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<KeyReference>,
    /// Key of a Secret in the same namespace with the certificate authority to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<KeyReference>,
    /// Signatures that packages must have. If unset, signatures are not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
    /// Selects the packages of the repository that belong to the catalog. If unset, all packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<CatalogFilter>,
    /// Selects by label the namespaces that may use the catalog, besides its own. If unset, a catalog in the platform
    /// namespace can be used in all namespaces, any other catalog only in its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub namespaces: Option<LabelSelector>,
}

fn default_interval() -> Timeout {
    Timeout("1h".to_owned())
}

/// A folder of a Source with charts, at any depth.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct CatalogSource {
    /// The Source with the charts.
    pub source_ref: SourceRef,
    /// Folder in the Source. If unset, its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::relative_path())]
    pub path: Option<String>,
}

/// Signatures that packages must have.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::keys_or_identities())]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// The tool that created the signatures.
    pub verifier: Verifier,
    /// The Secret with the public keys in PEM, one per key of the Secret. A signature of one of them is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<SecretName>,
    /// Identities for keyless signatures, as certificates contain them. A signature of one of them is enough. Requires
    /// `trustedRoot`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub identities: Vec<SignerIdentity>,
    /// Key of a ConfigMap in the same namespace with the certificate authorities and transparency logs to trust: the file
    /// that `cosign trusted-root create` writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root: Option<KeyReference>,
}

/// The identity of a signer, as a certificate contains it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["issuer", "issuerRegExp"]),
    validation = rules::one_of(&["subject", "subjectRegExp"])
)]
#[serde(rename_all = "camelCase")]
pub struct SignerIdentity {
    /// The OIDC issuer, such as `https://token.actions.githubusercontent.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub issuer: Option<String>,
    /// A regular expression that the whole issuer has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub issuer_reg_exp: Option<String>,
    /// The subject: an email address, or the URL of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub subject: Option<String>,
    /// A regular expression that the whole subject has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub subject_reg_exp: Option<String>,
}

/// The tool that creates signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verifier {
    /// `cosign sign`, for registries.
    Cosign,
    /// `helm package --sign`, which writes a `.prov` file next to the chart.
    Provenance,
}

/// Selects the packages of a repository that belong to a catalog.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct CatalogFilter {
    /// Names of charts. `*` matches any characters. If empty, all charts. For a registry that does not list its
    /// repositories, names without `*` are required.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 253)))]
    pub include: Vec<String>,
    /// Names of charts to exclude. `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 253)))]
    pub exclude: Vec<String>,
    /// The range of versions to include. If unset, all versions except pre-releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub versions: Option<String>,
}

/// Observed state of a catalog.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct CatalogStatus {
    /// Conditions of the object. `Ready` summarizes the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Number of packages in the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<u32>,
    /// When the catalog was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Time>,
    /// `sha256:…` of the content that was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The revision of the Source that the content was read from. Later revisions that do not change the folder are not
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The generation of the spec that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
