//! The results of the GitOps benchmark and their goals, as JSON and as a table.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use serde::Serialize;

use crate::{
    goals::{self, Row, row, without_goal},
    numbers::{as_float, rounded},
    report::{self, Phase},
};

/// With fewer clusters, the fetch takes most of the time of a push, and with more files the fetch may take more memory. Such results
/// are reported without the goals.
const GOAL_CLUSTERS: u32 = 40;
const GOAL_FILES: u32 = 10_000;
/// 200 MB.
const GOAL_MEMORY_MIB: f64 = 190.0;

/// The results of one run. Times are in seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    pub clusters: u32,
    /// All changes of the add-on in their order: the installation, and pushes and applies in turn.
    pub changes: Vec<Change>,
    /// The push and the apply with the median time.
    pub push: Change,
    pub apply: Change,
    /// The time of the push without its delay, relative to that of the apply.
    pub push_ratio: f64,
    /// The number of files of the large repository, and the size of its history.
    pub files: u32,
    pub history_mb: u32,
    /// From the creation of its Source until it is Ready.
    pub fetch_s: f64,
    /// The resident memory of the manager before, its peak, and the difference.
    pub memory_before_mib: f64,
    pub memory_peak_mib: f64,
    pub memory_growth_mib: f64,
    /// The number of Sources of one repository, their poll interval, and for how many intervals polls were counted.
    pub sources: u32,
    pub interval_s: f64,
    pub intervals: u32,
    /// Requests for the list of refs, as the Git server has counted them.
    pub ls_refs: u64,
    pub ls_refs_per_interval: f64,
    /// CPU time and requests to API servers in these intervals.
    pub polls: Phase,
}

/// A change of the add-on on all clusters.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Change {
    /// From the end of the push until the manager lists the refs of the repository. Zero if the change is no push.
    pub delay_s: f64,
    #[serde(flatten)]
    pub phase: Phase,
}

impl Figures {
    /// Selects the push and the apply with the median time, and compares them.
    pub fn compare_changes(&mut self) {
        self.push = median(&self.changes, "push");
        self.apply = median(&self.changes, "apply");
        let push_s = self.push.phase.wall_s - self.push.delay_s;
        self.push_ratio = rounded(push_s / self.apply.phase.wall_s.max(0.001));
    }

    pub fn set_memory(&mut self, before_mib: f64, peak_mib: f64) {
        self.memory_before_mib = rounded(before_mib);
        self.memory_peak_mib = rounded(peak_mib);
        self.memory_growth_mib = rounded((peak_mib - before_mib).max(0.0));
    }

    pub fn set_lists_of_refs(&mut self, count: u64) {
        self.ls_refs = count;
        self.ls_refs_per_interval = rounded(as_float(count) / f64::from(self.intervals.max(1)));
    }
}

/// Returns the change of a kind with the median time. Of an even number, the slower one of the two.
fn median(changes: &[Change], name: &str) -> Change {
    let mut of_kind: Vec<_> = changes.iter().filter(|change| change.phase.name == name).collect();
    of_kind.sort_by(|a, b| a.phase.wall_s.total_cmp(&b.phase.wall_s));
    of_kind.get(of_kind.len() / 2).map(|change| (*change).clone()).unwrap_or_default()
}

/// Writes the results to a file.
pub fn write(path: &Path, figures: &Figures) -> Result<()> {
    report::write(path, &BTreeMap::from([("gitops", figures)]))
}

fn rows(figures: &Figures) -> Vec<Row> {
    let Figures { push, apply, polls, .. } = figures;
    let is_large = figures.clusters >= GOAL_CLUSTERS;
    vec![
        without_goal("push: until the last release is Ready", push.phase.wall_s, "s"),
        without_goal("push: of it, until the manager polls", push.delay_s, "s"),
        without_goal("apply: until the last release is Ready", apply.phase.wall_s, "s"),
        row("push without its delay, relative to apply", figures.push_ratio, 1.2, "x").with_goal_if(is_large),
        without_goal("push: CPU", push.phase.cpu_s, "s"),
        without_goal("apply: CPU", apply.phase.cpu_s, "s"),
        without_goal("push: requests to API servers", as_float(push.phase.requests), ""),
        without_goal("apply: requests to API servers", as_float(apply.phase.requests), ""),
        without_goal("large repository: until its Source is Ready", figures.fetch_s, "s"),
        row(
            "large repository: memory growth of the manager",
            figures.memory_growth_mib,
            GOAL_MEMORY_MIB,
            "MiB",
        )
        .with_goal_if(figures.files <= GOAL_FILES),
        row("one repository: ls-refs requests per interval", figures.ls_refs_per_interval, 1.0, ""),
        without_goal("one repository: CPU of all intervals", polls.cpu_s, "s"),
        without_goal("one repository: requests to API servers", as_float(polls.requests), ""),
    ]
}

/// Returns the results as a table.
pub fn table(figures: &Figures) -> String {
    let Figures { clusters, files, history_mb, sources, intervals, interval_s, .. } = figures;
    let title = format!(
        "{clusters} clusters; {files} files, {history_mb} MB of history; {sources} Sources of one repository, {intervals} intervals \
         of {interval_s} s"
    );
    goals::table(&title, &rows(figures))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::tests::line;

    fn change(name: &str, wall_s: f64, delay_s: f64) -> Change {
        Change { delay_s, phase: Phase { name: name.to_owned(), wall_s, ..Phase::default() } }
    }

    fn figures(clusters: u32, files: u32) -> Figures {
        let changes = vec![
            change("install", 9.0, 0.0),
            change("push", 3.0, 0.5),
            change("apply", 1.0, 0.0),
            change("push", 8.0, 0.5),
            change("apply", 2.0, 0.0),
            change("push", 2.5, 0.5),
            change("apply", 4.0, 0.0),
        ];
        let mut figures = Figures { clusters, files, changes, intervals: 4, ..Figures::default() };
        figures.compare_changes();
        figures.set_memory(40.0, 90.5);
        figures.set_lists_of_refs(6);
        figures
    }

    #[test]
    fn the_median_push_without_its_delay_is_compared_with_the_median_apply() {
        let table = table(&figures(40, 10_000));
        let rows = [
            ("push: until", "3 s"),
            ("apply: until", "2 s"),
            ("push without its delay", "1.25 x        ≤ 1.2 x  not reached"),
            ("large repository: memory", "50.5 MiB      ≤ 190 MiB  reached"),
            ("one repository: ls-refs", "1.5            ≤ 1  not reached"),
        ];
        for (name, ending) in rows {
            assert!(line(&table, name).ends_with(ending), "{table}");
        }
    }

    #[test]
    fn goals_are_those_of_the_documented_size() {
        for (clusters, files, expected) in [(40, 10_000, 3), (2, 10_000, 2), (40, 15_000, 2), (2, 50, 2)] {
            let table = table(&figures(clusters, files));
            assert_eq!(table.matches('≤').count(), expected, "{clusters} clusters, {files} files");
        }
    }

    #[test]
    fn the_results_are_written_under_their_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gitops.json");
        write(&path, &figures(40, 10_000)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        let figures = &written["gitops"];
        assert_eq!(figures["push"]["name"], "push");
        assert_eq!(figures["push"]["delay_s"], 0.5);
        assert_eq!(figures["changes"].as_array().unwrap().len(), 7);
    }
}
