//! The phases of the placement benchmark.

mod drift;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use chandler_core::reachability::LATEST_PROBE;
use chandler_sandbox::{
    process::{Child, GRACE_PERIOD},
    progress::ProgressReporter,
};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    PlacementSize,
    changes::LabelChanges,
    comparisons::Costs,
    figures::{Figures, percentile},
    lease_log::LeaseLog,
    management_log::ManagementLog,
    placements,
    replay::Behavior,
    replayed_clusters::{ReplayedClusters, is_replayed},
    requests::{self, LoggedRequest},
};
use crate::{
    chart::LARGE_OBJECTS,
    controller::{Controller, WITHOUT_HEALTH, with_log},
    environment::Environment,
    numbers::{as_float, per_minute, rounded, seconds},
    traffic::USER_AGENT,
    usage::Processes,
};

/// How often the leader renews the Lease, which is the default of `--lease-retry-seconds`.
const LEASE_PERIOD: Duration = Duration::from_secs(5);
const INSTALL_TIMEOUT: Duration = Duration::from_mins(5);
/// How long each release may take until it is Ready.
const FILL_TIMEOUT_PER_RELEASE: Duration = Duration::from_millis(100);
/// How long each cluster may take until it is watched again.
const WATCH_TIMEOUT_PER_CLUSTER: Duration = Duration::from_millis(200);
const SHORTEST_TIMEOUT: Duration = Duration::from_mins(3);
/// With [`QUIET_PER_CLUSTER`], longer than the interval at which the status of a placement with many clusters is written.
const QUIET: Duration = Duration::from_secs(12);
const QUIET_PER_CLUSTER: Duration = Duration::from_millis(20);
const QUIET_TIMEOUT: Duration = Duration::from_mins(15);
/// A manager that has sent nothing for so long after its start has nothing to do.
const RESTART_QUIET: Duration = Duration::from_secs(4);
const CHURN_WINDOW: Duration = Duration::from_secs(10);
const CHANGES_PER_SECOND: u32 = 10;
const RESET: Duration = Duration::from_secs(15);
/// A cluster is probed for the first time before so much time has passed since it was connected, on a connection of its own.
const PROBED: Duration = LATEST_PROBE.saturating_add(Duration::from_secs(2));
/// A silent cluster is reported before this time.
const SILENCE_REPORTED: Duration = Duration::from_secs(45);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The statuses of the placements list all clusters, so they are read less often if there are many.
const STATUS_POLL_PER_CLUSTER: Duration = Duration::from_millis(1);

pub struct Run<'a> {
    environment: &'a Environment,
    controller: &'a Controller,
    size: PlacementSize,
    progress: &'a dyn ProgressReporter,
    replayed: ReplayedClusters,
    log: ManagementLog,
    leases: LeaseLog,
    processes: Processes,
    manager: Option<Manager>,
    /// Whether a manager that is started watches the objects of releases.
    health: bool,
    figures: Figures,
}

struct Manager {
    child: Child,
    started: Timestamp,
}

/// What a restart without work costs.
struct Restart {
    requests_per_cluster: f64,
    management_requests: u64,
    status_writes: u64,
    seconds: f64,
    memory_mib: f64,
}

/// What the phase without changes costs.
struct Idle {
    cpu_s: f64,
    workload_requests: u64,
    management_requests: u64,
}

impl Restart {
    /// Returns what is compared with a manager of another configuration.
    fn costs(&self, idle: &Idle) -> Costs {
        Costs {
            restart_requests_per_cluster: self.requests_per_cluster,
            restart_s: self.seconds,
            memory_after_restart_mib: self.memory_mib,
            idle_cpu_s: idle.cpu_s,
            idle_workload_requests: idle.workload_requests,
        }
    }
}

