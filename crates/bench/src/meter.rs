//! Measures a phase.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use chandler_sandbox::process::{Child, GRACE_PERIOD};

use crate::{
    controller::{Controller, exit_error},
    environment::Environment,
    numbers::{rounded, seconds},
    report::Phase,
    traffic::{Side, Traffic},
    usage::{Peak, Processes, exited_children_cpu},
};

/// A phase has ended when there was no request for this duration.
const QUIET: Duration = Duration::from_millis(1500);
const QUIET_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a started controller must send no requests until it counts as idle. Longer than in other phases, because a
/// controller may delay its first requests.
pub const START_QUIET: Duration = Duration::from_secs(4);

/// The processes whose CPU time is measured.
#[derive(Clone, Copy, Debug)]
pub enum Cpu {
    /// The processes in [`Meter::processes`] and their descendants.
    ProcessTree,
    /// The children of this process that have exited.
    ExitedChildren,
}

pub struct Meter<'a> {
    environment: &'a Environment,
    cpu: Cpu,
    /// The value of `controller` in the results.
    controller: Option<String>,
    pub traffic: Traffic,
    pub processes: Processes,
}

/// A phase that has started.
pub struct RunningPhase {
    name: &'static str,
    started: Instant,
    clock: SystemTime,
    cpu: f64,
    downloads: Downloads,
    peak: Peak,
}

#[derive(Clone, Copy, Debug)]
struct Downloads {
    index: u64,
    chart: u64,
}

impl<'a> Meter<'a> {
    pub fn new(environment: &'a Environment, cpu: Cpu, controller: Option<String>) -> Self {
        let traffic = environment.traffic();
        Self { environment, cpu, controller, traffic, processes: Processes::default() }
    }

    /// Starts a controller, and waits until it has nothing to do.
    pub async fn start(&mut self, controller: &Controller) -> Result<Child> {
        self.traffic.reset()?;
        let child = controller.start(self.environment)?;
        self.processes.add(child.pid());
        tokio::select! {
            result = self.traffic.wait_quiet(START_QUIET, QUIET_TIMEOUT) => result?,
            error = exit_error(&child) => return Err(error),
        }
        Ok(child)
    }

    /// Stops a controller.
    pub async fn stop(&self, child: Child) {
        self.processes.remove(child.pid());
        child.stop(GRACE_PERIOD).await;
    }

    pub fn begin(&mut self, name: &'static str) -> Result<RunningPhase> {
        self.traffic.reset()?;
        Ok(RunningPhase {
            name,
            started: Instant::now(),
            clock: SystemTime::now(),
            cpu: self.cpu(),
            downloads: self.downloads(),
            peak: self.processes.sample(),
        })
    }

    /// Ends a phase whose work is done. Also counts requests that follow until there are none, but not their time.
    pub async fn finish(&mut self, phase: RunningPhase, releases: usize) -> Result<Phase> {
        let wall = phase.started.elapsed();
        self.traffic.wait_quiet(QUIET, QUIET_TIMEOUT).await?;
        Ok(self.results(&phase, releases, wall))
    }

    /// Ends a phase when there was no request for the duration `quiet`. Its time ends with the last request.
    pub async fn finish_when_quiet(
        &mut self,
        phase: RunningPhase,
        releases: usize,
        quiet: Duration,
    ) -> Result<Phase> {
        self.traffic.wait_quiet(quiet, QUIET_TIMEOUT).await?;
        let last = self.traffic.last().and_then(|last| last.duration_since(phase.clock).ok());
        Ok(self.results(&phase, releases, last.unwrap_or_default()))
    }

    /// Ends a phase of a fixed duration.
    pub fn finish_now(&mut self, phase: &RunningPhase, releases: usize) -> Result<Phase> {
        self.traffic.read()?;
        Ok(self.results(phase, releases, phase.started.elapsed()))
    }

    fn results(&self, phase: &RunningPhase, releases: usize, wall: Duration) -> Phase {
        let now = self.downloads();
        let (index, chart) = (now.index - phase.downloads.index, now.chart - phase.downloads.chart);
        let (management, workload) =
            (self.traffic.count(Side::Management), self.traffic.count(Side::Workload));
        Phase {
            name: phase.name.to_owned(),
            controller: self.controller.clone(),
            releases,
            wall_s: seconds(wall),
            cpu_s: rounded(self.cpu() - phase.cpu),
            requests: management + workload,
            requests_management: management,
            requests_workload: workload,
            downloads: index + chart,
            downloads_index: index,
            downloads_chart: chart,
            rss_mib: rounded(self.processes.resident()),
            peak_mib: rounded(phase.peak.mib()),
            high_water_mib: rounded(self.processes.high_water()),
            main_process_mib: rounded(self.processes.resident_roots()),
            by_request: self.traffic.by_request(),
        }
    }

    fn cpu(&self) -> f64 {
        match self.cpu {
            Cpu::ProcessTree => self.processes.cpu(),
            Cpu::ExitedChildren => exited_children_cpu(),
        }
    }

    fn downloads(&self) -> Downloads {
        let count = |is_counted: fn(&str) -> bool| {
            let counts = self.environment.repository().requests();
            counts.iter().filter(|(path, _)| is_counted(path)).map(|(_, count)| count).sum()
        };
        Downloads { index: count(|path| path == "/index.yaml"), chart: count(|path| path != "/index.yaml") }
    }
}
