//! The report of an upgrade check. Pure.

use std::fmt;

use chandler_api::extensions::UpgradeMoment;
use chandler_core::{
    extension::ResolutionInput,
    failure::Failure,
    placement::{FollowerOutcome, KubernetesFollower},
    resolution::{Step, UpgradeOutcome},
};
use kube::{ResourceExt as _, api::DynamicObject};
use serde::Serialize;

use super::target_version::{TargetVersion, UpgradePath};

/// The outcome of a check of several clusters.
#[derive(Debug, Serialize)]
pub struct Report {
    pub summary: Summary,
    pub clusters: Vec<ClusterReport>,
}

/// The number of clusters by outcome.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub clusters: usize,
    pub upgradable: usize,
    pub up_to_date: usize,
    pub blocked: usize,
    pub unknown: usize,
}

/// What the upgrade would change for a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    pub namespace: String,
    pub name: String,
    /// The version that the cluster runs.
    pub kubernetes: Option<String>,
    pub to: Option<String>,
    pub outcome: ClusterOutcome,
    pub message: String,
    /// The extensions, and the HelmChartProxies whose versions follow Kubernetes.
    pub extensions: Vec<ExtensionReport>,
}

/// Whether a cluster can be upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ClusterOutcome {
    Upgradable,
    /// The cluster already runs the target version or a newer one.
    UpToDate,
    /// At least one extension has no compatible version.
    Blocked,
    /// The check failed; the message contains the reason.
    Unknown,
}

/// What the upgrade would do to an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ExtensionOutcome {
    Stays,
    /// The version stays although it is incompatible, because the Extension does not block upgrades.
    StaysIncompatible,
    Moves,
    Blocks,
}

/// What the upgrade would change for an extension.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionReport {
    pub name: String,
    pub running: Option<String>,
    pub outcome: ExtensionOutcome,
    pub to: Option<String>,
    pub when: Option<UpgradeMoment>,
    pub reason: Option<String>,
    /// The same text as in the Cluster's condition `AddonsUpgradable`.
    pub message: String,
}

impl Report {
    pub fn new(clusters: Vec<ClusterReport>) -> Self {
        let count = |outcome| clusters.iter().filter(|cluster| cluster.outcome == outcome).count();
        let summary = Summary {
            clusters: clusters.len(),
            upgradable: count(ClusterOutcome::Upgradable),
            up_to_date: count(ClusterOutcome::UpToDate),
            blocked: count(ClusterOutcome::Blocked),
            unknown: count(ClusterOutcome::Unknown),
        };
        Self { summary, clusters }
    }

    /// Returns whether the upgrade of at least one cluster is blocked.
    pub fn is_blocked(&self) -> bool {
        self.summary.blocked > 0
    }

    /// Returns whether every cluster could be checked.
    pub fn is_complete(&self) -> bool {
        self.summary.unknown == 0
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clusters, upgradable, up_to_date, blocked, unknown } = *self;
        write!(f, "{clusters} cluster{}: ", if clusters == 1 { "" } else { "s" })?;
        let parts = [
            (upgradable, "upgradable"),
            (up_to_date, "up to date"),
            (blocked, "blocked"),
            (unknown, "unknown"),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, outcome)| format!("{count} {outcome}"))
            .collect();
        f.write_str(&parts.join(", "))
    }
}

impl ClusterReport {
    /// Plans the upgrade of a cluster from its resolution input, or reports why there is no input. `followers` are its add-ons
    /// that no Extension has a version for.
    pub fn new(
        cluster: &DynamicObject,
        input: Result<ResolutionInput, Failure>,
        followers: &[KubernetesFollower],
        to: Option<&TargetVersion>,
    ) -> Self {
        let report = Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            kubernetes: None,
            to: to.map(ToString::to_string),
            outcome: ClusterOutcome::Unknown,
            message: String::new(),
            extensions: Vec::new(),
        };
        let input = match input {
            Ok(input) => input,
            Err(failure) => return Self { message: failure.message, ..report },
        };
        let report = Self { kubernetes: Some(input.kubernetes.current.to_string()), ..report };
        let path = match to {
            Some(to) => to.path_from(&input.kubernetes),
            None => Some(UpgradePath::next(&input)),
        };
        match path {
            Some(path) => {
                Self { to: Some(path.target.clone()), ..report }.with_plan(&input, followers, &path)
            }
            None => Self { outcome: ClusterOutcome::UpToDate, ..report },
        }
    }

    fn with_plan(
        self,
        input: &ResolutionInput,
        followers: &[KubernetesFollower],
        path: &UpgradePath,
    ) -> Self {
        let plan = input.plan(&path.from, &path.to);
        let following = followers.iter().map(|follower| ExtensionReport::of_follower(follower, path));
        let extensions: Vec<_> = plan.steps.iter().map(ExtensionReport::new).chain(following).collect();
        let is_blocked = extensions.iter().any(|extension| extension.outcome == ExtensionOutcome::Blocks);
        let skips_minor = path.to.minor > path.from.minor + 1;
        let message = match (is_blocked, skips_minor) {
            (true, _) => "publish compatible versions, or force the upgrade by annotating the Cluster with \
                          chandler.dev/proceed=BeforeClusterUpgrade,BeforeControlPlaneUpgrade"
                .to_owned(),
            (false, true) => format!(
                "Kubernetes must be upgraded one minor version at a time: check {}.{} first",
                path.from.major,
                path.from.minor + 1
            ),
            (false, false) => String::new(),
        };
        Self {
            outcome: if is_blocked { ClusterOutcome::Blocked } else { ClusterOutcome::Upgradable },
            message,
            extensions,
            ..self
        }
    }
}

