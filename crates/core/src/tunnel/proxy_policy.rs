//! Which proxies a kubeconfig may name. A user who may write a kubeconfig Secret decides what the manager dials, and
//! with a proxy, the manager dials the proxy.

use crate::{
    failure::{Category, Failure},
    target::TargetProxy,
};

/// Which proxies a kubeconfig may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyPolicy {
    /// `HOST:PORT` of the hub's proxy.
    pub hub: Option<String>,
    /// Beginnings of URLs: scheme, then host, then port.
    pub allowed: Vec<String>,
    pub user: ProxyUser,
}

/// Who connects to clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyUser {
    #[default]
    Manager,
    /// A command on the machine of a user, from which the hub of the tunnels cannot be reached.
    Command,
}

impl ProxyPolicy {
    /// Returns why the proxy of a kubeconfig is refused, or `Ok` if it is allowed. No proxy is always allowed.
    pub fn check(&self, proxy: Option<&TargetProxy>) -> Result<(), Failure> {
        let Some(proxy) = proxy else { return Ok(()) };
        let is_hub = self.hub.as_ref().is_some_and(|hub| proxy.url == format!("http://{hub}"));
        if is_hub || self.allowed.iter().any(|prefix| begins_with(&proxy.url, prefix)) {
            return Ok(());
        }
        let url = &proxy.url;
        let message = match self.user {
            ProxyUser::Manager => format!(
                "the kubeconfig's proxy {url} is neither the hub of the tunnels nor allowed; start the manager with \
                 --allow-proxy-url {url}"
            ),
            ProxyUser::Command => format!(
                "the kubeconfig's proxy {url} is not allowed; if it can be reached from here, add --allow-proxy-url {url}; the hub \
                 of the tunnels can be reached from inside the management cluster only, and `chandler tunnel connect` runs other \
                 commands on such a cluster"
            ),
        };
        Err(Failure::new(Category::InvalidSpec, message))
    }
}

/// A prefix ends with a whole part of the URL: `http://proxy` does not allow `http://proxy.evil.example`.
fn begins_with(url: &str, prefix: &str) -> bool {
    let prefix = prefix.strip_suffix('/').filter(|prefix| !prefix.ends_with('/')).unwrap_or(prefix);
    url.strip_prefix(prefix).is_some_and(|rest| {
        prefix.ends_with("://") || rest.is_empty() || rest.starts_with(':') && !prefix.ends_with(':')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_the_hub_or_allowed() {
        let policy = ProxyPolicy {
            hub: Some("chandler-hub.chandler-system.svc:8132".to_owned()),
            allowed: [
                "http://proxy.example",
                "socks5://10.0.0.1:1080",
                "https://",
                "http://slash.example:3128/",
            ]
            .map(str::to_owned)
            .to_vec(),
            user: ProxyUser::Manager,
        };
        let rows = [
            ("http://chandler-hub.chandler-system.svc:8132", true),
            ("https://chandler-hub.chandler-system.svc:8132", true),
            ("http://chandler-hub.chandler-system.svc:8133", false),
            ("http://chandler-hub.other.svc:8132", false),
            ("http://proxy.example:3128", true),
            ("http://proxy.example:80", true),
            ("http://proxy.example.evil:3128", false),
            ("http://slash.example:3128", true),
            ("http://slash.example:31289", false),
            ("socks5://10.0.0.1:1080", true),
            ("socks5://10.0.0.1:10800", false),
            ("socks5://10.0.0.2:1080", false),
        ];
        for (url, allowed) in rows {
            let proxy = TargetProxy { url: url.to_owned(), credentials: None };
            assert_eq!(policy.check(Some(&proxy)).is_ok(), allowed, "{url}");
        }
        assert_eq!(policy.check(None), Ok(()));
    }

    #[test]
    fn the_refusal_names_the_flag_and_no_password() {
        let proxy = TargetProxy {
            url: "http://proxy.example:3128".to_owned(),
            credentials: Some(("user".to_owned(), "canary".to_owned())),
        };
        for (user, advice) in [
            (ProxyUser::Manager, "start the manager with --allow-proxy-url http://proxy.example:3128"),
            (ProxyUser::Command, "add --allow-proxy-url http://proxy.example:3128"),
        ] {
            let failure = ProxyPolicy { user, ..ProxyPolicy::default() }.check(Some(&proxy)).unwrap_err();
            assert!(failure.message.contains(advice), "{failure}");
            assert!(!failure.message.contains("canary"));
        }
    }
}
