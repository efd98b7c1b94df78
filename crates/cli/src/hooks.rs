//! `chandler hooks`, and the manager's flags for the Cluster API runtime hooks.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context as _, Result};
use chandler_controller::{
    HookOptions,
    hooks::{Endpoint, FailurePolicy, extension_config_name},
};
use chandler_core::cluster_deletion::DEFAULT_UNINSTALL_TIMEOUT;
use clap::{Args, Subcommand, ValueEnum};

use crate::connection::Connection;

/// Manage the registration of the Cluster API runtime hooks.
#[derive(Debug, Subcommand)]
pub enum HooksCommand {
    /// Delete the registration of the hooks, when Chandler is uninstalled
    ///
    /// Deletes the ExtensionConfig, so that Cluster API no longer calls the hooks. Stop the manager first: a running
    /// manager registers its hooks again.
    Unregister(UnregisterArgs),
}

#[derive(Debug, Args)]
pub struct UnregisterArgs {
    #[command(flatten)]
    connection: Connection,
    /// The manager's --namespace [default: all]
    #[arg(long)]
    namespace: Option<String>,
    /// The manager's --watch-filter [default: none]
    #[arg(long, value_name = "VALUE")]
    watch_filter: Option<String>,
}

/// The manager's flags for hooks.
#[derive(Debug, Args)]
pub struct HookArgs {
    /// Serve runtime hooks, which Cluster API calls at this endpoint: `pod` for the leader's Pod, `https://HOST[:PORT]`,
    /// or `NAMESPACE/NAME[:PORT]` of a Service of the management cluster that routes to the leader only; `none` disables
    /// and unregisters the hooks, and `auto` is `pod` in a Pod and `none` elsewhere. They are registered if the feature gate `RuntimeSDK` of
    /// Cluster API is enabled
    #[arg(long = "hooks-endpoint", value_name = "auto|pod|none|URL|SERVICE", default_value = "auto")]
    endpoint: EndpointArg,
    /// IP address of the Pod, for `--hooks-endpoint pod` and `auto`
    #[arg(long = "hooks-pod-ip", value_name = "IP", env = "POD_IP")]
    pod_ip: Option<IpAddr>,
    /// Listen address of the hooks; `0.0.0.0` also listens on IPv6 if that is the address of the Pod
    #[arg(long = "hooks-address", default_value = "0.0.0.0:9443")]
    address: SocketAddr,
    /// What Cluster API does before an upgrade or a deletion if the hooks do not respond
    #[arg(long = "hooks-failure-policy", value_name = "POLICY", value_enum)]
    #[arg(default_value_t = FailurePolicyArg::Ignore)]
    failure_policy: FailurePolicyArg,
    /// How many seconds the deletion of a Cluster waits until its add-ons with `onClusterDelete: Uninstall` are uninstalled
    #[arg(long = "cluster-deletion-timeout-seconds", value_name = "SECONDS")]
    #[arg(default_value_t = DEFAULT_UNINSTALL_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    cluster_deletion_timeout: u64,
}

/// Where Cluster API calls the hooks. Manifests with variable substitution always set the flag, so there must be a value
/// that disables the hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EndpointArg {
    /// [`Self::Pod`] if the address of the Pod is known, else [`Self::None`].
    Auto,
    None,
    /// The Pod of the manager that serves the hooks. Each leader registers its own address.
    Pod,
    At(Endpoint),
}

impl FromStr for EndpointArg {
    type Err = <Endpoint as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "pod" => Ok(Self::Pod),
            other => other.parse().map(Self::At),
        }
    }
}

impl EndpointArg {
    /// Returns whether the endpoint, if there is one, is the address of the Pod.
    fn is_pod(&self) -> bool {
        matches!(self, Self::Auto | Self::Pod)
    }

    /// Returns the endpoint of a manager whose hooks listen on this port.
    fn endpoint(self, pod_ip: Option<IpAddr>, port: u16) -> Result<Option<Endpoint>> {
        match self {
            Self::Auto if pod_ip.is_some() => Self::Pod.endpoint(pod_ip, port),
            Self::Auto | Self::None => Ok(None),
            Self::At(endpoint) => Ok(Some(endpoint)),
            Self::Pod => {
                let ip = pod_ip.context(
                    "--hooks-endpoint pod needs the IP address of the Pod: set the environment variable POD_IP from the \
                     field status.podIP, or --hooks-pod-ip",
                )?;
                Ok(Some(Endpoint::url(&format!("https://{}", SocketAddr::new(ip, port)))?))
            }
        }
    }
}

