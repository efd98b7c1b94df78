//! `chandler tunnel`: the tunnels to clusters that only dial out.

mod agent_deployment;
mod child_kubeconfig;
mod class_patch;
mod connect;
mod hub_forward;
mod import;
mod prepare_move;
mod proxied_kubeconfig;
mod text;

use std::{
    io::{BufRead as _, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use chandler_api::tunnel::ClusterTunnel;
use chandler_view::tunnels::{self, TunnelState, TunnelView, list_tunnels, read_cluster, read_tunnel};
use clap::{Args, Subcommand};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::time::{Instant, sleep};

use self::{
    class_patch::ClassPatchArgs,
    connect::{ConnectArgs, KubeconfigArgs},
    import::ImportArgs,
    prepare_move::PrepareMoveArgs,
};
use crate::{
    connection::{Connection, NamespaceArgs},
    output::{OutputFormat, StructuredFormat},
    progress::Progress,
};

/// How often the status is read while a command waits.
const READ_INTERVAL: Duration = Duration::from_millis(500);

/// List tunnels to clusters behind NAT, enable and revoke them, and reach clusters through them.
#[derive(Debug, Subcommand)]
pub enum TunnelCommand {
    /// List tunnels with their state and agents
    Get(GetArgs),
    /// Show a tunnel, its agents and conditions, and what to do next
    Describe(DescribeArgs),
    /// Reach a cluster through a tunnel: labels the Cluster, and Chandler creates its ClusterTunnel
    ///
    /// Exit codes: 0 if the tunnel is enabled, and with --wait also ready; 1 if it is not.
    Enable(EnableArgs),
    /// Reach a cluster directly again: Chandler deletes its ClusterTunnel and removes the proxy from its kubeconfig
    Disable(TargetArgs),
    /// Print the patch of a ClusterClass that puts the agent on control plane nodes
    ///
    /// Add `variables` and `patches` of the output to `spec` of the ClusterClass. Clusters with the variable `tunnel: true` then
    /// get two files from Secret CLUSTER-tunnel: a static Pod and the configuration of the agent.
    Patch(ClassPatchArgs),
    /// Connect a cluster that exists: installs the agent on it, as a Deployment, and enables its tunnel
    ///
    /// Needs access to both clusters. Run it again to renew the join token of the agents, for example after `revoke`.
    Import(ImportArgs),
    /// Let the agents of a cluster also join another management cluster, before `clusterctl move`
    ///
    /// Adds the hubs of the other management cluster to the ClusterTunnel, with a join token that is valid for a day. Agents get it
    /// through the tunnel. Needs access to both management clusters; reads Secret chandler-tunnel-keys of the other one.
    PrepareMove(PrepareMoveArgs),
    /// Revoke the certificates and tokens of all agents of a tunnel, and end their connections
    ///
    /// No connection is possible until an agent has joined again with a new token: on nodes that Cluster API creates from now
    /// on, or after `chandler tunnel import`.
    Revoke(RevokeArgs),
    /// Run a command whose KUBECONFIG leads through the tunnel, from outside of the management cluster
    ///
    /// Needs kubectl, which forwards a local port to the hub. The kubeconfig is a temporary file that only you may read. The exit
    /// code is that of the command.
    Connect(ConnectArgs),
    /// Print a kubeconfig that leads through the tunnel, for use outside of the management cluster
    ///
    /// It contains the credentials of Secret CLUSTER-kubeconfig. Its proxy is the address in --hub: by default a local port that
    /// `kubectl port-forward service/chandler-hub 8132` opens.
    Kubeconfig(KubeconfigArgs),
}

#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Name of the Cluster
    cluster: String,
    #[command(flatten)]
    connection: Connection,
    /// Namespace of the Cluster [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct DescribeArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Output format [default: text]
    #[arg(short, long, value_enum)]
    output: Option<StructuredFormat>,
}

#[derive(Debug, Args)]
pub struct EnableArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Wait until the tunnel is ready
    #[arg(long)]
    wait: bool,
    /// With --wait, the time in seconds to wait
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    wait_seconds: u64,
}

#[derive(Debug, Args)]
pub struct RevokeArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub async fn run(command: TunnelCommand) -> Result<ExitCode> {
    match command {
        TunnelCommand::Connect(arguments) => return connect::connect(arguments).await,
        TunnelCommand::Kubeconfig(arguments) => connect::kubeconfig(arguments).await,
        TunnelCommand::Get(arguments) => get(arguments).await,
        TunnelCommand::Describe(arguments) => describe(arguments).await,
        TunnelCommand::Enable(arguments) => enable(arguments).await,
        TunnelCommand::Disable(arguments) => disable(arguments).await,
        TunnelCommand::Patch(arguments) => class_patch::run(&arguments),
        TunnelCommand::Import(arguments) => import::run(arguments).await,
        TunnelCommand::PrepareMove(arguments) => prepare_move::run(arguments).await,
        TunnelCommand::Revoke(arguments) => revoke(arguments).await,
    }
    .map(|()| ExitCode::SUCCESS)
}

/// The Cluster that a command is about.
struct Target {
    client: Client,
    namespace: String,
    cluster: String,
}

