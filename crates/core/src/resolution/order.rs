//! The order in which chosen versions are installed.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    places::Place,
    problem::{ABSENT, Id, Problem},
};

/// A version for each extension that is to be on the cluster.
pub(super) type Chosen = BTreeMap<Id, Place>;

/// Extensions in order, each after those it needs; or extensions that need each other in a circle.
///
/// What an extension only needs if it is there comes first too, unless that would close a circle.
pub(super) fn order(problem: &Problem<'_>, chosen: &Chosen) -> Result<Vec<Id>, Vec<Id>> {
    let mut open: BTreeSet<Id> = chosen.keys().copied().collect();
    let mut order = Vec::new();
    while !open.is_empty() {
        let waits = |id: Id, optional_too: bool| {
            needed(problem, chosen, id, optional_too).any(|needed| open.contains(&needed))
        };
        let next = open
            .iter()
            .find(|id| !waits(**id, true))
            .or_else(|| open.iter().find(|id| !waits(**id, false)))
            .copied();
        let Some(next) = next else {
            return Err(circle(problem, chosen, &open));
        };
        open.remove(&next);
        order.push(next);
    }
    Ok(order)
}

/// The chosen extensions that an extension needs.
pub(super) fn needed<'p>(
    problem: &'p Problem<'_>,
    chosen: &'p Chosen,
    id: Id,
    optional_too: bool,
) -> impl Iterator<Item = Id> + 'p {
    let place = chosen.get(&id).copied().unwrap_or(ABSENT);
    let dependencies = problem.candidate(id, place).map_or(&[][..], |candidate| &candidate.dependencies);
    dependencies
        .iter()
        .filter(move |needed| optional_too || !needed.optional)
        .filter_map(|needed| problem.id(&needed.extension))
        .filter(|needed| chosen.contains_key(needed))
}

/// Every open extension needs an open one, so following the first need leads into a circle.
fn circle(problem: &Problem<'_>, chosen: &Chosen, open: &BTreeSet<Id>) -> Vec<Id> {
    let mut path: Vec<Id> = open.first().copied().into_iter().collect();
    while let Some(next) = path
        .last()
        .and_then(|last| needed(problem, chosen, *last, false).find(|needed| open.contains(needed)))
    {
        if let Some(start) = path.iter().position(|id| *id == next) {
            return path.split_off(start);
        }
        path.push(next);
    }
    path
}
