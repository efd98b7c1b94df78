//! The kubeconfig of a cluster that is imported, with all credentials inline.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Uri;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

/// What Chandler and Cluster API need to use a cluster.
pub struct ChildKubeconfig {
    pub text: SecretString,
    /// Host of the API server.
    pub host: String,
    /// Port of the API server.
    pub port: u16,
}

/// Reads one context of the user's kubeconfig. `None` means the default file, and the current context.
pub fn read(cluster: &str, path: Option<&Path>, context: Option<&str>) -> Result<ChildKubeconfig> {
    let config = match path {
        Some(path) => Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?,
        None => Kubeconfig::read()
            .context("reading the kubeconfig of the cluster; set it with --child-kubeconfig")?,
    };
    inline(cluster, &config, context, &|path| Ok(std::fs::read(path)?))
}

/// Returns a kubeconfig with one cluster and one user, whose files are read and embedded.
fn inline(
    cluster: &str,
    config: &Kubeconfig,
    context: Option<&str>,
    read_file: &dyn Fn(&Path) -> Result<Vec<u8>>,
) -> Result<ChildKubeconfig> {
    let (server, user) = entries(config, context)?;
    refuse(server, user)?;
    let url = server.server.as_deref().unwrap_or_default();
    let (host, port) =
        host_and_port(url).with_context(|| format!("the server {url:?} is not an https address"))?;
    let mut cluster_fields = Map::new();
    let mut user_fields = Map::new();
    let add = |fields: &mut Map<String, Value>, name: &str, value: Option<String>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value.into());
        }
    };
    let data = |inline: Option<&str>, file: Option<&String>| -> Result<Option<String>> {
        match (inline, file) {
            (Some(inline), _) if !inline.is_empty() => Ok(Some(inline.to_owned())),
            (_, Some(file)) => {
                let bytes = read_file(Path::new(file)).with_context(|| format!("reading {file}"))?;
                Ok(Some(BASE64_STANDARD.encode(bytes)))
            }
            _ => Ok(None),
        }
    };
    let authority =
        data(server.certificate_authority_data.as_deref(), server.certificate_authority.as_ref())?;
    add(&mut cluster_fields, "server", Some(url.to_owned()));
    add(&mut cluster_fields, "certificate-authority-data", authority);
    add(&mut cluster_fields, "tls-server-name", server.tls_server_name.clone());
    let secret = |secret: &Option<SecretString>| secret.as_ref().map(|text| text.expose_secret().to_owned());
    let certificate = data(user.client_certificate_data.as_deref(), user.client_certificate.as_ref())?;
    let key = data(secret(&user.client_key_data).as_deref(), user.client_key.as_ref())?;
    add(&mut user_fields, "client-certificate-data", certificate);
    add(&mut user_fields, "client-key-data", key);
    add(&mut user_fields, "token", secret(&user.token));
    add(&mut user_fields, "username", user.username.clone());
    add(&mut user_fields, "password", secret(&user.password));
    ensure!(!user_fields.is_empty(), "the kubeconfig of the cluster has no credentials in this context");
    let (user_name, context_name) = (format!("{cluster}-admin"), format!("{cluster}-admin@{cluster}"));
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context_name,
        "contexts": [{"name": context_name, "context": {"cluster": cluster, "user": user_name}}],
        "clusters": [{"name": cluster, "cluster": cluster_fields}],
        "users": [{"name": user_name, "user": user_fields}],
    });
    // JSON is valid YAML.
    Ok(ChildKubeconfig { text: text.to_string().into(), host, port })
}

/// Returns cluster and user of a context.
fn entries<'a>(config: &'a Kubeconfig, context: Option<&str>) -> Result<(&'a Cluster, &'a AuthInfo)> {
    let name =
        context.or(config.current_context.as_deref()).context("the kubeconfig has no current context")?;
    let named = config.contexts.iter().find(|one| one.name == name).and_then(|one| one.context.as_ref());
    let named = named.with_context(|| format!("the kubeconfig has no context {name}"))?;
    let cluster = config.clusters.iter().find(|one| one.name == named.cluster);
    let user = config.auth_infos.iter().find(|one| Some(&one.name) == named.user.as_ref());
    match (cluster.and_then(|one| one.cluster.as_ref()), user.and_then(|one| one.auth_info.as_ref())) {
        (Some(cluster), Some(user)) => Ok((cluster, user)),
        _ => bail!("context {name} names a cluster or user that is not in the kubeconfig"),
    }
}

/// Refuses what works on the user's machine only, and what is not safe through a proxy.
fn refuse(cluster: &Cluster, user: &AuthInfo) -> Result<()> {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let refused = [
        ("an exec plugin", user.exec.is_some()),
        ("an auth provider", user.auth_provider.is_some()),
        ("a token file", is_set(&user.token_file)),
        ("impersonation", is_set(&user.impersonate)),
        ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify.unwrap_or_default()),
    ];
    if let Some((what, _)) = refused.into_iter().find(|(_, used)| *used) {
        bail!(
            "the kubeconfig of the cluster uses {what}, which does not work in the management cluster: use a kubeconfig with \
             a client certificate or the token of a ServiceAccount, and the certificate authority of the API server"
        );
    }
    Ok(())
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?;
    Some((host.trim_matches(['[', ']']).to_owned(), uri.port_u16().unwrap_or(443)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> Kubeconfig {
        let yaml = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        Kubeconfig::from_yaml(&yaml).unwrap()
    }

    fn inlined(cluster: &str, user: &str) -> Result<ChildKubeconfig> {
        inline("blue", &kubeconfig(cluster, user), None, &|path| Ok(path.display().to_string().into_bytes()))
    }

    #[test]
    fn files_are_embedded() {
        let child = inlined(
            "server: 'https://10.0.0.10:6443', certificate-authority: /ca",
            "client-certificate: /crt, client-key-data: a2V5",
        )
        .unwrap();
        assert_eq!((child.host.as_str(), child.port), ("10.0.0.10", 6443));
        let config: Value = serde_saphyr::from_str(child.text.expose_secret()).unwrap();
        assert_eq!(config["current-context"], "blue-admin@blue");
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        assert_eq!(cluster["certificate-authority-data"], BASE64_STANDARD.encode("/ca"));
        assert_eq!(user["client-certificate-data"], BASE64_STANDARD.encode("/crt"));
        assert_eq!(user["client-key-data"], "a2V5");
    }

    #[test]
    fn what_works_only_here_is_refused() {
        let server = "server: 'https://api.example'";
        let rows = [
            (server, "exec: {command: login, apiVersion: client.authentication.k8s.io/v1}", "an exec plugin"),
            (server, "tokenFile: /token", "a token file"),
            (server, "token: canary, as: someone", "impersonation"),
            (server, "", "no credentials"),
            ("server: 'http://api.example'", "token: canary", "not an https address"),
            (
                "server: 'https://api.example', insecure-skip-tls-verify: true",
                "token: canary",
                "insecure-skip-tls-verify",
            ),
        ];
        for (cluster, user, expected) in rows {
            let error = format!("{:#}", inlined(cluster, user).err().unwrap());
            assert!(error.contains(expected) && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn the_port_of_a_server_defaults_to_443() {
        let rows = [
            ("https://api.example", Some(("api.example", 443))),
            ("https://[fd00::1]:6443", Some(("fd00::1", 6443))),
            ("http://api.example", None),
            ("api.example:443", None),
        ];
        for (url, expected) in rows {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(host_and_port(url), expected, "{url}");
        }
    }
}
