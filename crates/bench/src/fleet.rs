//! The work that is measured, phase by phase.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chandler_sandbox::{
    plane::Plane,
    process::{Child, GRACE, last_lines},
    progress::Progress,
};

use crate::{
    Size,
    controller::Controller,
    meter::{Begun, Cpu, Meter},
    releases::{Board, Key, Releases},
    report::Phase,
    world::{NAMESPACE, VERSIONS, Wanted, World},
};

const LIMIT: Duration = Duration::from_mins(5);
/// A controller with nothing to do may still ration its looks, so its silence is waited for longer.
const RESTART_QUIET: Duration = Duration::from_secs(4);
const START_LIMIT: Duration = Duration::from_mins(1);
const CHECK: Duration = Duration::from_secs(1);

/// What the add-ons are after each phase that changes them; the revision counts them.
const STEPS: [(&str, Wanted); 3] = [
    ("install", Wanted { version: VERSIONS[0], greeting: "first" }),
    ("upgrade", Wanted { version: VERSIONS[0], greeting: "second" }),
    ("version", Wanted { version: VERSIONS[1], greeting: "second" }),
];
const UNREACHABLE: Wanted = Wanted { version: VERSIONS[1], greeting: "third" };

pub struct Fleet<'a> {
    world: &'a World,
    controller: &'a Controller,
    size: Size,
    progress: &'a dyn Progress,
    child: Option<Child>,
    meter: Meter<'a>,
    releases: Releases,
    addons: Vec<String>,
    wanted: Wanted,
    revision: u64,
    phases: Vec<Phase>,
}

impl<'a> Fleet<'a> {
    pub async fn start(
        world: &'a World,
        controller: &'a Controller,
        size: Size,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        let mut meter = Meter::new(world, Cpu::Tree, controller.mark());
        controller.admit(world).await?;
        let child = controller.start(world)?;
        meter.processes.enter(child.pid());
        tokio::select! {
            settled = meter.traffic.settle(RESTART_QUIET, START_LIMIT) => settled?,
            ended = ended(&child) => return Err(ended),
        }
        Ok(Self {
            releases: Releases::follow(world.client().clone(), NAMESPACE),
            addons: (1..=size.addons).map(|index| format!("addon-{index:02}")).collect(),
            phases: Vec::new(),
            revision: 0,
            wanted: STEPS[0].1,
            world,
            controller,
            size,
            progress,
            child: Some(child),
            meter,
        })
    }

    pub async fn run(mut self) -> Result<Vec<Phase>> {
        let measured = self.phases().await;
        self.stop().await;
        let log = self.world.dir().join("logs/controller.log");
        measured.with_context(|| format!("{} ended with:\n{}", log.display(), last_lines(&log, 12)))?;
        Ok(self.phases)
    }

    async fn stop(&mut self) {
        if let Some(child) = self.child.take() {
            self.meter.processes.leave(child.pid());
            child.stop(GRACE).await;
        }
    }

    fn check(&self) -> Result<()> {
        self.child.as_ref().map_or(Ok(()), Child::check)?;
        Ok(())
    }

    async fn phases(&mut self) -> Result<()> {
        for (name, wanted) in STEPS {
            self.change(name, wanted).await?;
        }
        self.restart().await?;
        self.idle().await?;
        self.failing().await?;
        self.unreachable().await
    }

    async fn change(&mut self, name: &'static str, wanted: Wanted) -> Result<()> {
        let phase = self.begin(name)?;
        self.want(wanted).await?;
        let keys = keys(&self.addons, self.world.workloads());
        self.until_done(name, &keys).await?;
        let figures = self.meter.done(phase, keys.len()).await?;
        self.end(figures);
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        self.stop().await;
        let phase = self.begin("restart")?;
        let child = self.controller.start(self.world)?;
        self.meter.processes.enter(child.pid());
        self.child = Some(child);
        let releases = keys(&self.addons, self.world.workloads()).len();
        let figures = self.meter.silent(phase, releases, RESTART_QUIET).await?;
        self.end(figures);
        self.check()?;
        self.unchanged()
    }

