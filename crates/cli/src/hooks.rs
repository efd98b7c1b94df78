//! `chandler hooks`: the runtime hooks by which Cluster API asks Chandler.

use std::{net::SocketAddr, str::FromStr};

use anyhow::Result;
use chandler_controller::{
    HookOptions,
    hooks::{Endpoint, FailurePolicy, extension_config_name},
};
use clap::{Args, Subcommand, ValueEnum};

use crate::connection::Connection;

/// The runtime hooks by which Cluster API asks Chandler.
#[derive(Debug, Subcommand)]
pub enum HooksCommand {
    /// Have Cluster API ask no more: for when Chandler goes for good
    ///
    /// Run it when no manager runs any more: one that does registers again.
    Unregister(UnregisterArgs),
}

#[derive(Debug, Args)]
pub struct UnregisterArgs {
    #[command(flatten)]
    connection: Connection,
    /// The namespace that the manager looked after [default: all]
    #[arg(long)]
    namespace: Option<String>,
    /// The watch filter that the manager had [default: none]
    #[arg(long, value_name = "VALUE")]
    watch_filter: Option<String>,
}

/// How a manager serves hooks.
#[derive(Debug, Args)]
pub struct HookArgs {
    /// Serve the runtime hooks of Cluster API, which finds them at `https://HOST[:PORT]` or at a Service of the
    /// management cluster, `NAMESPACE/NAME[:PORT]`; `none`: none are served
    #[arg(long = "hooks-endpoint", value_name = "URL|SERVICE", default_value = "none")]
    endpoint: Served,
    /// Address at which hooks are served
    #[arg(long = "hooks-address", default_value = "0.0.0.0:9443")]
    address: SocketAddr,
    /// What Cluster API does with an upgrade that is to begin when no hook answers
    #[arg(long = "hooks-failure-policy", value_name = "POLICY", value_enum)]
    #[arg(default_value_t = Unanswered::Fail)]
    unanswered: Unanswered,
}

/// Where hooks are served, if at all. A variable of a manifest cannot be left out: it has to be able to say `none`.
#[derive(Clone, Debug)]
struct Served(Option<Endpoint>);

impl FromStr for Served {
    type Err = <Endpoint as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unanswered {
    /// It waits until one does
    Fail,
    /// It begins
    Ignore,
}

impl HookArgs {
    /// None: no hooks are served. `namespace` is the manager's own, by which its role is named.
    pub fn options(self, namespace: &str) -> Option<HookOptions> {
        let Self { endpoint: Served(endpoint), address, unanswered } = self;
        let before_upgrade = match unanswered {
            Unanswered::Fail => FailurePolicy::Fail,
            Unanswered::Ignore => FailurePolicy::Ignore,
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
    println!("There is no ExtensionConfig {name} any more: Cluster API goes on without asking.");
    Ok(())
}
