//! The input that is put to the solver: every extension that could play a part, and what each version of it is worth.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use pubgrub::VersionSet as _;
use semver::Version;

use super::{
    Range,
    places::{Place, Places},
    rejection::{Circumstances, Rejection, rejection},
    universe::{Candidate, Cluster, Published, Universe, VersionName, Wanted},
};

/// Place of an extension among those of the problem, which are in order of their names.
pub(super) type Id = usize;
/// The place that means an extension is not on the cluster. Its versions follow, oldest first.
pub(super) const ABSENT: Place = 0;

/// Everything that could play a part.
pub(super) struct Problem<'a> {
    pub extensions: Vec<Extension<'a>>,
    ids: HashMap<&'a str, Id>,
}

/// An extension that could play a part.
pub(super) struct Extension<'a> {
    pub name: &'a str,
    pub wanted: Vec<&'a Wanted>,
    pub running: Option<Place>,
    /// Its versions, oldest first. The first one has place 1.
    versions: Vec<Rated<'a>>,
    /// Versions that can be chosen, best first.
    preferred: Vec<Place>,
}

struct Rated<'a> {
    candidate: Cow<'a, Candidate>,
    rejection: Option<Rejection>,
}

/// What a problem is made of.
#[derive(Clone, Copy)]
pub(super) struct ProblemInput<'a> {
    pub universe: &'a Universe,
    pub wanted: &'a [Wanted],
    pub cluster: &'a Cluster,
    /// The Kubernetes that the cluster comes from, if it is being upgraded.
    pub from: Option<&'a Version>,
}

impl<'a> Problem<'a> {
    pub fn new(input: ProblemInput<'a>) -> Self {
        let names = reachable(input);
        let ids = names.iter().enumerate().map(|(id, name)| (*name, id)).collect();
        let extensions = names.into_iter().map(|name| Extension::new(name, input)).collect();
        Self { extensions, ids }
    }

    /// The extension of a name that a wish or a version mentions.
    pub fn id(&self, name: &str) -> Option<Id> {
        self.ids.get(name).copied()
    }

    pub fn candidate(&self, id: Id, place: Place) -> Option<&Candidate> {
        self.extensions[id].candidate(place)
    }
}

/// Names of all extensions that are wanted, or needed by some version of one that is reachable.
fn reachable(input: ProblemInput<'_>) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = input.wanted.iter().map(|wanted| wanted.extension.as_str()).collect();
    while let Some(name) = open.pop() {
        if found.insert(name) {
            let versions = input.universe.extensions.get(name).map_or(&[][..], |known| &known.versions);
            let needed = versions.iter().flat_map(|version| &version.dependencies);
            open.extend(needed.map(|needed| needed.extension.as_str()).filter(|name| !found.contains(name)));
        }
    }
    found
}

impl<'a> Extension<'a> {
    fn new(name: &'a str, input: ProblemInput<'a>) -> Self {
        let published = input.universe.extensions.get(name);
        let running = input.cluster.running.get(name);
        let mut wanted: Vec<_> = input.wanted.iter().filter(|wanted| wanted.extension == name).collect();
        wanted.sort_by_key(|wanted| (wanted.range.to_string(), wanted.channel.clone()));
        let candidates = candidates(published, running);
        let running = running.and_then(|running| {
            candidates.iter().position(|candidate| candidate.name.version == running.version)
        });
        let asked_for = |name: &str| input.wanted.iter().any(|wanted| wanted.extension == name);
        let only_asked_for = !wanted.is_empty() && wanted.iter().all(|wanted| !wanted.install_dependencies);
        let circumstances = Circumstances {
            extension: name,
            lifecycle: published.map(|known| known.lifecycle).unwrap_or_default(),
            cluster: input.cluster,
            channel: wanted.iter().find_map(|wanted| wanted.channel.as_deref()),
            only: only_asked_for.then_some(&asked_for),
        };
        let rate = |(index, candidate): (usize, Cow<'a, Candidate>)| Rated {
            rejection: rejection(&candidate, running == Some(index), &circumstances),
            candidate,
        };
        let versions: Vec<_> = candidates.into_iter().enumerate().map(rate).collect();
        let blocks = published.is_none_or(|known| known.upgrade.block);
        let preferred = preferred(&versions, running, input.from, blocks);
        Self { name, wanted, running: running.map(place), versions, preferred }
    }

    pub fn candidate(&self, place: Place) -> Option<&Candidate> {
        Some(&*self.versions.get(index(place)?)?.candidate)
    }

    pub fn rejection(&self, place: Place) -> Option<&Rejection> {
        self.versions.get(index(place)?)?.rejection.as_ref()
    }

    /// All versions, oldest first.
    pub fn places(&self) -> impl DoubleEndedIterator<Item = (Place, &Candidate)> {
        self.versions.iter().enumerate().map(|(index, rated)| (place(index), &*rated.candidate))
    }

    /// The best version among some.
    pub fn best(&self, among: &Places) -> Option<Place> {
        self.preferred.iter().copied().find(|place| among.contains(place))
    }

    /// Whether what runs is among some versions and can be kept.
    pub fn can_stay(&self, among: &Places) -> bool {
        self.running.is_some_and(|running| among.contains(&running) && self.rejection(running).is_none())
    }

    /// The versions in a range.
    pub fn within(&self, range: &Range) -> Places {
        self.those(|candidate| range.contains(&candidate.name.version))
    }

    /// The versions that everybody who asks for it accepts.
    pub fn asked_for(&self) -> Places {
        let accepted = |candidate: &Candidate| {
            self.wanted.iter().all(|wanted| wanted.range.contains(&candidate.name.version))
        };
        self.those(accepted)
    }

    /// The versions of which something is true.
    pub fn those(&self, accepted: impl Fn(&Candidate) -> bool) -> Places {
        self.places().filter(|(_, candidate)| accepted(candidate)).map(|(place, _)| place).collect()
    }
}

/// The published versions, oldest first. What runs is among them, even if it is no longer published.
fn candidates<'a>(
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

/// Versions that can be chosen, best first: what runs, then the newest, those that are deprecated last. During an upgrade
/// those come first that fit the old Kubernetes too, and what runs comes last where it does not fit and need not.
fn preferred(
    versions: &[Rated<'_>],
    running: Option<usize>,
    from: Option<&Version>,
    blocks: bool,
) -> Vec<Place> {
    let rank = |index: usize, rated: &Rated<'_>| {
        let runs = running == Some(index);
        let tolerated = runs
            && from.is_some()
            && !blocks
            && matches!(rated.rejection, Some(Rejection::Kubernetes { .. }));
        let fits_before = from
            .is_none_or(|from| rated.candidate.kubernetes.as_ref().is_none_or(|range| range.contains(from)));
        let usable = rated.rejection.is_none() || tolerated;
        usable.then_some((tolerated, !runs, !fits_before, rated.candidate.deprecated, Reverse(index)))
    };
    let mut ranked: Vec<_> =
        versions.iter().enumerate().filter_map(|(index, rated)| Some((rank(index, rated)?, index))).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, index)| place(index)).collect()
}

fn place(index: usize) -> Place {
    Place::try_from(index + 1).unwrap_or(Place::MAX)
}

fn index(place: Place) -> Option<usize> {
    usize::try_from(place).ok()?.checked_sub(1)
}
