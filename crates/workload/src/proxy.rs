//! The proxy of a kubeconfig: its URL, and connections through it. The proxies of the environment do not count.

use std::{error::Error, fmt};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::{
    addresses::RefusedAddress,
    failure::{cause, root_cause},
    target::TargetProxy,
};
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use crate::KubeconfigError;

/// Reads a `proxy-url`. An empty one means that there is no proxy, as for kubectl.
pub fn proxy_from_url(text: &str) -> Result<Option<TargetProxy>, KubeconfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let url: Uri = text.parse().map_err(|_| KubeconfigError::InvalidProxy)?;
    let scheme = url.scheme_str().ok_or(KubeconfigError::InvalidProxy)?;
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        "socks5" => 1080,
        other => return Err(KubeconfigError::ProxyScheme(other.to_owned())),
    };
    let host = url.host().filter(|host| !host.is_empty()).ok_or(KubeconfigError::InvalidProxy)?;
    let port = url.port_u16().unwrap_or(default_port);
    let credentials = url.authority().and_then(|authority| credentials(authority.as_str())).transpose()?;
    Ok(Some(TargetProxy { url: format!("{scheme}://{host}:{port}"), credentials }))
}

/// Returns user name and password of `user:password@host`, decoded.
fn credentials(authority: &str) -> Option<Result<(String, String), KubeconfigError>> {
    let (login, _) = authority.rsplit_once('@')?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let decoded = |text| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| KubeconfigError::InvalidProxy)?;
        Ok(text.into_owned())
    };
    Some(decoded(user).and_then(|user| Ok((user, decoded(password)?))))
}

/// Returns the value of a header with basic authentication.
pub fn basic_authorization(user: &str, password: &str) -> Option<HeaderValue> {
    let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
    let mut header = HeaderValue::try_from(format!("Basic {encoded}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The connection to the proxy, or from it to the API server, failed.
#[derive(Debug)]
pub struct ProxyFailed {
    proxy: String,
    cause: String,
    refused: Option<RefusedAddress>,
}

impl ProxyFailed {
    pub fn new(proxy: &TargetProxy, error: &(dyn Error + 'static)) -> Self {
        Self { proxy: proxy.url.clone(), cause: root_cause(error), refused: cause(error).cloned() }
    }
}

impl fmt::Display for ProxyFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kubeconfig's proxy {} does not connect to it: {}", self.proxy, self.cause)
    }
}

impl Error for ProxyFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.refused.as_ref().map(|refused| refused as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_urls_are_split_into_address_and_credentials() {
        let login = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        let rows = [
            ("http://proxy.example", "http://proxy.example:80", None),
            ("https://proxy.example/", "https://proxy.example:443", None),
            ("socks5://proxy.example", "socks5://proxy.example:1080", None),
            ("http://[fd00::1]:3128", "http://[fd00::1]:3128", None),
            ("http://user@proxy:3128", "http://proxy:3128", login("user", "")),
            ("http://us%65r:p%40ss%3Aword@proxy:3128", "http://proxy:3128", login("user", "p@ss:word")),
        ];
        for (text, url, credentials) in rows {
            let proxy = proxy_from_url(text).unwrap().unwrap();
            assert_eq!((proxy.url.as_str(), proxy.credentials), (url, credentials), "{text}");
        }
        assert_eq!(proxy_from_url(""), Ok(None));
    }

    #[test]
    fn unsupported_proxies_are_refused_without_their_credentials() {
        let rows =
            ["socks4://canary:canary@proxy:1080", "ftp://canary:canary@proxy", "socks5h://canary@proxy"];
        for text in rows {
            let error = proxy_from_url(text).unwrap_err();
            assert!(matches!(error, KubeconfigError::ProxyScheme(_)), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
        let rows =
            ["proxy.example:3128", "proxy.example", "http://", "http://canary:%FF@proxy", "can ary://x"];
        for text in rows {
            assert_eq!(proxy_from_url(text), Err(KubeconfigError::InvalidProxy), "{text}");
        }
    }
}