impl TargetArgs {
    async fn open(self) -> Result<Target> {
        let Self { cluster, connection, namespace } = self;
        let client = connection.client().await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Target { client, namespace, cluster })
    }
}

impl Target {
    /// Returns namespace and name, joined by `/`.
    fn named(&self) -> String {
        format!("{}/{}", self.namespace, self.cluster)
    }

    async fn tunnel(&self) -> Result<ClusterTunnel> {
        Ok(read_tunnel(&self.client, &self.namespace, &self.cluster).await?)
    }

    /// Waits until the tunnel is ready. The error says what is missing, and what to do.
    async fn wait_ready(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let found = read_tunnel(&self.client, &self.namespace, &self.cluster).await;
            let missing = match found {
                Ok(tunnel) => {
                    let view = TunnelView::new(&tunnel);
                    let Some(next_step) = view.next_step() else { return Ok(()) };
                    format!("the tunnel is {} ({}): {next_step}", view.state, view.message)
                }
                Err(tunnels::Error::NoTunnel { .. }) => "no manager has created a ClusterTunnel: check with \
                    `chandler doctor` that one is running with --tunnel-hub-address"
                    .to_owned(),
                Err(error) => return Err(error.into()),
            };
            if Instant::now() >= deadline {
                bail!("Cluster {}, after {} s: {missing}", self.named(), limit.as_secs());
            }
            sleep(READ_INTERVAL).await;
        }
    }
}

async fn get(arguments: GetArgs) -> Result<()> {
    let GetArgs { connection, namespace, output } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.resolve(&client);
    let mut progress = Progress::start();
    let tunnels = list_tunnels(&client, namespace.as_deref(), &progress).await?;
    progress.finish();
    let views: Vec<_> = tunnels.iter().map(TunnelView::new).collect();
    output.print(&views, || text::tunnels(&views, jiff::Timestamp::now()))
}

async fn describe(arguments: DescribeArgs) -> Result<()> {
    let DescribeArgs { target, output } = arguments;
    let tunnel = target.open().await?.tunnel().await?;
    let view = TunnelView::new(&tunnel);
    let format = match output {
        None => OutputFormat::Table,
        Some(StructuredFormat::Json) => OutputFormat::Json,
        Some(StructuredFormat::Yaml) => OutputFormat::Yaml,
    };
    format.print(&view, || text::tunnel(&view, jiff::Timestamp::now()))
}

async fn enable(arguments: EnableArgs) -> Result<()> {
    let EnableArgs { target, wait, wait_seconds } = arguments;
    let target = target.open().await?;
    let (cluster, api) = read_cluster(&target.client, &target.namespace, &target.cluster).await?;
    let name = target.named();
    match tunnels::enable(&cluster) {
        Some(patch) => {
            api.patch(&target.cluster, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .with_context(|| format!("labeling Cluster {name}"))?;
            println!("The tunnel of Cluster {name} is enabled.");
        }
        None => println!("The tunnel of Cluster {name} is enabled already."),
    }
    if wait {
        target.wait_ready(Duration::from_secs(wait_seconds)).await?;
        println!("The tunnel of Cluster {name} is ready.");
    }
    Ok(())
}

async fn disable(arguments: TargetArgs) -> Result<()> {
    let target = arguments.open().await?;
    let (cluster, api) = read_cluster(&target.client, &target.namespace, &target.cluster).await?;
    let name = target.named();
    let Some(patch) = tunnels::disable(&cluster) else {
        println!("The tunnel of Cluster {name} is not enabled.");
        return Ok(());
    };
    api.patch(&target.cluster, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("labeling Cluster {name}"))?;
    println!("The tunnel of Cluster {name} is disabled. Its agents stay on the nodes, and are refused.");
    Ok(())
}

async fn revoke(arguments: RevokeArgs) -> Result<()> {
    let RevokeArgs { target, yes } = arguments;
    let target = target.open().await?;
    let tunnel = target.tunnel().await?;
    let (name, view) = (target.named(), TunnelView::new(&tunnel));
    if !yes {
        let connected = match view.state {
            TunnelState::Ready | TunnelState::Connected => "It is connected now. ",
            _ => "",
        };
        confirm(&format!(
            "Revoke the certificates of all agents of Cluster {name}? {connected}It is unreachable until an agent has joined \
             with a new token."
        ))?;
    }
    let (epoch, patch) = tunnels::revoke(&tunnel);
    let api: Api<ClusterTunnel> = Api::namespaced(target.client.clone(), &target.namespace);
    api.patch(&target.cluster, &PatchParams::default(), &Patch::Merge(patch)).await.with_context(|| {
        format!("revoking the agents of Cluster {name}; if the tunnel has changed, run it again")
    })?;
    println!(
        "The tunnel of Cluster {name} is in epoch {epoch}: certificates and tokens of older epochs are refused."
    );
    Ok(())
}

/// Asks a question on the terminal. Returns an error unless the answer is yes.
fn confirm(question: &str) -> Result<()> {
    ensure!(std::io::stdin().is_terminal(), "{question} Confirm with --yes.");
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("reading the answer")?;
    ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "nothing was changed");
    Ok(())
}
