//! The problem that the solver solves: all extensions that a request can reach, with the rejection and preference of
//! each version.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use pubgrub::VersionSet as _;
use semver::Version;

use super::{
    Range,
    budget::count,
    candidate_set::{CandidateIndex, CandidateSet},
    rejection::{Constraints, Rejection, rejection},
    universe::{Candidate, Cluster, Published, Universe, VersionName, VersionRequest},
};

/// Index of an extension in [`Problem::extensions`], which are sorted by name.
pub(super) type Id = usize;
/// The index that means that an extension is not installed. Its versions follow, oldest first.
pub(super) const ABSENT: CandidateIndex = 0;

/// The extensions that the requests can reach.
pub(super) struct Problem<'a> {
    pub extensions: Vec<Extension<'a>>,
    ids: HashMap<&'a str, Id>,
}

/// An extension with its candidates.
pub(super) struct Extension<'a> {
    pub name: &'a str,
    pub requests: Vec<&'a VersionRequest>,
    pub running: Option<CandidateIndex>,
    /// Whether it has other versions, which cannot be read.
    pub is_unread: bool,
    /// All versions, oldest first. The first one has index 1.
    versions: Vec<Evaluated<'a>>,
    /// The versions that can be chosen, best first.
    preferred: Vec<CandidateIndex>,
}

struct Evaluated<'a> {
    candidate: Cow<'a, Candidate>,
    rejection: Option<Rejection>,
}

/// The input of a [`Problem`].
#[derive(Clone, Copy)]
pub(super) struct ProblemInput<'a> {
    pub universe: &'a Universe,
    pub requests: &'a [VersionRequest],
    pub cluster: &'a Cluster,
    /// The Kubernetes version before the upgrade, if the problem is that of an upgrade.
    pub from: Option<&'a Version>,
}

impl<'a> Problem<'a> {
    pub fn new(input: ProblemInput<'a>) -> Self {
        let names = reachable(input);
        let ids = names.iter().enumerate().map(|(id, name)| (*name, id)).collect();
        let extensions: Vec<_> = names.into_iter().map(|name| Extension::new(name, input)).collect();
        count(extensions.iter().map(Extension::cost).sum());
        Self { extensions, ids }
    }

    /// Returns the id of an extension.
    pub fn id(&self, name: &str) -> Option<Id> {
        self.ids.get(name).copied()
    }

    pub fn candidate(&self, id: Id, index: CandidateIndex) -> Option<&Candidate> {
        self.extensions[id].candidate(index)
    }
}

/// Returns the names of all requested extensions and, transitively, of the dependencies of all their versions.
fn reachable(input: ProblemInput<'_>) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = input.requests.iter().map(|request| request.extension.as_str()).collect();
    while let Some(name) = open.pop() {
        if found.insert(name) {
            let versions = input.universe.extensions.get(name).map_or(&[][..], |known| &known.versions);
            let dependencies = versions.iter().flat_map(|version| &version.dependencies);
            let names = dependencies.map(|dependency| dependency.extension.as_str());
            open.extend(names.filter(|name| !found.contains(name)));
        }
    }
    found
}

impl<'a> Extension<'a> {
    fn new(name: &'a str, input: ProblemInput<'a>) -> Self {
        let published = input.universe.extensions.get(name);
        let running = input.cluster.running.get(name);
        let mut requests: Vec<_> =
            input.requests.iter().filter(|request| request.extension == name).collect();
        requests.sort_by_key(|request| (request.range.to_string(), request.channel.clone()));
        let candidates = known_candidates(published, running);
        let running = running.and_then(|running| {
            candidates.iter().position(|candidate| candidate.name.version == running.version)
        });
        let is_requested = |name: &str| input.requests.iter().any(|request| request.extension == name);
        let dependencies_must_be_requested =
            !requests.is_empty() && requests.iter().all(|request| !request.install_dependencies);
        let constraints = Constraints {
            extension: name,
            lifecycle: published.map(|known| known.lifecycle).unwrap_or_default(),
            cluster: input.cluster,
            channel: requests.iter().find_map(|request| request.channel.as_deref()),
            is_requested: dependencies_must_be_requested.then_some(&is_requested),
        };
        let evaluate = |(index, candidate): (usize, Cow<'a, Candidate>)| Evaluated {
            rejection: rejection(&candidate, running == Some(index), &constraints),
            candidate,
        };
        let versions: Vec<_> = candidates.into_iter().enumerate().map(evaluate).collect();
        let blocks = published.is_none_or(|known| known.upgrade.block);
        let preferred = preferred(&versions, running, input.from, blocks);
        let is_unread = published.is_some_and(|known| known.is_unread);
        Self { name, requests, running: running.map(candidate_index), is_unread, versions, preferred }
    }

