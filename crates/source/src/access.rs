//! Access to a source: certificates and credentials, already read from their Secrets.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::Hash,
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::login_hosts::LoginHosts;
use percent_encoding::percent_decode_str;
use reqwest::{Url, header::HeaderValue};
use serde::Deserialize;

use crate::{Signers, SourceError};

/// Host names of Docker Hub.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// Access to a source.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// The namespace that owns the source. What is stored for it counts against the quotas of that namespace. It does not decide
    /// what is shared: sources with the same URL, credentials and certificates are.
    pub namespace: String,
    /// Certificate authority in PEM.
    pub ca_pem: Option<Vec<u8>>,
    pub insecure_skip_tls_verify: bool,
    pub credentials: Option<Credentials>,
    /// Required signers of packages from the source, in addition to those of the platform's policy. `None` means that none are
    /// required.
    pub signers: Option<Arc<Signers>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("namespace", &self.namespace)
            .field("ca", &self.ca_pem.is_some())
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("credentials", &self.credentials.is_some())
            .field("signers", &self.signers.is_some())
            .finish()
    }
}

/// Credentials from a Secret.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// Docker config in JSON.
    docker_config: Option<Vec<u8>>,
    /// User name and password.
    basic: Option<(String, String)>,
    bearer: Option<String>,
    /// Certificate and key in PEM.
    client_certificate: Option<Vec<u8>>,
    bucket: Option<BucketKeys>,
    ssh: Option<SshKey>,
    /// `None` means that the login may be sent to any host.
    hosts: Option<LoginHosts>,
}

/// A private key for ssh, and the keys that the server may have.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct SshKey {
    /// The private key in PEM.
    pub identity: String,
    pub passphrase: Option<String>,
    /// In the format of the file of OpenSSH.
    pub known_hosts: String,
}

/// Keys of an object store.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum BucketKeys {
    S3 {
        access_key: String,
        secret_key: String,
    },
    /// The key of a service account in JSON.
    Gcs(String),
    Azure {
        account_key: String,
    },
}

/// A Secret with credentials is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error(
        "has no key {0}, nor any of username, bearerToken, tls.crt, identity (ssh), accessKey (S3), serviceAccount (GCS) and \
         accountKey (Azure)"
    )]
    Empty(String),
    #[error("has {0} but not {1}; both are required")]
    Incomplete(&'static str, &'static str),
    #[error(
        "has identity but not known_hosts, without which the server cannot be verified; add the keys of the server, as \
         `ssh-keyscan` prints them, after its operator has confirmed their fingerprints"
    )]
    NoKnownHosts,
    #[error("has {0} and {1}; only one of them is allowed")]
    Ambiguous(&'static str, &'static str),
    #[error("the value of {0} is not UTF-8")]
    NotUtf8(&'static str),
}

/// The authorization of a request.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Authorization {
    Basic(String, String),
    Bearer(String),
    /// An identity token, which is only sent to the token endpoint of the registry, in exchange for an access token.
    IdentityToken(String),
}

