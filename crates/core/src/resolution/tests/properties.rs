//! Properties of all solutions, checked against exhaustive search in small universes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::fixtures::{cluster, name};
use crate::resolution::{
    Candidate, Cluster, Published, Requirement, Solution, Universe, VersionName, VersionRequest, resolve,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const VERSIONS: [&str; 3] = ["1.0.0", "2.0.0", "3.0.0"];
const RANGES: [&str; 6] = ["*", "1.x", ">=2", "3.x", "<3", "1.x || 3.x"];

#[derive(Clone, Debug)]
struct Case {
    universe: Universe,
    requests: Vec<VersionRequest>,
    cluster: Cluster,
}

fn needed() -> impl Strategy<Value = Requirement> {
    (select(&NAMES[..]), select(&RANGES[..]), prop::bool::weighted(0.3)).prop_map(
        |(extension, range, optional)| Requirement {
            extension: extension.to_owned(),
            range: range.parse().unwrap(),
            optional,
        },
    )
}

fn candidate(version: &'static str) -> impl Strategy<Value = Candidate> {
    let flag = || prop::bool::weighted(0.2);
    (vec(needed(), 0..3), flag(), flag(), flag(), flag()).prop_map(
        move |(dependencies, incompatible, deprecated, withdrawn, edge)| Candidate {
            kubernetes: incompatible.then(|| "<1.30".parse().unwrap()),
            dependencies,
            channel: edge.then(|| "edge".to_owned()),
            deprecated,
            withdrawn,
            ..Candidate::new(name(version))
        },
    )
}

fn published() -> impl Strategy<Value = Published> {
    let version = |version| option::weighted(0.8, candidate(version));
    let versions = (version(VERSIONS[2]), version(VERSIONS[0]), version(VERSIONS[1]));
    versions.prop_map(|(one, two, three)| Published {
        versions: [one, two, three].into_iter().flatten().collect(),
        ..Published::default()
    })
}

fn request() -> impl Strategy<Value = VersionRequest> {
    (select(&NAMES[..]), select(&RANGES[..]), prop::bool::weighted(0.8)).prop_map(
        |(extension, range, install_dependencies)| VersionRequest {
            extension: extension.to_owned(),
            range: range.parse().unwrap(),
            channel: None,
            install_dependencies,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let running = vec(option::weighted(0.4, select(&VERSIONS[..])), NAMES.len());
    (vec(published(), NAMES.len()), vec(request(), 1..4), running).prop_map(
        |(published, requests, running)| {
            let mut cluster = cluster(&[]);
            let running = NAMES
                .iter()
                .zip(running)
                .filter_map(|(extension, version)| Some(((*extension).to_owned(), name(version?))));
            cluster.running = running.collect();
            let universe = NAMES.iter().map(|name| (*name).to_owned()).zip(published).collect();
            Case { universe: Universe { extensions: universe }, requests, cluster }
        },
    )
}

type Assignment = BTreeMap<String, VersionName>;

impl Case {
    fn requested(&self, extension: &str) -> impl Iterator<Item = &VersionRequest> {
        self.requests.iter().filter(move |request| request.extension == extension)
    }

    fn runs(&self, extension: &str, version: &VersionName) -> bool {
        self.cluster.running.get(extension) == Some(version)
    }

    fn candidate(&self, extension: &str, version: &VersionName) -> Option<Candidate> {
        let known = self.universe.extensions[extension].versions.iter().find(|known| known.name == *version);
        known.cloned().or_else(|| self.runs(extension, version).then(|| Candidate::new(version.clone())))
    }

    /// Returns whether a version can be chosen regardless of other extensions.
    fn admits(&self, extension: &str, candidate: &Candidate) -> bool {
        let fits = candidate.kubernetes.as_ref().is_none_or(|range| range.contains(&self.cluster.kubernetes));
        let new = !self.runs(extension, &candidate.name);
        let choosable = !new || !candidate.withdrawn && candidate.channel.is_none();
        let needs_itself = candidate.dependencies.iter().any(|needed| needed.extension == extension);
        let only_requested = self.requested(extension).next().is_some()
            && self.requested(extension).all(|request| !request.install_dependencies);
        let allowed =
            |needed: &Requirement| needed.optional || self.requested(&needed.extension).next().is_some();
        fits && choosable && !needs_itself && (!only_requested || candidate.dependencies.iter().all(allowed))
    }

    /// Returns whether an assignment is a valid solution.
    fn allows(&self, assignment: &Assignment) -> bool {
        let all_requested = self.requests.iter().all(|request| {
            assignment.get(&request.extension).is_some_and(|version| request.range.contains(&version.version))
        });
        let consistent = assignment.iter().all(|(extension, version)| {
            let Some(candidate) = self.candidate(extension, version) else { return false };
            let satisfied = |needed: &Requirement| match assignment.get(&needed.extension) {
                Some(version) => needed.range.contains(&version.version),
                None => needed.optional,
            };
            self.admits(extension, &candidate) && candidate.dependencies.iter().all(satisfied)
        });
        all_requested && consistent && self.justified(assignment) && self.ordered(assignment)
    }

    fn needs(&self, assignment: &Assignment, extension: &str) -> BTreeSet<String> {
        let candidate = self.candidate(extension, &assignment[extension]).unwrap();
        let needs = candidate.dependencies.into_iter().filter(|needed| !needed.optional);
        needs.map(|needed| needed.extension).collect()
    }

    /// Returns whether each extension is requested or a dependency of one that is justified.
    fn justified(&self, assignment: &Assignment) -> bool {
        let mut reached = BTreeSet::new();
        let mut open: Vec<String> = self.requests.iter().map(|request| request.extension.clone()).collect();
        while let Some(next) = open.pop() {
            if assignment.contains_key(&next) && reached.insert(next.clone()) {
                open.extend(self.needs(assignment, &next));
            }
        }
        reached.len() == assignment.len()
    }

    /// Returns whether there is an order of installation.
    fn ordered(&self, assignment: &Assignment) -> bool {
        let mut done = BTreeSet::new();
        while let Some(next) = assignment
            .keys()
            .find(|name| !done.contains(*name) && self.needs(assignment, name).is_subset(&done))
        {
            done.insert(next.clone());
        }
        done.len() == assignment.len()
    }

    /// Returns all assignments.
    fn assignments() -> Vec<Assignment> {
        NAMES.iter().fold(vec![Assignment::new()], |all, extension| {
            let with = |version: &&str| {
                all.iter()
                    .cloned()
                    .map(|mut one| {
                        one.insert((*extension).to_owned(), name(version));
                        one
                    })
                    .collect::<Vec<_>>()
            };
            VERSIONS.iter().flat_map(with).chain(all.iter().cloned()).collect()
        })
    }

    fn solution(&self) -> Option<Solution> {
        resolve(&self.universe, &self.requests, &self.cluster).ok()
    }
}

fn assignment(solution: &Solution) -> Assignment {
    solution.choices.iter().map(|choice| (choice.extension.clone(), choice.version.clone())).collect()
}

/// Returns the extensions that keep their running version.
fn staying(case: &Case, assignment: &Assignment) -> BTreeSet<String> {
    assignment
        .iter()
        .filter(|(name, version)| case.runs(name, version))
        .map(|(name, _)| name.clone())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_valid_solution_is_found_if_one_exists(case in case()) {
        let possible = Case::assignments().iter().any(|assignment| case.allows(assignment));
        let solution = case.solution();
        prop_assert_eq!(solution.is_some(), possible);
        if let Some(solution) = solution {
            prop_assert!(case.allows(&assignment(&solution)), "{:?}", solution);
        }
    }

    #[test]
    fn no_version_changes_unnecessarily(case in case()) {
        if let Some(solution) = case.solution() {
            let staying_now = staying(&case, &assignment(&solution));
            let possible: Vec<_> = Case::assignments()
                .into_iter()
                .filter(|assignment| case.allows(assignment))
                .map(|assignment| staying(&case, &assignment))
                .collect();
            for moving in solution.choices.iter().filter(|choice| choice.moves()) {
                let mut all = staying_now.clone();
                all.insert(moving.extension.clone());
                prop_assert!(!possible.iter().any(|stays| stays.is_superset(&all)), "{} in {:?}", moving, solution);
            }
        }
    }

    #[test]
    fn solutions_are_stable(case in case()) {
        if let Some(solution) = case.solution() {
            let mut after = case.clone();
            after.cluster.running = assignment(&solution);
            let again = after.solution().map(|again| assignment(&again));
            prop_assert_eq!(again, Some(assignment(&solution)));
        }
    }

    #[test]
    fn dependencies_come_first(case in case()) {
        if let Some(solution) = case.solution() {
            let chosen = assignment(&solution);
            let mut done = BTreeSet::new();
            for choice in &solution.choices {
                prop_assert!(case.needs(&chosen, &choice.extension).is_subset(&done));
                prop_assert!(choice.after.iter().all(|name| done.contains(name)));
                done.insert(choice.extension.clone());
            }
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(case in case()) {
        let solution = resolve(&case.universe, &case.requests, &case.cluster);
        let mut reversed = case.clone();
        reversed.requests.reverse();
        for published in reversed.universe.extensions.values_mut() {
            published.versions.reverse();
        }
        prop_assert_eq!(&solution, &resolve(&reversed.universe, &reversed.requests, &reversed.cluster));
        if let Err(conflict) = solution {
            prop_assert!(!conflict.causes.is_empty() && !conflict.to_string().is_empty());
        }
    }
}
