use std::net::SocketAddr;

/// Why hooks are not served, or Cluster API does not know of them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{url} cannot be the address of the hooks: {why}")]
    Endpoint { url: String, why: &'static str },
    #[error("cannot listen on {address} for hooks: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot make a certificate for hooks: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot serve hooks with the certificate just made: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot read the definitions of kinds, which tell what Cluster API knows: {0}")]
    Kinds(kube::Error),
    #[error("cannot read what the ExtensionConfig is to go with; deploy/rbac.yaml has the right: {0}")]
    Owner(kube::Error),
    #[error(
        "cannot register the hooks as ExtensionConfig {name}; Cluster API has to run, with its feature gate RuntimeSDK: \
         {source}"
    )]
    Register { name: String, source: kube::Error },
    #[error("cannot remove ExtensionConfig {name}, without which Cluster API goes on asking: {source}")]
    Unregister { name: String, source: kube::Error },
}
