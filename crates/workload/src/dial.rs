//! Connects to API servers and proxies, if their addresses are allowed.

use std::{
    error::Error,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    vec::IntoIter,
};

use chandler_core::{
    addresses::{AddressPolicy, RefusedAddress, ServerCertificate},
    failure::root_cause,
};
use futures::{FutureExt as _, future::BoxFuture};
use http::Uri;
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

/// A connection was not made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("{0}")]
    Refused(#[source] RefusedAddress),
    // Not all proxies' errors have sources.
    #[error("{}", root_cause(&**.0))]
    Connect(#[source] BoxError),
}

/// Connects over TCP. The address is checked after the name was resolved, and the connection uses only checked addresses.
#[derive(Clone)]
pub struct CheckedConnector {
    policy: Arc<AddressPolicy>,
    certificate: ServerCertificate,
    checked: HttpConnector<CheckedResolver>,
    /// For services of this installation.
    unchecked: HttpConnector,
}

impl CheckedConnector {
    pub fn new(policy: Arc<AddressPolicy>, certificate: ServerCertificate) -> Self {
        let resolver = CheckedResolver { policy: policy.clone(), certificate };
        let (mut checked, mut unchecked) = (HttpConnector::new_with_resolver(resolver), HttpConnector::new());
        checked.enforce_http(false);
        unchecked.enforce_http(false);
        Self { policy, certificate, checked, unchecked }
    }

    fn trusts(&self, uri: &Uri) -> bool {
        uri.host().zip(uri.port_u16()).is_some_and(|(host, port)| self.policy.trusts(host, port))
    }
}

impl Service<Uri> for CheckedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<Self::Response, DialError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.checked.poll_ready(context).map_err(failed)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if self.trusts(&uri) {
            let connecting = self.unchecked.call(uri);
            return async move { connecting.await.map_err(failed) }.boxed();
        }
        // A literal address is not resolved.
        let literal = self.policy.check_host(uri.host().unwrap_or_default(), self.certificate);
        if let Err(refused) = literal {
            return std::future::ready(Err(DialError::Refused(refused))).boxed();
        }
        let connecting = self.checked.call(uri);
        async move { connecting.await.map_err(failed) }.boxed()
    }
}

fn failed(error: impl Error + Send + Sync + 'static) -> DialError {
    DialError::Connect(error.into())
}

/// Resolves names, and drops addresses that are not allowed.
#[derive(Clone)]
pub struct CheckedResolver {
    policy: Arc<AddressPolicy>,
    certificate: ServerCertificate,
}

impl Service<Name> for CheckedResolver {
    type Response = IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { policy, certificate } = self.clone();
        async move {
            let resolved = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let (mut allowed, mut refusal) = (Vec::new(), None);
            for address in resolved {
                match policy.check(name.as_str(), address.ip(), certificate) {
                    Ok(()) => allowed.push(address),
                    Err(refused) => refusal = Some(refused),
                }
            }
            match refusal {
                Some(refused) if allowed.is_empty() => Err(refused.into()),
                _ => Ok(allowed.into_iter()),
            }
        }
        .boxed()
    }
}
