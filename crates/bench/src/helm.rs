//! Measures the helm CLI with the same work, for comparison.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use chandler_sandbox::{plane::Plane, progress::ProgressReporter};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::process::Command;

use crate::{
    chart,
    controller::GO_DEFAULTS,
    environment::{Environment, VERSIONS},
    meter::{Cpu, Meter},
    report::Phase,
    usage::Processes,
};

/// Another namespace than that of the controller's releases.
const NAMESPACE: &str = "helm-cli";
const CONCURRENCY: usize = 2;
const STEPS: [(&str, &str, &str); 2] =
    [("helm-cli-install", "install", "first"), ("helm-cli-upgrade", "upgrade", "second")];

struct Cli<'a> {
    environment: &'a Environment,
    helm: &'a Path,
    ca: PathBuf,
    processes: Processes,
}

pub async fn run(
    environment: &Environment,
    helm: &Path,
    addons: u32,
    progress: &dyn ProgressReporter,
) -> Result<Vec<Phase>> {
    let mut meter = Meter::new(environment, Cpu::ExitedChildren, None);
    let ca = environment.dir().join("helm-ca.pem");
    std::fs::write(&ca, environment.repository().ca_pem())
        .with_context(|| format!("writing {}", ca.display()))?;
    let cli = Cli { environment, helm, ca, processes: meter.processes.clone() };
    let mut phases = Vec::new();
    for (name, verb, greeting) in STEPS {
        progress.begin(name, None);
        let phase = meter.begin(name)?;
        let releases =
            (1..=addons).flat_map(|index| environment.workloads().iter().map(move |plane| (index, plane)));
        let calls = releases.map(|(index, plane)| cli.call(verb, greeting, index, plane));
        let done: Vec<()> = stream::iter(calls).buffer_unordered(CONCURRENCY).try_collect().await?;
        phases.push(meter.finish(phase, done.len()).await?);
        progress.finish(name);
    }
    Ok(phases)
}

impl Cli<'_> {
    async fn call(&self, verb: &str, greeting: &str, index: u32, plane: &Plane) -> Result<()> {
        let mut command = Command::new(self.helm);
        command.args([verb, &format!("addon-{index:02}"), chart::NAME]);
        command.args(["--repo", self.environment.repository().url()]);
        command.arg("--ca-file").arg(&self.ca);
        command.args(["--version", VERSIONS[0], "--namespace", NAMESPACE]);
        command.args(["--set", &format!("greeting={greeting},cluster={}", plane.name())]);
        command.arg("--kubeconfig").arg(plane.kubeconfig_path());
        if verb == "install" {
            command.arg("--create-namespace");
        }
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.environment.dir().join("helm"));
        }
        command.envs(GO_DEFAULTS);
        let piped = std::process::Stdio::piped;
        let child = command.stdout(piped()).stderr(piped()).kill_on_drop(true).spawn()?;
        let pid = child.id();
        pid.inspect(|pid| self.processes.add(*pid));
        let output = child.wait_with_output().await;
        pid.inspect(|pid| self.processes.remove(*pid));
        let output = output?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {verb} on {}: {stderr}", plane.name());
        Ok(())
    }
}
