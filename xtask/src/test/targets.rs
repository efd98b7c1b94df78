//! Which test binaries contain tests with a name.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

/// The directories of packages below the root: all in the first, and the others themselves.
const PACKAGES: (&str, [&str; 3]) = ("crates", ["xtask", "xtask/proto", "xtask/push"]);

/// The names of tests that a user has given, such as `e2e::sync`, `sync::` or a part of the name of a function.
#[derive(Debug, PartialEq, Eq)]
pub struct Selected {
    /// What `cargo test` compares names with.
    pub filters: Vec<String>,
    /// Whether unit tests are among them.
    pub unit: bool,
    /// The integration tests that contain some of them.
    pub integration: BTreeSet<String>,
}

impl Selected {
    /// Looks for names in the sources.
    pub fn find(root: &Path, names: &[String]) -> Result<Self> {
        Ok(Self::of(&sources(root)?, names))
    }

    fn of(sources: &[Source], names: &[String]) -> Self {
        let mut found = Self { filters: Vec::new(), unit: false, integration: BTreeSet::new() };
        for name in names {
            let binary = |source: &&Source| name.split("::").next() == source.integration.as_deref();
            let binary = sources.iter().find(binary).and_then(|source| source.integration.as_deref());
            // As documents name tests: with the binary.
            let filter = binary.map_or(name.as_str(), |binary| name[binary.len()..].trim_start_matches("::"));
            let part = filter.rsplit("::").find(|part| !part.is_empty()).unwrap_or_default();
            let is_searched = |source: &&Source| binary.is_none() || source.integration.as_deref() == binary;
            for source in sources.iter().filter(is_searched).filter(|source| source.contains(part)) {
                match &source.integration {
                    Some(integration) => {
                        found.integration.insert(integration.clone());
                    }
                    None => found.unit = true,
                }
            }
            found.filters.push(filter.to_owned());
        }
        found
    }

    pub fn is_empty(&self) -> bool {
        !self.unit && self.integration.is_empty()
    }

    /// Returns the arguments of cargo that choose the binaries.
    pub fn targets(&self) -> Vec<&str> {
        let unit = if self.unit { &["--lib", "--bins"][..] } else { &[] };
        let integration = self.integration.iter().flat_map(|name| ["--test", name]);
        unit.iter().copied().chain(integration).collect()
    }
}

/// A file with Rust code.
struct Source {
    /// The integration test that it belongs to. `None` for those of unit tests.
    integration: Option<String>,
    stem: String,
    text: String,
}

impl Source {
    /// Returns whether the name of a test, of its module or of its file contains a text.
    fn contains(&self, part: &str) -> bool {
        let is_test = |line: &str| line.split_once("fn ").is_some_and(|(_, name)| name.contains(part));
        self.text.contains("test]") && (self.stem.contains(part) || self.text.lines().any(is_test))
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
        read(&package.join("src"), &|_| None, &mut found)?;
        let tests = package.join("tests");
        let integration = |file: &Path| {
            let first = file.strip_prefix(&tests).ok()?.iter().next()?;
            Some(Path::new(first).file_stem()?.to_str()?.to_owned())
        };
        read(&tests, &integration, &mut found)?;
    }
    Ok(found)
}

fn read(
    directory: &Path,
    integration: &dyn Fn(&Path) -> Option<String>,
    found: &mut Vec<Source>,
) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            read(&path, integration, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            found.push(Source { integration: integration(&path), stem, text: fs::read_to_string(&path)? });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(integration: Option<&str>, stem: &str, function: &str) -> Source {
        let text = format!("#[tokio::test]\nasync fn {function}() {{}}\n");
        Source { integration: integration.map(str::to_owned), stem: stem.to_owned(), text }
    }

    #[test]
    fn names_choose_the_binaries_that_contain_them() {
        let sources = [
            source(Some("e2e"), "sync", "a_push_is_applied"),
            source(Some("commands"), "tunnel", "a_guide_works"),
            source(None, "schedule", "a_sync_is_applied"),
            Source { text: "fn sync_all() {}".to_owned(), ..source(None, "sync", "") },
        ];
        let rows: [(&str, &str, bool, &[&str]); 7] = [
            ("a_push", "a_push", false, &["e2e"]),
            ("sync::", "sync::", true, &["e2e"]),
            ("e2e::sync", "sync", false, &["e2e"]),
            ("sync::a_push_is", "sync::a_push_is", false, &["e2e"]),
            ("is_applied", "is_applied", true, &["e2e"]),
            ("commands::", "", false, &["commands"]),
            ("nothing", "nothing", false, &[]),
        ];
        for (name, filter, unit, integration) in rows {
            let found = Selected::of(&sources, &[name.to_owned()]);
            let expected = integration.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(
                (found.filters, found.unit, found.integration),
                (vec![filter.to_owned()], unit, expected),
                "{name}"
            );
        }
    }

    #[test]
    fn the_arguments_name_the_binaries() {
        let integration = BTreeSet::from(["commands".to_owned(), "e2e".to_owned()]);
        let selected = Selected { filters: Vec::new(), unit: true, integration };
        assert_eq!(selected.targets(), ["--lib", "--bins", "--test", "commands", "--test", "e2e"]);
    }
}
