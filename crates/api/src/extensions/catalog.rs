use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{KeyReference, SecretName, rules};
use crate::addons::{
    Timeout,
    rules::{absolute_url, go_duration},
};

/// A place that packages come from.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "chandler.dev",
    version = "v1alpha1",
    kind = "ExtensionCatalog",
    plural = "extensioncatalogs",
    shortname = "extcat",
    category = "chandler",
    doc = "A place that packages come from.",
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
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    )
)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct ExtensionCatalogSpec {
    /// The repository: `https://…` for a Helm repository, `oci://…` for a registry.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = absolute_url())]
    pub url: String,
    /// How often it is read again, as a Go duration.
    #[serde(default = "hourly")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = go_duration())]
    pub interval: Timeout,
    /// Key of a Secret with a docker configuration that has the credentials. The Secret is in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<KeyReference>,
    /// Key of a Secret with the certificate authority to trust. The Secret is in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<KeyReference>,
    /// Signatures that packages must have. Unset: they are not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
    /// Which packages of the repository belong to the catalog. Unset: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<CatalogFilter>,
    /// Which namespaces may use it, by their labels; its own always may. Unset: all, if it is in the namespace of the
    /// platform; else no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub namespaces: Option<LabelSelector>,
}

fn hourly() -> Timeout {
    Timeout("1h".to_owned())
}

/// Signatures that packages must have.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"), validation = rules::some_signer())]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Who made the signatures.
    pub verifier: Verifier,
    /// The Secret with the public keys in PEM, one per key of the Secret. One of them is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<SecretName>,
    /// Who may sign without a key of their own, as their certificate names them. One of them is enough. Needs
    /// `trustedRoot`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub identities: Vec<SignerIdentity>,
    /// Key of a ConfigMap with the certificate authorities and logs to trust: the file that `cosign trusted-root create`
    /// writes. The ConfigMap is in this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root: Option<KeyReference>,
}

/// Who signs, as a certificate names them.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(
    crates(kube_core = "kube_core"),
    validation = rules::one_of(&["issuer", "issuerRegExp"]),
    validation = rules::one_of(&["subject", "subjectRegExp"])
)]
#[serde(rename_all = "camelCase")]
pub struct SignerIdentity {
    /// Who has seen that it is them, such as `https://token.actions.githubusercontent.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub issuer: Option<String>,
    /// The same as a regular expression for the whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub issuer_reg_exp: Option<String>,
    /// Who they are: an e-mail address, or the address of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub subject: Option<String>,
    /// The same as a regular expression for the whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub subject_reg_exp: Option<String>,
}

/// Who makes signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verifier {
    /// `cosign sign`, for registries.
    Cosign,
    /// `helm package --sign`, the `.prov` file beside a chart.
    Provenance,
}

/// Which packages of a repository belong to a catalog.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
pub struct CatalogFilter {
    /// Names of charts, `*` for any letters. Empty: all. A registry that does not list what it has needs the names
    /// themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 253)))]
    pub include: Vec<String>,
    /// Names of charts to leave out, `*` for any letters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Set)]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 253)))]
    pub exclude: Vec<String>,
    /// The versions that belong to it, as a range. Unset: all but pre-releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::range())]
    pub versions: Option<String>,
}

/// What Chandler saw of a catalog.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "kube_core"))]
#[serde(rename_all = "camelCase")]
pub struct CatalogStatus {
    /// `Ready` sums up the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = kube_core::ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// How many packages it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages: Option<u32>,
    /// When it was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Time>,
    /// `sha256:…` of what was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The generation that the rest of the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