impl Authorization {
    pub fn header(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::Basic(user, password) => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
            Self::IdentityToken(_) => return None,
        };
        let mut header = HeaderValue::try_from(text).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl Credentials {
    /// Reads the credentials from the data of a Secret. `key` is the key of a Docker config.
    pub fn from_secret(mut data: BTreeMap<String, Vec<u8>>, key: &str) -> Result<Self, SecretError> {
        let docker_config = data.remove(key);
        let bearer = text(&mut data, "bearerToken")?;
        let ssh = ssh_key(&mut data)?;
        let basic =
            both(("username", text(&mut data, "username")?), ("password", text(&mut data, "password")?))?;
        let certificate = both(("tls.crt", data.remove("tls.crt")), ("tls.key", data.remove("tls.key")))?;
        if basic.is_some() && bearer.is_some() {
            return Err(SecretError::Ambiguous("username", "bearerToken"));
        }
        let bucket = bucket_keys(&mut data)?;
        let is_empty =
            docker_config.is_none() && bearer.is_none() && basic.is_none() && certificate.is_none();
        if is_empty && bucket.is_none() && ssh.is_none() {
            return Err(SecretError::Empty(key.to_owned()));
        }
        let client_certificate = certificate.map(|(certificate, key)| [certificate, key].join(&b'\n'));
        Ok(Self { docker_config, basic, bearer, client_certificate, bucket, ssh, hosts: None })
    }

    /// Limits the hosts that the login may be sent to. `None` means any host.
    #[must_use]
    pub fn limited_to(self, hosts: Option<LoginHosts>) -> Self {
        Self { hosts, ..self }
    }
}

/// Reads the key for ssh. `None` if the Secret has none. `password` is its passphrase then.
fn ssh_key(data: &mut BTreeMap<String, Vec<u8>>) -> Result<Option<SshKey>, SecretError> {
    let known_hosts = text(data, "known_hosts")?;
    let Some(identity) = text(data, "identity")? else {
        return known_hosts.map_or(Ok(None), |_| Err(SecretError::Incomplete("known_hosts", "identity")));
    };
    if data.contains_key("username") {
        return Err(SecretError::Ambiguous("identity", "username"));
    }
    let known_hosts = known_hosts.ok_or(SecretError::NoKnownHosts)?;
    Ok(Some(SshKey { identity, passphrase: text(data, "password")?, known_hosts }))
}

/// Reads the keys of an object store. `None` if the Secret has none.
fn bucket_keys(data: &mut BTreeMap<String, Vec<u8>>) -> Result<Option<BucketKeys>, SecretError> {
    let s3 = both(("accessKey", text(data, "accessKey")?), ("secretKey", text(data, "secretKey")?))?;
    if let Some((access_key, secret_key)) = s3 {
        return Ok(Some(BucketKeys::S3 { access_key, secret_key }));
    }
    if let Some(service_account) = text(data, "serviceAccount")? {
        return Ok(Some(BucketKeys::Gcs(service_account)));
    }
    Ok(text(data, "accountKey")?.map(|account_key| BucketKeys::Azure { account_key }))
}

fn text(data: &mut BTreeMap<String, Vec<u8>>, key: &'static str) -> Result<Option<String>, SecretError> {
    let Some(value) = data.remove(key) else { return Ok(None) };
    let value = String::from_utf8(value).map_err(|_| SecretError::NotUtf8(key))?;
    // Secrets that are created from files often end with a newline.
    Ok(Some(value.trim_end_matches(['\r', '\n']).to_owned()))
}

fn both<T>(
    (first, one): (&'static str, Option<T>),
    (second, other): (&'static str, Option<T>),
) -> Result<Option<(T, T)>, SecretError> {
    match (one, other) {
        (Some(one), Some(other)) => Ok(Some((one, other))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(SecretError::Incomplete(first, second)),
        (None, Some(_)) => Err(SecretError::Incomplete(second, first)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: HashMap<String, DockerAuth>,
    /// The credential helper for all hosts.
    creds_store: Option<String>,
    /// Credential helpers by host.
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
    /// Returns whether the credentials for a host are only available from a credential helper.
    fn needs_helper(&self, host: &str, entry: Option<&DockerAuth>) -> bool {
        let has_entry = entry.is_some_and(|entry| !entry.is_empty());
        let has_helper = self.cred_helpers.keys().any(|helper| canonical(helper) == canonical(host));
        let has_store = self.creds_store.is_some() && (entry.is_some() || self.auths.is_empty());
        !has_entry && (has_helper || has_store)
    }
}

/// User name and password in the URL of a repository.
#[derive(Clone)]
pub(crate) struct UrlLogin {
    user: String,
    password: String,
}

impl fmt::Debug for UrlLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UrlLogin")
    }
}

impl UrlLogin {
    pub fn of(url: &Url) -> Option<Self> {
        let has_login = !url.username().is_empty() || url.password().is_some();
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        has_login.then_some(Self { user, password })
    }

    /// Returns the access with this login, unless it already has one.
    pub fn add_to(&self, access: &Access) -> Access {
        let mut access = access.clone();
        let credentials = access.credentials.get_or_insert_default();
        credentials.basic.get_or_insert_with(|| (self.user.clone(), self.password.clone()));
        access
    }
}

impl Access {
    /// Returns the authorization for the host of `url`. It must not be sent to any other host.
    pub(crate) fn authorization(&self, url: &Url) -> Result<Option<Authorization>, SourceError> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        self.check_host(url)?;
        if let Some(token) = &credentials.bearer {
            return Ok(Some(Authorization::Bearer(token.clone())));
        }
        if let Some((user, password)) = &credentials.basic {
            return Ok(Some(Authorization::Basic(user.clone(), password.clone())));
        }
        match &credentials.docker_config {
            Some(config) => docker_authorization(config, url),
            None => Ok(None),
        }
    }

    /// Fails if the login must not be sent to the host of `url`.
    pub(crate) fn check_host(&self, url: &Url) -> Result<(), SourceError> {
        let hosts = self.credentials.as_ref().and_then(|credentials| credentials.hosts.as_ref());
        let Some(hosts) = hosts else { return Ok(()) };
        let (host, port) = (url.host_str().unwrap_or_default(), url.port());
        if hosts.allow(host, port) {
            return Ok(());
        }
        let (secret, host) = (hosts.secret().to_owned(), authority(url));
        Err(SourceError::LoginRefused { secret, host })
    }

    pub(crate) fn without_client_certificate(&self) -> Self {
        let mut access = self.clone();
        if let Some(credentials) = &mut access.credentials {
            credentials.client_certificate = None;
        }
        access
    }

    pub(crate) fn bucket_keys(&self) -> Option<&BucketKeys> {
        self.credentials.as_ref()?.bucket.as_ref()
    }

    pub(crate) fn ssh_key(&self) -> Option<&SshKey> {
        self.credentials.as_ref()?.ssh.as_ref()
    }

    pub(crate) fn client_certificate(&self) -> Option<&[u8]> {
        self.credentials.as_ref()?.client_certificate.as_deref()
    }
}

/// Returns the authorization of the entry for the host of `url`. If several match, the one with the longest path is used.
fn docker_authorization(config: &[u8], url: &Url) -> Result<Option<Authorization>, SourceError> {
    let invalid = |reason| SourceError::InvalidCredentials { url: url.to_string(), reason };
    let config: DockerConfig =
        serde_json::from_slice(config).map_err(|_| invalid("they are not a Docker config in JSON"))?;
    let host = authority(url);
    let path = url.path().trim_start_matches('/').trim_start_matches("v2/");
    let matched_length = |key: &str| {
        let bare = key.trim_start_matches("https://").trim_start_matches("oci://");
        let (key_host, prefix) = bare.split_once('/').unwrap_or((bare, ""));
        let prefix = prefix.trim_end_matches('/');
        let prefix = if matches!(prefix, "v1" | "v2") { "" } else { prefix };
        let path_matches = prefix.is_empty()
            || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        (canonical(key_host) == canonical(&host) && path_matches).then_some(prefix.len())
    };
    let best = config
        .auths
        .iter()
        .filter_map(|(key, entry)| Some((matched_length(key)?, key, entry)))
        .max_by_key(|(length, key, _)| (*length, std::cmp::Reverse(key.len())));
    let entry = best.map(|(_, _, entry)| entry);
    if config.needs_helper(&host, entry) {
        return Err(invalid(
            "the Docker config refers to a credential helper, which the manager cannot run; set user name and password, \
             or an identity token, in `auths`",
        ));
    }
    let Some(entry) = entry else { return Ok(None) };
    if let Some(token) = entry.identitytoken.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Some(Authorization::IdentityToken(token.clone())));
    }
    if let (Some(username), Some(password)) = (&entry.username, &entry.password) {
        return Ok(Some(Authorization::Basic(username.clone(), password.clone())));
    }
    let Some(auth) = &entry.auth else { return Ok(None) };
    let decoded = BASE64_STANDARD.decode(auth.trim()).ok().and_then(|text| String::from_utf8(text).ok());
    let (username, password) = decoded
        .as_deref()
        .and_then(|text| text.split_once(':'))
        .ok_or_else(|| invalid("an `auth` in the Docker config is not `user:password` in base64"))?;
    Ok(Some(Authorization::Basic(username.to_owned(), password.to_owned())))
}

/// Returns the host in lower case, without the default port, and with one name for Docker Hub.
pub(crate) fn canonical(host: &str) -> String {
    let host = host.trim_end_matches(":443").to_ascii_lowercase();
    if DOCKER_HUB.contains(&host.as_str()) { DOCKER_HUB[0].to_owned() } else { host }
}

/// Returns the host, and the port if it is not the default port of https.
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

