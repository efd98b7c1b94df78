//! The connection to a workload cluster. It is kept in memory only, and its `Debug` output contains no secrets.

use std::{fmt, time::Duration};

use crate::{identity::ClusterKey, tenancy::Boundary, url_login::WithoutLogin};

/// The connection parameters of a workload cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub cluster: ClusterKey,
    /// `https://host:port`, optionally with a path.
    pub server: String,
    pub tls: TargetTls,
    pub auth: Option<TargetAuth>,
    /// The only proxy that a connection may use. `None` means a direct connection, whatever the environment says.
    pub proxy: Option<TargetProxy>,
    /// Timeout of a request.
    pub request_timeout: Duration,
    /// What a package tool may do there.
    pub boundary: Boundary,
}

/// The TLS configuration of the connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TargetTls {
    pub ca_pem: Option<Vec<u8>>,
    pub server_name: Option<String>,
    pub insecure_skip_verify: bool,
    pub client_certificate_pem: Option<Vec<u8>>,
    pub client_key_pem: Option<Vec<u8>>,
}

/// Authentication in addition to a client certificate.
#[derive(Clone, PartialEq, Eq)]
pub enum TargetAuth {
    BearerToken(String),
    Basic { username: String, password: String },
}

/// A proxy between Chandler and the API server.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetProxy {
    /// `http://host:port`, `https://host:port` or `socks5://host:port`. Contains no credentials.
    pub url: String,
    /// User name and password.
    pub credentials: Option<(String, String)>,
}

impl fmt::Debug for TargetProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetProxy").field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("cluster", &self.cluster)
            .field("server", &WithoutLogin(&self.server))
            .field("proxy", &self.proxy)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_no_secrets() {
        let target = Target {
            cluster: ClusterKey::new("fleet", "blue"),
            server: "https://blue.example:6443".to_owned(),
            tls: TargetTls { client_key_pem: Some(b"canary-key".to_vec()), ..TargetTls::default() },
            auth: Some(TargetAuth::BearerToken("canary-token".to_owned())),
            proxy: Some(TargetProxy {
                url: "http://proxy.example:3128".to_owned(),
                credentials: Some(("canary-user".to_owned(), "canary-password".to_owned())),
            }),
            request_timeout: Duration::from_secs(30),
            boundary: Boundary::default(),
        };
        assert!(!format!("{target:?}").contains("canary"));
    }
}
