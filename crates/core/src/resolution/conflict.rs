//! Why no versions fit together, in words.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use pubgrub::{DerivationTree, External, VersionSet as _};

use super::{
    places::Places,
    problem::Id,
    rejection::Rejection,
    solve::{Node, Proof, Search},
    universe::VersionName,
};

/// A range that goes without saying.
const ANY: &str = "*";

/// Why no versions fit together: facts that cannot all be lived with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// By extension, then as listed in [`Fact`].
    pub facts: Vec<Fact>,
}

/// Something that is so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fact {
    pub extension: String,
    pub about: About,
    /// The versions it holds for. Empty: for the extension as a whole.
    pub versions: BTreeSet<VersionName>,
}

/// What a fact says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// Somebody asks for it.
    AskedFor { range: String },
    /// Its versions need another one.
    Needs { dependency: String, range: String, optional: bool },
    /// It needs others in a circle, so there is no order to install them in.
    Circle { others: Vec<String> },
    /// Its versions cannot be chosen, whatever else is.
    Rejected(Rejection),
    /// There is no version in a range.
    NoneIn { range: String, newest: Option<VersionName> },
    /// Nobody publishes it.
    Unknown,
}

impl Conflict {
    pub(super) fn new(search: &Search<'_, '_>, proof: &Proof) -> Self {
        let mut reader = Reader { search, facts: BTreeMap::new() };
        reader.read(proof);
        let facts = reader.facts.into_iter().map(|((extension, about), versions)| Fact {
            extension: extension.to_owned(),
            about,
            versions,
        });
        Self { facts: facts.collect() }
    }

    /// The extensions that it is about.
    pub fn extensions(&self) -> BTreeSet<&str> {
        self.facts.iter().map(|fact| fact.extension.as_str()).collect()
    }
}

impl std::error::Error for Conflict {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.facts.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extension, about, versions } = self;
        let several = versions.len() > 1;
        let need = if several { "need" } else { "needs" };
        match about {
            About::AskedFor { range } if range == ANY => write!(f, "{extension} is asked for"),
            About::AskedFor { range } => write!(f, "{extension} is asked for as {range}"),
            About::Needs { dependency, range, optional } => {
                let range = if range == ANY { String::new() } else { format!(" {range}") };
                let condition = if *optional { " if it is there" } else { "" };
                write!(f, "{extension} {} {need} {dependency}{range}{condition}", list(versions))
            }
            About::Circle { others } => {
                let circle = others.join(", which needs ");
                write!(
                    f,
                    "{extension} needs {circle}, which needs {extension}: nothing could be installed first"
                )
            }
            About::Rejected(rejection) => {
                write!(f, "{extension} {} {}", list(versions), rejection.describe(several))
            }
            About::NoneIn { range, newest: Some(newest) } => {
                write!(f, "{extension} has no version in {range}, the newest is {newest}")
            }
            About::NoneIn { range, newest: None } => {
                write!(f, "{extension} has no version in {range}, and no other either")
            }
            About::Unknown => write!(f, "{extension} is not known: no Extension has that name"),
        }
    }
}

/// `1.0.0`, `1.0.0 and 1.1.0`, `1.0.0, 1.1.0 and 1.2.0`.
fn list(versions: &BTreeSet<VersionName>) -> String {
    let mut texts: Vec<_> = versions.iter().map(ToString::to_string).collect();
    match (texts.pop(), texts.is_empty()) {
        (Some(last), false) => format!("{} and {last}", texts.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

/// Collects the facts that a proof rests on.
struct Reader<'s, 'p, 'a> {
    search: &'s Search<'p, 'a>,
    facts: BTreeMap<(&'a str, About), BTreeSet<VersionName>>,
}

impl Reader<'_, '_, '_> {
    /// Parts of a proof are shared: each is read once.
    fn read(&mut self, proof: &Proof) {
        let mut read = HashSet::new();
        let mut open: Vec<&Proof> = vec![proof];
        while let Some(part) = open.pop() {
            match part {
                DerivationTree::External(fact) => self.external(fact),
                DerivationTree::Derived(derived) => {
                    let causes = [&derived.cause1, &derived.cause2];
                    let new = causes.into_iter().filter(|cause| read.insert(Arc::as_ptr(cause)));
                    open.extend(new.map(|cause| &**cause));
                }
            }
        }
    }

    fn external(&mut self, fact: &External<Node, Places, String>) {
        match fact {
            External::FromDependencyOf(Node::Wishes, _, Node::Extension(id), places) => {
                self.asked(*id, places);
            }
            External::FromDependencyOf(Node::Extension(id), places, Node::Extension(needed), served) => {
                self.needs(*id, places, *needed, served);
            }
            External::FromDependencyOf(Node::Circle(circle), ..)
            | External::NoVersions(Node::Circle(circle), _) => self.circle(*circle),
            External::NoVersions(Node::Extension(id), places) => self.rejected(*id, places),
            External::FromDependencyOf(..)
            | External::NoVersions(..)
            | External::NotRoot(..)
            | External::Custom(..) => {}
        }
    }

    fn asked(&mut self, id: Id, places: &Places) {
        for wanted in &self.search.problem.extensions[id].wanted {
            let range = wanted.range.to_string();
            self.add(id, About::AskedFor { range: range.clone() });
            if !self.has_any(id, places) {
                self.none_in(id, range);
            }
        }
    }

    fn needs(&mut self, id: Id, places: &Places, needed: Id, served: &Places) {
        let problem = self.search.problem;
        let (extension, dependency) = (&problem.extensions[id], problem.extensions[needed].name);
        for (_, candidate) in extension.places().filter(|(place, _)| places.contains(place)) {
            for need in candidate.dependencies.iter().filter(|need| need.extension == dependency) {
                let range = need.range.to_string();
                let about = About::Needs {
                    dependency: dependency.to_owned(),
                    range: range.clone(),
                    optional: need.optional,
                };
                let versions = self.facts.entry((extension.name, about)).or_default();
                versions.insert(candidate.name.clone());
                if !self.has_any(needed, served) {
                    self.none_in(needed, range);
                }
            }
        }
    }

    fn rejected(&mut self, id: Id, places: &Places) {
        let extension = &self.search.problem.extensions[id];
        for (place, candidate) in extension.places().filter(|(place, _)| places.contains(place)) {
            if let Some(rejection) = extension.rejection(place) {
                let about = About::Rejected(rejection.clone());
                self.facts.entry((extension.name, about)).or_default().insert(candidate.name.clone());
            }
        }
    }

    fn has_any(&self, id: Id, places: &Places) -> bool {
        self.search.problem.extensions[id].places().any(|(place, _)| places.contains(&place))
    }

    fn none_in(&mut self, id: Id, range: String) {
        let newest = self.search.problem.extensions[id].places().next_back();
        match newest {
            Some((_, newest)) => self.add(id, About::NoneIn { range, newest: Some(newest.name.clone()) }),
            None => self.add(id, About::Unknown),
        }
    }

    fn circle(&mut self, circle: usize) {
        let names =
            self.search.circles[circle].members.iter().map(|id| self.search.problem.extensions[*id].name);
        let others = names.skip(1).map(ToOwned::to_owned).collect();
        self.add(self.search.circles[circle].members[0], About::Circle { others });
    }

    fn add(&mut self, id: Id, about: About) {
        self.facts.entry((self.search.problem.extensions[id].name, about)).or_default();
    }
}
