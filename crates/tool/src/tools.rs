//! The package tools of a manager, chosen by package format.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use chandler_core::{
    failure::{Category, Failure},
    identity::ToolId,
    package_format::PackageFormat,
};
use chandler_telemetry::RequestCount;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{PackageTool, ToolDescription},
    namespaces::NamespaceProcesses,
    supervisor::{Controls, ProcessStats, Slots, SupervisorConfig, read_requests, shrink},
};

/// The package tools of a manager. Clones share them.
#[derive(Clone, Debug)]
pub struct Tools {
    all: Arc<[PackageTool]>,
    controls: Arc<Controls>,
    closed: CancellationToken,
}

impl Tools {
    /// Creates the tools without starting them, and keeps their descriptions in `descriptions`. The first tool is used for
    /// packages whose format is not known yet. Together they use the memory of so many `processes` at most.
    pub fn new(
        configs: impl IntoIterator<Item = SupervisorConfig>,
        processes: usize,
        descriptions: &Path,
    ) -> Self {
        let configs: Vec<_> = configs.into_iter().collect();
        let share = configs.iter().map(|config| config.hard_memory_limit).max().unwrap_or_default();
        let controls = Arc::new(Controls::with_slots(Slots::new(processes.max(1), share, shrink)));
        let closed = CancellationToken::new();
        let tool = |(id, config)| {
            let processes = NamespaceProcesses::new(config, controls.clone(), closed.clone());
            PackageTool::per_namespace(ToolId(id), processes).described_in(descriptions)
        };
        let all = configs.into_iter().enumerate().map(tool).collect();
        Self { all, controls, closed }
    }

    pub fn all(&self) -> &[PackageTool] {
        &self.all
    }

    /// Limits the requests of all processes to clusters: see [`Supervisor::set_lease_until`](crate::Supervisor::set_lease_until).
    pub fn set_lease_until(&self, until: Duration) {
        self.controls.set_lease_until(until);
    }

    /// Returns the namespaces whose operations occupy as much memory as they may.
    pub fn low_on_memory(&self) -> BTreeSet<String> {
        self.controls.low_on_memory()
    }

    /// Returns how often a process was started, and the resident memory of all of them.
    pub fn stats(&self) -> (u64, u64) {
        let running = self.controls.running();
        let stats = running.iter().filter_map(|control| ProcessStats::read(control.pid()));
        (self.controls.starts(), stats.map(|stats| stats.resident_bytes).sum())
    }

    /// Returns how often a process has ended unexpectedly.
    pub fn crashes(&self) -> u64 {
        self.controls.deaths()
    }

    /// Returns the requests that the tools have made to clusters. Starts no process.
    pub async fn requests(&self) -> Vec<RequestCount> {
        let running = self.controls.running();
        join_all(running.iter().map(|control| read_requests(control))).await;
        self.controls.requests()
    }

    /// Ends all processes at once, running operations included, and refuses to start another. Returns when they have
    /// exited, but waits a few seconds at most.
    pub async fn close(&self) {
        self.closed.cancel();
        self.controls.kill_all().await;
    }

    /// Returns `None` if there is no such tool.
    pub fn get(&self, id: ToolId) -> Option<&PackageTool> {
        self.all.get(id.0)
    }

    /// Returns the tool that reads packages of `format`.
    pub async fn for_format(&self, format: &PackageFormat) -> Result<PackageTool, Failure> {
        // A tool that is unavailable does not delay the packages of another one.
        let reads = |tool: &&PackageTool| {
            tool.known_description().is_some_and(|known| known.formats.contains(format))
        };
        let mut known = self.all.iter().filter(reads);
        if let (Some(only), None) = (known.next(), known.next()) {
            return Ok(only.clone());
        }
        let descriptions = join_all(self.all.iter().map(PackageTool::description)).await;
        choose(&descriptions, format).map(|chosen| self.all[chosen].clone())
    }
}

/// Returns the position of the tool that reads packages of `format`. A tool that could not be asked matters only if no other
/// reads the format.
fn choose(
    descriptions: &[Result<Arc<ToolDescription>, Failure>],
    format: &PackageFormat,
) -> Result<usize, Failure> {
    let reads = |one: &Result<Arc<ToolDescription>, Failure>| {
        one.as_ref().is_ok_and(|description| description.formats.contains(format))
    };
    let readers: Vec<_> = descriptions.iter().enumerate().filter(|(_, one)| reads(one)).collect();
    match readers.as_slice() {
        [(chosen, _)] => Ok(*chosen),
        [] => Err(descriptions.iter().find_map(|one| one.as_ref().err().cloned()).unwrap_or_else(|| {
            let message = format!(
                "no package tool of this manager reads packages of type {format}; start the manager with a --tool that does"
            );
            Failure::new(Category::InvalidPackage, message)
        })),
        several => {
            let names: Vec<_> = several
                .iter()
                .filter_map(|(_, one)| one.as_ref().ok().map(|description| description.name.as_str()))
                .collect();
            let message = format!(
                "the package tools {} all read packages of type {format}; start the manager with one of them only",
                names.join(", ")
            );
            Err(Failure::new(Category::InvalidPackage, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::inventory::ReleaseRecords;

    use super::*;

    fn tool(name: &str, formats: &[&str]) -> Arc<ToolDescription> {
        let records = ReleaseRecords {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            plural: "secrets".to_owned(),
            label_selector: String::new(),
            object_name: String::new(),
            release_label: String::new(),
            revision_label: String::new(),
            status_label: String::new(),
            time_labels: Vec::new(),
            object_selector: String::new(),
        };
        Arc::new(ToolDescription {
            name: name.to_owned(),
            version: String::new(),
            driver_version: String::new(),
            formats: formats.iter().copied().map(PackageFormat::new).collect(),
            capabilities: Vec::new(),
            records: Arc::new(records),
        })
    }

    #[test]
    fn the_format_selects_the_tool() {
        let down = Err(Failure::new(Category::ToolUnavailable, "down"));
        let (helm, plain) = (Ok(tool("helm", &["chart"])), Ok(tool("plain", &["manifests"])));
        let chosen = |tools: &[Result<_, _>], format: &str| {
            choose(tools, &PackageFormat::new(format)).map_err(|failure| failure.category)
        };
        let both = [helm.clone(), plain];
        assert_eq!((chosen(&both, "chart"), chosen(&both, "manifests")), (Ok(0), Ok(1)));
        assert_eq!(chosen(&both, "image"), Err(Category::InvalidPackage), "no tool reads it");
        let partly = [down.clone(), helm.clone()];
        assert_eq!(chosen(&partly, "chart"), Ok(1), "a tool that is down does not harm the others");
        assert_eq!(
            chosen(&partly, "image"),
            Err(Category::ToolUnavailable),
            "it may be the one that reads it"
        );
        let twice = [helm.clone(), Ok(tool("other", &["chart"]))];
        assert_eq!(chosen(&twice, "chart"), Err(Category::InvalidPackage), "both read it");
    }
}