/// Returns the address to listen on for calls to the address of the Pod. All IPv4 addresses do not include one of IPv6, but all
/// IPv6 addresses include those of IPv4.
fn listen_address(address: SocketAddr, pod_ip: Option<IpAddr>) -> SocketAddr {
    let is_ipv6 = pod_ip.is_some_and(|ip| ip.is_ipv6());
    if is_ipv6 && address.ip() == Ipv4Addr::UNSPECIFIED {
        SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port())
    } else {
        address
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailurePolicyArg {
    /// Wait until the hooks respond
    Fail,
    /// Proceed
    Ignore,
}

impl HookArgs {
    /// Returns how long the deletion of a Cluster waits for uninstalls. Also without hooks, releases are uninstalled no longer
    /// than that.
    pub fn uninstall_timeout(&self) -> Duration {
        Duration::from_secs(self.cluster_deletion_timeout)
    }

    /// Returns the options of the hook server. Returns `None` if hooks are disabled. `namespace` is the manager's own,
    /// which is part of the name of its role.
    pub fn options(self, namespace: &str) -> Result<Option<HookOptions>> {
        let Self { endpoint, pod_ip, address, failure_policy, cluster_deletion_timeout: _ } = self;
        let failure_policy = match failure_policy {
            FailurePolicyArg::Fail => FailurePolicy::Fail,
            FailurePolicyArg::Ignore => FailurePolicy::Ignore,
        };
        let role = format!("{namespace}-manager");
        let is_pod = endpoint.is_pod();
        let address = if is_pod { listen_address(address, pod_ip) } else { address };
        let endpoint = endpoint.endpoint(pod_ip, address.port())?;
        Ok(endpoint.map(|endpoint| HookOptions { address, endpoint, is_pod, failure_policy, role }))
    }
}

pub async fn run(command: HooksCommand) -> Result<()> {
    let HooksCommand::Unregister(UnregisterArgs { connection, namespace, watch_filter }) = command;
    let name = extension_config_name(namespace.as_deref(), watch_filter.as_deref());
    let client = connection.client().await?;
    chandler_hooks::unregister(&client, &name).await?;
    println!("ExtensionConfig {name} is deleted: Cluster API no longer calls the hooks.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_listen_on_the_address_of_the_pod() {
        let rows = [
            ("0.0.0.0:9443", Some("10.0.0.7"), "0.0.0.0:9443"),
            ("0.0.0.0:9443", Some("fd00::7"), "[::]:9443"),
            ("0.0.0.0:9443", None, "0.0.0.0:9443"),
            ("127.0.0.1:9443", Some("fd00::7"), "127.0.0.1:9443"),
            ("[fd00::7]:9443", Some("fd00::7"), "[fd00::7]:9443"),
        ];
        for (address, pod_ip, expected) in rows {
            let pod_ip = pod_ip.map(|ip| ip.parse().unwrap());
            let listens = listen_address(address.parse().unwrap(), pod_ip);
            assert_eq!(listens, expected.parse().unwrap(), "{address} {pod_ip:?}");
        }
    }

    #[test]
    fn the_endpoint_of_a_pod_is_its_own_address() {
        let endpoint = |text: &str, ip: Option<&str>| {
            let ip = ip.map(|ip| ip.parse().unwrap());
            text.parse::<EndpointArg>().unwrap().endpoint(ip, 9443)
        };
        let url = |url| Some(Endpoint::url(url).unwrap());
        assert_eq!(endpoint("pod", Some("10.0.0.7")).unwrap(), url("https://10.0.0.7:9443"));
        assert_eq!(endpoint("pod", Some("fd00::7")).unwrap(), url("https://[fd00::7]:9443"));
        assert!(endpoint("pod", None).unwrap_err().to_string().contains("POD_IP"));
        assert_eq!(endpoint("none", Some("10.0.0.7")).unwrap(), None);
        assert_eq!(endpoint("auto", Some("10.0.0.7")).unwrap(), url("https://10.0.0.7:9443"));
        assert_eq!(endpoint("auto", None).unwrap(), None);
        assert_eq!(
            endpoint("https://hooks.example", Some("10.0.0.7")).unwrap(),
            url("https://hooks.example")
        );
    }
}
