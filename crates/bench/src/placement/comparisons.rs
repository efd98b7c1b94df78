//! The same manager without health, or with drift, compared with the manager as it is by default.

use serde::{Deserialize, Serialize};

use super::figures::Figures;
use crate::{
    goals::{Row, without_goal},
    numbers::as_float,
};

/// What a restart with nothing to do and the phase without changes cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    pub restart_requests_per_cluster: f64,
    pub restart_s: f64,
    pub memory_after_restart_mib: f64,
    pub idle_cpu_s: f64,
    pub idle_workload_requests: u64,
}

/// What a manager costs that compares the objects of all releases with their packages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WithDrift {
    /// From the change of the policy until all objects were compared once.
    pub first_comparison_s: f64,
    pub first_comparison_requests: u64,
    /// The highest memory of the manager, also while the objects were compared.
    pub memory_mib: f64,
    #[serde(flatten)]
    pub costs: Costs,
}

impl Costs {
    /// What the manager costs as it is by default.
    fn default_of(figures: &Figures) -> Self {
        Self {
            restart_requests_per_cluster: figures.restart_requests_per_cluster,
            restart_s: figures.restart_s,
            memory_after_restart_mib: figures.memory_after_restart_mib,
            idle_cpu_s: figures.idle_cpu_s,
            idle_workload_requests: figures.idle_workload_requests,
        }
    }

    fn rows(&self, of: &str) -> Vec<Row> {
        let row = |what: &str, value, unit| without_goal(format!("{of}: {what}"), value, unit);
        vec![
            row("restart, requests per cluster", self.restart_requests_per_cluster, ""),
            row("restart, until the last request", self.restart_s, "s"),
            row("memory after a restart", self.memory_after_restart_mib, "MiB"),
            row("idle minute, CPU", self.idle_cpu_s, "s"),
            row("idle phase, requests to clusters", as_float(self.idle_workload_requests), ""),
        ]
    }

    /// Returns by how much more this costs than `without`.
    fn relative_to(&self, without: &Self, of: &str) -> Vec<Row> {
        let row = |what: &str, with: f64, without: f64| {
            without_goal(format!("{of}: {what}, relative"), with / without.max(0.001), "x")
        };
        vec![
            row(
                "requests of a restart",
                self.restart_requests_per_cluster,
                without.restart_requests_per_cluster,
            ),
            row("memory after a restart", self.memory_after_restart_mib, without.memory_after_restart_mib),
            row("CPU of an idle minute", self.idle_cpu_s, without.idle_cpu_s),
        ]
    }
}

/// Returns what the manager costs without health, and how much more it costs with it.
pub fn health_rows(figures: &Figures) -> Vec<Row> {
    let Some(without) = &figures.without_health else { return Vec::new() };
    let relative = Costs::default_of(figures).relative_to(without, "health");
    without.rows("without health").into_iter().chain(relative).collect()
}

/// Returns what the manager costs with drift, and how much more that is than without it.
pub fn drift_rows(figures: &Figures) -> Vec<Row> {
    let Some(drift) = &figures.with_drift else { return Vec::new() };
    let requests = as_float(drift.first_comparison_requests);
    let mut rows = vec![
        without_goal("with drift: until all objects were compared", drift.first_comparison_s, "s"),
        without_goal("with drift: requests until then", requests, ""),
        without_goal("with drift: memory of the manager", drift.memory_mib, "MiB"),
    ];
    rows.extend(drift.costs.rows("with drift"));
    rows.extend(drift.costs.relative_to(&Costs::default_of(figures), "drift"));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::tests::line;
    use crate::placement::figures::table;

    fn costs(idle_cpu_s: f64, memory_after_restart_mib: f64) -> Costs {
        Costs { memory_after_restart_mib, idle_cpu_s, ..Costs::default() }
    }

    #[test]
    fn what_was_compared_is_shown() {
        let mut figures = Figures { idle_cpu_s: 0.6, memory_after_restart_mib: 330.0, ..Figures::default() };
        assert!(!table(&figures).contains("health") && !table(&figures).contains("drift"));
        figures.without_health = Some(costs(0.5, 300.0));
        let drift = WithDrift { first_comparison_s: 9.0, costs: costs(0.9, 396.0), ..WithDrift::default() };
        figures.with_drift = Some(drift);
        let table = table(&figures);
        let rows = [
            ("without health: idle minute", " 0.5 s"),
            ("health: CPU of an idle", " 1.2 x"),
            ("health: memory", " 1.1 x"),
            ("with drift: until all", " 9 s"),
            ("with drift: idle minute", " 0.9 s"),
            ("drift: CPU of an idle", " 1.5 x"),
            ("drift: memory", " 1.2 x"),
        ];
        for (name, ending) in rows {
            assert!(line(&table, name).ends_with(ending), "{table}");
        }
    }
}
