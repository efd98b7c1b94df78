//! The results of the placement benchmark and their goals, as JSON and as a table.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::comparisons::{Costs, WithDrift, drift_rows, health_rows};
use crate::{
    goals::{self, Row, row, without_goal},
    numbers::as_float,
    plot::{Line, Panel},
    report,
};

/// The goals hold for at most so many clusters and for an idle phase of this duration. Other results are reported without
/// goals.
const GOALS_UP_TO: u32 = 1_000;
const GOALS_IDLE_S: u64 = 60;
/// A restart needs a kubeconfig, a list and a watch for each cluster, and health a list and a watch of each kind: the chart has
/// one.
const RESTART_REQUESTS: f64 = 3.0 + 2.0;

/// The results of one run. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub clusters: u32,
    pub placements: u32,
    pub objects_per_release: u32,
    /// From the creation of the Clusters until all releases are Ready.
    pub fill_s: f64,
    /// The longest delay of a renewal of the Lease beyond its period.
    pub lease_delay_s: f64,
    /// The same by the times in the Lease, which the manager sets right before it sends a renewal. Results of older versions
    /// do not contain it.
    #[serde(default)]
    pub lease_sent_delay_s: f64,
    /// From the change of a label until all release objects of the cluster are written.
    pub change_p50_s: f64,
    pub change_p99_s: f64,
    /// The most status writes of one placement in ten seconds, while labels change.
    pub churn_status_writes: u64,
    /// The duration of the phase without changes. Results of older versions do not contain it.
    #[serde(default)]
    pub idle_s: u64,
    /// CPU time of the manager and its package tools in that phase, converted to a minute.
    pub idle_cpu_s: f64,
    /// Requests in that phase, including renewals of the Lease.
    pub idle_management_requests: u64,
    pub idle_workload_requests: u64,
    /// The highest resident memory of the manager at the end of a phase, and that after a restart.
    pub memory_mib: f64,
    pub memory_after_restart_mib: f64,
    /// Requests for each cluster after a restart without work: kubeconfig, list and watch. Probes do not count.
    pub restart_requests_per_cluster: f64,
    /// All requests to the management cluster after that restart.
    pub restart_management_requests: u64,
    pub restart_status_writes: u64,
    /// Until the last request of that restart.
    pub restart_s: f64,
    /// While all connections are reset for 15 s, and until all clusters are watched again.
    pub reset_status_writes: u64,
    pub reset_concurrent_connects: u32,
    pub reset_recovery_s: f64,
    /// As `change_p99_s`, while 1 % of the clusters are silent.
    pub silent_p99_s: f64,
    /// Relative to `change_p99_s`.
    pub silent_p99_ratio: f64,
    /// The same manager without health. Measured only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_health: Option<Costs>,
    /// The same manager with drift. Measured only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_drift: Option<WithDrift>,
}

/// Writes the results to a file.
pub fn write(path: &Path, figures: &Figures) -> Result<()> {
    report::write(path, &BTreeMap::from([("placement", figures)]))
}

fn rows(figures: &Figures) -> Vec<Row> {
    vec![
        without_goal("all releases Ready", figures.fill_s, "s"),
        row("longest delay of a Lease renewal", figures.lease_delay_s, 0.2, "s"),
        without_goal("longest delay until a Lease renewal is sent", figures.lease_sent_delay_s, "s"),
        without_goal("label change to release objects written, p50", figures.change_p50_s, "s"),
        row("label change to release objects written, p99", figures.change_p99_s, 1.0, "s"),
        row("status writes per placement in 10 s of churn", as_float(figures.churn_status_writes), 1.0, ""),
        row("idle minute: CPU", figures.idle_cpu_s, 0.5, "s"),
        without_goal(
            "idle phase: requests to the management cluster",
            as_float(figures.idle_management_requests),
            "",
        ),
        without_goal("idle phase: requests to clusters", as_float(figures.idle_workload_requests), ""),
        row("memory of the manager", figures.memory_mib, 500.0, "MiB"),
        without_goal("memory of the manager after a restart", figures.memory_after_restart_mib, "MiB"),
        row("restart: requests per cluster", figures.restart_requests_per_cluster, RESTART_REQUESTS, ""),
        row("restart: status writes", as_float(figures.restart_status_writes), 0.0, ""),
        row("restart: until the last request", figures.restart_s, 15.0, "s"),
        row("connections reset: status writes", as_float(figures.reset_status_writes), 0.0, ""),
        row("connections reset: concurrent connects", f64::from(figures.reset_concurrent_connects), 64.0, ""),
        without_goal("connections reset: until all are watched again", figures.reset_recovery_s, "s"),
        without_goal("1 % silent: label change, p99", figures.silent_p99_s, "s"),
        row("1 % silent: p99 relative to none silent", figures.silent_p99_ratio, 1.5, "x"),
    ]
}

