//! The cost of drift: the objects of all releases are compared with their packages.

use anyhow::{Result, ensure};
use tokio::time::Instant;

use super::{
    FILL_TIMEOUT_PER_RELEASE, LARGE_OBJECTS, POLL_INTERVAL, RESTART_QUIET, Restart, Run, SHORTEST_TIMEOUT,
    Timestamp, elapsed, placements, seconds,
};
use crate::placement::{comparisons::WithDrift, figures::Figures};

/// To compare the objects of a release takes so much longer than to find that it is up to date.
const COMPARISON_FACTOR: u32 = 5;

impl Run<'_> {
    /// Measures a manager that compares the objects of all releases. The other figures stay as they are, because goals are
    /// about a manager that does not.
    pub(super) async fn compare_drift(&mut self) -> Result<()> {
        let before = self.figures.clone();
        self.figures.memory_mib = 0.0;
        let with_drift = self.with_drift().await?;
        self.figures = Figures { with_drift: Some(with_drift), ..before };
        Ok(())
    }

    async fn with_drift(&mut self) -> Result<WithDrift> {
        let (first_comparison_s, first_comparison_requests) = self.first_comparison().await?;
        let restart: Restart = self.measure_restart("restart with drift").await?;
        let idle = self.measure_idle("idle with drift").await?;
        let with_drift = WithDrift {
            first_comparison_s,
            first_comparison_requests,
            memory_mib: self.figures.memory_mib,
            costs: restart.costs(&idle),
        };
        self.begin("turning drift off");
        placements::set_drift(self.environment.client(), self.size.placements, false).await?;
        self.wait_quiet().await?;
        self.end("turning drift off")?;
        Ok(with_drift)
    }

    /// Turns drift on, and waits until all objects were compared. Returns the seconds and the requests to clusters.
    async fn first_comparison(&mut self) -> Result<(f64, u64)> {
        let step = "comparing all objects";
        self.begin(step);
        self.replayed.traffic().reset();
        let from = Timestamp::now();
        placements::set_drift(self.environment.client(), self.size.placements, true).await?;
        self.wait_compared().await?;
        let counts = self.replayed.traffic().counts();
        self.wait_quiet().await?;
        for cluster in self.replayed.samples(1) {
            let reasons = placements::drift_reasons(self.environment.client(), &cluster).await?;
            let expected = usize::try_from(self.size.placements)?;
            let in_sync = reasons.iter().filter(|reason| *reason == "InSync").count();
            ensure!(in_sync == expected, "the releases of {cluster} are not in sync: {}", reasons.join(", "));
        }
        self.end(step)?;
        Ok((seconds(elapsed(from, counts.last)), counts.reads()))
    }

    /// Waits until each object was compared, and no further request but probes has followed.
    async fn wait_compared(&self) -> Result<()> {
        let releases = self.replayed.count().saturating_mul(self.size.placements);
        let objects = u64::from(releases) * u64::from(LARGE_OBJECTS);
        let timeout = (FILL_TIMEOUT_PER_RELEASE * COMPARISON_FACTOR * releases).max(SHORTEST_TIMEOUT);
        let deadline = Instant::now() + timeout;
        loop {
            self.check_manager()?;
            let counts = self.replayed.traffic().counts();
            let quiet =
                counts.last.is_some_and(|last| elapsed(last, Some(Timestamp::now())) >= RESTART_QUIET);
            if counts.dry_runs >= objects && quiet {
                return Ok(());
            }
            let progress = format!("{} of {objects} objects are compared", counts.dry_runs);
            ensure!(Instant::now() < deadline, "{progress} within {} s", timeout.as_secs());
            self.progress.advance(&progress);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
