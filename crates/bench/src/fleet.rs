//! The phases of the benchmark.

use anyhow::{Context as _, Result, ensure};
use chandler_sandbox::{process::Child, progress::ProgressReporter};

use crate::{
    Size,
    controller::{Controller, with_log},
    environment::{DesiredAddon, Environment, NAMESPACE, VERSIONS},
    meter::{Cpu, Meter, RunningPhase, START_QUIET},
    releases::{DesiredReleases, Key, ReleaseKind, ReleaseSnapshot, Releases, TIMEOUT, keys},
    report::Phase,
};

/// The phases that change the add-ons, with the desired state. Each adds one revision.
const STEPS: [(&str, DesiredAddon<'static>); 3] = [
    ("install", DesiredAddon { version: VERSIONS[0], greeting: "first" }),
    ("upgrade", DesiredAddon { version: VERSIONS[0], greeting: "second" }),
    ("version", DesiredAddon { version: VERSIONS[1], greeting: "second" }),
];
const UNREACHABLE: DesiredAddon<'static> = DesiredAddon { version: VERSIONS[1], greeting: "third" };

pub struct Fleet<'a> {
    environment: &'a Environment,
    controller: &'a Controller,
    size: Size,
    progress: &'a dyn ProgressReporter,
    child: Option<Child>,
    meter: Meter<'a>,
    releases: Releases,
    addons: Vec<String>,
    desired: DesiredAddon<'static>,
    revision: u64,
    phases: Vec<Phase>,
}

impl<'a> Fleet<'a> {
    pub async fn start(
        environment: &'a Environment,
        controller: &'a Controller,
        size: Size,
        progress: &'a dyn ProgressReporter,
    ) -> Result<Self> {
        let mut meter = Meter::new(environment, Cpu::ProcessTree, controller.label());
        controller.prepare_access(environment).await?;
        let child = meter.start(controller).await?;
        Ok(Self {
            releases: Releases::watch(environment.client().clone(), NAMESPACE, ReleaseKind::HelmReleaseProxy),
            addons: (1..=size.addons).map(|index| format!("addon-{index:02}")).collect(),
            phases: Vec::new(),
            revision: 0,
            desired: STEPS[0].1,
            environment,
            controller,
            size,
            progress,
            child: Some(child),
            meter,
        })
    }

    pub async fn run(mut self) -> Result<Vec<Phase>> {
        let result = self.run_phases().await;
        self.stop().await;
        with_log(self.environment, result)?;
        Ok(self.phases)
    }

    async fn stop(&mut self) {
        if let Some(child) = self.child.take() {
            self.meter.stop(child).await;
        }
    }

    fn check(&self) -> Result<()> {
        self.child.as_ref().map_or(Ok(()), Child::check)?;
        Ok(())
    }

    async fn run_phases(&mut self) -> Result<()> {
        for (name, desired) in STEPS {
            self.change(name, desired).await?;
        }
        self.restart().await?;
        self.idle().await?;
        self.failing().await?;
        self.unreachable().await
    }

    async fn change(&mut self, name: &'static str, desired: DesiredAddon<'static>) -> Result<()> {
        let phase = self.begin(name)?;
        self.apply(desired).await?;
        let keys = keys(&self.addons, self.environment.workloads());
        self.wait_done(name, &keys).await?;
        let result = self.meter.finish(phase, keys.len()).await?;
        self.end(result);
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        self.stop().await;
        let phase = self.begin("restart")?;
        let child = self.controller.start(self.environment)?;
        self.meter.processes.add(child.pid());
        self.child = Some(child);
        let releases = keys(&self.addons, self.environment.workloads()).len();
        let result = self.meter.finish_when_quiet(phase, releases, START_QUIET).await?;
        self.end(result);
        self.check()?;
        self.check_unchanged()
    }

    async fn idle(&mut self) -> Result<()> {
        let phase = self.begin("idle")?;
        tokio::time::sleep(self.size.idle).await;
        let releases = keys(&self.addons, self.environment.workloads()).len();
        let result = self.meter.finish_now(&phase, releases)?;
        self.end(result);
        self.check()?;
        self.check_unchanged()
    }

    async fn failing(&mut self) -> Result<()> {
        let failing: Vec<String> =
            (1..=self.size.failing_addons).map(|index| format!("failing-{index}")).collect();
        self.environment.create_conflicts(&failing).await?;
        let keys = keys(&failing, self.environment.workloads());
        let phase = self.begin("failing")?;
        self.environment.apply_addons(&failing, &self.desired).await?;
        tokio::time::sleep(self.size.failing).await;
        let result = self.meter.finish_now(&phase, keys.len())?;
        self.end(result);
        let snapshot = self.releases.snapshot();
        ensure!(
            failing.iter().all(|addon| snapshot.contains(addon)),
            "the controller did not create releases of the failing add-on"
        );
        ensure!(!keys.iter().any(|key| snapshot.is_ready(key)), "a release is Ready that must fail");
        self.check_unchanged()?;
        for addon in &failing {
            self.environment.delete_addon(addon).await?;
        }
        let deleted = |snapshot: &ReleaseSnapshot| failing.iter().all(|addon| !snapshot.contains(addon));
        self.releases.wait_for(TIMEOUT, deleted).await.context("waiting for the failing add-on to be deleted")
    }

    async fn unreachable(&mut self) -> Result<()> {
        let Some((stopped, others)) = self.environment.workloads().split_last() else { return Ok(()) };
        stopped.stop().await;
        let phase = self.begin("unreachable")?;
        self.apply(UNREACHABLE).await?;
        let reachable = keys(&self.addons, others);
        self.wait_done("unreachable", &reachable).await?;
        let result = self.meter.finish(phase, reachable.len()).await?;
        self.end(result);

        let phase = self.begin("back")?;
        stopped.restart().await?;
        let keys = keys(&self.addons, std::slice::from_ref(stopped));
        self.wait_done("back", &keys).await?;
        let result = self.meter.finish(phase, keys.len()).await?;
        self.end(result);
        Ok(())
    }

    async fn apply(&mut self, desired: DesiredAddon<'static>) -> Result<()> {
        self.desired = desired;
        self.revision += 1;
        self.environment.apply_addons(&self.addons, &desired).await
    }

    async fn wait_done(&self, name: &str, keys: &[Key]) -> Result<()> {
        let done = self.releases.wait_done(self.child.as_ref(), &self.desired_releases(keys)).await;
        done.with_context(|| format!("phase {name}"))
    }

    fn desired_releases<'k>(&self, keys: &'k [Key]) -> DesiredReleases<'k> {
        DesiredReleases { keys, addon: self.desired, revision: self.revision }
    }

    /// Returns an error if a release has changed although its add-on has not.
    fn check_unchanged(&self) -> Result<()> {
        let keys = keys(&self.addons, self.environment.workloads());
        let done = self.releases.snapshot().count_done(&self.desired_releases(&keys));
        ensure!(done == keys.len(), "{} releases changed although their add-ons did not", keys.len() - done);
        Ok(())
    }

    fn begin(&mut self, name: &'static str) -> Result<RunningPhase> {
        self.progress.begin(name, None);
        self.meter.begin(name)
    }

    fn end(&mut self, result: Phase) {
        self.progress.finish(&result.name);
        self.phases.push(result);
    }
}