    async fn idle(&mut self) -> Result<()> {
        let phase = self.begin("idle")?;
        tokio::time::sleep(self.size.idle).await;
        let releases = keys(&self.addons, self.world.workloads()).len();
        let figures = self.meter.over(&phase, releases)?;
        self.end(figures);
        self.check()?;
        self.unchanged()
    }

    async fn failing(&mut self) -> Result<()> {
        let failing: Vec<String> =
            (1..=self.size.failing_addons).map(|index| format!("failing-{index}")).collect();
        self.world.occupy(&failing).await?;
        let keys = keys(&failing, self.world.workloads());
        let phase = self.begin("failing")?;
        self.world.place(&failing, &self.wanted).await?;
        tokio::time::sleep(self.size.failing).await;
        let figures = self.meter.over(&phase, keys.len())?;
        self.end(figures);
        let board = self.releases.now();
        ensure!(
            failing.iter().all(|addon| board.has(addon)),
            "the controller did not take up the failing add-on"
        );
        ensure!(!keys.iter().any(|key| board.is_ready(key)), "an add-on is ready that cannot be");
        self.unchanged()?;
        for addon in &failing {
            self.world.remove(addon).await?;
        }
        let gone = |board: &Board| failing.iter().all(|addon| !board.has(addon));
        self.releases.until(LIMIT, gone).await.context("waiting for the failing add-on to go")
    }

    async fn unreachable(&mut self) -> Result<()> {
        let Some((away, others)) = self.world.workloads().split_last() else { return Ok(()) };
        away.stop().await;
        let phase = self.begin("unreachable")?;
        self.want(UNREACHABLE).await?;
        let reachable = keys(&self.addons, others);
        self.until_done("unreachable", &reachable).await?;
        let figures = self.meter.done(phase, reachable.len()).await?;
        self.end(figures);

        let phase = self.begin("back")?;
        away.restart().await?;
        let keys = keys(&self.addons, std::slice::from_ref(away));
        self.until_done("back", &keys).await?;
        let figures = self.meter.done(phase, keys.len()).await?;
        self.end(figures);
        Ok(())
    }

    async fn want(&mut self, wanted: Wanted) -> Result<()> {
        self.wanted = wanted;
        self.revision += 1;
        self.world.place(&self.addons, &wanted).await
    }

    /// Waits for the releases, unless the controller ends first.
    async fn until_done(&self, name: &str, keys: &[Key]) -> Result<()> {
        let (wanted, revision) = (self.wanted, self.revision);
        let done = self.releases.until(LIMIT, |board| board.done(keys, &wanted, revision) == keys.len());
        let reached = match &self.child {
            Some(child) => tokio::select! {
                done = done => done,
                ended = ended(child) => Err(ended),
            },
            None => done.await,
        };
        let board = self.releases.now();
        reached.with_context(|| {
            let count = board.done(keys, &wanted, revision);
            format!("phase {name}: {count} of {} releases are ready at revision {revision}", keys.len())
        })
    }

    /// Nobody may have touched a release that nobody asked to change.
    fn unchanged(&self) -> Result<()> {
        let keys = keys(&self.addons, self.world.workloads());
        let done = self.releases.now().done(&keys, &self.wanted, self.revision);
        ensure!(done == keys.len(), "{} releases changed that nobody asked to change", keys.len() - done);
        Ok(())
    }

    fn begin(&mut self, name: &'static str) -> Result<Begun> {
        self.progress.begin(name, None);
        self.meter.begin(name)
    }

    fn end(&mut self, figures: Phase) {
        self.progress.finish(figures.name);
        self.phases.push(figures);
    }
}

/// Why the controller ended, once it has.
async fn ended(child: &Child) -> anyhow::Error {
    loop {
        tokio::time::sleep(CHECK).await;
        if let Err(ended) = child.check() {
            return ended.into();
        }
    }
}

fn keys(addons: &[String], planes: &[Plane]) -> Vec<Key> {
    let on_planes = |addon: &String| {
        planes.iter().map(|plane| (addon.clone(), plane.name().to_owned())).collect::<Vec<_>>()
    };
    addons.iter().flat_map(on_planes).collect()
}
