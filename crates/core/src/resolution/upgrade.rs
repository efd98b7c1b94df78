//! Plans what a Kubernetes upgrade of a cluster means for its extensions, before it begins.
//!
//! A running version that is compatible with the new Kubernetes version stays. Otherwise the extension moves to a
//! version that is compatible with both, before the control plane is upgraded. If there is none, it moves to a version
//! that is compatible with the new Kubernetes version only, at the moment that its Extension names. An extension moves
//! neither before its dependencies nor before extensions that need its running version. It moves to an older version if no
//! newer one is compatible.

use std::{collections::BTreeMap, fmt};

use chandler_api::extensions::UpgradeMoment;
use semver::Version;

use super::{
    Choice, Cluster, Conflict, Published, Solution, Universe, VersionName, VersionRequest, budget::Budget,
    problem::ProblemInput, solve, universe::Candidate,
};

/// The plan of a Kubernetes upgrade for the extensions of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradePlan {
    /// In order of installation, or by name if the upgrade is blocked.
    pub steps: Vec<Step>,
    /// The first conflict that blocks the upgrade, if any.
    pub conflict: Option<Conflict>,
}

/// The part of a plan for one extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub extension: String,
    /// The version that is running now.
    pub running: Option<VersionName>,
    pub outcome: UpgradeOutcome,
}

/// What an upgrade means for an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeOutcome {
    /// The running version is kept.
    Stays,
    /// The running version is kept although it is incompatible, because its Extension does not block upgrades.
    StaysIncompatible { because: String },
    /// The extension changes its version, or is installed as a new dependency.
    Moves { to: VersionName, when: UpgradeMoment, because: String },
    /// The extension takes part in a conflict that blocks the upgrade.
    Blocks { because: String },
}

impl UpgradePlan {
    /// Returns whether the upgrade is blocked.
    pub fn blocks(&self) -> bool {
        self.conflict.is_some()
    }
}

/// Returns the text for a moment of an upgrade.
pub fn moment_text(moment: UpgradeMoment) -> &'static str {
    match moment {
        UpgradeMoment::BeforeControlPlane => "before the control plane",
        UpgradeMoment::AfterControlPlane => "after the control plane",
        UpgradeMoment::AfterCluster => "after the cluster",
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extension, running: before, outcome } = self;
        let running = before.as_ref().map(|running| format!(" {running}")).unwrap_or_default();
        match outcome {
            UpgradeOutcome::Stays => write!(f, "{extension}{running} stays"),
            UpgradeOutcome::StaysIncompatible { because } => {
                write!(f, "{extension}{running} stays although it is incompatible: {because}")
            }
            UpgradeOutcome::Moves { to, when, because } => {
                let (to, when) = (to.as_target(before.as_ref()), moment_text(*when));
                write!(f, "{extension}{running} moves to {to} {when}: {because}")
            }
            UpgradeOutcome::Blocks { because } => write!(f, "{extension}{running} blocks: {because}"),
        }
    }
}

/// Plans the upgrade of a cluster to the Kubernetes version `target`.
///
/// Requests that conflict are set aside until the others can be resolved, so that the plan names all conflicts and what
/// would happen to the other extensions.
pub fn plan_upgrade(
    universe: &Universe,
    requests: &[VersionRequest],
    cluster: &Cluster,
    target: &Version,
) -> UpgradePlan {
    let upgraded = Cluster { kubernetes: target.clone(), ..cluster.clone() };
    let mut remaining = requests.to_vec();
    let mut conflicts: Vec<Conflict> = Vec::new();
    let budget = Budget::new();
    loop {
        let input = ProblemInput {
            universe,
            requests: &remaining,
            cluster: &upgraded,
            from: Some(&cluster.kubernetes),
        };
        let conflict = match solve(input, &budget) {
            Ok(solution) => {
                let steps = steps(universe, cluster, target, &solution);
                return UpgradePlan {
                    steps: with_blockers(steps, &conflicts, cluster),
                    conflict: first(conflicts),
                };
            }
            Err(conflict) => conflict,
        };
        let before = remaining.len();
        remaining.retain(|request| !conflict.extensions().contains(request.extension.as_str()));
        conflicts.push(conflict);
        if remaining.len() == before {
            // None of the conflicting extensions is requested, so the other steps cannot be determined.
            let steps = remaining.iter().map(|request| stay(&request.extension, cluster)).collect();
            return UpgradePlan {
                steps: with_blockers(steps, &conflicts, cluster),
                conflict: first(conflicts),
            };
        }
    }
}

fn first(conflicts: Vec<Conflict>) -> Option<Conflict> {
    conflicts.into_iter().next()
}

fn steps(universe: &Universe, cluster: &Cluster, target: &Version, solution: &Solution) -> Vec<Step> {
    let moments = moments(universe, cluster, solution);
    let step = |choice: &Choice| Step {
        extension: choice.extension.clone(),
        running: choice.running.clone(),
        outcome: match moments.get(choice.extension.as_str()) {
            Some(when) => UpgradeOutcome::Moves {
                to: choice.version.clone(),
                when: *when,
                because: because(choice, solution),
            },
            None => stays(universe, choice, target),
        },
    };
    solution.choices.iter().map(step).collect()
}

