//! Reads a workload cluster's kubeconfig strictly: a user who can write the Secret must not be able to run commands in
//! Chandler or make it read files, so only inline data is accepted. What Chandler does not support is refused, not ignored.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_core::{
    failure::{Category, Failure},
    identity::ClusterKey,
    target::{Target, TargetAuth, TargetTls},
};
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::{ExposeSecret as _, SecretString};

use crate::proxy::proxy_from_url;

/// Time limit of one request to a workload cluster.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KubeconfigError {
    #[error("the kubeconfig is not valid YAML of a Config")]
    Unreadable,
    #[error(
        "the kubeconfig has no current context, or the context names a cluster or user that is not in it"
    )]
    NoContext,
    #[error("the kubeconfig's server is not an https address")]
    NotHttps,
    #[error(
        "the kubeconfig uses {0}, which Chandler refuses because it would run code or read files here; use inline data instead"
    )]
    Refused(&'static str),
    #[error(
        "the kubeconfig impersonates another user (`{0}`), which Chandler does not support: without it, Chandler would act \
         with all permissions of the kubeconfig's own user; remove `{0}` and use credentials that have exactly the \
         permissions that Chandler needs"
    )]
    Impersonation(&'static str),
    #[error("the kubeconfig's proxy-url is not a URL; write it as http://HOST:PORT")]
    InvalidProxy,
    #[error("the kubeconfig's proxy-url has the scheme {0}; Chandler supports http, https and socks5")]
    ProxyScheme(String),
    #[error("{0} in the kubeconfig is not valid base64")]
    BadBase64(&'static str),
}

impl From<KubeconfigError> for Failure {
    fn from(error: KubeconfigError) -> Self {
        Self::new(Category::InvalidSpec, error.to_string())
    }
}

/// Reads the current context of a kubeconfig.
pub fn target_from_kubeconfig(cluster: &ClusterKey, text: &str) -> Result<Target, KubeconfigError> {
    let config = Kubeconfig::from_yaml(text).map_err(|_| KubeconfigError::Unreadable)?;
    let (server, user) = current(&config).ok_or(KubeconfigError::NoContext)?;
    refuse_indirection(server, user)?;
    refuse_impersonation(user)?;
    let address = server.server.clone().filter(|address| address.starts_with("https://"));
    Ok(Target {
        cluster: cluster.clone(),
        server: address.ok_or(KubeconfigError::NotHttps)?,
        tls: TargetTls {
            ca_pem: decoded("certificate-authority-data", server.certificate_authority_data.as_deref())?,
            server_name: server.tls_server_name.clone(),
            insecure_skip_verify: server.insecure_skip_tls_verify.unwrap_or_default(),
            client_certificate_pem: decoded(
                "client-certificate-data",
                user.client_certificate_data.as_deref(),
            )?,
            client_key_pem: decoded(
                "client-key-data",
                user.client_key_data.as_ref().map(SecretString::expose_secret),
            )?,
        },
        auth: auth(user),
        proxy: proxy_from_url(server.proxy_url.as_deref().unwrap_or_default())?,
        request_timeout: REQUEST_TIMEOUT,
        boundary: chandler_core::tenancy::Boundary::default(),
    })
}

fn current(config: &Kubeconfig) -> Option<(&Cluster, &AuthInfo)> {
    let name = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|context| context.name == *name)?.context.as_ref()?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    let user = context.user.as_ref()?;
    let user = config.auth_infos.iter().find(|info| info.name == *user)?.auth_info.as_ref()?;
    Some((cluster, user))
}

fn refuse_indirection(cluster: &Cluster, user: &AuthInfo) -> Result<(), KubeconfigError> {
    let refused = [
        ("an exec plugin", user.exec.is_some()),
        ("an auth provider", user.auth_provider.is_some()),
        ("a token file", user.token_file.is_some()),
        ("a client certificate file", user.client_certificate.is_some()),
        ("a client key file", user.client_key.is_some()),
        ("a certificate authority file", cluster.certificate_authority.is_some()),
    ];
    match refused.into_iter().find(|(_, used)| *used) {
        Some((what, _)) => Err(KubeconfigError::Refused(what)),
        None => Ok(()),
    }
}

/// Refuses to act as another user. As for kubectl, empty fields count as absent.
fn refuse_impersonation(user: &AuthInfo) -> Result<(), KubeconfigError> {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let refused = [
        ("as", is_set(&user.impersonate)),
        ("as-uid", is_set(&user.impersonate_uid)),
        ("as-groups", user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())),
        ("as-user-extra", user.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty())),
    ];
    match refused.into_iter().find(|(_, used)| *used) {
        Some((field, _)) => Err(KubeconfigError::Impersonation(field)),
        None => Ok(()),
    }
}

