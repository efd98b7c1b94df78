//! `chandler diff`: what the next operation of releases would change.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use chandler_api::extensions::PlacementKindName;
use chandler_cli_support::runtime;
use chandler_controller::PlanTarget;
use chandler_core::change_plan::ChangePlan;
use chandler_view::{
    description::{FoundResource, ResourceArgument},
    fleet::{FleetReader, ObjectName},
    plan::{Observers, plan_stored},
};
use clap::Args;

use crate::{
    plan::{CommonArgs, Printer, exit_code},
    progress::Progress,
};

/// Show what the next operations of a placement or a release would change
///
/// Compares what is deployed on clusters with what the spec on the management cluster asks for, as `chandler plan` does for files.
/// Drift, which is what others have changed on clusters, is not part of it. It changes nothing.
///
/// Exit codes, as of `kubectl diff`: 0 if nothing would change, 1 if something would, 2 if a part of the plan has failed.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A placement or a release object: `hcp/NAME` for a HelmChartProxy, `exti/NAME` for an ExtensionInstance, `hrp/NAME` for a
    /// HelmReleaseProxy, `ar/NAME` for an AddonRelease; kind and name may also be two arguments
    #[arg(required = true, num_args = 1..=2, value_name = "[KIND/]NAME")]
    name: Vec<String>,
    /// Only the release of the placement on this cluster
    #[arg(long)]
    cluster: Option<String>,
    /// Namespace of the object [default: the namespace of the kubeconfig context]
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    common: CommonArgs,
}

pub fn run(arguments: DiffArgs) -> ExitCode {
    let planned = runtime().and_then(|runtime| runtime.block_on(Box::pin(plan_and_print(arguments))));
    exit_code(planned)
}

async fn plan_and_print(arguments: DiffArgs) -> Result<ChangePlan> {
    let DiffArgs { name, cluster, namespace, common } = arguments;
    let CommonArgs { summary, planner, connection, output } = common;
    let argument = ResourceArgument::parse(&name.join("/"))?;
    let client = connection.client().await?;
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let progress = Progress::start();
    let fleet = FleetReader::new(client.clone(), Some(namespace.clone())).read(&progress).await?;
    let target = match argument.find(&fleet, &namespace)? {
        FoundResource::Placement(placement) => target(&placement.object, false, cluster),
        FoundResource::Release(release) => target(&release.object, true, cluster),
    }?;
    let options = planner.options(&client, !summary).await?;
    let printer = Printer::new(&progress, summary, output);
    let observers = Observers { progress: &progress, on_part: &|part| printer.part(part) };
    let plan = plan_stored(&client, target, options, observers).await?;
    printer.finish(plan)
}

fn target(object: &ObjectName, is_release: bool, cluster: Option<String>) -> Result<PlanTarget> {
    let kind = match object.kind.as_str() {
        "HelmChartProxy" | "HelmReleaseProxy" => Some(PlacementKindName::HelmChartProxy),
        "ExtensionInstance" | "AddonRelease" => Some(PlacementKindName::ExtensionInstance),
        _ => None,
    };
    let kind = kind.with_context(|| format!("{object} is of an unknown kind"))?;
    let ObjectName { namespace, name, .. } = object.clone();
    Ok(PlanTarget { kind, is_release, namespace, name, cluster })
}