/// Returns the results as a table.
pub fn table(figures: &Figures) -> String {
    let Figures { clusters, placements, objects_per_release, idle_s, .. } = figures;
    let has_goals = *clusters <= GOALS_UP_TO && *idle_s == GOALS_IDLE_S;
    let title =
        format!("{clusters} clusters x {placements} placements, {objects_per_release} objects per release");
    let rows = rows(figures).into_iter().map(|row| row.with_goal_if(has_goals));
    let rows: Vec<_> = rows.chain(health_rows(figures)).chain(drift_rows(figures)).collect();
    goals::table(&title, &rows)
}

/// Returns the charts of several runs, which are ordered by their number of clusters.
pub fn panels(runs: &[Figures]) -> Vec<Panel> {
    let line = |name: &str, value: fn(&Figures) -> f64| Line {
        name: name.to_owned(),
        points: runs.iter().map(|run| (f64::from(run.clusters), value(run))).collect(),
    };
    let panel = |title: &str, lines: Vec<Line>| Panel { title: title.to_owned(), lines };
    vec![
        panel(
            "label change to release objects written, s",
            vec![
                line("p50", |run| run.change_p50_s),
                line("p99", |run| run.change_p99_s),
                line("p99, 1 % silent", |run| run.silent_p99_s),
            ],
        ),
        panel(
            "memory of the manager, MiB",
            vec![
                line("highest", |run| run.memory_mib),
                line("after restart", |run| run.memory_after_restart_mib),
            ],
        ),
        panel("CPU of an idle minute, s", vec![line("", |run| run.idle_cpu_s)]),
        panel("restart with nothing to do, s", vec![line("", |run| run.restart_s)]),
    ]
}

/// Returns the smallest time that at least `percent` of the times do not exceed. Zero if there are none.
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::tests::line;

    #[test]
    fn the_table_compares_each_value_with_its_goal() {
        let figures = Figures {
            clusters: 1_000,
            idle_s: 60,
            lease_delay_s: 0.25,
            idle_cpu_s: 0.5,
            restart_status_writes: 1,
            ..Figures::default()
        };
        let table = table(&figures);
        let rows = [
            ("longest delay", "≤ 0.2 s  not reached"),
            ("idle minute: CPU", "≤ 0.5 s  reached"),
            ("restart: status writes", "≤ 0  not reached"),
            ("connections reset: status writes", "≤ 0  reached"),
        ];
        for (name, ending) in rows {
            assert!(line(&table, name).ends_with(ending), "{table}");
        }
        assert!(line(&table, "idle phase: requests to clusters").ends_with(" 0"), "{table}");
    }

    #[test]
    fn only_the_documented_size_has_goals() {
        let rows = [(1_000, 60, true), (100, 60, true), (5_000, 60, false), (1_000, 10, false)];
        for (clusters, idle_s, expected) in rows {
            let figures = Figures { clusters, idle_s, lease_delay_s: 9.0, ..Figures::default() };
            assert_eq!(table(&figures).contains("reached"), expected, "{clusters} clusters, {idle_s} s");
        }
    }

    #[test]
    fn charts_have_a_point_for_each_run() {
        let run = |clusters, memory_mib| Figures { clusters, memory_mib, ..Figures::default() };
        let panels = panels(&[run(100, 50.0), run(1_000, 200.0)]);
        assert_eq!(panels[1].lines[0].points, [(100.0, 50.0), (1_000.0, 200.0)]);
        assert!(panels.iter().flat_map(|panel| &panel.lines).all(|line| line.points.len() == 2));
    }

    #[test]
    fn percentiles_are_measured_values() {
        let times: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        let rows = [(50, 50), (99, 99), (100, 100), (0, 1)];
        for (percent, millis) in rows {
            assert_eq!(percentile(&times, percent), Duration::from_millis(millis), "p{percent}");
        }
        assert_eq!(percentile(&times[..3], 99), Duration::from_millis(100));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
