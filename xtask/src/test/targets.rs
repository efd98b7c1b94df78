//! Finds the test binaries that contain tests with a name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

/// The directories of packages below the root: all of those in the first, and the others themselves.
const PACKAGES: (&str, [&str; 3]) = ("crates", ["xtask", "xtask/proto", "xtask/push"]);

/// The binary with the unit tests of all packages, and the integration tests by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Unit,
    Integration(String),
}

impl Target {
    /// Returns the arguments of cargo that choose it.
    pub fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Unit => vec!["--lib", "--bins"],
            Self::Integration(name) => vec!["--test", name],
        }
    }
}

/// The test binaries that contain tests with names that a user has given, such as `e2e::sync`, `sync::` or a part of
/// the name of a function. Each with the filters for `cargo test`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Selected(pub BTreeMap<Target, BTreeSet<String>>);

impl Selected {
    /// Returns the arguments of cargo that build the test binaries, and the programs that integration tests run.
    pub fn build_arguments(&self) -> Vec<&str> {
        let targets = self.0.keys().flat_map(Target::arguments);
        // Cargo refuses a second one.
        ["--workspace", "--bins"]
            .into_iter()
            .chain(targets.filter(|argument| *argument != "--bins"))
            .collect()
    }

    /// Looks for names in the sources.
    pub fn find(root: &Path, names: &[String]) -> Result<Self> {
        Ok(Self::of(&sources(root)?, names))
    }

    fn of(sources: &[Source], names: &[String]) -> Self {
        let mut found = Self::default();
        for name in names {
            let first = name.split("::").next().unwrap_or_default();
            // As documents name tests: with the binary.
            let binary = Target::Integration(first.to_owned());
            let is_binary = sources.iter().any(|source| source.target == binary);
            let filter = if is_binary { name[first.len()..].trim_start_matches("::") } else { name };
            let part = filter.rsplit("::").find(|part| !part.is_empty()).unwrap_or_default();
            for source in sources {
                if (!is_binary || source.target == binary) && source.contains(part) {
                    found.0.entry(source.target.clone()).or_default().insert(filter.to_owned());
                }
            }
        }
        found
    }
}

/// A file with Rust code.
struct Source {
    target: Target,
    /// Its path without the extension, and without the directory `src` or `tests`.
    module: PathBuf,
    text: String,
}

impl Source {
    /// Returns whether it has tests, and the name of one of them or of its module contains a text.
    fn contains(&self, part: &str) -> bool {
        let is_test = |line: &str| line.split_once("fn ").is_some_and(|(_, name)| name.contains(part));
        let mut modules = self.module.iter().map(|module| module.to_string_lossy());
        self.text.contains("test]")
            && (modules.any(|module| module.contains(part)) || self.text.lines().any(is_test))
    }
}

fn sources(root: &Path) -> Result<Vec<Source>> {
    let (parent, others) = PACKAGES;
    let mut packages: Vec<_> = others.iter().map(|other| root.join(other)).collect();
    for package in fs::read_dir(root.join(parent))? {
        packages.push(package?.path());
    }
    let mut found = Vec::new();
    for package in packages {
        let (unit, integration) = (package.join("src"), package.join("tests"));
        read(&unit, &unit, &|_| Target::Unit, &mut found)?;
        let of_test = |module: &Path| {
            let first = module.iter().next().unwrap_or_default();
            Target::Integration(first.to_string_lossy().into_owned())
        };
        read(&integration, &integration, &of_test, &mut found)?;
    }
    Ok(found)
}

fn read(
    base: &Path,
    directory: &Path,
    target: &dyn Fn(&Path) -> Target,
    found: &mut Vec<Source>,
) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            read(base, &path, target, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module = path.strip_prefix(base)?.with_extension("");
            found.push(Source { target: target(&module), module, text: fs::read_to_string(&path)? });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(integration: Option<&str>, module: &str, function: &str) -> Source {
        let text = format!("#[tokio::test]\nasync fn {function}() {{}}\n");
        let target = integration.map_or(Target::Unit, |name| Target::Integration(name.to_owned()));
        Source { target, module: module.into(), text }
    }

    #[test]
    fn unit_and_integration_tests_are_built_together() {
        let targets = [Target::Unit, Target::Integration("e2e".to_owned())];
        let selected = Selected(targets.map(|target| (target, BTreeSet::new())).into());
        assert_eq!(selected.build_arguments(), ["--workspace", "--bins", "--lib", "--test", "e2e"]);
    }

    /// The filters of the unit tests, and of the integration tests e2e and commands.
    type Filters<'a> = [&'a [&'a str]; 3];

    #[test]
    fn names_choose_the_binaries_that_contain_them() {
        let sources = [
            source(Some("e2e"), "e2e/sync", "a_push_is_applied"),
            source(Some("commands"), "commands/tunnel", "a_guide_works"),
            source(None, "schedule", "a_sync_is_applied"),
            source(None, "verifier/tests", "a_digest_differs"),
            Source { text: "fn sync_all() {}".to_owned(), ..source(None, "sync", "") },
        ];
        let rows: [(&[&str], Filters<'_>); 9] = [
            (&["a_push"], [&[], &["a_push"], &[]]),
            (&["sync::"], [&["sync::"], &["sync::"], &[]]),
            (&["e2e::sync"], [&[], &["sync"], &[]]),
            (&["sync::a_push_is"], [&[], &["sync::a_push_is"], &[]]),
            (&["is_applied"], [&["is_applied"], &["is_applied"], &[]]),
            (&["verifier"], [&["verifier"], &[], &[]]),
            (&["commands::"], [&[], &[], &[""]]),
            (&["e2e::sync", "commands"], [&[], &["sync"], &[""]]),
            (&["nothing"], [&[], &[], &[]]),
        ];
        for (names, expected) in rows {
            let found =
                Selected::of(&sources, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            let targets = [None, Some("e2e"), Some("commands")];
            let filters = targets.map(|name| {
                let target = name.map_or(Target::Unit, |name| Target::Integration(name.to_owned()));
                found.0.get(&target).into_iter().flatten().cloned().collect::<Vec<_>>()
            });
            assert_eq!(
                filters,
                expected.map(|filters| filters.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()),
                "{names:?}"
            );
        }
    }
}
