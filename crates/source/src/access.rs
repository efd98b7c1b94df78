//! How to get at a source: certificates and credentials, already read from their Secrets.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::Hash,
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{Url, header::HeaderValue};
use serde::Deserialize;

use crate::{Signers, SourceError};

/// Names by which Docker's own registry goes.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// How to get at a source. Equal accesses share clients and indexes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// Certificate authority, PEM.
    pub ca_pem: Option<Vec<u8>>,
    pub insecure_skip_tls_verify: bool,
    pub credentials: Option<Credentials>,
    /// Who has to have signed what comes from there, besides those whom the platform demands. None: nobody.
    pub signers: Option<Arc<Signers>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("ca", &self.ca_pem.is_some())
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("credentials", &self.credentials.is_some())
            .field("signers", &self.signers.is_some())
            .finish()
    }
}

/// What a Secret says about who we are.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// A docker configuration, JSON.
    docker_config: Option<Vec<u8>>,
    login: Option<(String, String)>,
    bearer: Option<String>,
    /// Certificate and key, PEM.
    identity: Option<Vec<u8>>,
}

/// What is wrong with a Secret of credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    #[error("has no key {0}, nor any of username, bearerToken and tls.crt")]
    Empty(String),
    #[error("has {0} but not {1}; they belong together")]
    Half(&'static str, &'static str),
    #[error("has username and bearerToken; only one of them can be sent")]
    Both,
    #[error("has text at {0} that is not UTF-8")]
    NotText(&'static str),
}

/// What is sent with a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Authorization {
    Basic(String, String),
    Bearer(String),
    /// Exchanged for a token where the registry says; nobody else sees it.
    Identity(String),
}

