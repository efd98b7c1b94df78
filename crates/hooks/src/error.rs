use std::net::SocketAddr;

/// Hooks cannot be served, registered or unregistered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid hook endpoint {url}: {reason}")]
    Endpoint { url: String, reason: &'static str },
    #[error("cannot listen on {address} for hooks: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot issue a certificate for hooks: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot configure TLS for hooks: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot read the CRD of ClusterClass, which shows the hooks that Cluster API supports: {0}")]
    ClusterClass(kube::Error),
    #[error("cannot read the owner of the ExtensionConfig; deploy/rbac.yaml contains the permission: {0}")]
    Owner(kube::Error),
    #[error("cannot apply ExtensionConfig {name}: {source}")]
    Register { name: String, source: kube::Error },
    #[error("Cluster API calls no runtime hooks: {0}")]
    Disabled(Disabled),
    #[error("cannot delete ExtensionConfig {name}; Cluster API continues to call the hooks: {source}")]
    Unregister { name: String, source: kube::Error },
}

impl Error {
    /// Returns whether the API server refuses a request for want of permissions.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::ClusterClass(source)
            | Self::Owner(source)
            | Self::Register { source, .. }
            | Self::Unregister { source, .. } => {
                matches!(source, kube::Error::Api(status) if status.is_forbidden())
            }
            _ => false,
        }
    }
}

/// Why Cluster API calls no runtime hooks at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disabled {
    #[error("ExtensionConfigs are not served")]
    NotServed,
    #[error("its feature gate RuntimeSDK is disabled")]
    FeatureGate,
}