fn auth(user: &AuthInfo) -> Option<TargetAuth> {
    if let Some(token) = &user.token {
        return Some(TargetAuth::BearerToken(token.expose_secret().to_owned()));
    }
    let (username, password) = (user.username.clone()?, user.password.as_ref()?);
    Some(TargetAuth::Basic { username, password: password.expose_secret().to_owned() })
}

fn decoded(field: &'static str, text: Option<&str>) -> Result<Option<Vec<u8>>, KubeconfigError> {
    text.map(|text| BASE64_STANDARD.decode(text.trim()).map_err(|_| KubeconfigError::BadBase64(field)))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    fn read(cluster: &str, user: &str) -> Result<Target, KubeconfigError> {
        target_from_kubeconfig(&ClusterKey::new("fleet", "blue"), &kubeconfig(cluster, user))
    }

    #[test]
    fn inline_data_is_read() {
        let target = read(
            "server: 'https://b:6443', certificate-authority-data: Y2E=",
            "client-key-data: a2V5, token: t",
        )
        .unwrap();
        assert_eq!(target.tls.ca_pem.as_deref(), Some(b"ca".as_slice()));
        assert_eq!(target.tls.client_key_pem.as_deref(), Some(b"key".as_slice()));
        assert!(target.auth == Some(TargetAuth::BearerToken("t".to_owned())));
    }

    #[test]
    fn everything_that_runs_code_or_reads_files_is_refused() {
        let https = "server: 'https://b:6443'";
        let rows = [
            (
                https,
                "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}",
                "an exec plugin",
            ),
            (https, "auth-provider: {name: gcp, config: {}}", "an auth provider"),
            (https, "tokenFile: /var/run/token", "a token file"),
            (https, "client-certificate: /etc/cert", "a client certificate file"),
            (https, "client-key: /etc/key", "a client key file"),
            (
                "server: 'https://b:6443', certificate-authority: /etc/ca",
                "token: t",
                "a certificate authority file",
            ),
        ];
        for (cluster, user, what) in rows {
            assert_eq!(read(cluster, user), Err(KubeconfigError::Refused(what)));
        }
    }

    #[test]
    fn impersonation_is_refused() {
        let https = "server: 'https://b:6443'";
        let rows = [
            ("as: admin", "as"),
            ("as-uid: '1'", "as-uid"),
            ("as-groups: ['system:masters']", "as-groups"),
            ("as-user-extra: {scopes: [all]}", "as-user-extra"),
        ];
        for (user, field) in rows {
            let refused = read(https, &format!("token: t, {user}")).unwrap_err();
            assert_eq!(refused, KubeconfigError::Impersonation(field));
            let failure = Failure::from(refused);
            assert_eq!(failure.category, Category::InvalidSpec);
            assert!(failure.message.contains("remove `"), "{failure}");
        }
        let empty = "token: t, as: '', as-uid: '', as-groups: [], as-user-extra: {}";
        assert!(read(https, empty).is_ok(), "empty fields impersonate no user");
    }

    #[test]
    fn the_proxy_is_read_from_the_cluster() {
        let proxy = |url: &str| {
            let cluster = format!("server: 'https://b:6443', proxy-url: '{url}'");
            read(&cluster, "token: t").map(|target| target.proxy.map(|proxy| proxy.url))
        };
        assert_eq!(proxy("http://proxy:3128").unwrap().as_deref(), Some("http://proxy:3128"));
        assert_eq!(proxy("").unwrap(), None);
        assert_eq!(read("server: 'https://b:6443'", "token: t").unwrap().proxy, None);
        assert_eq!(proxy("ftp://proxy"), Err(KubeconfigError::ProxyScheme("ftp".to_owned())));
    }

    #[test]
    fn broken_ones_say_what_is_wrong() {
        let blue = ClusterKey::new("fleet", "blue");
        assert_eq!(target_from_kubeconfig(&blue, "][").unwrap_err(), KubeconfigError::Unreadable);
        assert_eq!(target_from_kubeconfig(&blue, "kind: Config").unwrap_err(), KubeconfigError::NoContext);
        assert_eq!(read("server: 'http://b'", "token: t").unwrap_err(), KubeconfigError::NotHttps);
        assert_eq!(
            read("server: 'https://b'", "client-key-data: '%%'").unwrap_err(),
            KubeconfigError::BadBase64("client-key-data")
        );
    }
}
