//! Resolves host names, and drops addresses that are not allowed. The connection only uses checked addresses.

use std::{error::Error, net::SocketAddr, sync::Arc};

use chandler_core::addresses::{AddressPolicy, ServerCertificate};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

pub(super) struct CheckedResolver {
    pub policy: Arc<AddressPolicy>,
    pub certificate: ServerCertificate,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, certificate) = (self.policy.clone(), self.certificate);
        Box::pin(async move {
            let allowed = resolve(&policy, name.as_str(), 0, certificate).await?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Resolves a host name or a literal address, and drops addresses that are not allowed. If none is left, the error is a
/// [`RefusedAddress`](chandler_core::addresses::RefusedAddress).
pub(super) async fn resolve(
    policy: &AddressPolicy,
    host: &str,
    port: u16,
    certificate: ServerCertificate,
) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let (mut allowed, mut refused) = (Vec::new(), None);
    for address in addresses {
        match policy.check(host, address.ip(), certificate) {
            Ok(()) => allowed.push(address),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if allowed.is_empty() => Err(error.into()),
        _ => Ok(allowed),
    }
}
