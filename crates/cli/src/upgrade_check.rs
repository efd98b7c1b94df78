//! `chandler upgrade-check`: what a new Kubernetes would mean for the extensions of clusters.

mod table;

use std::{process::ExitCode, sync::Arc};

use anyhow::Result;
use chandler_cli_support::{error_text, runtime};
use chandler_controller::Platform;
use chandler_view::upgrade_check::{Chosen, Report, Request, Target, check};
use clap::{Args, ValueEnum};

use crate::{
    connection::{Connection, Scope},
    manager::PlatformArgs,
    output::{Screen, Structured},
    packages::SourceArgs,
    progress::Progress,
};

/// What could not be found out, as an exit code.
const UNKNOWN: u8 = 2;

/// Check what a new Kubernetes would mean for the extensions of clusters: what stays, what moves when, and what blocks
///
/// It reads the management cluster with your own rights and changes nothing; no manager has to run.
///
/// Exit codes: 0 if all the clusters can go, 1 if extensions of one block it, 2 if that could not be found out.
#[derive(Debug, Args)]
pub struct UpgradeCheckArgs {
    /// Names of the clusters
    #[arg(value_name = "CLUSTER", required_unless_present_any = ["selector", "all"], conflicts_with_all = ["selector", "all"])]
    clusters: Vec<String>,
    /// Clusters with these labels, such as `stage=production`
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "all")]
    selector: Option<String>,
    /// All clusters
    #[arg(long)]
    all: bool,
    /// The new Kubernetes, such as 1.35 or v1.35.2 [default: the one that is announced, else the next minor]
    #[arg(long, value_name = "VERSION")]
    to: Option<Target>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    platform: PlatformArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    connection: Connection,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// A table per cluster
    Table,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

pub fn run(arguments: UpgradeCheckArgs) -> ExitCode {
    match runtime().and_then(|runtime| runtime.block_on(checked(arguments))) {
        Ok(report) if report.is_blocked() => ExitCode::FAILURE,
        Ok(report) if report.is_known() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(UNKNOWN),
        Err(error) => {
            eprintln!("error: {}", error_text(&error));
            ExitCode::from(UNKNOWN)
        }
    }
}

/// Finds out, and prints.
async fn checked(arguments: UpgradeCheckArgs) -> Result<Report> {
    let UpgradeCheckArgs { clusters, selector, all: _, to, scope, platform, source, connection, output } =
        arguments;
    let PlatformArgs { namespace: platform_namespace, version, version_from } = platform;
    let client = connection.client().await?;
    let request = Request {
        clusters: Chosen { names: clusters, labels: selector },
        namespace: scope.resolve(&client),
        platform_namespace: platform_namespace.clone(),
        to,
    };
    let platform = Platform::new(platform_namespace, version);
    if let Some(from) = version_from {
        platform.read(&client, &from).await;
    }
    let mut progress = Progress::start();
    let report = check(client, request, platform, Arc::new(source.open()?), &progress).await?;
    progress.end();
    let text = match output {
        Output::Json => Structured::Json.text(&report)?,
        Output::Yaml => Structured::Yaml.text(&report)?,
        Output::Table => table::text(&report, Screen::detect()),
    };
    print!("{text}");
    Ok(report)
}