impl<'a> Run<'a> {
    /// Starts the endpoints of the replayed clusters and the manager. The environment has one real workload cluster.
    pub async fn start(
        environment: &'a Environment,
        controller: &'a Controller,
        size: PlacementSize,
        progress: &'a dyn ProgressReporter,
    ) -> Result<Self> {
        let [real] = environment.workloads() else { bail!("the environment needs one workload cluster") };
        let real = real.client_as(USER_AGENT).await?;
        let replayed =
            ReplayedClusters::start(&environment.dir().join("replay"), real, size.clusters).await?;
        controller.prepare_access(environment).await?;
        let figures = Figures {
            clusters: size.clusters,
            placements: size.placements,
            objects_per_release: LARGE_OBJECTS,
            idle_s: size.idle.as_secs(),
            ..Figures::default()
        };
        let log = ManagementLog::follow(environment.management());
        let leases = LeaseLog::follow(environment.client());
        let processes = Processes::default();
        let mut run = Self {
            environment,
            controller,
            size,
            progress,
            replayed,
            log,
            leases,
            processes,
            manager: None,
            health: true,
            figures,
        };
        run.start_manager()?;
        Ok(run)
    }

    pub async fn run(mut self) -> Result<Figures> {
        let result = self.run_phases().await;
        let stopped = self.stop_manager().await;
        with_log(self.environment, result.and(stopped))?;
        Ok(self.figures)
    }

    async fn run_phases(&mut self) -> Result<()> {
        self.install().await?;
        self.fill().await?;
        let samples = self.replayed.samples(self.size.changes);
        let placements = usize::try_from(self.size.placements)?;
        let mut changes = LabelChanges::start(self.environment.client(), samples, placements).await?;
        self.measure_changes(&mut changes).await?;
        self.churn(&mut changes).await?;
        if self.size.compare_health {
            self.without_health().await?;
        }
        if self.size.compare_drift {
            self.compare_drift().await?;
        }
        self.restart().await?;
        self.idle().await?;
        self.reset().await?;
        self.silence(&mut changes).await?;
        self.check_nothing_written()
    }

    /// Installs the releases on the real cluster, whose answers are recorded afterwards.
    async fn install(&mut self) -> Result<()> {
        self.begin("installing the releases to record");
        placements::apply_all(self.environment, self.size.placements).await?;
        self.wait_ready(1, INSTALL_TIMEOUT).await?;
        self.end("installing the releases to record")
    }

    async fn fill(&mut self) -> Result<()> {
        let clusters = self.replayed.count();
        let step = format!("creating {clusters} Clusters");
        self.begin(&step);
        let started = Instant::now();
        let progress = self.progress;
        let registered = |count: u32| {
            if count.is_multiple_of(100) {
                progress.advance(&format!("{count} of {clusters} exist"));
            }
        };
        self.replayed.register(self.environment.client(), registered).await?;
        let releases = clusters.saturating_mul(self.size.placements);
        let timeout = (FILL_TIMEOUT_PER_RELEASE * releases).max(SHORTEST_TIMEOUT);
        // The real cluster counts too.
        self.wait_ready(clusters + 1, timeout).await?;
        self.figures.fill_s = seconds(started.elapsed());
        self.wait_quiet().await?;
        self.end(&step)
    }

    async fn measure_changes(&mut self, changes: &mut LabelChanges) -> Result<()> {
        self.begin("changing labels");
        let times = changes.measure(self.size.changes, self.change_progress()).await?;
        self.figures.change_p50_s = seconds(percentile(&times, 50));
        self.figures.change_p99_s = seconds(percentile(&times, 99));
        self.end("changing labels")
    }

    async fn churn(&mut self, changes: &mut LabelChanges) -> Result<()> {
        self.begin("churn");
        self.wait_quiet().await?;
        let from = Timestamp::now();
        changes.churn(self.size.churn, CHANGES_PER_SECOND).await?;
        let requests = self.log.since(from).await?;
        self.figures.churn_status_writes = requests::most_status_writes(&requests, from, CHURN_WINDOW);
        self.wait_quiet().await?;
        self.end("churn")
    }

    /// Measures a restart and the phase without changes of a manager that does not watch objects.
    async fn without_health(&mut self) -> Result<()> {
        self.set_health("turning health off", false).await?;
        let restart = self.measure_restart("restart without health").await?;
        let idle = self.measure_idle("idle without health").await?;
        self.figures.without_health = Some(restart.costs(&idle));
        self.set_health("turning health on", true).await
    }

    /// Restarts the manager, and waits until all release objects have or do not have the condition any more. What that costs is
    /// not measured.
    async fn set_health(&mut self, step: &str, health: bool) -> Result<()> {
        self.begin(step);
        self.stop_manager().await?;
        self.health = health;
        self.replayed.traffic().reset();
        self.start_manager()?;
        self.wait_watched().await?;
        self.wait_quiet().await?;
        self.end(step)
    }

