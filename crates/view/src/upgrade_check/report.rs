//! What is told of an upgrade. Pure.

use std::fmt;

use chandler_api::extensions::UpgradeMoment;
use chandler_core::{
    extension::Question,
    failure::Failure,
    resolution::{UpgradeOutcome, Step},
};
use kube::{ResourceExt as _, api::DynamicObject};
use serde::Serialize;

use super::target::{self, Target, Way};

/// What a new Kubernetes would mean.
#[derive(Debug, Serialize)]
pub struct Report {
    pub summary: Summary,
    pub clusters: Vec<ClusterReport>,
}

/// How many clusters there are of which verdict.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub clusters: usize,
    pub upgradable: usize,
    pub up_to_date: usize,
    pub blocked: usize,
    pub unknown: usize,
}

/// What it would mean for a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    pub namespace: String,
    pub name: String,
    /// What it runs.
    pub kubernetes: Option<String>,
    pub to: Option<String>,
    pub verdict: Verdict,
    pub message: String,
    pub extensions: Vec<ExtensionReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    Upgradable,
    /// It runs the new Kubernetes already, or a newer one.
    UpToDate,
    Blocked,
    Unknown,
}

/// What would happen to an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Fate {
    Stays,
    /// It stays though it does not fit.
    StaysUnfit,
    Moves,
    Blocks,
}

/// What it would mean for an extension.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionReport {
    pub name: String,
    pub running: Option<String>,
    pub outcome: Fate,
    pub to: Option<String>,
    pub when: Option<UpgradeMoment>,
    pub because: Option<String>,
    /// All of it in words, as the Cluster's condition `AddonsUpgradable` has it.
    pub message: String,
}

impl Report {
    pub fn new(clusters: Vec<ClusterReport>) -> Self {
        let count = |verdict| clusters.iter().filter(|cluster| cluster.verdict == verdict).count();
        let summary = Summary {
            clusters: clusters.len(),
            upgradable: count(Verdict::Upgradable),
            up_to_date: count(Verdict::UpToDate),
            blocked: count(Verdict::Blocked),
            unknown: count(Verdict::Unknown),
        };
        Self { summary, clusters }
    }

    pub fn is_blocked(&self) -> bool {
        self.summary.blocked > 0
    }

    pub fn is_known(&self) -> bool {
        self.summary.unknown == 0
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clusters, upgradable, up_to_date, blocked, unknown } = *self;
        write!(f, "{clusters} cluster{}: ", if clusters == 1 { "" } else { "s" })?;
        let parts = [
            (upgradable, "can go"),
            (up_to_date, "there already"),
            (blocked, "blocked"),
            (unknown, "not known"),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        f.write_str(&parts.join(", "))
    }
}

impl ClusterReport {
    /// What it would mean for a cluster, if that could be found out.
    pub fn new(cluster: &DynamicObject, asked: Result<Question, Failure>, to: Option<&Target>) -> Self {
        let empty = Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            kubernetes: None,
            to: to.map(ToString::to_string),
            verdict: Verdict::Unknown,
            message: String::new(),
            extensions: Vec::new(),
        };
        let question = match asked {
            Ok(question) => question,
            Err(failure) => return Self { message: failure.message, ..empty },
        };
        let empty = Self { kubernetes: Some(question.kubernetes.current.to_string()), ..empty };
        let way = match to {
            Some(to) => to.way(&question.kubernetes),
            None => Some(target::next(&question)),
        };
        match way {
            Some(way) => Self { to: Some(way.name.clone()), ..empty }.planned(&question, &way),
            None => Self { verdict: Verdict::UpToDate, ..empty },
        }
    }

    fn planned(self, question: &Question, way: &Way) -> Self {
        let plan = question.plan(&way.from, &way.to);
        let skips = way.to.minor > way.from.minor + 1;
        let message = match (plan.blocks(), skips) {
            (true, _) => {
                "publish versions that fit, or let the upgrade go on all the same by annotating the Cluster \
                          with chandler.dev/proceed=BeforeClusterUpgrade,BeforeControlPlaneUpgrade"
                    .to_owned()
            }
            (false, true) => format!(
                "Kubernetes goes one minor at a time: check {}.{} first",
                way.from.major,
                way.from.minor + 1
            ),
            (false, false) => String::new(),
        };
        Self {
            verdict: if plan.blocks() { Verdict::Blocked } else { Verdict::Upgradable },
            message,
            extensions: plan.steps.iter().map(ExtensionReport::new).collect(),
            ..self
        }
    }
}

