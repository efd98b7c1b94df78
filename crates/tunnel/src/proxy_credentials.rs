//! User and password of the hub's proxy, which a kubeconfig contains in its `proxy-url`.
//!
//! The user names the cluster, because private addresses of clusters overlap. The password is a signature, so the hub
//! verifies it without stored state.

use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    identity::TunnelId,
    signing::{Purpose, SigningKey},
};

/// What a proxy password is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyScope<'a> {
    pub namespace: &'a str,
    pub cluster: &'a str,
    pub tunnel: TunnelId,
    pub epoch: u32,
}

impl ProxyScope<'_> {
    /// Returns the user name, `<namespace>.<cluster>`.
    pub fn user(&self) -> String {
        format!("{}.{}", self.namespace, self.cluster)
    }

    /// Returns the password; it contains only unreserved characters of URLs.
    pub fn password(&self, key: &SigningKey) -> SecretString {
        key.sign(Purpose::Proxy, &self.message()).into()
    }

    /// Verifies a password in constant time.
    pub fn verify(&self, key: &SigningKey, password: &SecretString) -> bool {
        key.verify(Purpose::Proxy, &self.message(), password.expose_secret())
    }

    /// Returns the `proxy-url` for a kubeconfig. `hub` is `HOST:PORT` of the hub's proxy.
    pub fn proxy_url(&self, key: &SigningKey, hub: &str) -> SecretString {
        format!("http://{}:{}@{hub}", self.user(), self.password(key).expose_secret()).into()
    }

    fn message(&self) -> String {
        // No part can contain a line feed, so no two scopes have the same message.
        let Self { namespace, cluster, tunnel, epoch } = self;
        format!("{namespace}\n{cluster}\n{tunnel}\n{epoch}")
    }
}

/// Splits a user name into namespace and cluster. A namespace contains no dot, a cluster may.
pub fn split_user(user: &str) -> Option<(&str, &str)> {
    user.split_once('.').filter(|(namespace, cluster)| !namespace.is_empty() && !cluster.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_valid_for_one_cluster_tunnel_and_epoch() {
        let key = SigningKey::generate().unwrap();
        let tunnel = TunnelId::random().unwrap();
        let scope = ProxyScope { namespace: "ships", cluster: "web.eu", tunnel, epoch: 2 };
        let password = scope.password(&key);
        assert!(scope.verify(&key, &password));
        let text = password.expose_secret();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
        for other in [
            ProxyScope { namespace: "ships.web", cluster: "eu", ..scope },
            ProxyScope { cluster: "web", ..scope },
            ProxyScope { tunnel: TunnelId::random().unwrap(), ..scope },
            ProxyScope { epoch: 3, ..scope },
        ] {
            assert!(!other.verify(&key, &password), "{other:?}");
        }
        assert!(!scope.verify(&SigningKey::generate().unwrap(), &password));
    }

    #[test]
    fn the_first_dot_of_a_user_ends_the_namespace() {
        assert_eq!(split_user("ships.web.eu"), Some(("ships", "web.eu")));
        for user in ["", "ships", "ships.", ".web"] {
            assert_eq!(split_user(user), None, "{user}");
        }
    }

    #[test]
    fn proxy_url_contains_user_and_password() {
        let key = SigningKey::generate().unwrap();
        let tunnel = TunnelId::random().unwrap();
        let scope = ProxyScope { namespace: "ships", cluster: "web", tunnel, epoch: 1 };
        let url = scope.proxy_url(&key, "chandler-hub.chandler.svc:8132");
        let password = scope.password(&key);
        let expected =
            format!("http://ships.web:{}@chandler-hub.chandler.svc:8132", password.expose_secret());
        assert_eq!(url.expose_secret(), expected);
    }
}