    async fn restart(&mut self) -> Result<()> {
        let restart = self.measure_restart("restart").await?;
        self.figures.restart_requests_per_cluster = restart.requests_per_cluster;
        self.figures.restart_management_requests = restart.management_requests;
        self.figures.restart_status_writes = restart.status_writes;
        self.figures.restart_s = restart.seconds;
        self.figures.memory_after_restart_mib = restart.memory_mib;
        Ok(())
    }

    async fn measure_restart(&mut self, step: &str) -> Result<Restart> {
        self.begin(step);
        self.stop_manager().await?;
        self.replayed.traffic().reset();
        let from = Timestamp::now();
        self.start_manager()?;
        self.wait_watched().await?;
        self.log.wait_quiet(RESTART_QUIET, QUIET_TIMEOUT).await?;
        let requests = self.log.since(from).await?;
        let counts = self.replayed.traffic().counts();
        // The real cluster is connected too, but its list and watch are not counted either.
        let kubeconfigs =
            requests::count(&requests, |request| request.kubeconfig_of().is_some_and(is_replayed));
        let per_cluster = as_float(counts.reads() + kubeconfigs) / f64::from(self.replayed.count().max(1));
        let restart = Restart {
            requests_per_cluster: rounded(per_cluster),
            management_requests: requests::count(&requests, |_| true),
            status_writes: requests::count(&requests, LoggedRequest::is_status_write),
            seconds: seconds(elapsed(from, counts.last.max(requests::last(&requests)))),
            memory_mib: rounded(self.processes.resident_roots()),
        };
        self.end(step)?;
        Ok(restart)
    }

    async fn idle(&mut self) -> Result<()> {
        let idle = self.measure_idle("idle").await?;
        self.figures.idle_cpu_s = idle.cpu_s;
        self.figures.idle_workload_requests = idle.workload_requests;
        self.figures.idle_management_requests = idle.management_requests;
        Ok(())
    }

    /// Measures a time without changes. It begins when every cluster was probed once: the connections that this opens are a part
    /// of the restart.
    async fn measure_idle(&mut self, step: &str) -> Result<Idle> {
        self.begin(step);
        tokio::time::sleep(PROBED).await;
        self.replayed.traffic().reset();
        let (from, cpu) = (Timestamp::now(), self.processes.cpu());
        tokio::time::sleep(self.size.idle).await;
        let cpu_s = rounded(per_minute(self.processes.cpu() - cpu, self.size.idle));
        let counts = self.replayed.traffic().counts();
        let requests = self.log.since(from).await?;
        let idle = Idle {
            cpu_s,
            workload_requests: counts.reads() + counts.probes,
            management_requests: requests::count(&requests, |_| true),
        };
        self.end(step)?;
        Ok(idle)
    }

    async fn reset(&mut self) -> Result<()> {
        self.begin("resetting all connections");
        self.replayed.traffic().reset();
        let from = Timestamp::now();
        self.replayed.set_behavior(Behavior::Unreachable);
        tokio::time::sleep(RESET).await;
        let back = Timestamp::now();
        self.replayed.set_behavior(Behavior::Healthy);
        self.wait_watched().await?;
        let counts = self.replayed.traffic().counts();
        self.figures.reset_recovery_s = seconds(elapsed(back, counts.last));
        let requests = self.log.since(from).await?;
        self.figures.reset_status_writes = requests::count(&requests, LoggedRequest::is_status_write);
        tokio::time::sleep(PROBED).await;
        self.figures.reset_concurrent_connects = self.replayed.traffic().counts().most_connecting;
        self.wait_quiet().await?;
        self.end("resetting all connections")
    }

    async fn silence(&mut self, changes: &mut LabelChanges) -> Result<()> {
        self.begin("1 % of the clusters are silent");
        self.replayed.set_behavior_of_few(Behavior::Silent);
        tokio::time::sleep(SILENCE_REPORTED).await;
        let times = changes.measure(self.size.changes, self.change_progress()).await?;
        self.figures.silent_p99_s = seconds(percentile(&times, 99));
        self.figures.silent_p99_ratio =
            rounded(self.figures.silent_p99_s / self.figures.change_p99_s.max(0.001));
        self.replayed.set_behavior_of_few(Behavior::Healthy);
        self.end("1 % of the clusters are silent")
    }

