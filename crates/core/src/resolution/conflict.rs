//! Explains why no versions satisfy all requests.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use pubgrub::{DerivationTree, External, VersionSet as _};

use super::{
    budget::STEPS,
    candidate_set::CandidateSet,
    problem::Id,
    rejection::Rejection,
    solve::{Node, Proof, Search},
    universe::VersionName,
};

/// A range that messages omit.
const ANY: &str = "*";

/// The causes that together rule out every solution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Sorted by extension and kind.
    pub causes: Vec<Cause>,
}

/// A fact that takes part in a conflict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    pub extension: String,
    pub kind: CauseKind,
    /// The versions that the cause applies to. Empty if it applies to the extension as a whole.
    pub versions: BTreeSet<VersionName>,
}

/// The kind of a [`Cause`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseKind {
    /// The extension is requested.
    Requested { range: String },
    /// The versions depend on another extension.
    Needs { dependency: String, range: String, optional: bool },
    /// The extension is part of a dependency cycle, so there is no order of installation.
    Cycle { others: Vec<String> },
    /// The versions cannot be chosen regardless of other extensions.
    Rejected(Rejection),
    /// No version is in a range.
    NoVersionInRange { range: String, newest: Option<VersionName> },
    /// The extension is not published.
    NotPublished,
    /// The extension is published, but its versions cannot be read.
    Unread,
    /// Versions were not found within the limit of steps.
    TooComplex,
}

impl Conflict {
    pub(super) fn new(search: &Search<'_, '_>, proof: &Proof) -> Self {
        let mut reader = Reader { search, causes: BTreeMap::new() };
        reader.read(proof);
        let causes = reader.causes.into_iter().map(|((extension, kind), versions)| Cause {
            extension: extension.to_owned(),
            kind,
            versions,
        });
        Self { causes: causes.collect() }
    }

    /// The conflict of a search that was given up because of these extensions.
    pub(super) fn too_complex<'a>(extensions: impl IntoIterator<Item = &'a str>) -> Self {
        let cause = |extension: &str| Cause {
            extension: extension.to_owned(),
            kind: CauseKind::TooComplex,
            versions: BTreeSet::new(),
        };
        Self { causes: extensions.into_iter().map(cause).collect() }
    }

    /// Returns whether the search was given up, so that it is unknown whether there are versions.
    pub fn is_too_complex(&self) -> bool {
        self.causes.iter().any(|cause| cause.kind == CauseKind::TooComplex)
    }

    /// Returns the extensions that take part in the conflict.
    pub fn extensions(&self) -> BTreeSet<&str> {
        self.causes.iter().map(|cause| cause.extension.as_str()).collect()
    }
}

impl std::error::Error for Conflict {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.causes.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extension, kind, versions } = self;
        let several = versions.len() > 1;
        let need = if several { "need" } else { "needs" };
        match kind {
            CauseKind::Requested { range } if range == ANY => write!(f, "{extension} is requested"),
            CauseKind::Requested { range } => write!(f, "{extension} {range} is requested"),
            CauseKind::Needs { dependency, range, optional } => {
                let range = if range == ANY { String::new() } else { format!(" {range}") };
                let condition = if *optional { " if it is installed" } else { "" };
                write!(f, "{extension} {} {need} {dependency}{range}{condition}", list(versions))
            }
            CauseKind::Cycle { others } => {
                let chain = others.join(", which needs ");
                write!(f, "{extension} needs {chain}, which needs {extension}: the dependencies form a cycle")
            }
            CauseKind::Rejected(rejection) => {
                write!(f, "{extension} {} {}", list(versions), rejection.describe(several))
            }
            CauseKind::NoVersionInRange { range, newest: Some(newest) } => {
                write!(f, "{extension} has no version in {range}, the newest is {newest}")
            }
            CauseKind::NoVersionInRange { range, newest: None } => {
                write!(f, "{extension} has no version in {range}, and no other version")
            }
            CauseKind::NotPublished => write!(f, "{extension} is not published: no Extension has that name"),
            CauseKind::Unread => f.write_str(&unread_text(extension)),
            CauseKind::TooComplex => write!(
                f,
                "the dependencies of {extension} are too complex: no versions were found within {STEPS} steps; publish \
                 fewer versions, or dependencies with narrower ranges"
            ),
        }
    }
}

/// Returns the text for an extension whose versions cannot be read.
pub(crate) fn unread_text(extension: &str) -> String {
    format!(
        "the versions of {extension} cannot be read; the condition Ready of its Extension or catalog states why"
    )
}

