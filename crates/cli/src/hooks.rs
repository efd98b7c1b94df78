//! `chandler hooks`, and the manager's flags for the Cluster API runtime hooks.

use std::{net::SocketAddr, str::FromStr};

use anyhow::Result;
use chandler_controller::{
    HookOptions,
    hooks::{Endpoint, FailurePolicy, extension_config_name},
};
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
    /// Serve runtime hooks, which Cluster API calls at this endpoint: `https://HOST[:PORT]`, or `NAMESPACE/NAME[:PORT]`
    /// of a Service of the management cluster; `none` disables the hooks
    #[arg(long = "hooks-endpoint", value_name = "URL|SERVICE", default_value = "none")]
    endpoint: EndpointArg,
    /// Listen address of the hooks
    #[arg(long = "hooks-address", default_value = "0.0.0.0:9443")]
    address: SocketAddr,
    /// What Cluster API does before an upgrade if the hooks do not respond
    #[arg(long = "hooks-failure-policy", value_name = "POLICY", value_enum)]
    #[arg(default_value_t = FailurePolicyArg::Fail)]
    failure_policy: FailurePolicyArg,
}

/// The endpoint of the hooks, or `none`. Manifests with variable substitution always set the flag, so there must be a
/// value that disables the hooks.
#[derive(Clone, Debug)]
struct EndpointArg(Option<Endpoint>);

impl FromStr for EndpointArg {
    type Err = <Endpoint as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailurePolicyArg {
    /// Delay the upgrade until the hooks respond
    Fail,
    /// Start the upgrade
    Ignore,
}

impl HookArgs {
    /// Returns the options of the hook server. Returns `None` if hooks are disabled. `namespace` is the manager's own,
    /// which is part of the name of its role.
    pub fn options(self, namespace: &str) -> Option<HookOptions> {
        let Self { endpoint: EndpointArg(endpoint), address, failure_policy } = self;
        let before_upgrade = match failure_policy {
            FailurePolicyArg::Fail => FailurePolicy::Fail,
            FailurePolicyArg::Ignore => FailurePolicy::Ignore,
        };
        let role = format!("{namespace}-manager");
        endpoint.map(|endpoint| HookOptions { address, endpoint, before_upgrade, role })
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
