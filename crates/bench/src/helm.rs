//! The plain helm CLI in a loop, for comparison.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use chandler_sandbox::{plane::Plane, progress::Progress};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::process::Command;

use crate::{
    chart,
    meter::{Cpu, Meter},
    report::Phase,
    usage::Processes,
    world::{VERSIONS, World},
};

/// Apart from what the controller has put on the clusters.
const NAMESPACE: &str = "helm-cli";
const AT_ONCE: usize = 2;
const STEPS: [(&str, &str, &str); 2] =
    [("helm-cli-install", "install", "first"), ("helm-cli-upgrade", "upgrade", "second")];

struct Cli<'a> {
    world: &'a World,
    helm: &'a Path,
    ca: PathBuf,
    processes: Processes,
}

pub async fn run(world: &World, helm: &Path, addons: u32, progress: &dyn Progress) -> Result<Vec<Phase>> {
    let mut meter = Meter::new(world, Cpu::Reaped, None);
    let ca = world.dir().join("helm-ca.pem");
    std::fs::write(&ca, world.repository().ca_pem()).with_context(|| format!("writing {}", ca.display()))?;
    let cli = Cli { world, helm, ca, processes: meter.processes.clone() };
    let mut phases = Vec::new();
    for (name, verb, greeting) in STEPS {
        progress.begin(name, None);
        let phase = meter.begin(name)?;
        let work = (1..=addons).flat_map(|index| world.workloads().iter().map(move |plane| (index, plane)));
        let calls = work.map(|(index, plane)| cli.call(verb, greeting, index, plane));
        let done: Vec<()> = stream::iter(calls).buffer_unordered(AT_ONCE).try_collect().await?;
        phases.push(meter.done(phase, done.len()).await?);
        progress.finish(name);
    }
    Ok(phases)
}

impl Cli<'_> {
    async fn call(&self, verb: &str, greeting: &str, index: u32, plane: &Plane) -> Result<()> {
        let mut command = Command::new(self.helm);
        command.args([verb, &format!("addon-{index:02}"), chart::NAME]);
        command.args(["--repo", self.world.repository().url()]);
        command.arg("--ca-file").arg(&self.ca);
        command.args(["--version", VERSIONS[0], "--namespace", NAMESPACE]);
        command.args(["--set", &format!("greeting={greeting},cluster={}", plane.name())]);
        command.arg("--kubeconfig").arg(plane.kubeconfig_path());
        if verb == "install" {
            command.arg("--create-namespace");
        }
        for place in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(place, self.world.dir().join("helm"));
        }
        let output = std::process::Stdio::piped;
        let child = command.stdout(output()).stderr(output()).kill_on_drop(true).spawn()?;
        let pid = child.id();
        pid.inspect(|pid| self.processes.enter(*pid));
        let ended = child.wait_with_output().await;
        pid.inspect(|pid| self.processes.leave(*pid));
        let ended = ended?;
        let complaint = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "helm {verb} on {}: {complaint}", plane.name());
        Ok(())
    }
}