/// `1.0.0`, `1.0.0 and 1.1.0`, `1.0.0, 1.1.0 and 1.2.0`.
fn list(versions: &BTreeSet<VersionName>) -> String {
    let mut texts: Vec<_> = versions.iter().map(ToString::to_string).collect();
    match (texts.pop(), texts.is_empty()) {
        (Some(last), false) => format!("{} and {last}", texts.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

/// Collects the causes from a proof.
struct Reader<'s, 'p, 'a> {
    search: &'s Search<'p, 'a>,
    causes: BTreeMap<(&'a str, CauseKind), BTreeSet<VersionName>>,
}

impl Reader<'_, '_, '_> {
    /// Visits each node once, because subtrees of a proof are shared.
    fn read(&mut self, proof: &Proof) {
        let mut read = HashSet::new();
        let mut open: Vec<&Proof> = vec![proof];
        while let Some(part) = open.pop() {
            match part {
                DerivationTree::External(cause) => self.external(cause),
                DerivationTree::Derived(derived) => {
                    let causes = [&derived.cause1, &derived.cause2];
                    let new = causes.into_iter().filter(|cause| read.insert(Arc::as_ptr(cause)));
                    open.extend(new.map(|cause| &**cause));
                }
            }
        }
    }

    fn external(&mut self, cause: &External<Node, CandidateSet, String>) {
        match cause {
            External::FromDependencyOf(Node::Root, _, Node::Extension(id), candidates) => {
                self.requested(*id, candidates);
            }
            External::FromDependencyOf(
                Node::Extension(id),
                candidates,
                Node::Extension(needed),
                accepted,
            ) => {
                self.needs(*id, candidates, *needed, accepted);
            }
            External::FromDependencyOf(Node::Cycle(cycle), ..)
            | External::NoVersions(Node::Cycle(cycle), _) => self.cycle(*cycle),
            External::NoVersions(Node::Extension(id), candidates) => self.rejected(*id, candidates),
            External::FromDependencyOf(..)
            | External::NoVersions(..)
            | External::NotRoot(..)
            | External::Custom(..) => {}
        }
    }

    fn requested(&mut self, id: Id, candidates: &CandidateSet) {
        for request in &self.search.problem.extensions[id].requests {
            let range = request.range.to_string();
            self.add(id, CauseKind::Requested { range: range.clone() });
            if !self.has_any(id, candidates) {
                self.no_version_in_range(id, range);
            }
        }
    }

    fn needs(&mut self, id: Id, candidates: &CandidateSet, needed: Id, accepted: &CandidateSet) {
        let problem = self.search.problem;
        let (extension, dependency) = (&problem.extensions[id], problem.extensions[needed].name);
        for (_, candidate) in extension.candidates().filter(|(index, _)| candidates.contains(index)) {
            for need in candidate.dependencies.iter().filter(|need| need.extension == dependency) {
                let range = need.range.to_string();
                let kind = CauseKind::Needs {
                    dependency: dependency.to_owned(),
                    range: range.clone(),
                    optional: need.optional,
                };
                let versions = self.causes.entry((extension.name, kind)).or_default();
                versions.insert(candidate.name.clone());
                if !self.has_any(needed, accepted) {
                    self.no_version_in_range(needed, range);
                }
            }
        }
    }

    fn rejected(&mut self, id: Id, candidates: &CandidateSet) {
        let extension = &self.search.problem.extensions[id];
        for (index, candidate) in extension.candidates().filter(|(index, _)| candidates.contains(index)) {
            if let Some(rejection) = extension.rejection(index) {
                let kind = CauseKind::Rejected(rejection.clone());
                self.causes.entry((extension.name, kind)).or_default().insert(candidate.name.clone());
            }
        }
    }

    fn has_any(&self, id: Id, candidates: &CandidateSet) -> bool {
        self.search.problem.extensions[id].candidates().any(|(index, _)| candidates.contains(&index))
    }

    fn no_version_in_range(&mut self, id: Id, range: String) {
        let extension = &self.search.problem.extensions[id];
        if extension.is_unread {
            return self.add(id, CauseKind::Unread);
        }
        match extension.candidates().next_back() {
            Some((_, newest)) => {
                self.add(id, CauseKind::NoVersionInRange { range, newest: Some(newest.name.clone()) });
            }
            None => self.add(id, CauseKind::NotPublished),
        }
    }

    fn cycle(&mut self, cycle: usize) {
        let names =
            self.search.cycles[cycle].members.iter().map(|id| self.search.problem.extensions[*id].name);
        let others = names.skip(1).map(ToOwned::to_owned).collect();
        self.add(self.search.cycles[cycle].members[0], CauseKind::Cycle { others });
    }

    fn add(&mut self, id: Id, kind: CauseKind) {
        self.causes.entry((self.search.problem.extensions[id].name, kind)).or_default();
    }
}