fn because(choice: &Choice, solution: &Solution) -> String {
    if let super::ChoiceReason::Moves { because } = &choice.reason {
        return because.clone();
    }
    let others = solution.choices.iter().filter(|other| other.after.contains(&choice.extension));
    match others.map(|other| format!("{} {}", other.extension, other.version)).next() {
        Some(other) if !choice.requested => format!("{other} needs it"),
        _ => "it is requested".to_owned(),
    }
}

fn stays(universe: &Universe, choice: &Choice, target: &Version) -> UpgradeOutcome {
    match find_candidate(universe, &choice.extension, &choice.version)
        .and_then(|known| known.kubernetes.as_ref())
    {
        Some(range) if !range.contains(target) => UpgradeOutcome::StaysIncompatible {
            because: format!("{} needs Kubernetes {range}, the cluster will have {target}", choice.version),
        },
        _ => UpgradeOutcome::Stays,
    }
}

/// Returns when each extension moves. Extensions that stay are not included.
fn moments<'r>(
    universe: &Universe,
    cluster: &Cluster,
    solution: &'r Solution,
) -> BTreeMap<&'r str, UpgradeMoment> {
    let changes = solution.choices.iter().filter(|choice| choice.running.as_ref() != Some(&choice.version));
    let mut moments: BTreeMap<_, _> =
        changes.map(|choice| (choice.extension.as_str(), moment(universe, cluster, choice))).collect();
    // Each iteration postpones one move to the moment of another, so the loop terminates.
    while let Some((extension, later)) = too_early(universe, solution, &moments) {
        moments.insert(extension, later);
    }
    moments
}

fn moment(universe: &Universe, cluster: &Cluster, choice: &Choice) -> UpgradeMoment {
    let range = find_candidate(universe, &choice.extension, &choice.version)
        .and_then(|known| known.kubernetes.as_ref());
    if range.is_none_or(|range| range.contains(&cluster.kubernetes)) {
        UpgradeMoment::BeforeControlPlane
    } else {
        universe.extensions.get(&choice.extension).map(|known| known.upgrade.when).unwrap_or_default()
    }
}

/// Returns an extension that would move before one of its dependencies or before one that needs its running version,
/// and the moment to which its move has to be postponed.
fn too_early<'r>(
    universe: &Universe,
    solution: &'r Solution,
    moments: &BTreeMap<&'r str, UpgradeMoment>,
) -> Option<(&'r str, UpgradeMoment)> {
    for dependent in &solution.choices {
        for needed in &solution.choices {
            let when = |choice: &Choice| moments.get(choice.extension.as_str()).copied();
            let is_satisfied = |version: &VersionName, by: Option<&VersionName>| {
                satisfies(universe, &dependent.extension, version, &needed.extension, by)
            };
            match (when(dependent), when(needed)) {
                (Some(early), Some(late))
                    if early < late && !is_satisfied(&dependent.version, needed.running.as_ref()) =>
                {
                    return Some((&dependent.extension, late));
                }
                (Some(late), Some(early))
                    if early < late
                        && dependent
                            .running
                            .as_ref()
                            .is_some_and(|running| !is_satisfied(running, Some(&needed.version))) =>
                {
                    return Some((&needed.extension, late));
                }
                _ => {}
            }
        }
    }
    None
}

/// Returns whether a version of another extension, or its absence, satisfies the dependencies of a version on it.
fn satisfies(
    universe: &Universe,
    extension: &str,
    version: &VersionName,
    needed: &str,
    by: Option<&VersionName>,
) -> bool {
    let needs = find_candidate(universe, extension, version).map_or(&[][..], |known| &known.dependencies);
    needs.iter().filter(|need| need.extension == needed).all(|need| match by {
        Some(version) => need.range.contains(&version.version),
        None => need.optional,
    })
}

fn find_candidate<'u>(
    universe: &'u Universe,
    extension: &str,
    version: &VersionName,
) -> Option<&'u Candidate> {
    let Published { versions, .. } = universe.extensions.get(extension)?;
    versions.iter().find(|known| known.name.version == version.version)
}

/// Returns the steps. If there are conflicts, adds the conflicting and all other running extensions, sorted by name.
fn with_blockers(steps: Vec<Step>, conflicts: &[Conflict], cluster: &Cluster) -> Vec<Step> {
    if conflicts.is_empty() {
        return steps;
    }
    let mut all: BTreeMap<String, Step> =
        cluster.running.keys().map(|name| (name.clone(), stay(name, cluster))).collect();
    all.extend(steps.into_iter().map(|step| (step.extension.clone(), step)));
    // An extension that takes part in several conflicts reports the first one.
    for conflict in conflicts.iter().rev() {
        for name in conflict.extensions() {
            let outcome = UpgradeOutcome::Blocks { because: conflict_reason(conflict, name) };
            all.insert(name.to_owned(), Step { outcome, ..stay(name, cluster) });
        }
    }
    all.into_values().collect()
}

fn stay(extension: &str, cluster: &Cluster) -> Step {
    let running = cluster.running.get(extension).cloned();
    Step { extension: extension.to_owned(), running, outcome: UpgradeOutcome::Stays }
}

fn conflict_reason(conflict: &Conflict, extension: &str) -> String {
    let causes =
        conflict.causes.iter().filter(|cause| cause.extension == extension && !cause.versions.is_empty());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    if causes.is_empty() { conflict.to_string().replace('\n', "; ") } else { causes.join("; ") }
}
