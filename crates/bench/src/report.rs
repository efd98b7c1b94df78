//! Writes the results as JSON and as a table.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::numbers::as_float;

/// The results of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// The number of workload clusters.
    pub clusters: u32,
    /// The number of add-ons on every cluster.
    pub addons: u32,
    pub phases: Vec<Phase>,
}

impl Results {
    /// Returns a phase of Chandler or the helm CLI.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name && phase.controller.is_none())
    }
}

/// The results of a phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    /// The other controller. `None` for Chandler and the helm CLI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    pub releases: usize,
    pub wall_s: f64,
    /// The CPU time of all processes of the controller.
    pub cpu_s: f64,
    /// The number of requests to all API servers.
    pub requests: u64,
    pub requests_management: u64,
    pub requests_workload: u64,
    /// The number of downloads of the index and of charts.
    pub downloads: u64,
    pub downloads_index: u64,
    pub downloads_chart: u64,
    /// The resident memory of all processes at the end of the phase.
    pub rss_mib: f64,
    /// The peak of the sum during the phase.
    pub peak_mib: f64,
    /// The sum of the peaks of each process since its start. Never less than `peak_mib`.
    pub high_water_mib: f64,
    /// The resident memory of the controller's main process at the end of the phase.
    pub main_process_mib: f64,
    pub by_request: BTreeMap<String, u64>,
}

/// The phases of the helm CLI that do the same work as a phase of a controller.
const COMPARED: [(&str, &str); 3] =
    [("install", "helm-cli-install"), ("upgrade", "helm-cli-upgrade"), ("version", "helm-cli-upgrade")];

impl Phase {
    /// Returns the CPU time for each release in milliseconds.
    pub fn cpu_per_release_ms(&self) -> f64 {
        self.cpu_s * 1000.0 / self.release_count()
    }

    /// Returns the requests to all API servers for each release.
    pub fn requests_per_release(&self) -> f64 {
        as_float(self.requests) / self.release_count()
    }

    fn release_count(&self) -> f64 {
        as_float(u64::try_from(self.releases.max(1)).unwrap_or(u64::MAX))
    }
}

/// Writes results to a file.
pub fn write(path: &Path, results: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}

/// Returns a table with totals, values per release, and the ratios of the helm CLI to the controller.
pub fn table(phases: &[Phase]) -> String {
    let mut text = String::new();
    let mut controller = None;
    for (index, phase) in phases.iter().enumerate() {
        if index == 0 || controller != phase.controller {
            controller.clone_from(&phase.controller);
            let _ = writeln!(text, "\n{}", controller.as_deref().unwrap_or("chandler"));
            let _ = writeln!(text, "{HEADER}");
        }
        let _ = writeln!(text, "{}", row(phase, phases));
    }
    text.push_str("\nper release: CPU in ms, requests to (management + workload) API servers\n");
    text
}

const HEADER: &str = "phase              releases   wall s    CPU s  CPU/rel  requests        /rel  downloads      \
                      MiB     peak  helm CLI: wall, CPU, requests";

fn row(phase: &Phase, phases: &[Phase]) -> String {
    let releases = phase.release_count();
    let split = format!(
        "{:.1}+{:.1}",
        as_float(phase.requests_management) / releases,
        as_float(phase.requests_workload) / releases
    );
    let row = format!(
        "{:<18} {:>8} {:>8.1} {:>8.2} {:>8.1} {:>9} {:>11} {:>10} {:>8.0} {:>8.0}  {}",
        phase.name,
        phase.releases,
        phase.wall_s,
        phase.cpu_s,
        phase.cpu_per_release_ms(),
        phase.requests,
        split,
        phase.downloads,
        phase.rss_mib,
        phase.peak_mib,
        ratios(phase, phases).unwrap_or_default(),
    );
    row.trim_end().to_owned()
}

fn ratios(phase: &Phase, phases: &[Phase]) -> Option<String> {
    let (_, name) = COMPARED.iter().find(|(name, _)| *name == phase.name)?;
    let helm = phases.iter().find(|other| other.name == *name)?;
    let ratio = |helm: f64, controller: f64| format!("{:.1}x", helm / controller.max(0.001));
    Some(format!(
        "{} {} {}",
        ratio(helm.wall_s, phase.wall_s),
        ratio(helm.cpu_s, phase.cpu_s),
        ratio(as_float(helm.requests), as_float(phase.requests))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, cpu_s: f64, controller: Option<&str>) -> Phase {
        let (name, controller) = (name.to_owned(), controller.map(str::to_owned));
        Phase { name, controller, releases: 4, wall_s: 1.0, cpu_s, requests: 40, ..Phase::default() }
    }

    #[test]
    fn the_table_compares_phases_with_the_helm_cli_and_names_the_other_controller() {
        let phases = [
            phase("install", 0.5, None),
            phase("idle", 0.1, None),
            phase("helm-cli-install", 2.0, None),
            phase("install", 1.0, Some("other")),
        ];
        let table = table(&phases);
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[3].ends_with("1.0x 4.0x 1.0x"), "{table}");
        assert!(!rows[4].contains('x'), "{table}");
        assert!(rows.contains(&"other"), "{table}");
        assert!(rows[9].ends_with("1.0x 2.0x 1.0x"), "{table}");
    }
}
