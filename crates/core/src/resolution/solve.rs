//! Runs PubGrub and refines its solution.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use pubgrub::{
    Dependencies, DependencyProvider, DerivationTree, PackageResolutionStatistics, PubGrubError,
    VersionSet as _,
};

use super::{
    budget::{Budget, Exhausted, count},
    candidate_set::{CandidateIndex, CandidateSet},
    order::{Chosen, order},
    problem::{ABSENT, Id, Problem},
};

/// A package of the solver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// The root package, whose dependencies are the requests.
    Root,
    Extension(Id),
    /// A dependency cycle that must be broken. Its versions are the members; the chosen member does not depend on the
    /// next one.
    Cycle(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The solver's proof that there is no solution.
pub(super) type Proof = DerivationTree<Node, CandidateSet, String>;

/// Why a search has not found versions.
pub(super) enum NoVersions {
    /// There are none.
    Proven(Proof),
    /// The search was given up.
    Unknown(Exhausted),
}

/// Extensions whose dependencies form a cycle.
#[derive(Debug)]
pub(super) struct Cycle {
    pub members: Vec<Id>,
    /// For each member, the versions that depend on the next one.
    versions: Vec<CandidateSet>,
}

impl Cycle {
    fn length(&self) -> CandidateIndex {
        CandidateIndex::try_from(self.members.len()).unwrap_or(CandidateIndex::MAX)
    }

    /// Returns the set of all members.
    fn candidates(&self) -> CandidateSet {
        (0..self.length()).collect()
    }
}

/// A problem that is being solved, with the cycles found so far and the pinned versions.
pub(super) struct Search<'p, 'a> {
    pub problem: &'p Problem<'a>,
    pub cycles: Vec<Cycle>,
    pinned: BTreeMap<Id, CandidateSet>,
    budget: &'p Budget,
}

impl<'p, 'a> Search<'p, 'a> {
    pub fn new(problem: &'p Problem<'a>, budget: &'p Budget) -> Self {
        Self { problem, cycles: Vec::new(), pinned: BTreeMap::new(), budget }
    }

    /// Returns a solution that changes no running version unnecessarily, and the order of installation.
    pub fn run(&mut self) -> Result<(Chosen, Vec<Id>), NoVersions> {
        let mut best = self.solve()?;
        let mut tried = BTreeSet::new();
        // The solver decides about requested extensions first, so it keeps their running versions where possible. For
        // dependencies it decides after the extensions that need them, so keeping their running versions is tried here.
        while let Some(id) = self.avoidable_moves(&best.0).into_iter().find(|id| tried.insert(*id)) {
            let before = self.pinned.clone();
            let pins = self.pins(&best.0, id);
            self.pinned.extend(pins);
            match self.solve() {
                Ok(better) => best = better,
                Err(NoVersions::Proven(_)) => self.pinned = before,
                // What was found satisfies all requests, too.
                Err(NoVersions::Unknown(Exhausted)) => return Ok(best),
            }
        }
        Ok(best)
    }

    fn solve(&mut self) -> Result<(Chosen, Vec<Id>), NoVersions> {
        loop {
            let chosen = self.run_solver()?;
            match order(self.problem, &chosen) {
                Ok(order) => return Ok((chosen, order)),
                Err(members) => self.cycles.push(self.cycle(members)),
            }
        }
    }

    fn run_solver(&self) -> Result<Chosen, NoVersions> {
        match pubgrub::resolve(self, Node::Root, ABSENT) {
            Ok(solution) => Ok(solution
                .into_iter()
                .filter_map(|(node, index)| match node {
                    Node::Extension(id) if index != ABSENT => Some((id, index)),
                    _ => None,
                })
                .collect()),
            Err(PubGrubError::NoSolution(proof)) => Err(NoVersions::Proven(proof)),
            Err(
                PubGrubError::ErrorChoosingVersion { source, .. }
                | PubGrubError::ErrorRetrievingDependencies { source, .. }
                | PubGrubError::ErrorInShouldCancel(source),
            ) => Err(NoVersions::Unknown(source)),
        }
    }

    /// Returns the dependencies that change although their running version is not rejected.
    fn avoidable_moves(&self, chosen: &Chosen) -> Vec<Id> {
        let moves = |(id, index): (&Id, &CandidateIndex)| {
            let extension = &self.problem.extensions[*id];
            let running = extension.running?;
            let can_keep = extension.requests.is_empty() && extension.rejection(running).is_none();
            (running != *index && can_keep).then_some(*id)
        };
        chosen.iter().filter_map(moves).collect()
    }

    /// Pins all running versions that the solution keeps, and that of one more extension.
    fn pins(&self, chosen: &Chosen, additional: Id) -> BTreeMap<Id, CandidateSet> {
        let pin = |(id, index): (&Id, &CandidateIndex)| {
            let extension = &self.problem.extensions[*id];
            let running = extension.running.filter(|running| running == index || *id == additional)?;
            Some((*id, CandidateSet::singleton(running).union(&CandidateSet::singleton(ABSENT))))
        };
        chosen.iter().filter_map(pin).collect()
    }

    fn cycle(&self, members: Vec<Id>) -> Cycle {
        let next = members.iter().cycle().skip(1);
        let versions = members.iter().zip(next).map(|(member, next)| {
            let next = self.problem.extensions[*next].name;
            self.problem.extensions[*member].matching(|candidate| {
                candidate.dependencies.iter().any(|needed| needed.extension == next && !needed.optional)
            })
        });
        let versions = versions.collect();
        Cycle { members, versions }
    }

    fn root_dependencies(&self) -> Vec<(Node, CandidateSet)> {
        let requested =
            self.problem.extensions.iter().enumerate().filter(|(_, known)| !known.requests.is_empty());
        let requested = requested.map(|(id, extension)| (Node::Extension(id), extension.requested()));
        let mut dependencies: Vec<_> = requested.collect();
        for (id, candidates) in &self.pinned {
            match dependencies.iter_mut().find(|(node, _)| *node == Node::Extension(*id)) {
                Some((_, accepted)) => *accepted = accepted.intersection(candidates),
                None => dependencies.push((Node::Extension(*id), candidates.clone())),
            }
        }
        let cycles = self.cycles.iter().enumerate();
        dependencies.extend(cycles.map(|(cycle, known)| (Node::Cycle(cycle), known.candidates())));
        dependencies
    }

    fn dependencies(&self, id: Id, index: CandidateIndex) -> Vec<(Node, CandidateSet)> {
        let Some(candidate) = self.problem.candidate(id, index) else { return Vec::new() };
        let mut dependencies: BTreeMap<Id, CandidateSet> = BTreeMap::new();
        for needed in &candidate.dependencies {
            let Some(other) = self.problem.id(&needed.extension) else { continue };
            let other_versions = &self.problem.extensions[other];
            count(other_versions.cost());
            let mut candidates = other_versions.in_range(&needed.range);
            if needed.optional {
                candidates = candidates.union(&CandidateSet::singleton(ABSENT));
            }
            dependencies
                .entry(other)
                .and_modify(|earlier| *earlier = earlier.intersection(&candidates))
                .or_insert(candidates);
        }
        dependencies.into_iter().map(|(id, candidates)| (Node::Extension(id), candidates)).collect()
    }

    /// Returns the versions of a member that break the cycle.
    fn breaks_cycle(&self, cycle: usize, index: CandidateIndex) -> Option<(Node, CandidateSet)> {
        let cycle = self.cycles.get(cycle)?;
        let member = usize::try_from(index).ok()?;
        Some((Node::Extension(*cycle.members.get(member)?), cycle.versions.get(member)?.complement()))
    }
}

impl DependencyProvider for Search<'_, '_> {
    type P = Node;
    type V = CandidateIndex;
    type VS = CandidateSet;
    type Priority = (u8, Reverse<usize>);
    type M = String;
    type Err = Exhausted;

    /// Running versions that can be kept have the highest priority, so that they change last. Requested extensions come
    /// next, then required dependencies. What remains is not installed.
    fn prioritize(
        &self,
        node: &Node,
        candidates: &CandidateSet,
        _: &PackageResolutionStatistics,
    ) -> (u8, Reverse<usize>) {
        match node {
            Node::Root => (u8::MAX, Reverse(0)),
            Node::Extension(id) => {
                let extension = &self.problem.extensions[*id];
                let can_keep = extension.can_keep(candidates);
                let required = !candidates.contains(&ABSENT);
                let class = match (can_keep, !extension.requests.is_empty()) {
                    (true, true) => 5,
                    (true, false) if required => 4,
                    (false, true) => 3,
                    (false, false) if required => 2,
                    _ => 0,
                };
                (class, Reverse(*id))
            }
            Node::Cycle(cycle) => (1, Reverse(*cycle)),
        }
    }

    fn choose_version(
        &self,
        node: &Node,
        candidates: &CandidateSet,
    ) -> Result<Option<CandidateIndex>, Exhausted> {
        Ok(match node {
            Node::Root => Some(ABSENT),
            Node::Extension(_) if candidates.contains(&ABSENT) => Some(ABSENT),
            Node::Extension(id) => self.problem.extensions[*id].best(candidates),
            Node::Cycle(cycle) => {
                (0..self.cycles[*cycle].length()).find(|member| candidates.contains(member))
            }
        })
    }

    fn get_dependencies(
        &self,
        node: &Node,
        index: &CandidateIndex,
    ) -> Result<Dependencies<Node, CandidateSet, String>, Exhausted> {
        let dependencies = match node {
            Node::Root => self.root_dependencies(),
            Node::Extension(id) => self.dependencies(*id, *index),
            Node::Cycle(cycle) => self.breaks_cycle(*cycle, *index).into_iter().collect(),
        };
        Ok(Dependencies::Available(dependencies.into_iter().collect()))
    }

    /// Gives the search up after its last step.
    fn should_cancel(&self) -> Result<(), Exhausted> {
        self.budget.check()
    }
}
