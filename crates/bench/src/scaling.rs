//! How the cost of a release grows with the number of clusters.
//!
//! More API servers on the same machine make every process slower, so the growth is related to that of the helm CLI, which does
//! the same work release by release and does not know the other clusters.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use crate::{
    plot::{Line, Panel},
    report::{Phase, Results},
};

/// The compared phases, each with the phase of the helm CLI that does the same work.
const COMPARED: [(&str, &str); 2] = [("install", "helm-cli-install"), ("upgrade", "helm-cli-upgrade")];
/// The phase with a goal, and the highest growth relative to that of the helm CLI which reaches it.
const GOAL: (&str, f64) = ("install", 1.15);

/// The cost of a phase with a number of clusters. Growth is relative to the fewest clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    phase: &'static str,
    clusters: u32,
    cpu_ms: f64,
    helm_cpu_ms: f64,
    growth: f64,
    helm_growth: f64,
    is_base: bool,
}

impl Row {
    fn relative_growth(&self) -> f64 {
        self.growth / self.helm_growth.max(0.001)
    }

    fn result(&self) -> String {
        let (phase, goal) = GOAL;
        if self.is_base || self.phase != phase {
            return String::new();
        }
        let reached = if self.relative_growth() <= goal { "reached" } else { "not reached" };
        format!("≤ {goal}  {reached}")
    }
}

/// Compares runs that are ordered by their number of clusters.
pub fn rows(runs: &[Results]) -> Result<Vec<Row>> {
    let [base, larger @ ..] = runs else { return Ok(Vec::new()) };
    ensure!(
        larger.iter().any(|run| run.clusters > base.clusters),
        "all results have {} clusters; measure another number of clusters to compare with",
        base.clusters
    );
    let mut rows = Vec::new();
    for (phase, helm) in COMPARED {
        for (index, run) in runs.iter().enumerate() {
            let row = row(base, run, phase, helm, index == 0);
            rows.push(row.with_context(|| {
                format!("a result with {} clusters lacks phase {phase} or {helm}", run.clusters)
            })?);
        }
    }
    Ok(rows)
}

fn row(base: &Results, run: &Results, phase: &'static str, helm: &str, is_base: bool) -> Option<Row> {
    Some(Row {
        phase,
        clusters: run.clusters,
        cpu_ms: cpu(run, phase)?,
        helm_cpu_ms: cpu(run, helm)?,
        growth: growth(base, run, phase)?,
        helm_growth: growth(base, run, helm)?,
        is_base,
    })
}

fn cpu(run: &Results, phase: &str) -> Option<f64> {
    run.phase(phase).map(Phase::cpu_per_release_ms)
}

fn growth(base: &Results, run: &Results, phase: &str) -> Option<f64> {
    Some(cpu(run, phase)? / cpu(base, phase)?.max(0.001))
}