impl Authorization {
    pub fn header(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::Basic(user, password) => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
            Self::Identity(_) => return None,
        };
        let mut header = HeaderValue::try_from(text).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl Credentials {
    /// Reads the data of a Secret; a docker configuration is at `key`.
    pub fn from_secret(mut data: BTreeMap<String, Vec<u8>>, key: &str) -> Result<Self, BadSecret> {
        let docker_config = data.remove(key);
        let bearer = text(&mut data, "bearerToken")?;
        let login =
            both(("username", text(&mut data, "username")?), ("password", text(&mut data, "password")?))?;
        let identity = both(("tls.crt", data.remove("tls.crt")), ("tls.key", data.remove("tls.key")))?;
        if login.is_some() && bearer.is_some() {
            return Err(BadSecret::Both);
        }
        if docker_config.is_none() && bearer.is_none() && login.is_none() && identity.is_none() {
            return Err(BadSecret::Empty(key.to_owned()));
        }
        let identity = identity.map(|(certificate, key)| [certificate, key].join(&b'\n'));
        Ok(Self { docker_config, login, bearer, identity })
    }
}

fn text(data: &mut BTreeMap<String, Vec<u8>>, key: &'static str) -> Result<Option<String>, BadSecret> {
    let Some(value) = data.remove(key) else { return Ok(None) };
    let value = String::from_utf8(value).map_err(|_| BadSecret::NotText(key))?;
    // Secrets made from files end with a line break.
    Ok(Some(value.trim_end_matches(['\r', '\n']).to_owned()))
}

fn both<T>(
    (first, one): (&'static str, Option<T>),
    (second, other): (&'static str, Option<T>),
) -> Result<Option<(T, T)>, BadSecret> {
    match (one, other) {
        (Some(one), Some(other)) => Ok(Some((one, other))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(BadSecret::Half(first, second)),
        (None, Some(_)) => Err(BadSecret::Half(second, first)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: HashMap<String, DockerAuth>,
    /// A program that knows all of them.
    creds_store: Option<String>,
    /// Programs by host.
    #[serde(default)]
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
struct DockerAuth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl DockerAuth {
    fn is_empty(&self) -> bool {
        self.auth.is_none() && self.password.is_none() && self.identitytoken.is_none()
    }
}

impl DockerConfig {
    /// Whether a program on someone's machine has the login for a host, and this configuration has not.
    fn keeps_elsewhere(&self, host: &str, entry: Option<&DockerAuth>) -> bool {
        let here = entry.is_some_and(|entry| !entry.is_empty());
        let helped = self.cred_helpers.keys().any(|helped| canonical(helped) == canonical(host));
        let stored = self.creds_store.is_some() && (entry.is_some() || self.auths.is_empty());
        !here && (helped || stored)
    }
}

impl Access {
    /// The access with the user name and password that a repository's own address carries.
    pub(crate) fn with_login(&self, username: &str, password: Option<&str>) -> Self {
        let mut access = self.clone();
        let credentials = access.credentials.get_or_insert_default();
        credentials
            .login
            .get_or_insert_with(|| (username.to_owned(), password.unwrap_or_default().to_owned()));
        access
    }

    /// What to send to this host, and to no other.
    pub(crate) fn authorization(&self, url: &Url) -> Result<Option<Authorization>, SourceError> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        if let Some(token) = &credentials.bearer {
            return Ok(Some(Authorization::Bearer(token.clone())));
        }
        if let Some((user, password)) = &credentials.login {
            return Ok(Some(Authorization::Basic(user.clone(), password.clone())));
        }
        match &credentials.docker_config {
            Some(config) => docker_login(config, url),
            None => Ok(None),
        }
    }

    pub(crate) fn without_identity(&self) -> Self {
        let mut access = self.clone();
        if let Some(credentials) = &mut access.credentials {
            credentials.identity = None;
        }
        access
    }

    pub(crate) fn identity(&self) -> Option<&[u8]> {
        self.credentials.as_ref()?.identity.as_deref()
    }
}

/// The entry for the host, and of several the one for the longest part of the path.
fn docker_login(config: &[u8], url: &Url) -> Result<Option<Authorization>, SourceError> {
    let bad = |reason| SourceError::BadCredentials { url: url.to_string(), reason };
    let config: DockerConfig =
        serde_json::from_slice(config).map_err(|_| bad("they are not a docker configuration in JSON"))?;
    let host = authority(url);
    let path = url.path().trim_start_matches('/').trim_start_matches("v2/");
    let fits = |key: &str| {
        let bare = key.trim_start_matches("https://").trim_start_matches("oci://");
        let (named, below) = bare.split_once('/').unwrap_or((bare, ""));
        let below = below.trim_end_matches('/');
        let below = if matches!(below, "v1" | "v2") { "" } else { below };
        let inside = below.is_empty()
            || path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        (canonical(named) == canonical(&host) && inside).then_some(below.len())
    };
    let best = config
        .auths
        .iter()
        .filter_map(|(key, entry)| Some((fits(key)?, key, entry)))
        .max_by_key(|(length, key, _)| (*length, std::cmp::Reverse(key.len())));
    let entry = best.map(|(_, _, entry)| entry);
    if config.keeps_elsewhere(&host, entry) {
        return Err(bad(
            "the docker configuration leaves them to a credential helper, a program that the manager does not have; \
             put user name and password, or an identity token, into `auths`",
        ));
    }
    let Some(entry) = entry else { return Ok(None) };
    if let Some(token) = entry.identitytoken.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Some(Authorization::Identity(token.clone())));
    }
    if let (Some(username), Some(password)) = (&entry.username, &entry.password) {
        return Ok(Some(Authorization::Basic(username.clone(), password.clone())));
    }
    let Some(auth) = &entry.auth else { return Ok(None) };
    let decoded = BASE64_STANDARD.decode(auth.trim()).ok().and_then(|text| String::from_utf8(text).ok());
    let (username, password) = decoded
        .as_deref()
        .and_then(|text| text.split_once(':'))
        .ok_or_else(|| bad("an `auth` in the docker configuration is not `user:password` in base64"))?;
    Ok(Some(Authorization::Basic(username.to_owned(), password.to_owned())))
}

pub(crate) fn canonical(host: &str) -> String {
    let host = host.trim_end_matches(":443").to_ascii_lowercase();
    if DOCKER_HUB.contains(&host.as_str()) { DOCKER_HUB[0].to_owned() } else { host }
}

/// Host, and port if it is not that of https.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(data: &[(&str, &str)]) -> Access {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let credentials = Credentials::from_secret(data, "config.json").unwrap();
        Access { credentials: Some(credentials), ..Access::default() }
    }

    fn basic(user: &str, password: &str) -> Authorization {
        Authorization::Basic(user.to_owned(), password.to_owned())
    }

    fn sent(access: &Access, url: &str) -> Option<Authorization> {
        access.authorization(&url.parse().unwrap()).unwrap()
    }

    #[test]
    fn docker_configurations_are_read_in_both_forms() {
        let encoded = BASE64_STANDARD.encode("user:pass:word");
        let rows = [
            format!(r#"{{"auths":{{"registry.example":{{"auth":"{encoded}"}}}}}}"#),
            r#"{"auths":{"https://registry.example/v2/":{"username":"user","password":"pass:word"}}}"#.into(),
            r#"{"auths":{"registry.example:443":{"username":"user","password":"pass:word"}}}"#.into(),
        ];
        for json in rows {
            let access = access(&[("config.json", &json)]);
            assert!(sent(&access, "https://registry.example/v2/charts/") == Some(basic("user", "pass:word")));
            assert!(sent(&access, "https://registry.example:5000/").is_none());
            assert!(sent(&access, "https://other.example/").is_none());
        }
        let broken = access(&[("config.json", "nonsense")]);
        assert!(broken.authorization(&"https://registry.example".parse().unwrap()).is_err());
    }

    #[test]
    fn the_longest_path_wins() {
        let access = access(&[(
            "config.json",
            r#"{"auths":{"r.example":{"username":"a","password":"a"},"r.example/team":{"username":"b","password":"b"},
                "https://index.docker.io/v1/":{"username":"hub","password":"hub"}}}"#,
        )]);
        assert!(sent(&access, "https://r.example/v2/team/charts/") == Some(basic("b", "b")));
        assert!(sent(&access, "https://r.example/v2/teams/") == Some(basic("a", "a")));
        assert!(sent(&access, "https://registry-1.docker.io/v2/x/") == Some(basic("hub", "hub")));
    }

    #[test]
    fn identity_tokens_go_before_the_name_that_comes_with_them() {
        let json = r#"{"auths":{"r.example":{"auth":"MDAwOg==","identitytoken":"canary"}}}"#;
        let sent = sent(&access(&[("config.json", json)]), "https://r.example/v2/x/").unwrap();
        assert!(sent == Authorization::Identity("canary".to_owned()));
        assert!(sent.header().is_none(), "it is for no header");
    }

    #[test]
    fn logins_of_credential_helpers_are_not_to_be_had() {
        let rows = [
            (r#"{"credsStore":"desktop"}"#, true),
            (r#"{"auths":{"r.example":{}},"credsStore":"desktop"}"#, true),
            (r#"{"auths":{"other.example":{"auth":"YTpi"}},"credHelpers":{"r.example":"ecr-login"}}"#, true),
            (r#"{"auths":{"r.example":{"auth":"YTpi"}},"credHelpers":{"r.example":"ecr-login"}}"#, false),
            (r#"{"auths":{"other.example":{"auth":"YTpi"}},"credsStore":"desktop"}"#, false),
            (r#"{"auths":{"r.example":{}}}"#, false),
        ];
        for (json, refused) in rows {
            let answer =
                access(&[("config.json", json)]).authorization(&"https://r.example/".parse().unwrap());
            let told = answer.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(told.contains("credential helper"), refused, "{json}: {told}");
        }
    }

    #[test]
    fn keys_of_the_secret() {
        let url = "https://charts.example/";
        assert!(
            sent(&access(&[("username", "user\n"), ("password", "word\n")]), url)
                == Some(basic("user", "word"))
        );
        assert!(
            sent(&access(&[("bearerToken", "token")]), url) == Some(Authorization::Bearer("token".into()))
        );
        let certificate = access(&[("tls.crt", "C"), ("tls.key", "K")]);
        assert!(sent(&certificate, url).is_none());
        assert_eq!(certificate.identity(), Some(&b"C\nK"[..]));
        let bad = |keys: &[&str]| {
            let data = keys.iter().map(|key| ((*key).to_owned(), b"x".to_vec())).collect();
            Credentials::from_secret(data, "config.json").err().map(|error| error.to_string())
        };
        assert_eq!(bad(&["username"]).unwrap(), "has username but not password; they belong together");
        assert_eq!(bad(&["tls.key"]).unwrap(), "has tls.key but not tls.crt; they belong together");
        assert!(bad(&["username", "password", "bearerToken"]).is_some());
        assert!(bad(&["other"]).unwrap().contains("config.json"));
    }

    #[test]
    fn debug_shows_no_secret() {
        assert!(!format!("{:?}", access(&[("bearerToken", "canary")])).contains("canary"));
        let header = Authorization::Bearer("canary".to_owned()).header().unwrap();
        assert!(!format!("{header:?}").contains("canary"));
    }
}
