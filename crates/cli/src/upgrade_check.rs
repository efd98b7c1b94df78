//! `chandler upgrade-check`: checks what an upgrade of Kubernetes would change for the extensions of clusters.

mod table;

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use chandler_cli_support::{error_text, runtime};
use chandler_controller::Platform;
use chandler_view::upgrade_check::{ClusterFilter, Report, Request, TargetVersion, check};
use clap::{Args, ValueEnum};

use crate::{
    connection::{Connection, NamespaceArgs},
    manager::PlatformArgs,
    output::{Screen, StructuredFormat},
    packages::SourceArgs,
    progress::Progress,
};

/// Exit code if a cluster could not be checked.
const EXIT_UNKNOWN: u8 = 2;

/// Check what an upgrade of Kubernetes would change for the extensions of clusters
///
/// Shows which extensions stay at their version, which move to another version and when, and which block the upgrade.
/// Only reads from the management cluster, with your own permissions. No manager has to be running.
///
/// Exit codes: 0 if all clusters can be upgraded, 1 if an extension blocks the upgrade of a cluster, 2 if a cluster
/// could not be checked.
#[derive(Debug, Args)]
pub struct UpgradeCheckArgs {
    /// Names of the clusters
    #[arg(value_name = "CLUSTER", required_unless_present_any = ["selector", "all"], conflicts_with_all = ["selector", "all"])]
    clusters: Vec<String>,
    /// Label selector of the clusters, such as `stage=production`
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "all")]
    selector: Option<String>,
    /// Check all clusters
    #[arg(long)]
    all: bool,
    /// Target version of Kubernetes, such as 1.35 or v1.35.2 [default: the pending upgrade, or the next minor version]
    #[arg(long, value_name = "VERSION")]
    to: Option<TargetVersion>,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    platform: PlatformArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    connection: Connection,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// One table per cluster
    Table,
    Json,
    Yaml,
}

pub fn run(arguments: UpgradeCheckArgs) -> ExitCode {
    match runtime().and_then(|runtime| runtime.block_on(check_and_print(arguments))) {
        Ok(report) if report.is_blocked() => ExitCode::FAILURE,
        Ok(report) if report.is_complete() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_UNKNOWN),
        Err(error) => {
            eprintln!("error: {}", error_text(&error));
            ExitCode::from(EXIT_UNKNOWN)
        }
    }
}

/// Checks the clusters and prints the report.
async fn check_and_print(arguments: UpgradeCheckArgs) -> Result<Report> {
    let UpgradeCheckArgs { clusters, selector, all: _, to, namespace, platform, source, connection, output } =
        arguments;
    let PlatformArgs { namespace: platform_namespace, version, version_from } = platform;
    let client = connection.client().await?;
    let request = Request {
        clusters: ClusterFilter { names: clusters, label_selector: selector },
        namespace: namespace.resolve(&client),
        platform_namespace: platform_namespace.clone(),
        to,
    };
    let platform = Platform::new(platform_namespace, version);
    if let Some(from) = version_from {
        platform.read(&client, &from).await;
    }
    let mut progress = Progress::start();
    let report = check(client, request, platform, Arc::new(source.open()?), &progress).await?;
    progress.finish();
    let text = match output {
        Output::Json => StructuredFormat::Json.text(&report)?,
        Output::Yaml => StructuredFormat::Yaml.text(&report)?,
        Output::Table => table::text(&report, Screen::detect()),
    };
    print!("{text}");
    Ok(report)
}
