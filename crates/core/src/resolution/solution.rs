//! The solution: the chosen versions and the reason for each choice.

use std::fmt;

use super::{
    candidate_set::CandidateIndex,
    order::{Chosen, dependencies},
    problem::{Extension, Id, Problem},
    universe::{Cluster, VersionName},
};

/// The versions to install on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// In order of installation, dependencies first.
    pub choices: Vec<Choice>,
    /// Running extensions that are neither requested nor dependencies of requested ones.
    pub unneeded: Vec<(String, VersionName)>,
}

/// The chosen version of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub extension: String,
    pub version: VersionName,
    /// The version that is running now.
    pub running: Option<VersionName>,
    pub reason: ChoiceReason,
    /// Whether the extension is requested. If not, it is a dependency.
    pub requested: bool,
    /// Extensions that have to be ready first.
    pub after: Vec<String>,
    pub deprecated: bool,
    /// Whether the version is withdrawn. Such a version is only chosen if it is running.
    pub withdrawn: bool,
}

/// Why a version was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChoiceReason {
    /// It is running and compatible.
    Running,
    /// It is the best compatible version, and none is running.
    Best,
    /// The running version cannot be kept.
    Moves { because: String },
}

impl Choice {
    /// Returns whether another version is running.
    pub fn moves(&self) -> bool {
        matches!(self.reason, ChoiceReason::Moves { .. })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extension, version, running, reason, .. } = self;
        match reason {
            ChoiceReason::Running if self.withdrawn => {
                write!(f, "{extension} {version} stays although it is withdrawn")
            }
            ChoiceReason::Running => write!(f, "{extension} {version} is running and compatible"),
            ChoiceReason::Best if self.deprecated => {
                write!(f, "{extension} {version} is deprecated, but no other version is compatible")
            }
            ChoiceReason::Best => write!(f, "{extension} {version} is the newest compatible version"),
            ChoiceReason::Moves { because } => {
                let from = running.as_ref().map_or("nothing".to_owned(), ToString::to_string);
                let to = version.as_target(running.as_ref());
                write!(f, "{extension} moves from {from} to {to}: {because}")
            }
        }
    }
}

pub(super) fn solution(problem: &Problem<'_>, chosen: &Chosen, order: &[Id], cluster: &Cluster) -> Solution {
    let choices =
        order.iter().enumerate().filter_map(|(done, id)| choice(problem, chosen, *id, &order[..done]));
    let is_chosen = |name: &str| problem.id(name).is_some_and(|id| chosen.contains_key(&id));
    let unneeded = cluster.running.iter().filter(|(name, _)| !is_chosen(name));
    Solution {
        choices: choices.collect(),
        unneeded: unneeded.map(|(name, version)| (name.clone(), version.clone())).collect(),
    }
}

fn choice(problem: &Problem<'_>, chosen: &Chosen, id: Id, done: &[Id]) -> Option<Choice> {
    let extension = &problem.extensions[id];
    let index = *chosen.get(&id)?;
    let candidate = extension.candidate(index)?;
    let mut after: Vec<_> = dependencies(problem, chosen, id, true)
        .filter(|dependency| done.contains(dependency))
        .map(|dependency| problem.extensions[dependency].name.to_owned())
        .collect();
    after.sort();
    Some(Choice {
        extension: extension.name.to_owned(),
        version: candidate.name.clone(),
        running: extension
            .running
            .and_then(|running| extension.candidate(running))
            .map(|known| known.name.clone()),
        reason: reason(problem, chosen, extension, index),
        requested: !extension.requests.is_empty(),
        after,
        deprecated: candidate.deprecated,
        withdrawn: candidate.withdrawn,
    })
}

fn reason(
    problem: &Problem<'_>,
    chosen: &Chosen,
    extension: &Extension<'_>,
    index: CandidateIndex,
) -> ChoiceReason {
    match extension.running {
        None => ChoiceReason::Best,
        Some(running) if running == index => ChoiceReason::Running,
        Some(running) => ChoiceReason::Moves { because: reason_to_move(problem, chosen, extension, running) },
    }
}

/// Returns the first reason that applies: the running version is rejected, not requested, incompatible with what
/// another chosen version needs, or one of its own dependencies is not satisfied.
fn reason_to_move(
    problem: &Problem<'_>,
    chosen: &Chosen,
    extension: &Extension<'_>,
    running: CandidateIndex,
) -> String {
    let Some(candidate) = extension.candidate(running) else { return String::new() };
    let name = &candidate.name;
    if let Some(rejection) = extension.rejection(running) {
        return format!("{name} {}", rejection.describe(false));
    }
    if let Some(request) = extension.requests.iter().find(|request| !request.range.contains(&name.version)) {
        return format!("{} is requested", request.range);
    }
    let others = chosen.iter().filter_map(|(id, index)| Some((*id, problem.candidate(*id, *index)?)));
    for (id, other) in others {
        let violated = other
            .dependencies
            .iter()
            .find(|needed| needed.extension == extension.name && !needed.range.contains(&name.version));
        if let Some(needed) = violated {
            let other_name = problem.extensions[id].name;
            return format!("{other_name} {} needs {} {}", other.name, extension.name, needed.range);
        }
    }
    let unmet = candidate.dependencies.iter().find(|needed| {
        let chosen = problem.id(&needed.extension).and_then(|id| Some((id, *chosen.get(&id)?)));
        let chosen = chosen.and_then(|(id, index)| problem.candidate(id, index));
        chosen.map_or(!needed.optional, |chosen| !needed.range.contains(&chosen.name.version))
    });
    match unmet {
        Some(needed) => format!("{name} needs {} {}, which is not possible", needed.extension, needed.range),
        None => format!("{name} is incompatible with the other chosen versions"),
    }
}
