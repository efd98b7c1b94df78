//! An HTTP client for servers of the sandbox.

use kube::{Client, Config};

/// Returns a client for a server whose certificate an authority has issued. A Kubernetes client is an HTTP client that
/// trusts a given authority.
pub(crate) fn client(url: &str, ca_pem: &str) -> Client {
    let mut config = Config::new(url.parse().unwrap());
    let authority = ca_pem.replace("-----BEGIN CERTIFICATE-----", "");
    let authority = authority.replace("-----END CERTIFICATE-----", "").split_whitespace().collect::<String>();
    let der = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, authority).unwrap();
    config.root_cert = Some(vec![der]);
    Client::try_from(config).unwrap()
}