impl ExtensionReport {
    fn new(step: &Step) -> Self {
        let (outcome, to, when, reason) = match &step.outcome {
            UpgradeOutcome::Stays => (ExtensionOutcome::Stays, None, None, None),
            UpgradeOutcome::StaysIncompatible { because } => {
                (ExtensionOutcome::StaysIncompatible, None, None, Some(because.clone()))
            }
            UpgradeOutcome::Moves { to, when, because } => {
                (ExtensionOutcome::Moves, Some(to.to_string()), Some(*when), Some(because.clone()))
            }
            UpgradeOutcome::Blocks { because } => {
                (ExtensionOutcome::Blocks, None, None, Some(because.clone()))
            }
        };
        Self {
            name: step.extension.clone(),
            running: step.running.as_ref().map(ToString::to_string),
            outcome,
            to,
            when,
            reason,
            message: step.to_string(),
        }
    }

    fn of_follower(follower: &KubernetesFollower, path: &UpgradePath) -> Self {
        let UpgradePath { from, to, .. } = path;
        let message = follower.blocks(from, to).or_else(|| follower.moves(from, to));
        let running = follower.requested.clone();
        let (outcome, to, when, reason) = match follower.outcome(from, to) {
            FollowerOutcome::Stays => (ExtensionOutcome::Stays, None, None, None),
            FollowerOutcome::Kept(kept) => (ExtensionOutcome::Stays, None, None, Some(kept.to_string())),
            FollowerOutcome::Moves { to, when } => {
                (ExtensionOutcome::Moves, Some(to.to_owned()), Some(when), None)
            }
            FollowerOutcome::Blocks(because) => (ExtensionOutcome::Blocks, None, None, Some(because)),
        };
        let stays = || format!("{} stays", follower.name);
        Self {
            name: follower.name.clone(),
            running,
            outcome,
            to,
            when,
            reason,
            message: message.unwrap_or_else(stays),
        }
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::failure::Category;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{cluster, mixed_input, report, resolution_input};

    #[test]
    fn every_extension_has_its_outcome() {
        let report = report("alpha", mixed_input(), None);
        assert_eq!(
            (report.outcome, report.kubernetes.as_deref(), report.to.as_deref()),
            (ClusterOutcome::Blocked, Some("1.34.4"), Some("1.35"))
        );
        let value = serde_json::to_value(&report).unwrap();
        let column = |field: &str| {
            let all = value["extensions"].as_array().unwrap().iter();
            all.map(|extension| extension[field].clone()).collect::<Vec<_>>()
        };
        assert_eq!(column("name"), ["app", "base", "net"]);
        assert_eq!(column("outcome"), ["Blocks", "Stays", "Moves"]);
        assert_eq!(column("to"), [json!(null), json!(null), json!("1.35.0")]);
        assert_eq!(column("when"), [json!(null), json!(null), json!("AfterControlPlane")]);
        assert_eq!(value["extensions"][1]["message"], "base 1.0.0 stays");
        assert!(report.message.contains("chandler.dev/proceed="), "{}", report.message);
    }

    #[test]
    fn the_summary_counts_outcomes() {
        let fine = || report("fine", resolution_input(&[("base", &[("1.0.0", "*")])]), Some("1.35"));
        let current = || report("current", mixed_input(), Some("1.34"));
        let failed = || {
            let failure = Failure::new(Category::SourceUnavailable, "connection refused");
            ClusterReport::new(&cluster("failed"), Err(failure), &[], None)
        };
        let rows: [(Vec<ClusterReport>, bool, bool, &str); 4] = [
            (vec![fine()], false, true, "1 cluster: 1 upgradable"),
            (vec![fine(), current()], false, true, "2 clusters: 1 upgradable, 1 up to date"),
            (vec![fine(), failed()], false, false, "2 clusters: 1 upgradable, 1 unknown"),
            (
                vec![report("a", mixed_input(), None), failed()],
                true,
                false,
                "2 clusters: 1 blocked, 1 unknown",
            ),
        ];
        for (clusters, blocked, complete, summary) in rows {
            let report = Report::new(clusters);
            assert_eq!((report.is_blocked(), report.is_complete()), (blocked, complete), "{summary}");
            assert_eq!(report.summary.to_string(), summary);
        }
    }

    #[test]
    fn a_skipped_minor_version_is_reported() {
        let report = report("alpha", resolution_input(&[("base", &[("1.0.0", "*")])]), Some("1.36"));
        assert_eq!(report.outcome, ClusterOutcome::Upgradable);
        assert_eq!(
            report.message,
            "Kubernetes must be upgraded one minor version at a time: check 1.35 first"
        );
    }
}
