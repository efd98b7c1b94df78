//! Finds versions that fit together.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt,
};

use pubgrub::{
    Dependencies, DependencyProvider, DerivationTree, PackageResolutionStatistics, PubGrubError,
    VersionSet as _,
};

use super::{
    order::{Chosen, order},
    places::{Place, Places},
    problem::{ABSENT, Id, Problem},
};

/// What the solver decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// What everybody asks for.
    Wishes,
    Extension(Id),
    /// A circle of extensions that must not close: its versions are the members that stay out of it.
    Circle(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Why nothing fits, as the solver proves it.
pub(super) type Proof = DerivationTree<Node, Places, String>;

/// Extensions that would need each other in a circle.
#[derive(Debug)]
pub(super) struct Circle {
    pub members: Vec<Id>,
    /// Of each member, the versions that need the next one.
    versions: Vec<Places>,
}

impl Circle {
    fn length(&self) -> Place {
        Place::try_from(self.members.len()).unwrap_or(Place::MAX)
    }

    /// One place per member.
    fn places(&self) -> Places {
        (0..self.length()).collect()
    }
}

/// A problem being solved: with the circles found on the way, and versions that were settled on.
pub(super) struct Search<'p, 'a> {
    pub problem: &'p Problem<'a>,
    pub circles: Vec<Circle>,
    settled: BTreeMap<Id, Places>,
}

impl<'p, 'a> Search<'p, 'a> {
    pub fn new(problem: &'p Problem<'a>) -> Self {
        Self { problem, circles: Vec::new(), settled: BTreeMap::new() }
    }

    /// Versions that fit together and move nothing without need, in order of installation.
    pub fn run(&mut self) -> Result<(Chosen, Vec<Id>), Proof> {
        let mut best = self.solve()?;
        let mut tried = BTreeSet::new();
        // The solver keeps what runs wherever it is asked for, because it decides about that first. What is only
        // needed by others comes up when they are decided: here it gets its chance to stay.
        while let Some(moving) = self.moving(&best.0).into_iter().find(|id| tried.insert(*id)) {
            let before = self.settled.clone();
            let staying = self.staying(&best.0, moving);
            self.settled.extend(staying);
            match self.solve() {
                Ok(better) => best = better,
                Err(_) => self.settled = before,
            }
        }
        Ok(best)
    }

    fn solve(&mut self) -> Result<(Chosen, Vec<Id>), Proof> {
        loop {
            let chosen = self.ask()?;
            match order(self.problem, &chosen) {
                Ok(order) => return Ok((chosen, order)),
                Err(members) => self.circles.push(self.circle(members)),
            }
        }
    }

    fn ask(&self) -> Result<Chosen, Proof> {
        match pubgrub::resolve(self, Node::Wishes, ABSENT) {
            Ok(solution) => Ok(solution
                .into_iter()
                .filter_map(|(node, place)| match node {
                    Node::Extension(id) if place != ABSENT => Some((id, place)),
                    _ => None,
                })
                .collect()),
            Err(PubGrubError::NoSolution(proof)) => Err(proof),
            Err(
                PubGrubError::ErrorChoosingVersion { source, .. }
                | PubGrubError::ErrorRetrievingDependencies { source, .. }
                | PubGrubError::ErrorInShouldCancel(source),
            ) => match source {},
        }
    }

    fn moving(&self, chosen: &Chosen) -> Vec<Id> {
        let moves = |(id, place): (&Id, &Place)| {
            let extension = &self.problem.extensions[*id];
            let running = extension.running?;
            let could_stay = extension.wanted.is_empty() && extension.rejection(running).is_none();
            (running != *place && could_stay).then_some(*id)
        };
        chosen.iter().filter_map(moves).collect()
    }

    /// What stays has to stay, and one more.
    fn staying(&self, chosen: &Chosen, one_more: Id) -> BTreeMap<Id, Places> {
        let stays = |(id, place): (&Id, &Place)| {
            let extension = &self.problem.extensions[*id];
            let running = extension.running.filter(|running| running == place || *id == one_more)?;
            Some((*id, Places::singleton(running).union(&Places::singleton(ABSENT))))
        };
        chosen.iter().filter_map(stays).collect()
    }

    fn circle(&self, members: Vec<Id>) -> Circle {
        let next = members.iter().cycle().skip(1);
        let versions = members.iter().zip(next).map(|(member, next)| {
            let next = self.problem.extensions[*next].name;
            self.problem.extensions[*member].those(|candidate| {
                candidate.dependencies.iter().any(|needed| needed.extension == next && !needed.optional)
            })
        });
        let versions = versions.collect();
        Circle { members, versions }
    }

    fn wishes(&self) -> Vec<(Node, Places)> {
        let wanted = self.problem.extensions.iter().enumerate().filter(|(_, known)| !known.wanted.is_empty());
        let wanted = wanted.map(|(id, extension)| (Node::Extension(id), extension.asked_for()));
        let mut wishes: Vec<_> = wanted.collect();
        for (id, places) in &self.settled {
            match wishes.iter_mut().find(|(node, _)| *node == Node::Extension(*id)) {
                Some((_, wish)) => *wish = wish.intersection(places),
                None => wishes.push((Node::Extension(*id), places.clone())),
            }
        }
        let circles = self.circles.iter().enumerate();
        wishes.extend(circles.map(|(circle, known)| (Node::Circle(circle), known.places())));
        wishes
    }

    fn needs(&self, id: Id, place: Place) -> Vec<(Node, Places)> {
        let Some(candidate) = self.problem.candidate(id, place) else { return Vec::new() };
        let mut needs: BTreeMap<Id, Places> = BTreeMap::new();
        for needed in &candidate.dependencies {
            let Some(other) = self.problem.id(&needed.extension) else { continue };
            let mut places = self.problem.extensions[other].within(&needed.range);
            if needed.optional {
                places = places.union(&Places::singleton(ABSENT));
            }
            needs
                .entry(other)
                .and_modify(|earlier| *earlier = earlier.intersection(&places))
                .or_insert(places);
        }
        needs.into_iter().map(|(id, places)| (Node::Extension(id), places)).collect()
    }

    fn outside(&self, circle: usize, place: Place) -> Option<(Node, Places)> {
        let circle = self.circles.get(circle)?;
        let member = usize::try_from(place).ok()?;
        Some((Node::Extension(*circle.members.get(member)?), circle.versions.get(member)?.complement()))
    }
}

impl DependencyProvider for Search<'_, '_> {
    type P = Node;
    type V = Place;
    type VS = Places;
    type Priority = (u8, Reverse<usize>);
    type M = String;
    type Err = Infallible;

    /// What can still stay is decided about first, so that it is the last to move; then what is asked for; then what that
    /// needs; and when nothing else is open, the rest is absent.
    fn prioritize(
        &self,
        node: &Node,
        places: &Places,
        _: &PackageResolutionStatistics,
    ) -> (u8, Reverse<usize>) {
        match node {
            Node::Wishes => (u8::MAX, Reverse(0)),
            Node::Extension(id) => {
                let extension = &self.problem.extensions[*id];
                let could_stay = extension.can_stay(places);
                let required = !places.contains(&ABSENT);
                let class = match (could_stay, !extension.wanted.is_empty()) {
                    (true, true) => 5,
                    (true, false) if required => 4,
                    (false, true) => 3,
                    (false, false) if required => 2,
                    _ => 0,
                };
                (class, Reverse(*id))
            }
            Node::Circle(circle) => (1, Reverse(*circle)),
        }
    }

    fn choose_version(&self, node: &Node, places: &Places) -> Result<Option<Place>, Infallible> {
        Ok(match node {
            Node::Wishes => Some(ABSENT),
            Node::Extension(_) if places.contains(&ABSENT) => Some(ABSENT),
            Node::Extension(id) => self.problem.extensions[*id].best(places),
            Node::Circle(circle) => {
                (0..self.circles[*circle].length()).find(|member| places.contains(member))
            }
        })
    }

    fn get_dependencies(
        &self,
        node: &Node,
        place: &Place,
    ) -> Result<Dependencies<Node, Places, String>, Infallible> {
        let needs = match node {
            Node::Wishes => self.wishes(),
            Node::Extension(id) => self.needs(*id, *place),
            Node::Circle(circle) => self.outside(*circle, *place).into_iter().collect(),
        };
        Ok(Dependencies::Available(needs.into_iter().collect()))
    }
}