impl ExtensionReport {
    fn new(step: &Step) -> Self {
        let (outcome, to, when, because) = match &step.outcome {
            UpgradeOutcome::Stays => (Fate::Stays, None, None, None),
            UpgradeOutcome::StaysUnfit { because } => (Fate::StaysUnfit, None, None, Some(because.clone())),
            UpgradeOutcome::Moves { to, when, because } => {
                (Fate::Moves, Some(to.to_string()), Some(*when), Some(because.clone()))
            }
            UpgradeOutcome::Blocks { because } => (Fate::Blocks, None, None, Some(because.clone())),
        };
        Self {
            name: step.extension.clone(),
            running: step.running.as_ref().map(ToString::to_string),
            outcome,
            to,
            when,
            because,
            message: step.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use chandler_core::failure::Category;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{cluster, mixed, question, report};

    #[test]
    fn every_extension_has_its_outcome() {
        let told = report("alpha", mixed(), None);
        assert_eq!(
            (told.verdict, told.kubernetes.as_deref(), told.to.as_deref()),
            (Verdict::Blocked, Some("1.34.4"), Some("1.35"))
        );
        let value = serde_json::to_value(&told).unwrap();
        let of = |field: &str| {
            let all = value["extensions"].as_array().unwrap().iter();
            all.map(|extension| extension[field].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("name"), ["app", "base", "net"]);
        assert_eq!(of("outcome"), ["Blocks", "Stays", "Moves"]);
        assert_eq!(of("to"), [json!(null), json!(null), json!("1.35.0")]);
        assert_eq!(of("when"), [json!(null), json!(null), json!("AfterControlPlane")]);
        assert_eq!(value["extensions"][1]["message"], "base 1.0.0 stays");
        assert!(told.message.contains("chandler.dev/proceed="), "{}", told.message);
    }

    #[test]
    fn exit_codes_follow_the_worst_that_is_known() {
        let fine = || report("fine", question(&[("base", &[("1.0.0", "*")])]), Some("1.35"));
        let there = || report("there", mixed(), Some("1.34"));
        let lost = || {
            let failure = Failure::new(Category::SourceUnavailable, "nobody answers");
            ClusterReport::new(&cluster("lost"), Err(failure), None)
        };
        let rows: [(Vec<ClusterReport>, bool, bool, &str); 4] = [
            (vec![fine()], false, true, "1 cluster: 1 can go"),
            (vec![fine(), there()], false, true, "2 clusters: 1 can go, 1 there already"),
            (vec![fine(), lost()], false, false, "2 clusters: 1 can go, 1 not known"),
            (vec![report("a", mixed(), None), lost()], true, false, "2 clusters: 1 blocked, 1 not known"),
        ];
        for (clusters, blocked, known, summary) in rows {
            let report = Report::new(clusters);
            assert_eq!((report.is_blocked(), report.is_known()), (blocked, known), "{summary}");
            assert_eq!(report.summary.to_string(), summary);
        }
    }

    #[test]
    fn who_skips_a_minor_is_told() {
        let told = report("alpha", question(&[("base", &[("1.0.0", "*")])]), Some("1.36"));
        assert_eq!(told.verdict, Verdict::Upgradable);
        assert_eq!(told.message, "Kubernetes goes one minor at a time: check 1.35 first");
    }
}
