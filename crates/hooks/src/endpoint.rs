//! The endpoint of the hooks, as Cluster API reaches it.
use std::str::FromStr;

use http::Uri;
use serde_json::{Value, json};

use crate::Error;

/// The endpoint of the hooks, as Cluster API reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Service in the management cluster.
    Service { namespace: String, name: String, port: u16 },
    /// A URL outside the management cluster. Use [`Endpoint::url`] to create it.
    Url { url: String, host: String },
}

/// Port of a Service if none is given.
const DEFAULT_SERVICE_PORT: u16 = 443;

impl FromStr for Endpoint {
    type Err = Error;

    /// Parses `https://HOST[:PORT]` or `NAMESPACE/SERVICE[:PORT]`.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains("://") {
            return Self::url(text);
        }
        let invalid = |reason| Error::Endpoint { url: text.to_owned(), reason };
        let format = "it must be https://HOST[:PORT] or NAMESPACE/SERVICE[:PORT]";
        let (namespace, service) = text.split_once('/').ok_or_else(|| invalid(format))?;
        let (name, port) = match service.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| invalid("its port is invalid"))?),
            None => (service, DEFAULT_SERVICE_PORT),
        };
        if ![namespace, name].into_iter().all(is_dns_label) {
            return Err(invalid(format));
        }
        Ok(Self::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
    }
}

fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

impl Endpoint {
    /// Creates an endpoint from an https URL that consists of a host and an optional port.
    pub fn url(url: &str) -> Result<Self, Error> {
        let invalid = |reason| Error::Endpoint { url: url.to_owned(), reason };
        let parsed: Uri = url.parse().map_err(|_| invalid("it is not a URL"))?;
        if parsed.scheme_str() != Some("https") {
            return Err(invalid("Cluster API calls hooks over https only"));
        }
        let authority = parsed.authority().ok_or_else(|| invalid("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("Cluster API does not accept a user name in it"));
        }
        if parsed.path_and_query().is_some_and(|path| path.as_str() != "/") || url.contains('#') {
            return Err(invalid("the hooks are served at the root; remove the path, query and fragment"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self::Url { url: url.to_owned(), host })
    }

    /// Returns the host name that Cluster API expects in the server certificate.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Self::Url { host, .. } => host.clone(),
        }
    }

    /// Returns the endpoint as it appears in the `clientConfig` of an ExtensionConfig.
    pub(crate) fn client_config(&self) -> Value {
        match self {
            Self::Service { namespace, name, port } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port}})
            }
            Self::Url { url, .. } => json!({"url": url}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_the_server_name_that_cluster_api_expects() {
        let service = Endpoint::Service { namespace: "ships".into(), name: "hooks".into(), port: 9443 };
        assert_eq!(service.host(), "hooks.ships.svc");
        let rows = [
            ("https://localhost:9443", "localhost"),
            ("https://hooks.example.org/", "hooks.example.org"),
            ("https://127.0.0.1:1", "127.0.0.1"),
            ("https://[::1]:9443", "::1"),
        ];
        for (url, host) in rows {
            assert_eq!(Endpoint::url(url).unwrap().host(), host, "{url}");
        }
    }

    #[test]
    fn services_and_urls_are_parsed() {
        let service = |port| Endpoint::Service { namespace: "ships".into(), name: "hooks".into(), port };
        assert_eq!("ships/hooks".parse::<Endpoint>().unwrap(), service(443));
        assert_eq!("ships/hooks:9443".parse::<Endpoint>().unwrap(), service(9443));
        let url = "https://hooks.example.org:9443";
        assert_eq!(url.parse::<Endpoint>().unwrap(), Endpoint::url(url).unwrap());
        for invalid in
            ["hooks", "", "ships/", "/hooks", "ships/hooks:", "ships/hooks:70000", "a/b/c", "Ships/hooks"]
        {
            assert!(invalid.parse::<Endpoint>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn urls_that_cluster_api_cannot_use_are_rejected() {
        let rows = [
            ("http://localhost", "https only"),
            ("localhost:9443", "https only"),
            ("https://", "not a URL"),
            ("https://me@localhost", "user name"),
            ("https://localhost/prefix", "at the root"),
            ("https://localhost/?a=b", "at the root"),
            ("https://localhost/#part", "at the root"),
        ];
        for (url, reason) in rows {
            let error = Endpoint::url(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
