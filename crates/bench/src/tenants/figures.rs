//! The results of the benchmark of tenants and their goals, as JSON and as a table.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use serde::Serialize;

use super::{MEMORY_LIMIT_MIB, addons::Sample, outcome::Outcome};
use crate::{
    goals::{self, Row, row, without_goal},
    numbers::{as_float, median, percentile, rounded},
    report,
};

/// How much longer add-ons may take while another tenant attacks.
const GOAL_RATIO: f64 = 1.5;

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The number of add-ons that are installed at the same time, and how often.
    pub addons: u32,
    pub rounds: u32,
    /// Each tenant attacks once.
    pub attacks: Vec<AttackFigures>,
    /// The peak of the resident memory of the manager's own process, of one of its package tools or of its template service, and of
    /// all together.
    pub manager_peak_mib: f64,
    pub tool_peak_mib: f64,
    pub total_peak_mib: f64,
}

/// What the attacks of one tenant have caused.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AttackFigures {
    pub attacker: &'static str,
    pub victim: &'static str,
    pub undisturbed: Series,
    pub disturbed: Series,
    /// The times during the attacks relative to those without.
    pub median_ratio: f64,
    pub slowest_ratio: f64,
    /// Processes of package tools and of the template service that died meanwhile.
    pub tool_deaths: f64,
    pub outcome: Outcome,
}

/// The times from the creation of an add-on until it is Ready, in seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// The slowest add-on of a round before the others, which is not counted.
    pub first_s: f64,
    pub median_s: f64,
    pub slowest_s: f64,
    /// Add-ons that were not Ready in time.
    pub late: usize,
    pub samples: Vec<Sample>,
}

impl Series {
    /// Summarizes the first round and the rounds that count. If there are none of these, the first one counts.
    pub fn of(first: &[Sample], samples: Vec<Sample>) -> Self {
        let times = |samples: &[Sample]| samples.iter().map(|sample| sample.seconds).collect::<Vec<_>>();
        let counted = if samples.is_empty() { times(first) } else { times(&samples) };
        Self {
            first_s: percentile(&times(first), 100),
            median_s: median(&counted),
            slowest_s: percentile(&counted, 100),
            late: first.iter().chain(&samples).filter(|sample| sample.is_late).count(),
            samples,
        }
    }
}

impl AttackFigures {
    /// Compares the times during the attacks with those without.
    pub fn compare(
        attacker: &'static str,
        victim: &'static str,
        undisturbed: Series,
        disturbed: Series,
    ) -> Self {
        let ratio = |disturbed: f64, undisturbed: f64| rounded(disturbed / undisturbed.max(0.001));
        Self {
            attacker,
            victim,
            median_ratio: ratio(disturbed.median_s, undisturbed.median_s),
            slowest_ratio: ratio(disturbed.slowest_s, undisturbed.slowest_s),
            undisturbed,
            disturbed,
            ..Self::default()
        }
    }

    fn rows(&self) -> Vec<Row> {
        let Self { attacker, victim, undisturbed, disturbed, outcome, .. } = self;
        let not_ready: usize = outcome.not_ready.values().sum();
        let quiet = |what: &str| format!("{victim}: {what}");
        let attacked = |what: &str| format!("{victim} while {attacker} attacks: {what}");
        let attacks = |what: &str| format!("{attacker} attacks: {what}");
        vec![
            without_goal(quiet("median"), undisturbed.median_s, "s"),
            without_goal(attacked("median"), disturbed.median_s, "s"),
            row(attacked("median, relative"), self.median_ratio, GOAL_RATIO, "x"),
            without_goal(quiet("slowest"), undisturbed.slowest_s, "s"),
            without_goal(attacked("slowest"), disturbed.slowest_s, "s"),
            row(attacked("slowest, relative"), self.slowest_ratio, GOAL_RATIO, "x"),
            row(attacked("late"), count(disturbed.late), 0.0, ""),
            without_goal(attacks("placements"), count(outcome.placements), ""),
            without_goal(attacks("placements that are not Ready"), count(not_ready), ""),
            row(attacks("internal connections"), count(outcome.internal_connections), 0.0, ""),
            without_goal(attacks("dead package tools"), self.tool_deaths, ""),
        ]
    }
}

fn count(number: usize) -> f64 {
    as_float(u64::try_from(number).unwrap_or(u64::MAX))
}

/// Writes the results to a file.
pub fn write(path: &Path, figures: &Figures) -> Result<()> {
    report::write(path, &BTreeMap::from([("tenants", figures)]))
}

/// Returns the results as a table.
pub fn table(figures: &Figures) -> String {
    let title = format!(
        "two tenants; {} rounds of {} add-ons; from the creation of an add-on until it is Ready",
        figures.rounds, figures.addons
    );
    let mut rows: Vec<_> = figures.attacks.iter().flat_map(AttackFigures::rows).collect();
    rows.extend([
        without_goal("manager: peak memory", figures.manager_peak_mib, "MiB"),
        without_goal("largest package tool: peak memory", figures.tool_peak_mib, "MiB"),
        row("all processes: peak memory", figures.total_peak_mib, f64::from(MEMORY_LIMIT_MIB), "MiB"),
    ]);
    goals::table(&title, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{goals::tests::line, tenants::addons::AddonKind};

    fn samples(times: &[f64]) -> Vec<Sample> {
        let sample =
            |time: &f64| Sample { kind: AddonKind::HelmChartProxy, seconds: *time, is_late: *time >= 40.0 };
        times.iter().map(sample).collect()
    }

    fn figures(disturbed: Series) -> Figures {
        let undisturbed = Series::of(&samples(&[3.0]), samples(&[1.0, 0.5, 2.0]));
        let attacks = vec![AttackFigures::compare("red", "blue", undisturbed, disturbed)];
        Figures { addons: 8, rounds: 6, attacks, total_peak_mib: 900.0, ..Figures::default() }
    }

    #[test]
    fn medians_and_slowest_times_are_compared() {
        let table = table(&figures(Series::of(&samples(&[9.0]), samples(&[1.2, 1.4, 3.2]))));
        for (name, ending) in [
            ("blue: median", " 1 s"),
            ("blue while red attacks: median, relative", "1.4 x        ≤ 1.5 x  reached"),
            ("blue while red attacks: slowest, relative", "1.6 x        ≤ 1.5 x  not reached"),
            ("blue while red attacks: late", "≤ 0  reached"),
            ("all processes: peak memory", "900 MiB     ≤ 4096 MiB  reached"),
        ] {
            assert!(line(&table, name).ends_with(ending), "{table}");
        }
    }

    #[test]
    fn a_first_round_that_is_late_counts() {
        let series = Series::of(&samples(&[0.5, 40.0]), Vec::new());
        assert_eq!(series.late, 1);
        assert!((series.slowest_s - 40.0).abs() < 1e-9, "{series:?}");
        let table = table(&figures(series));
        assert!(line(&table, "blue while red attacks: late").ends_with("not reached"), "{table}");
    }

    #[test]
    fn the_results_are_written_under_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenants.json");
        write(&path, &figures(Series::default())).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        let attack = &written["tenants"]["attacks"][0];
        assert_eq!(attack["attacker"], "red");
        assert_eq!(attack["undisturbed"]["samples"][0]["kind"], "HelmChartProxy");
    }
}
