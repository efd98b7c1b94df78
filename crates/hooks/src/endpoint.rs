//! Where Cluster API finds the hooks.

use std::str::FromStr;

use http::Uri;
use serde_json::{Value, json};

use crate::Error;

/// Where Cluster API finds the hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// In the management cluster.
    Service { namespace: String, name: String, port: u16 },
    /// Outside of it; made by [`Endpoint::url`].
    Url { url: String, host: String },
}

/// Port of a Service that names none.
const SERVICE_PORT: u16 = 443;

impl FromStr for Endpoint {
    type Err = Error;

    /// `https://HOST[:PORT]`, or `NAMESPACE/SERVICE[:PORT]`.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains("://") {
            return Self::url(text);
        }
        let refused = |why| Error::Endpoint { url: text.to_owned(), why };
        let neither = "it is neither https://HOST[:PORT] nor NAMESPACE/SERVICE[:PORT]";
        let (namespace, service) = text.split_once('/').ok_or_else(|| refused(neither))?;
        let (name, port) = match service.split_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| refused("its port is no port"))?),
            None => (service, SERVICE_PORT),
        };
        if ![namespace, name].into_iter().all(is_label) {
            return Err(refused(neither));
        }
        Ok(Self::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
    }
}

fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

impl Endpoint {
    /// An https URL of a host and maybe a port, and nothing else.
    pub fn url(url: &str) -> Result<Self, Error> {
        let refused = |why| Error::Endpoint { url: url.to_owned(), why };
        let parsed: Uri = url.parse().map_err(|_| refused("it is not a URL"))?;
        if parsed.scheme_str() != Some("https") {
            return Err(refused("Cluster API asks over https only"));
        }
        let authority = parsed.authority().ok_or_else(|| refused("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(refused("Cluster API takes no user in it"));
        }
        if parsed.path_and_query().is_some_and(|path| path.as_str() != "/") || url.contains('#') {
            return Err(refused("the hooks are at its root: leave out what comes after the host"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self::Url { url: url.to_owned(), host })
    }

    /// The name that Cluster API expects in our certificate.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Self::Url { host, .. } => host.clone(),
        }
    }

    /// Its part of an ExtensionConfig's `clientConfig`.
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
    fn the_certificate_is_for_the_name_that_cluster_api_asks_for() {
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
    fn a_service_or_a_url_is_told_by_its_looks() {
        let service = |port| Endpoint::Service { namespace: "ships".into(), name: "hooks".into(), port };
        assert_eq!("ships/hooks".parse::<Endpoint>().unwrap(), service(443));
        assert_eq!("ships/hooks:9443".parse::<Endpoint>().unwrap(), service(9443));
        let url = "https://hooks.example.org:9443";
        assert_eq!(url.parse::<Endpoint>().unwrap(), Endpoint::url(url).unwrap());
        for wrong in
            ["hooks", "", "ships/", "/hooks", "ships/hooks:", "ships/hooks:70000", "a/b/c", "Ships/hooks"]
        {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_that_cluster_api_could_not_use_are_refused() {
        let rows = [
            ("http://localhost", "https only"),
            ("localhost:9443", "https only"),
            ("https://", "not a URL"),
            ("https://me@localhost", "no user"),
            ("https://localhost/prefix", "at its root"),
            ("https://localhost/?a=b", "at its root"),
            ("https://localhost/#part", "at its root"),
        ];
        for (url, why) in rows {
            let error = Endpoint::url(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
