//! The phases of the benchmark.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chandler_sandbox::{
    plane::Plane,
    process::{Child, GRACE_PERIOD, last_lines},
    progress::ProgressReporter,
};

use crate::{
    Size,
    controller::{Controller, exit_error},
    environment::{DesiredAddon, Environment, NAMESPACE, VERSIONS},
    meter::{Cpu, Meter, RunningPhase},
    releases::{Key, ReleaseSnapshot, Releases},
    report::Phase,
};

const TIMEOUT: Duration = Duration::from_mins(5);
/// How long a restarted controller must send no requests until it counts as idle. Longer than in other phases, because a
/// controller may delay its first requests.
const RESTART_QUIET: Duration = Duration::from_secs(4);
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// The phases that change the add-ons, with the desired state. Each adds one revision.
const STEPS: [(&str, DesiredAddon); 3] = [
    ("install", DesiredAddon { version: VERSIONS[0], greeting: "first" }),
    ("upgrade", DesiredAddon { version: VERSIONS[0], greeting: "second" }),
    ("version", DesiredAddon { version: VERSIONS[1], greeting: "second" }),
];
const UNREACHABLE: DesiredAddon = DesiredAddon { version: VERSIONS[1], greeting: "third" };

pub struct Fleet<'a> {
    environment: &'a Environment,
    controller: &'a Controller,
    size: Size,
    progress: &'a dyn ProgressReporter,
    child: Option<Child>,
    meter: Meter<'a>,
    releases: Releases,
    addons: Vec<String>,
    desired: DesiredAddon,
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
        let child = controller.start(environment)?;
        meter.processes.add(child.pid());
        tokio::select! {
            result = meter.traffic.wait_quiet(RESTART_QUIET, START_TIMEOUT) => result?,
            error = exit_error(&child) => return Err(error),
        }
        Ok(Self {
            releases: Releases::watch(environment.client().clone(), NAMESPACE),
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
        let log = self.environment.dir().join("logs/controller.log");
        result.with_context(|| format!("{} ends with:\n{}", log.display(), last_lines(&log, 12)))?;
        Ok(self.phases)
    }

    async fn stop(&mut self) {
        if let Some(child) = self.child.take() {
            self.meter.processes.remove(child.pid());
            child.stop(GRACE_PERIOD).await;
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

    async fn change(&mut self, name: &'static str, desired: DesiredAddon) -> Result<()> {
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
        let result = self.meter.finish_when_quiet(phase, releases, RESTART_QUIET).await?;
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

    async fn apply(&mut self, desired: DesiredAddon) -> Result<()> {
        self.desired = desired;
        self.revision += 1;
        self.environment.apply_addons(&self.addons, &desired).await
    }

    /// Waits until the releases are done. Returns an error if the controller exits first.
    async fn wait_done(&self, name: &str, keys: &[Key]) -> Result<()> {
        let (desired, revision) = (self.desired, self.revision);
        let done = self
            .releases
            .wait_for(TIMEOUT, |snapshot| snapshot.count_done(keys, &desired, revision) == keys.len());
        let result = match &self.child {
            Some(child) => tokio::select! {
                result = done => result,
                error = exit_error(child) => Err(error),
            },
            None => done.await,
        };
        let snapshot = self.releases.snapshot();
        result.with_context(|| {
            let count = snapshot.count_done(keys, &desired, revision);
            format!("phase {name}: {count} of {} releases are ready at revision {revision}", keys.len())
        })
    }

    /// Returns an error if a release has changed although its add-on has not.
    fn check_unchanged(&self) -> Result<()> {
        let keys = keys(&self.addons, self.environment.workloads());
        let done = self.releases.snapshot().count_done(&keys, &self.desired, self.revision);
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

fn keys(addons: &[String], planes: &[Plane]) -> Vec<Key> {
    let on_planes = |addon: &String| {
        planes.iter().map(|plane| (addon.clone(), plane.name().to_owned())).collect::<Vec<_>>()
    };
    addons.iter().flat_map(on_planes).collect()
}
