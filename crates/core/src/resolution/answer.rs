//! The versions that were chosen, and why.

use std::fmt;

use super::{
    order::{Chosen, needed},
    places::Place,
    problem::{Extension, Id, Problem},
    universe::{Cluster, VersionName},
};

/// The versions that a cluster gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// In order of installation: what is needed comes first.
    pub choices: Vec<Choice>,
    /// What runs and is neither asked for nor needed.
    pub unneeded: Vec<(String, VersionName)>,
}

/// One extension of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub extension: String,
    pub version: VersionName,
    /// What runs now.
    pub running: Option<VersionName>,
    pub why: Why,
    /// Whether somebody asks for it; if not, others need it.
    pub asked_for: bool,
    /// Extensions that have to be ready before it.
    pub after: Vec<String>,
    pub deprecated: bool,
    /// It runs, and nobody gets it any more.
    pub withdrawn: bool,
}

/// Why a version was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It runs and fits.
    Runs,
    /// It is the best that fits, and nothing runs yet.
    Best,
    /// What runs cannot stay.
    Moves { because: String },
}

impl Choice {
    /// Whether another version runs.
    pub fn moves(&self) -> bool {
        matches!(self.why, Why::Moves { .. })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extension, version, running, why, .. } = self;
        match why {
            Why::Runs if self.withdrawn => {
                write!(f, "{extension} {version} runs and stays, though it is withdrawn")
            }
            Why::Runs => write!(f, "{extension} {version} runs and fits"),
            Why::Best if self.deprecated => {
                write!(f, "{extension} {version} is deprecated, and nothing else fits")
            }
            Why::Best => write!(f, "{extension} {version} is the newest that fits"),
            Why::Moves { because } => {
                let from = running.as_ref().map_or("nothing".to_owned(), ToString::to_string);
                write!(f, "{extension} moves from {from} to {version}: {because}")
            }
        }
    }
}

pub(super) fn answer(problem: &Problem<'_>, chosen: &Chosen, order: &[Id], cluster: &Cluster) -> Solution {
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
    let place = *chosen.get(&id)?;
    let candidate = extension.candidate(place)?;
    let mut after: Vec<_> = needed(problem, chosen, id, true)
        .filter(|needed| done.contains(needed))
        .map(|needed| problem.extensions[needed].name.to_owned())
        .collect();
    after.sort();
    Some(Choice {
        extension: extension.name.to_owned(),
        version: candidate.name.clone(),
        running: extension
            .running
            .and_then(|running| extension.candidate(running))
            .map(|known| known.name.clone()),
        why: why(problem, chosen, extension, place),
        asked_for: !extension.wanted.is_empty(),
        after,
        deprecated: candidate.deprecated,
        withdrawn: candidate.withdrawn,
    })
}

fn why(problem: &Problem<'_>, chosen: &Chosen, extension: &Extension<'_>, place: Place) -> Why {
    match extension.running {
        None => Why::Best,
        Some(running) if running == place => Why::Runs,
        Some(running) => Why::Moves { because: reason_to_move(problem, chosen, extension, running) },
    }
}

/// The first that applies: it is rejected, nobody asks for it, others need another one, or it needs others.
fn reason_to_move(
    problem: &Problem<'_>,
    chosen: &Chosen,
    extension: &Extension<'_>,
    running: Place,
) -> String {
    let Some(candidate) = extension.candidate(running) else { return String::new() };
    let name = &candidate.name;
    if let Some(rejection) = extension.rejection(running) {
        return format!("{name} {}", rejection.describe(false));
    }
    if let Some(wanted) = extension.wanted.iter().find(|wanted| !wanted.range.contains(&name.version)) {
        return format!("asked for is {}", wanted.range);
    }
    let others = chosen.iter().filter_map(|(id, place)| Some((*id, problem.candidate(*id, *place)?)));
    for (id, other) in others {
        let needs = other
            .dependencies
            .iter()
            .find(|needed| needed.extension == extension.name && !needed.range.contains(&name.version));
        if let Some(needed) = needs {
            let other_name = problem.extensions[id].name;
            return format!("{other_name} {} needs {} {}", other.name, extension.name, needed.range);
        }
    }
    let unmet = candidate.dependencies.iter().find(|needed| {
        let place = problem.id(&needed.extension).and_then(|id| Some((id, *chosen.get(&id)?)));
        let served = place.and_then(|(id, place)| problem.candidate(id, place));
        served.map_or(!needed.optional, |served| !needed.range.contains(&served.name.version))
    });
    match unmet {
        Some(needed) => format!("{name} needs {} {}, which cannot be", needed.extension, needed.range),
        None => format!("{name} does not fit together with what else is needed"),
    }
}
