//! How to reach a workload cluster. Lives in memory only, and never shows its secrets.

use std::{fmt, time::Duration};

use crate::identity::ClusterKey;

/// How to reach a workload cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub cluster: ClusterKey,
    /// `https://host:port`, perhaps with a path.
    pub server: String,
    pub tls: TargetTls,
    pub auth: Option<TargetAuth>,
    /// Unix socket to dial instead of the server's address.
    pub dial: Option<String>,
    /// Time limit of one request.
    pub request_timeout: Duration,
}

/// How the connection is secured.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TargetTls {
    pub ca_pem: Option<Vec<u8>>,
    pub server_name: Option<String>,
    pub insecure_skip_verify: bool,
    pub client_certificate_pem: Option<Vec<u8>>,
    pub client_key_pem: Option<Vec<u8>>,
}

/// Who we are, besides a client certificate.
#[derive(Clone, PartialEq, Eq)]
pub enum TargetAuth {
    BearerToken(String),
    Basic { username: String, password: String },
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("cluster", &self.cluster)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let target = Target {
            cluster: ClusterKey::new("fleet", "blue"),
            server: "https://blue.example:6443".to_owned(),
            tls: TargetTls { client_key_pem: Some(b"canary-key".to_vec()), ..TargetTls::default() },
            auth: Some(TargetAuth::BearerToken("canary-token".to_owned())),
            dial: None,
            request_timeout: Duration::from_secs(30),
        };
        assert!(!format!("{target:?}").contains("canary"));
    }
}
