use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;

/// A reference to a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretReference {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the Secret. If unset, the namespace of the referring object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The credentials of a repository or registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Credentials {
    /// The Secret with a Docker config, or with `username` and `password`, `bearerToken`, or `tls.crt` and `tls.key`.
    pub secret: SecretReference,
    /// Key of the Docker config in the Secret. If empty, `config.json`.
    pub key: String,
}

/// TLS configuration of the connection to a repository or registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// The Secret with the certificate authority at key `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<SecretReference>,
    /// Accept any certificate. Dangerous: anyone between Chandler and the repository can change the chart.
    #[serde(default, rename = "insecureSkipTLSVerify", skip_serializing_if = "is_false")]
    pub insecure_skip_tls_verify: bool,
}
