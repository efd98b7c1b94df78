//! The phases of the benchmark of tenants.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, bail};
use chandler_api::extensions::{AddonRelease, AddonTenancy, Extension, ExtensionCatalog, ExtensionInstance};
use chandler_sandbox::{crds::wait_served, plane::Plane, process::Child, progress::ProgressReporter};
use kube::api::ApiResource;
use tokio::time::Instant;

use super::{
    TenantsSize,
    attack::{RunningAttacks, Site},
    attack_runtime::AttackRuntime,
    attacks,
    figures::{AttackFigures, Figures, Series},
    metrics,
    tenant::Tenant,
};
use crate::{
    controller::{Controller, with_log},
    environment::Environment,
    meter::{Cpu, Meter},
    numbers::rounded,
    usage::Processes,
};

/// How long attacks run before add-ons are measured.
const RAMP: Duration = Duration::from_secs(20);
/// How long the processes may take to become idle after the attacks.
const SETTLE: Duration = Duration::from_secs(75);
/// The processes are idle if they use less than this CPU time in such an interval.
const SETTLE_INTERVAL: Duration = Duration::from_secs(2);
const IDLE_CPU_SECONDS: f64 = 0.2;

pub struct Run<'a> {
    environment: &'a Environment,
    hooks: SocketAddr,
    size: TenantsSize,
    progress: &'a dyn ProgressReporter,
    red: Tenant<'a>,
    blue: Tenant<'a>,
    meter: Meter<'a>,
    manager: Child,
}

impl<'a> Run<'a> {
    /// Creates the tenants, and starts the manager.
    pub async fn start(
        environment: &'a Environment,
        controller: &'a Controller,
        hooks: SocketAddr,
        size: TenantsSize,
        progress: &'a dyn ProgressReporter,
    ) -> Result<Self> {
        for kind in [
            ApiResource::erase::<Extension>(&()),
            ApiResource::erase::<ExtensionCatalog>(&()),
            ApiResource::erase::<ExtensionInstance>(&()),
            ApiResource::erase::<AddonRelease>(&()),
            // The manager does not start without them.
            ApiResource::erase::<AddonTenancy>(&()),
        ] {
            wait_served(environment.client(), &kind).await?;
        }
        let [red, blue] = environment.workloads() else { bail!("each tenant needs a cluster") };
        // Each tenant is measured twice, each time with a first round that does not count.
        let rounds = 2 * (size.rounds + 1);
        let create =
            |namespace: &'static str, plane: &'a Plane| Tenant::create(environment, namespace, plane, rounds);
        let (red, blue) = (create("red", red).await?, create("blue", blue).await?);
        controller.prepare_access(environment).await?;
        attacks::offer(environment).await?;
        let mut meter = Meter::new(environment, Cpu::ProcessTree, controller.label());
        let manager = meter.start(controller).await?;
        Ok(Self { environment, hooks, size, progress, red, blue, meter, manager })
    }

    pub async fn run(self) -> Result<Figures> {
        let figures = self.measure().await;
        self.meter.stop(self.manager).await;
        with_log(self.environment, figures)
    }

    async fn measure(&self) -> Result<Figures> {
        let total = self.meter.processes.sample();
        let tool = self.meter.processes.sample_of(Processes::high_water_of_one_descendant);
        let quiet_red = self.series(&self.red, 0, "red installs undisturbed").await?;
        let quiet_blue = self.series(&self.blue, 0, "blue installs undisturbed").await?;
        let attacks = vec![
            self.attack(&self.red, &self.blue, quiet_blue).await?,
            self.attack(&self.blue, &self.red, quiet_red).await?,
        ];
        Ok(Figures {
            addons: self.size.addons,
            rounds: self.size.rounds,
            attacks,
            manager_peak_mib: rounded(self.meter.processes.high_water_roots()),
            tool_peak_mib: rounded(tool.mib()),
            total_peak_mib: rounded(total.mib()),
        })
    }

    /// Measures a tenant while the other one attacks.
    async fn attack(
        &self,
        attacker: &Tenant<'a>,
        victim: &Tenant<'a>,
        undisturbed: Series,
    ) -> Result<AttackFigures> {
        let (attacking, other) = (attacker.namespace, victim.namespace);
        let step = format!("{attacking} starts its attacks");
        self.progress.begin(&step, None);
        let deaths = metrics::deaths(&self.manager).await?;
        let dir = self.environment.dir().join(format!("attacks-{attacking}"));
        let site = Site { tenant: attacker, dir, hooks: self.hooks };
        let runtime = AttackRuntime::start()?;
        let running = RunningAttacks::start(&site, runtime.wait_for(attacks::all(&site))?).await?;
        tokio::time::sleep(RAMP).await;
        self.progress.finish(&step);

        // The rounds before were those without attacks.
        let first = self.rounds();
        let step = format!("{other} installs while {attacking} attacks");
        let disturbed = self.series(victim, first, &step).await?;
        let mut figures = AttackFigures::compare(attacking, other, undisturbed, disturbed);
        figures.outcome = running.outcome().await?;
        figures.tool_deaths = metrics::deaths(&self.manager).await? - deaths;

        let step = format!("{attacking} stops its attacks");
        self.progress.begin(&step, None);
        running.stop().await?;
        self.settle().await;
        self.progress.finish(&step);
        Ok(figures)
    }

    /// Installs add-ons of a tenant round by round, starting with the repository of this number. A round with an add-on that is late
    /// is the last one.
    async fn series(&self, tenant: &Tenant<'a>, first: usize, step: &str) -> Result<Series> {
        self.progress.begin(step, None);
        let mut samples = Vec::new();
        for round in 0..self.rounds() {
            self.progress.advance(&format!("round {round} of {}", self.size.rounds));
            let installed = tenant.install(first + round, self.size.addons, &self.manager).await?;
            let is_late = installed.iter().any(|sample| sample.is_late);
            samples.push(installed);
            if is_late {
                break;
            }
            tokio::time::sleep(self.size.pause).await;
        }
        self.progress.finish(step);
        let mut samples = samples.into_iter();
        let warm_up = samples.next().unwrap_or_default();
        Ok(Series::of(&warm_up, samples.flatten().collect()))
    }

    /// Returns the number of rounds of a series, with the first one, which does not count.
    fn rounds(&self) -> usize {
        usize::try_from(self.size.rounds).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Waits until the manager and its processes are idle, but not for too long.
    async fn settle(&self) {
        let deadline = Instant::now() + SETTLE;
        let mut before = self.meter.processes.cpu();
        while Instant::now() < deadline {
            tokio::time::sleep(SETTLE_INTERVAL).await;
            let now = self.meter.processes.cpu();
            if now - before < IDLE_CPU_SECONDS {
                return;
            }
            before = now;
        }
    }
}
