//! `chandler-sandbox tool`: package tools and the contract that they keep.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use chandler_cli_support::programs;
use chandler_conformance::{BoxError, Environment, Host, Report, Request, RequestReader};
use chandler_core::{addresses::AddressPolicy, identity::ClusterKey};
use chandler_sandbox::{
    assets::{Assets, Binary},
    chart::{self, Package},
    plane::{Plane, PlaneOptions},
    progress,
    requests::AuditLog,
};
use chandler_tool::SupervisorConfig;
use chandler_workload::target_from_kubeconfig;
use clap::{Args, Subcommand, ValueEnum};

/// Package tools.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// Prove on a real cluster of this machine that a package tool keeps the contract.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The package tool's binary [default: chandler-helm beside this program].
    #[arg(long, env = "CHANDLER_TOOL", hide_env_values = true)]
    tool: Option<PathBuf>,
    /// Command that packs the suite's test packages in the tool's format, for a tool that does not read Helm charts.
    ///
    /// `sh` runs it once per package: it reads the test package as JSON from standard input and writes the package to
    /// standard output.
    #[arg(long, value_name = "COMMAND")]
    packer: Option<String>,
    /// Only cases whose name contains this text, such as `crash/`.
    #[arg(long)]
    filter: Option<String>,
    /// For programs instead of people.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Json,
}

pub async fn run(command: ToolCommand) -> Result<()> {
    match command {
        ToolCommand::Verify(args) => verify(args).await,
    }
}

async fn verify(args: VerifyArgs) -> Result<()> {
    let VerifyArgs { tool, packer, filter, output } = args;
    let tool = programs::package_tool(tool)?;
    let progress = progress::display();
    let binaries = [&Binary::FULL_PLANE[..], &[Binary::Helm]].concat();
    let assets = Assets::ensure(&binaries, progress.as_ref()).await?;
    let folder = tempfile::Builder::new().prefix("chandler-verify-").tempdir()?;

    progress.begin("starting a cluster", None);
    let plane = Plane::start(&assets, PlaneOptions::full("verify", folder.path(), 1)).await?;
    plane.wait_nodes_ready().await?;
    progress.finish("starting a cluster");

    let environment = environment(tool, packer, &assets, &plane).await?;
    let result = chandler_conformance::run(environment, filter.as_deref(), |case| eprintln!("{case}")).await;
    plane.kill().await;
    let report = result.context("the package tool cannot be verified")?;
    print(&report, output)?;
    ensure!(!report.cases.is_empty(), "no case has that text in its name");
    ensure!(report.failed() == 0, "the package tool does not keep the contract");
    Ok(())
}

async fn environment(
    tool: PathBuf,
    packer: Option<String>,
    assets: &Assets,
    plane: &Plane,
) -> Result<Environment> {
    // The cluster listens on the loopback address.
    let addresses = AddressPolicy { allowed: vec!["127.0.0.1".parse()?], ..AddressPolicy::default() };
    Ok(Environment {
        // A tool for Helm charts takes the place of the Helm driver, which also serves templates. Other tools do not.
        templates: packer.is_none().then(|| SupervisorConfig::templates(&tool)),
        tool: SupervisorConfig { environment: vec![addresses.environment()], ..SupervisorConfig::new(tool) },
        packer,
        target: target_from_kubeconfig(&ClusterKey::new("verify", plane.name()), plane.kubeconfig())?,
        client: plane.client().await?,
        kubeconfig: plane.kubeconfig_path(),
        helm: assets.path(Binary::Helm).to_owned(),
        host: Box::new(PlaneHost { log: plane.audit_log() }),
    })
}

fn print(report: &Report, output: Option<Output>) -> Result<()> {
    match output {
        Some(Output::Json) => println!("{}", serde_json::to_string_pretty(report)?),
        None => println!("{report}"),
    }
    Ok(())
}

/// What the suite cannot do itself, done with the sandbox.
struct PlaneHost {
    log: AuditLog,
}

impl Host for PlaneHost {
    fn pack_chart(&self, files: &BTreeMap<String, String>) -> Result<Vec<u8>, BoxError> {
        let folder = tempfile::tempdir()?;
        let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        chart::write(folder.path(), &files)?;
        Ok(Package::pack(folder.path(), None)?.bytes)
    }

    fn requests(&self) -> Box<dyn RequestReader> {
        let mut log = self.log.clone();
        // Only what comes from now on.
        let _ = log.read();
        Box::new(Requests(log))
    }
}

struct Requests(AuditLog);

impl RequestReader for Requests {
    fn read(&mut self) -> Result<Vec<Request>, BoxError> {
        let entries = self.0.read()?.into_iter().map(|entry| Request {
            verb: entry.verb,
            resource: entry.resource,
            namespace: entry.namespace,
            name: entry.name,
            uri: entry.uri,
            user: entry.user,
            user_agent: entry.user_agent,
            received: Duration::from_micros(
                u64::try_from(entry.received.as_microsecond()).unwrap_or_default(),
            ),
        });
        Ok(entries.collect())
    }
}
