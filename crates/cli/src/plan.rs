//! `chandler plan`: what applying files would change on clusters.

mod files;
mod printer;
mod text;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use chandler_cli_support::{error_text, runtime};
use chandler_core::change_plan::{ChangePlan, PlanOutcome};
use chandler_view::plan::{Observers, plan_files};
use clap::Args;

pub use self::printer::Printer;
use crate::{
    connection::Connection, output::StructuredFormat, planner_flags::PlannerArgs, progress::Progress,
};

/// Exit code if a part of the plan has failed.
const EXIT_FAILED: u8 = 2;

/// Show what applying files would change on clusters
///
/// For each HelmChartProxy and ExtensionInstance of the files, and each cluster that it selects or has a release on: whether a
/// release would be installed, upgraded, replaced or removed, with a diff between the objects of the deployed revision and the
/// rendered ones. AddonPolicies, Extensions, ExtensionCatalogs and Sources of the files apply to the plan. The data of Secrets, and
/// values that come from Secrets, are masked.
///
/// It changes nothing. It uses your own permissions on the management cluster: to read placements and what they refer to,
/// including the kubeconfig Secrets of the clusters, and to create and update the objects of the files, as dry runs. No manager
/// has to be running.
///
/// Exit codes, as of `kubectl diff`: 0 if nothing would change, 1 if something would, 2 if a part of the plan has failed.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A file with objects as YAML or JSON, a folder of such files, or `-` for standard input; can be repeated
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Also read the folders below a folder
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Namespace of objects that name none [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// The flags of `chandler plan` and `chandler diff`.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// Show which releases would change, without diffs
    #[arg(long)]
    pub summary: bool,
    #[command(flatten)]
    pub planner: PlannerArgs,
    #[command(flatten)]
    pub connection: Connection,
    /// Output format [default: text]
    #[arg(short, long, value_enum)]
    pub output: Option<StructuredFormat>,
}

pub fn run(arguments: PlanArgs) -> ExitCode {
    let planned = runtime().and_then(|runtime| runtime.block_on(Box::pin(plan_and_print(arguments))));
    exit_code(planned)
}

/// Returns the exit code of a plan, and prints the error if there is none.
pub fn exit_code(planned: Result<ChangePlan>) -> ExitCode {
    match planned.map(|plan| plan.outcome()) {
        Ok(PlanOutcome::NoChanges) => ExitCode::SUCCESS,
        Ok(PlanOutcome::Changes) => ExitCode::FAILURE,
        Ok(PlanOutcome::Failed) => ExitCode::from(EXIT_FAILED),
        Err(error) => {
            eprintln!("error: {}", error_text(&error));
            ExitCode::from(EXIT_FAILED)
        }
    }
}

async fn plan_and_print(arguments: PlanArgs) -> Result<ChangePlan> {
    let PlanArgs { filename, recursive, namespace, common } = arguments;
    let CommonArgs { summary, planner, connection, output } = common;
    let objects = files::read(&filename, recursive)?;
    let client = connection.client().await?;
    let objects = files::with_namespace(objects, namespace.as_deref(), client.default_namespace())?;
    let options = planner.options(&client, !summary).await?;
    let progress = Progress::start();
    let printer = Printer::new(&progress, summary, output);
    let observers = Observers { progress: &progress, on_part: &|part| printer.part(part) };
    let plan = plan_files(&client, objects, options, observers).await?;
    printer.finish(plan)
}
