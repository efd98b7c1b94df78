//! The order in which chosen versions are installed.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    candidate_set::CandidateIndex,
    problem::{ABSENT, Id, Problem},
};

/// The chosen version of each extension to install.
pub(super) type Chosen = BTreeMap<Id, CandidateIndex>;

/// Sorts extensions topologically, dependencies first. Returns a dependency cycle as the error.
///
/// Optional dependencies come first too, unless that would create a cycle.
pub(super) fn order(problem: &Problem<'_>, chosen: &Chosen) -> Result<Vec<Id>, Vec<Id>> {
    let mut open: BTreeSet<Id> = chosen.keys().copied().collect();
    let mut order = Vec::new();
    while !open.is_empty() {
        let waits = |id: Id, include_optional: bool| {
            dependencies(problem, chosen, id, include_optional).any(|dependency| open.contains(&dependency))
        };
        let next = open
            .iter()
            .find(|id| !waits(**id, true))
            .or_else(|| open.iter().find(|id| !waits(**id, false)))
            .copied();
        let Some(next) = next else {
            return Err(cycle(problem, chosen, &open));
        };
        open.remove(&next);
        order.push(next);
    }
    Ok(order)
}

/// Returns the dependencies of a chosen version that are chosen themselves.
pub(super) fn dependencies<'p>(
    problem: &'p Problem<'_>,
    chosen: &'p Chosen,
    id: Id,
    include_optional: bool,
) -> impl Iterator<Item = Id> + 'p {
    let index = chosen.get(&id).copied().unwrap_or(ABSENT);
    let dependencies = problem.candidate(id, index).map_or(&[][..], |candidate| &candidate.dependencies);
    dependencies
        .iter()
        .filter(move |dependency| include_optional || !dependency.optional)
        .filter_map(|dependency| problem.id(&dependency.extension))
        .filter(|dependency| chosen.contains_key(dependency))
}

/// Finds a cycle. Each open extension depends on an open one, so following the first dependency always leads to one.
fn cycle(problem: &Problem<'_>, chosen: &Chosen, open: &BTreeSet<Id>) -> Vec<Id> {
    let mut path: Vec<Id> = open.first().copied().into_iter().collect();
    while let Some(next) = path.last().and_then(|last| {
        dependencies(problem, chosen, *last, false).find(|dependency| open.contains(dependency))
    }) {
        if let Some(start) = path.iter().position(|id| *id == next) {
            return path.split_off(start);
        }
        path.push(next);
    }
    path
}
