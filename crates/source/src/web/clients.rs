//! Clients, each with its own connections: a client that shows a certificate talks to one host only.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use chandler_core::failure::root_cause;
use hyper_util::client::proxy::matcher::Intercept;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Proxy, Url, redirect};

use super::resolver::CheckedResolver;
use crate::{Access, SourceError, addresses::AddressPolicy, limits::Limits};

/// More than this are forgotten: credentials are renewed, and the old ones never come back.
const MOST: usize = 64;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    ca_pem: Option<Vec<u8>>,
    insecure_skip_tls_verify: bool,
    identity: Option<Vec<u8>>,
    proxied: bool,
}

pub(super) struct Clients {
    policy: Arc<AddressPolicy>,
    limits: Limits,
    known: Mutex<HashMap<Key, Client>>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Clients {
    pub fn new(policy: Arc<AddressPolicy>, limits: Limits) -> Self {
        Self { policy, limits, known: Mutex::default() }
    }

    /// A client for this access; the certificate of the access is shown at home only.
    pub fn get(
        &self,
        access: &Access,
        at_home: bool,
        proxy: Option<&Intercept>,
        home: &Url,
    ) -> Result<Client, SourceError> {
        let key = Key {
            ca_pem: access.ca_pem.clone(),
            insecure_skip_tls_verify: access.insecure_skip_tls_verify,
            identity: access.identity().filter(|_| at_home).map(<[u8]>::to_vec),
            proxied: proxy.is_some(),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(&key, proxy, home)?;
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, key: &Key, proxy: Option<&Intercept>, home: &Url) -> Result<Client, SourceError> {
        let url = || home.to_string();
        let failed = |error: reqwest::Error| SourceError::Get { url: url(), reason: root_cause(&error) };
        let mut builder = Client::builder()
            .https_only(true)
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(self.limits.connect)
            .read_timeout(self.limits.pause)
            .tls_danger_accept_invalid_certs(key.insecure_skip_tls_verify)
            .user_agent(concat!("chandler/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = &key.ca_pem {
            let certificates = Certificate::from_pem_bundle(pem).unwrap_or_default();
            if certificates.is_empty() {
                return Err(SourceError::BadCertificate { url: url() });
            }
            builder = builder.tls_certs_merge(certificates);
        }
        if let Some(pem) = &key.identity {
            let identity = Identity::from_pem(pem).map_err(|_| SourceError::BadCredentials {
                url: url(),
                reason: "tls.crt and tls.key are not a certificate and its key in PEM",
            })?;
            builder = builder.identity(identity);
        }
        self.routed(builder, proxy).map_err(failed)?.build().map_err(failed)
    }

    /// Through the proxy, which is the operator's word, or directly, where every address is checked.
    fn routed(
        &self,
        builder: ClientBuilder,
        proxy: Option<&Intercept>,
    ) -> Result<ClientBuilder, reqwest::Error> {
        let Some(intercept) = proxy else {
            return Ok(builder.no_proxy().dns_resolver(CheckedResolver { policy: self.policy.clone() }));
        };
        let mut proxy = Proxy::all(proxy_address(intercept))?;
        if let Some(authorization) = intercept.basic_auth() {
            proxy = proxy.custom_http_auth(authorization.clone());
        }
        let builder = builder.proxy(proxy);
        // These proxies are told addresses, not names: we resolve them, so we check them.
        if matches!(intercept.uri().scheme_str(), Some("socks4" | "socks5")) {
            return Ok(builder.dns_resolver(CheckedResolver { policy: self.policy.clone() }));
        }
        Ok(builder)
    }
}

/// With the login, which SOCKS has in its own protocol.
fn proxy_address(intercept: &Intercept) -> String {
    let address = intercept.uri().to_string();
    let (Some((user, password)), Ok(mut url)) = (intercept.raw_auth(), Url::parse(&address)) else {
        return address;
    };
    // An address with a host has a place for them.
    let _ = url.set_username(user);
    let _ = url.set_password(Some(password));
    url.to_string()
}
