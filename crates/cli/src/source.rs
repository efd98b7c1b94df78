//! `chandler source`: the Sources of a management cluster.

mod text;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use chandler_api::extensions::Source;
use chandler_view::{
    fleet::FleetReader,
    sources::{self, SourceReader, SourceUser, SourceView, namespaced_name, read_source},
};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    connection::{Connection, NamespaceArgs},
    output::{OutputFormat, StructuredFormat},
    progress::Progress,
};

/// How often the status is read while a command waits.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// List Sources, show and poll them, suspend, resume, pin and unpin them.
#[derive(Debug, Subcommand)]
pub enum SourceCommand {
    /// List Sources with their readiness and commit
    Get(GetArgs),
    /// Show a Source, its last revisions and the objects that use it
    Describe(DescribeArgs),
    /// Poll the repository of a Source now, and show the result
    ///
    /// Exit codes: 0 if the Source is ready after the poll, 1 if it is not, or if no manager has polled it in time.
    Reconcile(ReconcileArgs),
    /// Keep the revision of a Source: its repository is not polled until it is resumed
    Suspend(TargetArgs),
    /// Poll the repository of a suspended Source again
    Resume(TargetArgs),
    /// Pin a Source to a commit or an artifact: the releases and Syncs that use it stay at this revision
    Pin(PinArgs),
    /// Let a pinned Source follow its branch, tag or range of versions again
    Unpin(TargetArgs),
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
    /// Name of the Source
    name: String,
    #[command(flatten)]
    connection: Connection,
    /// Namespace of the Source [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct DescribeArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    platform: PlatformNamespaceArgs,
    /// Output format [default: text]
    #[arg(short, long, value_enum)]
    output: Option<StructuredFormat>,
}

/// Names the namespace of the platform.
#[derive(Debug, Args)]
pub struct PlatformNamespaceArgs {
    /// Namespace whose Sources are available to all namespaces
    #[arg(long, default_value = "chandler-system")]
    pub platform_namespace: String,
}

#[derive(Debug, Args)]
pub struct ReconcileArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Time in seconds to wait for the result; 0 does not wait
    #[arg(long, default_value_t = 60)]
    wait_seconds: u64,
}

#[derive(Debug, Args)]
pub struct PinArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Id of the commit or digest of the artifact, or the start of one of the last ten revisions [default: the current
    /// revision]
    revision: Option<String>,
}

pub async fn run(command: SourceCommand) -> Result<()> {
    match command {
        SourceCommand::Get(arguments) => get(arguments).await,
        SourceCommand::Describe(arguments) => describe(arguments).await,
        SourceCommand::Reconcile(arguments) => reconcile(arguments).await,
        SourceCommand::Suspend(arguments) => suspend(arguments).await,
        SourceCommand::Resume(arguments) => resume(arguments).await,
        SourceCommand::Pin(arguments) => pin(arguments).await,
        SourceCommand::Unpin(arguments) => unpin(arguments).await,
    }
}

async fn get(arguments: GetArgs) -> Result<()> {
    let GetArgs { connection, namespace, output } = arguments;
    let client = connection.client().await?;
    let namespace = namespace.resolve(&client);
    let mut progress = Progress::start();
    let reader = SourceReader { client: &client, namespace: namespace.as_deref(), progress: &progress };
    let sources = reader.sources().await?;
    progress.finish();
    let views: Vec<_> = sources.iter().map(SourceView::new).collect();
    output.print(&views, || text::sources(&views))
}

/// What `describe` shows.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Description {
    #[serde(flatten)]
    source: SourceView,
    used_by: Vec<SourceUser>,
}

async fn describe(arguments: DescribeArgs) -> Result<()> {
    let DescribeArgs { target, platform: PlatformNamespaceArgs { platform_namespace }, output } = arguments;
    let Target { client, source } = target.open().await?;
    let view = SourceView::new(&source);
    // Only the Sources of the platform are used in other namespaces.
    let namespace = Some(view.namespace.clone()).filter(|namespace| *namespace != platform_namespace);
    let mut progress = Progress::start();
    let fleet = FleetReader::new(client.clone(), namespace.clone()).read(&progress).await?;
    let reader = SourceReader { client: &client, namespace: namespace.as_deref(), progress: &progress };
    let syncs = reader.syncs().await?;
    progress.finish();
    let used_by = view.users(&fleet, &syncs, &platform_namespace);
    let format = match output {
        None => OutputFormat::Table,
        Some(StructuredFormat::Json) => OutputFormat::Json,
        Some(StructuredFormat::Yaml) => OutputFormat::Yaml,
    };
    let description = Description { source: view, used_by };
    format.print(&description, || text::source(&description.source, &description.used_by))
}

