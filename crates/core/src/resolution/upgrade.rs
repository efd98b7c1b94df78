//! What an upgrade of a cluster's Kubernetes means for its extensions, before it begins.
//!
//! What runs and fits the new Kubernetes stays. What does not moves to a version that fits both, before the control
//! plane does; if there is none, to one that fits the new Kubernetes alone, at the moment its Extension names. An
//! extension does not run ahead of what it needs, nor of those that need it as it is.

use std::{collections::BTreeMap, fmt};

use chandler_api::extensions::UpgradeMoment;
use semver::Version;

use super::{
    Choice, Cluster, Conflict, Published, Solution, Universe, VersionName, Wanted, problem::ProblemInput,
    solve, universe::Candidate,
};

/// What an upgrade means for the extensions of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradePlan {
    /// In order of installation; by name if something blocks.
    pub steps: Vec<Step>,
    /// Why no versions fit the new Kubernetes together, the first reason of several. The upgrade has to wait.
    pub conflict: Option<Conflict>,
}

/// What an upgrade means for one extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub extension: String,
    /// What runs now.
    pub running: Option<VersionName>,
    pub outcome: Outcome,
}

/// What happens to an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stays as it is.
    Stays,
    /// It stays though it does not fit, because its Extension says that it blocks no upgrade.
    StaysUnfit { because: String },
    /// It moves, or is installed because others need it then.
    Moves { to: VersionName, when: UpgradeMoment, because: String },
    /// It has a part in why the upgrade cannot be.
    Blocks { because: String },
}

impl UpgradePlan {
    /// Whether the upgrade has to wait.
    pub fn blocks(&self) -> bool {
        self.conflict.is_some()
    }
}

/// When something moves.
pub fn moment_in_words(moment: UpgradeMoment) -> &'static str {
    match moment {
        UpgradeMoment::BeforeControlPlane => "before the control plane",
        UpgradeMoment::AfterControlPlane => "after the control plane",
        UpgradeMoment::AfterCluster => "after the cluster",
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extension, running, outcome } = self;
        let running = running.as_ref().map(|running| format!(" {running}")).unwrap_or_default();
        match outcome {
            Outcome::Stays => write!(f, "{extension}{running} stays"),
            Outcome::StaysUnfit { because } => {
                write!(f, "{extension}{running} stays though it does not fit: {because}")
            }
            Outcome::Moves { to, when, because } => {
                let when = moment_in_words(*when);
                write!(f, "{extension}{running} moves to {to} {when}: {because}")
            }
            Outcome::Blocks { because } => write!(f, "{extension}{running} blocks: {because}"),
        }
    }
}

/// What an upgrade of the cluster's Kubernetes to `target` means for its extensions. What blocks is set aside until the
/// rest can be had, so that all of it is told at once, beside what would happen to the others.
pub fn plan_upgrade(
    universe: &Universe,
    wanted: &[Wanted],
    cluster: &Cluster,
    target: &Version,
) -> UpgradePlan {
    let upgraded = Cluster { kubernetes: target.clone(), ..cluster.clone() };
    let mut left = wanted.to_vec();
    let mut conflicts: Vec<Conflict> = Vec::new();
    loop {
        let input =
            ProblemInput { universe, wanted: &left, cluster: &upgraded, from: Some(&cluster.kubernetes) };
        let conflict = match solve(input) {
            Ok(resolution) => {
                let steps = steps(universe, cluster, target, &resolution);
                return UpgradePlan {
                    steps: with_blocks(steps, &conflicts, cluster),
                    conflict: first(conflicts),
                };
            }
            Err(conflict) => conflict,
        };
        let before = left.len();
        left.retain(|wanted| !conflict.extensions().contains(wanted.extension.as_str()));
        conflicts.push(conflict);
        if left.len() == before {
            // Nobody asks for what it is about: what else would happen cannot be told.
            let steps = left.iter().map(|wanted| stay(&wanted.extension, cluster)).collect();
            return UpgradePlan {
                steps: with_blocks(steps, &conflicts, cluster),
                conflict: first(conflicts),
            };
        }
    }
}

fn first(conflicts: Vec<Conflict>) -> Option<Conflict> {
    conflicts.into_iter().next()
}

fn steps(universe: &Universe, cluster: &Cluster, target: &Version, resolution: &Solution) -> Vec<Step> {
    let moments = moments(universe, cluster, resolution);
    let step = |choice: &Choice| Step {
        extension: choice.extension.clone(),
        running: choice.running.clone(),
        outcome: match moments.get(choice.extension.as_str()) {
            Some(when) => Outcome::Moves {
                to: choice.version.clone(),
                when: *when,
                because: because(choice, resolution),
            },
            None => stays(universe, choice, target),
        },
    };
    resolution.choices.iter().map(step).collect()
}