pub fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("\nphase      clusters  CPU/rel  helm CLI   growth  helm CLI  relative      goal\n");
    for row in rows {
        let line = format!(
            "{:<10} {:>8} {:>8.1} {:>9.1} {:>8.2} {:>9.2} {:>9.2}    {}",
            row.phase,
            row.clusters,
            row.cpu_ms,
            row.helm_cpu_ms,
            row.growth,
            row.helm_growth,
            row.relative_growth(),
            row.result(),
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str("\nCPU per release in ms; growth relative to the fewest clusters, and that relative to the helm CLI\n");
    text
}

/// Returns the charts of several runs, which are ordered by their number of clusters.
pub fn panels(runs: &[Results]) -> Vec<Panel> {
    let Some(base) = runs.first() else { return Vec::new() };
    let line = |name: &str, value: &dyn Fn(&Results) -> Option<f64>| Line {
        name: name.to_owned(),
        points: runs.iter().filter_map(|run| Some((f64::from(run.clusters), value(run)?))).collect(),
    };
    let of = |phase: &'static str, value: fn(&Phase) -> f64| move |run: &Results| run.phase(phase).map(value);
    let growth_of = |phase: &'static str| move |run: &Results| growth(base, run, phase);
    let relative = |run: &Results| row(base, run, "install", "helm-cli-install", false);
    let panel = |title: &str, lines: Vec<Line>| Panel { title: title.to_owned(), lines };
    vec![
        panel(
            "CPU per release, ms",
            vec![
                line("install", &of("install", Phase::cpu_per_release_ms)),
                line("upgrade", &of("upgrade", Phase::cpu_per_release_ms)),
            ],
        ),
        panel(
            "CPU per install relative to the fewest clusters",
            vec![
                line("manager", &growth_of("install")),
                line("helm CLI", &growth_of("helm-cli-install")),
                line("relative", &|run| relative(run).map(|row| row.relative_growth())),
            ],
        ),
        panel(
            "requests per release",
            vec![
                line("install", &of("install", Phase::requests_per_release)),
                line("upgrade", &of("upgrade", Phase::requests_per_release)),
            ],
        ),
        panel(
            "until all releases are Ready, s",
            vec![
                line("install", &of("install", |phase| phase.wall_s)),
                line("upgrade", &of("upgrade", |phase| phase.wall_s)),
            ],
        ),
        panel(
            "memory of all processes, MiB",
            vec![
                line("peak, upgrade", &of("upgrade", |phase| phase.peak_mib)),
                line("after restart", &of("restart", |phase| phase.rss_mib)),
            ],
        ),
        panel("CPU of the idle phase, s", vec![line("", &of("idle", |phase| phase.cpu_s))]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(clusters: u32, install_s: f64, helm_s: f64) -> Results {
        let phase = |name: &str, cpu_s| Phase {
            name: name.to_owned(),
            releases: usize::try_from(clusters).unwrap() * 10,
            cpu_s,
            ..Phase::default()
        };
        let phases = vec![
            phase("install", install_s),
            phase("upgrade", install_s * 1.2),
            phase("helm-cli-install", helm_s),
            phase("helm-cli-upgrade", helm_s * 1.2),
        ];
        Results { clusters, addons: 10, phases }
    }

    #[test]
    fn growth_is_relative_to_the_fewest_clusters_and_to_the_helm_cli() {
        // 20 and 24 ms per install; 400 and 440 ms for the helm CLI.
        let rows = rows(&[run(8, 1.6, 32.0), run(40, 9.6, 176.0)]).unwrap();
        let table = table(&rows);
        let lines: Vec<_> = table.lines().filter(|line| line.starts_with("install")).collect();
        assert!(lines[0].ends_with("20.0     400.0     1.00      1.00      1.00"), "{table}");
        assert!(
            lines[1].ends_with("24.0     440.0     1.20      1.10      1.09    ≤ 1.15  reached"),
            "{table}"
        );
        assert!(!table.lines().any(|line| line.starts_with("upgrade") && line.contains('≤')), "{table}");
    }

    #[test]
    fn more_growth_than_that_of_the_helm_cli_misses_the_goal() {
        let rows = rows(&[run(8, 1.6, 32.0), run(40, 9.6, 160.0)]).unwrap();
        assert!(table(&rows).contains("1.20    ≤ 1.15  not reached"), "{rows:?}");
    }

    #[test]
    fn one_size_and_missing_phases_cannot_be_compared() {
        let error = rows(&[run(8, 1.6, 32.0), run(8, 1.6, 32.0)]).unwrap_err().to_string();
        assert!(error.contains("all results have 8 clusters"), "{error}");
        let empty = Results { clusters: 40, ..Results::default() };
        let error = rows(&[run(8, 1.6, 32.0), empty]).unwrap_err().to_string();
        assert!(error.contains("40 clusters lacks phase install"), "{error}");
    }

    #[test]
    fn charts_have_a_point_for_each_run_with_the_phase() {
        let panels = panels(&[run(8, 1.6, 32.0), run(40, 8.0, 160.0)]);
        assert_eq!(panels[0].lines[0].points.len(), 2);
        assert_eq!(panels[1].lines[2].points, [(8.0, 1.0), (40.0, 1.0)]);
        assert!(panels[5].lines[0].points.is_empty(), "no run has an idle phase");
    }
}