    fn authorization(access: &Access, url: &str) -> Option<Authorization> {
        access.authorization(&url.parse().unwrap()).unwrap()
    }

    #[test]
    fn docker_configs_are_read_in_both_formats() {
        let encoded = BASE64_STANDARD.encode("user:pass:word");
        let rows = [
            format!(r#"{{"auths":{{"registry.example":{{"auth":"{encoded}"}}}}}}"#),
            r#"{"auths":{"https://registry.example/v2/":{"username":"user","password":"pass:word"}}}"#.into(),
            r#"{"auths":{"registry.example:443":{"username":"user","password":"pass:word"}}}"#.into(),
        ];
        for json in rows {
            let access = access(&[("config.json", &json)]);
            assert!(
                authorization(&access, "https://registry.example/v2/charts/")
                    == Some(basic("user", "pass:word"))
            );
            assert!(authorization(&access, "https://registry.example:5000/").is_none());
            assert!(authorization(&access, "https://other.example/").is_none());
        }
        let broken = access(&[("config.json", "nonsense")]);
        assert!(broken.authorization(&"https://registry.example".parse().unwrap()).is_err());
    }

    #[test]
    fn docker_config_entry_with_the_longest_path_is_used() {
        let access = access(&[(
            "config.json",
            r#"{"auths":{"r.example":{"username":"a","password":"a"},"r.example/team":{"username":"b","password":"b"},
                "https://index.docker.io/v1/":{"username":"hub","password":"hub"}}}"#,
        )]);
        assert!(authorization(&access, "https://r.example/v2/team/charts/") == Some(basic("b", "b")));
        assert!(authorization(&access, "https://r.example/v2/teams/") == Some(basic("a", "a")));
        assert!(authorization(&access, "https://registry-1.docker.io/v2/x/") == Some(basic("hub", "hub")));
    }

    #[test]
    fn identity_token_takes_precedence_over_the_user_name() {
        let json = r#"{"auths":{"r.example":{"auth":"MDAwOg==","identitytoken":"canary"}}}"#;
        let found = authorization(&access(&[("config.json", json)]), "https://r.example/v2/x/").unwrap();
        assert!(found == Authorization::IdentityToken("canary".to_owned()));
        assert!(found.header().is_none(), "it is never sent in a header");
    }

    #[test]
    fn docker_configs_that_need_a_credential_helper_are_rejected() {
        let rows = [
            (r#"{"credsStore":"desktop"}"#, true),
            (r#"{"auths":{"r.example":{}},"credsStore":"desktop"}"#, true),
            (r#"{"auths":{"other.example":{"auth":"YTpi"}},"credHelpers":{"r.example":"ecr-login"}}"#, true),
            (r#"{"auths":{"r.example":{"auth":"YTpi"}},"credHelpers":{"r.example":"ecr-login"}}"#, false),
            (r#"{"auths":{"other.example":{"auth":"YTpi"}},"credsStore":"desktop"}"#, false),
            (r#"{"auths":{"r.example":{}}}"#, false),
        ];
        for (json, refused) in rows {
            let result =
                access(&[("config.json", json)]).authorization(&"https://r.example/".parse().unwrap());
            let message = result.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message.contains("credential helper"), refused, "{json}: {message}");
        }
    }

    #[test]
    fn credentials_are_read_from_the_keys_of_the_secret() {
        let url = "https://charts.example/";
        assert!(
            authorization(&access(&[("username", "user\n"), ("password", "word\n")]), url)
                == Some(basic("user", "word"))
        );
        assert!(
            authorization(&access(&[("bearerToken", "token")]), url)
                == Some(Authorization::Bearer("token".into()))
        );
        let certificate = access(&[("tls.crt", "C"), ("tls.key", "K")]);
        assert!(authorization(&certificate, url).is_none());
        assert_eq!(certificate.client_certificate(), Some(&b"C\nK"[..]));
        let error = |keys: &[&str]| {
            let data = keys.iter().map(|key| ((*key).to_owned(), b"x".to_vec())).collect();
            Credentials::from_secret(data, "config.json").err().map(|error| error.to_string())
        };
        assert_eq!(error(&["username"]).unwrap(), "has username but not password; both are required");
        assert_eq!(error(&["secretKey"]).unwrap(), "has secretKey but not accessKey; both are required");
        let azure = access(&[("accountKey", "key\n")]);
        assert!(azure.bucket_keys() == Some(&BucketKeys::Azure { account_key: "key".to_owned() }));
        assert_eq!(error(&["tls.key"]).unwrap(), "has tls.key but not tls.crt; both are required");
        assert!(error(&["username", "password", "bearerToken"]).is_some());
        assert!(error(&["identity"]).unwrap().contains("has identity but not known_hosts"));
        assert_eq!(error(&["known_hosts"]).unwrap(), "has known_hosts but not identity; both are required");
        assert_eq!(
            error(&["identity", "known_hosts", "username", "password"]).unwrap(),
            "has identity and username; only one of them is allowed"
        );
        let ssh = access(&[("identity", "key\n"), ("known_hosts", "host key\n"), ("password", "word\n")]);
        let key = ssh.ssh_key().unwrap();
        assert_eq!((&*key.identity, &*key.known_hosts), ("key", "host key"));
        assert!(key.passphrase.as_deref() == Some("word") && authorization(&ssh, url).is_none());
        assert!(error(&["other"]).unwrap().contains("config.json"));
    }

    #[test]
    fn a_login_is_for_its_hosts_only() {
        let mut bound = access(&[("username", "user"), ("password", "canary")]);
        let hosts = LoginHosts::parse("shared/login", "charts.example");
        bound.credentials = bound.credentials.map(|credentials| credentials.limited_to(Some(hosts)));
        assert!(authorization(&bound, "https://charts.example/stable/").is_some());
        for other in ["https://charts.example:8443/", "https://evil.example/"] {
            let refused = bound.authorization(&other.parse().unwrap()).err().unwrap().to_string();
            assert!(refused.contains("Secret shared/login") && !refused.contains("canary"), "{refused}");
        }
        let certificate = Credentials { hosts: Some(LoginHosts::parse("a/b", "")), ..Credentials::default() };
        let certificate = Access { credentials: Some(certificate), ..Access::default() };
        assert!(certificate.check_host(&"https://charts.example".parse().unwrap()).is_err());
    }

    #[test]
    fn the_login_of_a_url_is_decoded_and_replaces_no_other() {
        let url = "https://us%40er:c%3Aan%2Fary@charts.example".parse().unwrap();
        let login = UrlLogin::of(&url).unwrap();
        assert!(
            authorization(&login.add_to(&Access::default()), "https://charts.example")
                == Some(basic("us@er", "c:an/ary"))
        );
        let secret = access(&[("username", "user"), ("password", "word")]);
        assert!(
            authorization(&login.add_to(&secret), "https://charts.example") == Some(basic("user", "word"))
        );
        assert!(UrlLogin::of(&"https://charts.example".parse().unwrap()).is_none());
        assert_eq!(format!("{login:?}"), "UrlLogin");
    }

    #[test]
    fn debug_output_contains_no_secret() {
        assert!(!format!("{:?}", access(&[("bearerToken", "canary")])).contains("canary"));
        let header = Authorization::Bearer("canary".to_owned()).header().unwrap();
        assert!(!format!("{header:?}").contains("canary"));
    }
}