fn because(choice: &Choice, resolution: &Solution) -> String {
    if let super::Why::Moves { because } = &choice.why {
        return because.clone();
    }
    let others = resolution.choices.iter().filter(|other| other.after.contains(&choice.extension));
    match others.map(|other| format!("{} {}", other.extension, other.version)).next() {
        Some(other) if !choice.asked_for => format!("{other} needs it"),
        _ => "it is asked for".to_owned(),
    }
}

fn stays(universe: &Universe, choice: &Choice, target: &Version) -> Outcome {
    match stated(universe, &choice.extension, &choice.version).and_then(|known| known.kubernetes.as_ref()) {
        Some(range) if !range.contains(target) => Outcome::StaysUnfit {
            because: format!("{} needs Kubernetes {range}, the cluster will have {target}", choice.version),
        },
        _ => Outcome::Stays,
    }
}

/// When each extension moves that does.
fn moments<'r>(
    universe: &Universe,
    cluster: &Cluster,
    resolution: &'r Solution,
) -> BTreeMap<&'r str, UpgradeMoment> {
    let changes = resolution.choices.iter().filter(|choice| choice.running.as_ref() != Some(&choice.version));
    let mut moments: BTreeMap<_, _> =
        changes.map(|choice| (choice.extension.as_str(), moment(universe, cluster, choice))).collect();
    // Each round puts something off until something else is there, so there is an end to it.
    while let Some((extension, later)) = too_early(universe, resolution, &moments) {
        moments.insert(extension, later);
    }
    moments
}

fn moment(universe: &Universe, cluster: &Cluster, choice: &Choice) -> UpgradeMoment {
    let range =
        stated(universe, &choice.extension, &choice.version).and_then(|known| known.kubernetes.as_ref());
    if range.is_none_or(|range| range.contains(&cluster.kubernetes)) {
        UpgradeMoment::BeforeControlPlane
    } else {
        universe.extensions.get(&choice.extension).map(|known| known.upgrade.when).unwrap_or_default()
    }
}

/// An extension that would move before one that it needs has, or before one that needs it as it is; and when that moves.
fn too_early<'r>(
    universe: &Universe,
    resolution: &'r Solution,
    moments: &BTreeMap<&'r str, UpgradeMoment>,
) -> Option<(&'r str, UpgradeMoment)> {
    for needing in &resolution.choices {
        for needed in &resolution.choices {
            let when = |choice: &Choice| moments.get(choice.extension.as_str()).copied();
            let served = |version: &VersionName, by: Option<&VersionName>| {
                serves(universe, &needing.extension, version, &needed.extension, by)
            };
            match (when(needing), when(needed)) {
                (Some(early), Some(late))
                    if early < late && !served(&needing.version, needed.running.as_ref()) =>
                {
                    return Some((&needing.extension, late));
                }
                (Some(late), Some(early))
                    if early < late
                        && needing
                            .running
                            .as_ref()
                            .is_some_and(|running| !served(running, Some(&needed.version))) =>
                {
                    return Some((&needed.extension, late));
                }
                _ => {}
            }
        }
    }
    None
}

/// Whether what a version needs of another extension is served by a version of that, or by none.
fn serves(
    universe: &Universe,
    extension: &str,
    version: &VersionName,
    needed: &str,
    by: Option<&VersionName>,
) -> bool {
    let needs = stated(universe, extension, version).map_or(&[][..], |known| &known.dependencies);
    needs.iter().filter(|need| need.extension == needed).all(|need| match by {
        Some(version) => need.range.contains(&version.version),
        None => need.optional,
    })
}

fn stated<'u>(universe: &'u Universe, extension: &str, version: &VersionName) -> Option<&'u Candidate> {
    let Published { versions, .. } = universe.extensions.get(extension)?;
    versions.iter().find(|known| known.name.version == version.version)
}

/// The steps of a plan and, if something blocks, what does and all else that runs, by name.
fn with_blocks(steps: Vec<Step>, conflicts: &[Conflict], cluster: &Cluster) -> Vec<Step> {
    if conflicts.is_empty() {
        return steps;
    }
    let mut all: BTreeMap<String, Step> =
        cluster.running.keys().map(|name| (name.clone(), stay(name, cluster))).collect();
    all.extend(steps.into_iter().map(|step| (step.extension.clone(), step)));
    // The first conflict that an extension has a part in is the one it is blamed for.
    for conflict in conflicts.iter().rev() {
        for name in conflict.extensions() {
            let outcome = Outcome::Blocks { because: because_of(conflict, name) };
            all.insert(name.to_owned(), Step { outcome, ..stay(name, cluster) });
        }
    }
    all.into_values().collect()
}

fn stay(extension: &str, cluster: &Cluster) -> Step {
    let running = cluster.running.get(extension).cloned();
    Step { extension: extension.to_owned(), running, outcome: Outcome::Stays }
}

fn because_of(conflict: &Conflict, extension: &str) -> String {
    let facts = conflict.facts.iter().filter(|fact| fact.extension == extension && !fact.versions.is_empty());
    let facts: Vec<_> = facts.map(ToString::to_string).collect();
    if facts.is_empty() { conflict.to_string().replace('\n', "; ") } else { facts.join("; ") }
}
