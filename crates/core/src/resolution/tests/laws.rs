//! What holds in every universe: small ones are compared with trying everything.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::world::{cluster, name};
use crate::resolution::{
    Candidate, Cluster, Needed, Published, Solution, Universe, VersionName, Wanted, resolve,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const VERSIONS: [&str; 3] = ["1.0.0", "2.0.0", "3.0.0"];
const RANGES: [&str; 6] = ["*", "1.x", ">=2", "3.x", "<3", "1.x || 3.x"];

#[derive(Clone, Debug)]
struct World {
    universe: Universe,
    wanted: Vec<Wanted>,
    cluster: Cluster,
}

fn needed() -> impl Strategy<Value = Needed> {
    (select(&NAMES[..]), select(&RANGES[..]), prop::bool::weighted(0.3)).prop_map(
        |(extension, range, optional)| Needed {
            extension: extension.to_owned(),
            range: range.parse().unwrap(),
            optional,
        },
    )
}

fn candidate(version: &'static str) -> impl Strategy<Value = Candidate> {
    let flag = || prop::bool::weighted(0.2);
    (vec(needed(), 0..3), flag(), flag(), flag(), flag()).prop_map(
        move |(dependencies, unfit, deprecated, withdrawn, edge)| Candidate {
            kubernetes: unfit.then(|| "<1.30".parse().unwrap()),
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

fn wanted() -> impl Strategy<Value = Wanted> {
    (select(&NAMES[..]), select(&RANGES[..]), prop::bool::weighted(0.8)).prop_map(
        |(extension, range, install_dependencies)| Wanted {
            extension: extension.to_owned(),
            range: range.parse().unwrap(),
            channel: None,
            install_dependencies,
        },
    )
}

fn world() -> impl Strategy<Value = World> {
    let running = vec(option::weighted(0.4, select(&VERSIONS[..])), NAMES.len());
    (vec(published(), NAMES.len()), vec(wanted(), 1..4), running).prop_map(|(published, wanted, running)| {
        let mut cluster = cluster(&[]);
        let running = NAMES
            .iter()
            .zip(running)
            .filter_map(|(extension, version)| Some(((*extension).to_owned(), name(version?))));
        cluster.running = running.collect();
        let universe = NAMES.iter().map(|name| (*name).to_owned()).zip(published).collect();
        World { universe: Universe { extensions: universe }, wanted, cluster }
    })
}

type Assignment = BTreeMap<String, VersionName>;

impl World {
    fn asked_for(&self, extension: &str) -> impl Iterator<Item = &Wanted> {
        self.wanted.iter().filter(move |wanted| wanted.extension == extension)
    }

    fn runs(&self, extension: &str, version: &VersionName) -> bool {
        self.cluster.running.get(extension) == Some(version)
    }

    fn candidate(&self, extension: &str, version: &VersionName) -> Option<Candidate> {
        let known = self.universe.extensions[extension].versions.iter().find(|known| known.name == *version);
        known.cloned().or_else(|| self.runs(extension, version).then(|| Candidate::new(version.clone())))
    }

    /// Whether a version may be on the cluster at all.
    fn admits(&self, extension: &str, candidate: &Candidate) -> bool {
        let fits = candidate.kubernetes.as_ref().is_none_or(|range| range.contains(&self.cluster.kubernetes));
        let new = !self.runs(extension, &candidate.name);
        let choosable = !new || !candidate.withdrawn && candidate.channel.is_none();
        let needs_itself = candidate.dependencies.iter().any(|needed| needed.extension == extension);
        let only_asked_for = self.asked_for(extension).next().is_some()
            && self.asked_for(extension).all(|wanted| !wanted.install_dependencies);
        let allowed = |needed: &Needed| needed.optional || self.asked_for(&needed.extension).next().is_some();
        fits && choosable && !needs_itself && (!only_asked_for || candidate.dependencies.iter().all(allowed))
    }

    /// Whether all that is said holds, and nothing is there without a reason.
    fn allows(&self, assignment: &Assignment) -> bool {
        let all_wanted = self.wanted.iter().all(|wanted| {
            assignment.get(&wanted.extension).is_some_and(|version| wanted.range.contains(&version.version))
        });
        let consistent = assignment.iter().all(|(extension, version)| {
            let Some(candidate) = self.candidate(extension, version) else { return false };
            let served = |needed: &Needed| match assignment.get(&needed.extension) {
                Some(version) => needed.range.contains(&version.version),
                None => needed.optional,
            };
            self.admits(extension, &candidate) && candidate.dependencies.iter().all(served)
        });
        all_wanted && consistent && self.founded(assignment) && self.ordered(assignment)
    }

    fn needs(&self, assignment: &Assignment, extension: &str) -> BTreeSet<String> {
        let candidate = self.candidate(extension, &assignment[extension]).unwrap();
        let needs = candidate.dependencies.into_iter().filter(|needed| !needed.optional);
        needs.map(|needed| needed.extension).collect()
    }

    /// Everything is asked for, or needed by something that is founded.
    fn founded(&self, assignment: &Assignment) -> bool {
        let mut reached = BTreeSet::new();
        let mut open: Vec<String> = self.wanted.iter().map(|wanted| wanted.extension.clone()).collect();
        while let Some(next) = open.pop() {
            if assignment.contains_key(&next) && reached.insert(next.clone()) {
                open.extend(self.needs(assignment, &next));
            }
        }
        reached.len() == assignment.len()
    }

    /// One after the other can be installed.
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

    /// Everything there is to try.
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

    fn answer(&self) -> Option<Solution> {
        resolve(&self.universe, &self.wanted, &self.cluster).ok()
    }
}

fn assignment(resolution: &Solution) -> Assignment {
    resolution.choices.iter().map(|choice| (choice.extension.clone(), choice.version.clone())).collect()
}

/// What is on the cluster in the version that runs.
fn staying(world: &World, assignment: &Assignment) -> BTreeSet<String> {
    assignment
        .iter()
        .filter(|(name, version)| world.runs(name, version))
        .map(|(name, _)| name.clone())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn there_is_an_answer_exactly_if_there_can_be_one_and_it_holds(world in world()) {
        let possible = World::assignments().iter().any(|assignment| world.allows(assignment));
        let answer = world.answer();
        prop_assert_eq!(answer.is_some(), possible);
        if let Some(answer) = answer {
            prop_assert!(world.allows(&assignment(&answer)), "{:?}", answer);
        }
    }

    #[test]
    fn nothing_moves_that_could_stay(world in world()) {
        if let Some(answer) = world.answer() {
            let staying_now = staying(&world, &assignment(&answer));
            let possible: Vec<_> = World::assignments()
                .into_iter()
                .filter(|assignment| world.allows(assignment))
                .map(|assignment| staying(&world, &assignment))
                .collect();
            for moving in answer.choices.iter().filter(|choice| choice.moves()) {
                let mut all = staying_now.clone();
                all.insert(moving.extension.clone());
                prop_assert!(!possible.iter().any(|stays| stays.is_superset(&all)), "{} in {:?}", moving, answer);
            }
        }
    }

    #[test]
    fn what_was_chosen_stays(world in world()) {
        if let Some(answer) = world.answer() {
            let mut after = world.clone();
            after.cluster.running = assignment(&answer);
            let again = after.answer().map(|again| assignment(&again));
            prop_assert_eq!(again, Some(assignment(&answer)));
        }
    }

    #[test]
    fn what_is_needed_comes_first(world in world()) {
        if let Some(answer) = world.answer() {
            let chosen = assignment(&answer);
            let mut done = BTreeSet::new();
            for choice in &answer.choices {
                prop_assert!(world.needs(&chosen, &choice.extension).is_subset(&done));
                prop_assert!(choice.after.iter().all(|name| done.contains(name)));
                done.insert(choice.extension.clone());
            }
        }
    }

    #[test]
    fn the_same_question_has_the_same_answer(world in world()) {
        let answer = resolve(&world.universe, &world.wanted, &world.cluster);
        let mut turned = world.clone();
        turned.wanted.reverse();
        for published in turned.universe.extensions.values_mut() {
            published.versions.reverse();
        }
        prop_assert_eq!(&answer, &resolve(&turned.universe, &turned.wanted, &turned.cluster));
        if let Err(conflict) = answer {
            prop_assert!(!conflict.facts.is_empty() && !conflict.to_string().is_empty());
        }
    }
}