    pub fn candidate(&self, index: CandidateIndex) -> Option<&Candidate> {
        Some(&*self.versions.get(position(index)?)?.candidate)
    }

    pub fn rejection(&self, index: CandidateIndex) -> Option<&Rejection> {
        self.versions.get(position(index)?)?.rejection.as_ref()
    }

    /// Returns all versions, oldest first.
    pub fn candidates(&self) -> impl DoubleEndedIterator<Item = (CandidateIndex, &Candidate)> {
        self.versions
            .iter()
            .enumerate()
            .map(|(index, evaluated)| (candidate_index(index), &*evaluated.candidate))
    }

    /// Returns the preferred version in a set.
    pub fn best(&self, among: &CandidateSet) -> Option<CandidateIndex> {
        self.preferred.iter().copied().find(|index| among.contains(index))
    }

    /// Returns whether the running version is in a set and can be kept.
    pub fn can_keep(&self, among: &CandidateSet) -> bool {
        self.running.is_some_and(|running| among.contains(&running) && self.rejection(running).is_none())
    }

    /// Returns how many steps it is to compare all versions.
    pub fn cost(&self) -> usize {
        1 + self.versions.len() / 4
    }

    /// Returns the versions in a range.
    pub fn in_range(&self, range: &Range) -> CandidateSet {
        self.matching(|candidate| range.contains(&candidate.name.version))
    }

    /// Returns the versions that all requests for the extension accept.
    pub fn requested(&self) -> CandidateSet {
        let accepted = |candidate: &Candidate| {
            self.requests.iter().all(|request| request.range.contains(&candidate.name.version))
        };
        self.matching(accepted)
    }

    /// Returns the versions that a predicate accepts.
    pub fn matching(&self, accepted: impl Fn(&Candidate) -> bool) -> CandidateSet {
        self.candidates().filter(|(_, candidate)| accepted(candidate)).map(|(index, _)| index).collect()
    }
}

/// Returns the published versions and the running version, which may no longer be published, oldest first.
fn known_candidates<'a>(
    published: Option<&'a Published>,
    running: Option<&VersionName>,
) -> Vec<Cow<'a, Candidate>> {
    let mut all: Vec<_> = published.iter().flat_map(|known| &known.versions).map(Cow::Borrowed).collect();
    if let Some(running) = running
        && !all.iter().any(|candidate| candidate.name.version == running.version)
    {
        all.push(Cow::Owned(Candidate { withdrawn: true, ..Candidate::new(running.clone()) }));
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all.dedup_by(|later, earlier| later.name.version == earlier.name.version);
    all
}

/// Returns the versions that can be chosen, best first: the running version, then the newest, deprecated versions last.
///
/// During an upgrade, versions that are compatible with the old Kubernetes version too come first. A running version
/// that is incompatible but must not block the upgrade comes last.
fn preferred(
    versions: &[Evaluated<'_>],
    running: Option<usize>,
    from: Option<&Version>,
    blocks: bool,
) -> Vec<CandidateIndex> {
    let rank = |index: usize, evaluated: &Evaluated<'_>| {
        let is_running = running == Some(index);
        let tolerated = is_running
            && from.is_some()
            && !blocks
            && matches!(evaluated.rejection, Some(Rejection::Kubernetes { .. }));
        let compatible_before = from.is_none_or(|from| {
            evaluated.candidate.kubernetes.as_ref().is_none_or(|range| range.contains(from))
        });
        let usable = evaluated.rejection.is_none() || tolerated;
        usable.then_some((
            tolerated,
            !is_running,
            !compatible_before,
            evaluated.candidate.deprecated,
            Reverse(index),
        ))
    };
    let mut ranked: Vec<_> = versions
        .iter()
        .enumerate()
        .filter_map(|(index, evaluated)| Some((rank(index, evaluated)?, index)))
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, index)| candidate_index(index)).collect()
}

fn candidate_index(position: usize) -> CandidateIndex {
    CandidateIndex::try_from(position + 1).unwrap_or(CandidateIndex::MAX)
}

fn position(index: CandidateIndex) -> Option<usize> {
    usize::try_from(index).ok()?.checked_sub(1)
}
