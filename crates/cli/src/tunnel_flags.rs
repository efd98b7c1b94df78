//! The manager's flags for tunnels to clusters that only dial out.

use anyhow::{Context as _, Result, bail};
use chandler_controller::TunnelOptions;
use chandler_core::tunnel::ProxyPolicy;
use chandler_tunnel::agent_config::MAX_HUBS;
use clap::Args;

/// The port of the hub's proxy, at its Pods and at Service `chandler-hub`.
pub const PROXY_PORT: u16 = 8132;

/// The largest number of addresses of the hub. A list of hubs has room for as many of another management cluster, to which a
/// cluster is moved.
const MAX_HUB_ADDRESSES: usize = MAX_HUBS / 2;

/// The manager's flags for tunnels.
#[derive(Debug, Args)]
pub struct TunnelFlags {
    /// Enable tunnels to clusters that only dial out; HOST:PORT of the hub, as the agents of these clusters reach it; can be
    /// repeated [default: no tunnels]
    #[arg(long = "tunnel-hub-address", id = "tunnel_hub_address", value_name = "HOST:PORT", value_parser = host_and_port)]
    hub_addresses: Vec<String>,
    /// HOST:PORT of the hub's proxy, as Cluster API and this manager reach it [default: chandler-hub.NAMESPACE.svc:8132]
    #[arg(
        long = "tunnel-proxy-service",
        id = "tunnel_proxy_service",
        value_name = "HOST:PORT",
        value_parser = host_and_port,
        requires = "tunnel_hub_address"
    )]
    proxy_service: Option<String>,
    /// Image of the agent, for the static Pods of control plane nodes
    #[arg(
        long = "tunnel-agent-image",
        id = "tunnel_agent_image",
        value_name = "IMAGE",
        default_value = concat!("chandler-agent:", env!("CARGO_PKG_VERSION"))
    )]
    agent_image: String,
    /// Allow kubeconfigs whose proxy-url begins with this, such as `http://proxy.example:3128` or `socks5://`; can be repeated
    /// [default: only the proxy of the hub]
    #[arg(long = "allow-proxy-url", id = "allow_proxy_url", value_name = "PREFIX", value_parser = proxy_prefix)]
    allowed_proxies: Vec<String>,
}

impl TunnelFlags {
    /// Returns the options of tunnels, or `None` if they are disabled, and the allowed proxies. `namespace` is the manager's own.
    pub fn options(self, namespace: &str) -> Result<(Option<TunnelOptions>, ProxyPolicy)> {
        let Self { hub_addresses, proxy_service, agent_image, allowed_proxies } = self;
        if hub_addresses.is_empty() {
            return Ok((None, ProxyPolicy { allowed: allowed_proxies, ..ProxyPolicy::default() }));
        }
        if hub_addresses.len() > MAX_HUB_ADDRESSES {
            bail!(
                "--tunnel-hub-address is given {} times; agents get at most {MAX_HUB_ADDRESSES} addresses of one hub",
                hub_addresses.len()
            );
        }
        let proxy_service = proxy_service
            .unwrap_or_else(|| format!("{}:{PROXY_PORT}", chandler_tunnel::keys::service_name(namespace)));
        let hub = Some(proxy_service.clone());
        let proxies = ProxyPolicy { hub, allowed: allowed_proxies, ..ProxyPolicy::default() };
        let namespace = namespace.to_owned();
        Ok((Some(TunnelOptions { namespace, hub_addresses, proxy_service, agent_image }), proxies))
    }
}

/// Checks that a text is HOST:PORT, for arguments.
pub fn host_and_port(text: &str) -> Result<String> {
    let (host, port) = text.rsplit_once(':').context("not HOST:PORT, such as hub.example:443")?;
    let port: u16 = port.parse().context("the port is not a number between 1 and 65535")?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-.".contains(&byte) || bracketed && b":[]".contains(&byte)
    };
    if port == 0 || host.is_empty() || !host.bytes().all(is_host) {
        bail!("not HOST:PORT, such as hub.example:443 or [fd00::1]:443");
    }
    Ok(text.to_owned())
}

pub fn proxy_prefix(text: &str) -> Result<String> {
    let (scheme, rest) =
        text.split_once("://").context("not the beginning of a URL, such as http://proxy")?;
    if !["http", "https", "socks5"].contains(&scheme) {
        bail!("the scheme is not http, https or socks5");
    }
    if rest.contains('@') {
        bail!("a user name or password is not compared; write only the address");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(hubs: &[&str], service: Option<&str>) -> TunnelFlags {
        TunnelFlags {
            hub_addresses: hubs.iter().map(|hub| (*hub).to_owned()).collect(),
            proxy_service: service.map(str::to_owned),
            agent_image: "agent:1".to_owned(),
            allowed_proxies: vec!["http://proxy.example".to_owned()],
        }
    }

    #[test]
    fn tunnels_are_enabled_by_the_address_of_the_hub() {
        let (disabled, proxies) = flags(&[], None).options("system").unwrap();
        assert!(disabled.is_none());
        assert_eq!((proxies.hub, proxies.allowed.len()), (None, 1));
        let (enabled, proxies) = flags(&["hub.example:443"], None).options("system").unwrap();
        assert_eq!(enabled.unwrap().proxy_service, "chandler-hub.system.svc:8132");
        assert_eq!(proxies.hub.as_deref(), Some("chandler-hub.system.svc:8132"));
        let (_, proxies) = flags(&["hub.example:443"], Some("10.0.0.1:8132")).options("system").unwrap();
        assert_eq!(proxies.hub.as_deref(), Some("10.0.0.1:8132"));
    }

    #[test]
    fn a_list_of_hubs_has_room_for_those_of_a_move() {
        for (count, valid) in [(4, true), (5, false)] {
            let options = flags(&vec!["hub.example:443"; count], None).options("system");
            assert_eq!(options.is_ok(), valid, "{count} addresses");
        }
    }

    #[test]
    fn addresses_and_prefixes_are_checked() {
        for (text, valid) in [
            ("hub.example:443", true),
            ("10.0.0.1:8443", true),
            ("[fd00::1]:443", true),
            ("fd00::1:443", false),
            ("hub.example", false),
            (":443", false),
            ("hub.example:0", false),
            ("hub.example:70000", false),
            ("https://hub.example:443", false),
            ("user@hub.example:443", false),
        ] {
            assert_eq!(host_and_port(text).is_ok(), valid, "{text}");
        }
        for (text, valid) in [
            ("http://", true),
            ("http://proxy.example:3128", true),
            ("socks5://proxy", true),
            ("ftp://proxy", false),
            ("proxy.example:3128", false),
            ("http://user:pass@proxy", false),
        ] {
            assert_eq!(proxy_prefix(text).is_ok(), valid, "{text}");
        }
    }
}