    fn start_manager(&mut self) -> Result<()> {
        let started = Timestamp::now();
        let further: &[&str] = if self.health { &[] } else { &[WITHOUT_HEALTH] };
        let child = self.controller.start_with(self.environment, further)?;
        self.processes.add(child.pid());
        self.manager = Some(Manager { child, started });
        Ok(())
    }

    /// Stops the manager, and takes in how late it has renewed the Lease.
    async fn stop_manager(&mut self) -> Result<()> {
        let Some(Manager { child, started }) = self.manager.take() else { return Ok(()) };
        self.processes.remove(child.pid());
        child.stop(GRACE_PERIOD).await;
        let requests = self.log.since(started).await?;
        if let Some(delay) = requests::longest_lease_delay(&requests, LEASE_PERIOD) {
            self.figures.lease_delay_s = self.figures.lease_delay_s.max(seconds(delay));
        }
        if let Some(delay) = self.leases.longest_delay(started, LEASE_PERIOD) {
            self.figures.lease_sent_delay_s = self.figures.lease_sent_delay_s.max(seconds(delay));
        }
        Ok(())
    }

    /// Waits until the manager writes nothing any more.
    async fn wait_quiet(&self) -> Result<()> {
        let quiet = QUIET.max(QUIET_PER_CLUSTER * self.replayed.count());
        self.log.wait_quiet(quiet, QUIET_TIMEOUT).await
    }

    fn check_manager(&self) -> Result<()> {
        self.manager.as_ref().map_or(Ok(()), |manager| manager.child.check())?;
        Ok(())
    }

    /// Waits until every placement is ready on so many clusters.
    async fn wait_ready(&self, clusters: u32, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            self.check_manager()?;
            let ready = placements::ready_clusters(self.environment.client()).await?;
            if placements::all_ready(&ready, self.size.placements, clusters) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "not ready within {} s: {}",
                timeout.as_secs(),
                ready.join(", ")
            );
            self.progress.advance(ready.first().map_or("no placement", String::as_str));
            tokio::time::sleep(POLL_INTERVAL.max(STATUS_POLL_PER_CLUSTER * clusters)).await;
        }
    }

    /// Waits until every replayed cluster was listed and is watched, and no further request but probes has followed.
    async fn wait_watched(&self) -> Result<()> {
        let clusters = self.replayed.count();
        let timeout = (WATCH_TIMEOUT_PER_CLUSTER * clusters).max(SHORTEST_TIMEOUT);
        let deadline = Instant::now() + timeout;
        loop {
            self.check_manager()?;
            let counts = self.replayed.traffic().counts();
            let watched = counts.lists.min(counts.watches);
            let quiet =
                counts.last.is_some_and(|last| elapsed(last, Some(Timestamp::now())) >= RESTART_QUIET);
            if watched >= u64::from(clusters) && quiet {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{watched} of {clusters} clusters are watched");
            self.progress.advance(&format!("{watched} of {clusters} clusters are watched"));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns an error if the manager has tried to change a replayed cluster, whose releases are all up to date.
    fn check_nothing_written(&self) -> Result<()> {
        match self.replayed.traffic().counts().first_write {
            Some(write) => bail!("the manager tried to change a cluster that is up to date: {write}"),
            None => Ok(()),
        }
    }

    fn change_progress(&self) -> impl FnMut(u32) + use<'a> {
        let (progress, all) = (self.progress, self.size.changes);
        move |done| progress.advance(&format!("{done} of {all} changes"))
    }

    fn begin(&self, step: &str) {
        self.progress.begin(step, None);
    }

    fn end(&mut self, step: &str) -> Result<()> {
        self.figures.memory_mib = self.figures.memory_mib.max(rounded(self.processes.resident_roots()));
        self.progress.finish(step);
        self.check_manager()
    }
}

/// Returns the time between two points in time, or zero if the second is unknown or earlier.
fn elapsed(from: Timestamp, until: Option<Timestamp>) -> Duration {
    until.and_then(|until| Duration::try_from(until.duration_since(from)).ok()).unwrap_or_default()
}
