//! One `reqwest` client per TLS configuration. A client with a client certificate only connects to one host.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use chandler_core::{
    addresses::{AddressPolicy, ServerCertificate},
    failure::root_cause,
};
use chandler_tls::{ClientCertificate, TlsError, Trust, certificates, client_config};
use hyper_util::client::proxy::matcher::Intercept;
use reqwest::{Client, ClientBuilder, Proxy, Url, redirect};
use rustls::ClientConfig;

use super::resolver::CheckedResolver;
use crate::{Access, SourceError, limits::Limits};

/// With this number of clients, the cache is cleared. Clients of rotated credentials would otherwise stay forever.
const MAX_CLIENTS: usize = 64;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    ca_pem: Option<Vec<u8>>,
    insecure_skip_tls_verify: bool,
    client_certificate: Option<Vec<u8>>,
    proxied: bool,
}

pub(super) struct Clients {
    policy: Arc<AddressPolicy>,
    limits: Limits,
    cached: Mutex<HashMap<Key, Client>>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Clients {
    pub fn new(policy: Arc<AddressPolicy>, limits: Limits) -> Self {
        Self { policy, limits, cached: Mutex::default() }
    }

    /// Returns a client for `access`. It only has the client certificate if the request is to the same origin as `base_url`.
    pub fn get(
        &self,
        access: &Access,
        is_same_origin: bool,
        proxy: Option<&Intercept>,
        base_url: &Url,
    ) -> Result<Client, SourceError> {
        let key = Key {
            ca_pem: access.ca_pem.clone(),
            insecure_skip_tls_verify: access.insecure_skip_tls_verify,
            client_certificate: access.client_certificate().filter(|_| is_same_origin).map(<[u8]>::to_vec),
            proxied: proxy.is_some(),
        };
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = cached.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(&key, proxy, base_url)?;
        if cached.len() >= MAX_CLIENTS {
            cached.clear();
        }
        cached.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, key: &Key, proxy: Option<&Intercept>, base_url: &Url) -> Result<Client, SourceError> {
        let failed = |error: reqwest::Error| SourceError::RequestFailed {
            url: base_url.to_string(),
            reason: root_cause(&error),
        };
        let tls = tls_config(key).map_err(|error| tls_failed(error, base_url))?;
        let builder = Client::builder()
            .https_only(true)
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(self.limits.connect_timeout)
            .read_timeout(self.limits.read_timeout)
            .tls_backend_preconfigured(tls)
            .user_agent(concat!("chandler/", env!("CARGO_PKG_VERSION")));
        self.with_route(builder, key, proxy).map_err(failed)?.build().map_err(failed)
    }

    /// Configures the proxy, which the operator is trusted to choose, or a direct connection with checked addresses.
    fn with_route(
        &self,
        builder: ClientBuilder,
        key: &Key,
        proxy: Option<&Intercept>,
    ) -> Result<ClientBuilder, reqwest::Error> {
        let certificate = ServerCertificate::skipped(key.insecure_skip_tls_verify);
        let resolver = CheckedResolver { policy: self.policy.clone(), certificate };
        let Some(intercept) = proxy else { return Ok(builder.no_proxy().dns_resolver(resolver)) };
        let mut proxy = Proxy::all(proxy_url(intercept))?;
        if let Some(authorization) = intercept.basic_auth() {
            proxy = proxy.custom_http_auth(authorization.clone());
        }
        let builder = builder.proxy(proxy);
        // The client resolves names for these proxies, so addresses have to be checked here.
        if matches!(intercept.uri().scheme_str(), Some("socks4" | "socks5")) {
            return Ok(builder.dns_resolver(resolver));
        }
        Ok(builder)
    }
}

/// Returns the TLS configuration of a client.
fn tls_config(key: &Key) -> Result<ClientConfig, TlsError> {
    let authority = key.ca_pem.as_deref().map(certificates).transpose()?;
    let trust = match authority {
        _ if key.insecure_skip_tls_verify => Trust::Anything,
        Some(authority) => Trust::SystemAnd(authority),
        None => Trust::System,
    };
    let identity = key.client_certificate.as_deref().map(ClientCertificate::from_pem).transpose()?;
    let mut config = client_config(trust, identity)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn tls_failed(error: TlsError, base_url: &Url) -> SourceError {
    let url = base_url.to_string();
    match error {
        TlsError::InvalidAuthority => SourceError::InvalidCertificate { url },
        TlsError::InvalidClientCertificate => SourceError::InvalidCredentials {
            url,
            reason: "tls.crt and tls.key are not a certificate and its key in PEM",
        },
        TlsError::NoSystemAuthorities | TlsError::Unusable => {
            SourceError::RequestFailed { url, reason: error.to_string() }
        }
    }
}

/// Returns the URL of the proxy, with the credentials, which SOCKS takes from the URL.
fn proxy_url(intercept: &Intercept) -> String {
    let text = intercept.uri().to_string();
    let (Some((user, password)), Ok(mut url)) = (intercept.raw_auth(), Url::parse(&text)) else {
        return text;
    };
    // These do not fail for URLs with a host.
    let _ = url.set_username(user);
    let _ = url.set_password(Some(password));
    url.to_string()
}
