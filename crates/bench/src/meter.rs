//! Takes the figures of one phase.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;

use crate::{
    report::Phase,
    traffic::{Side, Traffic},
    usage::{Peak, Processes, reaped_cpu},
    world::World,
};

/// Work has ended when nothing was asked for so long.
const QUIET: Duration = Duration::from_millis(1500);
const SETTLE_LIMIT: Duration = Duration::from_mins(1);

/// Where CPU time is counted.
#[derive(Clone, Copy, Debug)]
pub enum Cpu {
    /// In the processes that are looked at.
    Tree,
    /// In children of this process that came and went.
    Reaped,
}

pub struct Meter<'a> {
    world: &'a World,
    cpu: Cpu,
    /// Told apart from our own controller by this.
    controller: Option<String>,
    pub traffic: Traffic,
    pub processes: Processes,
}

/// A phase that is under way.
pub struct Begun {
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
    pub fn new(world: &'a World, cpu: Cpu, controller: Option<String>) -> Self {
        Self { world, cpu, controller, traffic: world.traffic(), processes: Processes::default() }
    }

    pub fn begin(&mut self, name: &'static str) -> Result<Begun> {
        self.traffic.begin()?;
        Ok(Begun {
            name,
            started: Instant::now(),
            clock: SystemTime::now(),
            cpu: self.cpu(),
            downloads: self.downloads(),
            peak: self.processes.sample(),
        })
    }

    /// The work is done when this is called; what it still draws after it is counted too.
    pub async fn done(&mut self, phase: Begun, releases: usize) -> Result<Phase> {
        let wall = phase.started.elapsed();
        self.traffic.settle(QUIET, SETTLE_LIMIT).await?;
        Ok(self.figures(&phase, releases, wall))
    }

    /// The work is done when nothing is asked for any more.
    pub async fn silent(&mut self, phase: Begun, releases: usize, quiet: Duration) -> Result<Phase> {
        self.traffic.settle(quiet, SETTLE_LIMIT).await?;
        let last = self.traffic.last().and_then(|last| last.duration_since(phase.clock).ok());
        Ok(self.figures(&phase, releases, last.unwrap_or_default()))
    }

    /// The phase has lasted as long as it should.
    pub fn over(&mut self, phase: &Begun, releases: usize) -> Result<Phase> {
        self.traffic.read()?;
        Ok(self.figures(phase, releases, phase.started.elapsed()))
    }

    fn figures(&self, phase: &Begun, releases: usize, wall: Duration) -> Phase {
        let now = self.downloads();
        let (index, chart) = (now.index - phase.downloads.index, now.chart - phase.downloads.chart);
        let (management, workload) = (self.traffic.on(Side::Management), self.traffic.on(Side::Workload));
        Phase {
            name: phase.name,
            controller: self.controller.clone(),
            releases,
            wall_s: rounded(wall.as_secs_f64()),
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
            Cpu::Tree => self.processes.cpu(),
            Cpu::Reaped => reaped_cpu(),
        }
    }

    fn downloads(&self) -> Downloads {
        let of = |wanted: fn(&str) -> bool| {
            let counts = self.world.repository().requests();
            counts.iter().filter(|(path, _)| wanted(path)).map(|(_, count)| count).sum()
        };
        Downloads { index: of(|path| path == "/index.yaml"), chart: of(|path| path != "/index.yaml") }
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
