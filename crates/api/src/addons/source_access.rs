use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;

/// Names a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretReference {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the Secret. Unset: the namespace of the object that refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Where the credentials of a repository or registry are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Credentials {
    /// The Secret that holds a docker configuration, or any of `username` with `password`, `bearerToken`, `tls.crt` with
    /// `tls.key`.
    pub secret: SecretReference,
    /// Key of the docker configuration in the Secret. Empty: `config.json`.
    pub key: String,
}

/// How the connection to a repository or registry is secured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// The Secret that holds the certificate authority at key `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<SecretReference>,
    /// Accept any certificate. Dangerous: anyone on the way can change the chart.
    #[serde(default, rename = "insecureSkipTLSVerify", skip_serializing_if = "is_false")]
    pub insecure_skip_tls_verify: bool,
}