async fn reconcile(arguments: ReconcileArgs) -> Result<()> {
    let ReconcileArgs { target, wait_seconds } = arguments;
    let target = target.open().await?;
    let name = target.named();
    ensure!(
        !target.source.spec.suspend,
        "Source {name} is suspended: resume it with `chandler source resume {}`",
        target.source.name_any()
    );
    let (requested, patch) = sources::reconcile(Timestamp::now());
    target.change(patch).await?;
    if wait_seconds == 0 {
        println!("Source {name} will be polled.");
        return Ok(());
    }
    let polled = target.wait_polled(&requested, Duration::from_secs(wait_seconds)).await?;
    let view = SourceView::new(&polled);
    ensure!(view.ready == "True", "Source {name} is not ready: {}: {}", view.reason, view.message);
    println!("Source {name} is at {}.", text::commit(&view));
    Ok(())
}

async fn suspend(arguments: TargetArgs) -> Result<()> {
    let target = arguments.open().await?;
    let name = target.named();
    match sources::suspend(&target.source) {
        Some(patch) => {
            target.change(patch).await?;
            println!("Source {name} is suspended.");
        }
        None => println!("Source {name} is suspended already."),
    }
    Ok(())
}

async fn resume(arguments: TargetArgs) -> Result<()> {
    let target = arguments.open().await?;
    let name = target.named();
    match sources::resume(&target.source, Timestamp::now()) {
        Some(patch) => {
            target.change(patch).await?;
            println!("Source {name} is resumed.");
        }
        None => println!("Source {name} is not suspended."),
    }
    Ok(())
}

async fn pin(arguments: PinArgs) -> Result<()> {
    let PinArgs { target, revision } = arguments;
    let target = target.open().await?;
    let pin = sources::pin(&target.source, revision.as_deref())?;
    target.change(pin.patch).await?;
    println!("Source {} is pinned to {}.", target.named(), pin.revision);
    Ok(())
}

async fn unpin(arguments: TargetArgs) -> Result<()> {
    let target = arguments.open().await?;
    let unpin = sources::unpin(&target.source, Timestamp::now())?;
    target.change(unpin.patch).await?;
    println!("Source {} follows {} again.", target.named(), unpin.reference);
    Ok(())
}

/// A Source that a command shows or changes.
struct Target {
    client: Client,
    source: Source,
}

impl TargetArgs {
    async fn open(self) -> Result<Target> {
        let Self { name, connection, namespace } = self;
        let client = connection.client().await?;
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let source = read_source(&client, &namespace, &name).await?;
        Ok(Target { client, source })
    }
}

impl Target {
    fn named(&self) -> String {
        namespaced_name(&self.source)
    }

    /// Applies a merge patch.
    async fn change(&self, patch: Value) -> Result<()> {
        let namespace = self.source.namespace().unwrap_or_default();
        let api: Api<Source> = Api::namespaced(self.client.clone(), &namespace);
        api.patch(&self.source.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("changing Source {}", self.named()))?;
        Ok(())
    }

    /// Waits until the manager has polled the repository for a request.
    async fn wait_polled(&self, requested: &str, limit: Duration) -> Result<Source> {
        let namespace = self.source.namespace().unwrap_or_default();
        let deadline = Instant::now() + limit;
        loop {
            let source = read_source(&self.client, &namespace, &self.source.name_any()).await?;
            let status = source.status.as_ref();
            let handled = status.and_then(|status| status.last_handled_reconcile_at.as_deref());
            if handled == Some(requested) {
                return Ok(source);
            }
            if Instant::now() >= deadline {
                bail!(
                    "no manager has polled Source {} within {} s: check with `chandler doctor` that one is running, or \
                     wait longer with --wait-seconds",
                    self.named(),
                    limit.as_secs()
                );
            }
            sleep(READ_INTERVAL).await;
        }
    }
}
