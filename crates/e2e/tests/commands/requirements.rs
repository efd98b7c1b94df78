//! The tests that docs/requirements.md names are there.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::documents::{document, root};

/// Names of tests in a document: `place::file::name`, in backticks.
fn named(document: &str) -> BTreeSet<String> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        let part = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        text.contains("::") && text.split("::").all(part)
    };
    quoted.filter(is_path).map(str::to_owned).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let nested = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// `crates/e2e/tests/commands/api.rs` is `e2e::commands::api`; folders of tests do not count.
fn place(path: &Path) -> String {
    let parts =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let counts = |part: &&String| !["src", "tests", "main", "lib"].contains(&part.as_str());
    parts.iter().filter(counts).cloned().collect::<Vec<_>>().join("::")
}

/// Names of the tests in a file.
fn tests(source: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let follows_attribute = |at: usize| {
        let before = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        before.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    };
    let names = lines.iter().enumerate().filter_map(|(at, line)| {
        let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        follows_attribute(at).then(|| rest.split('(').next().unwrap_or(rest))
    });
    names.collect::<Vec<_>>().into_iter()
}

/// All tests, with their places.
pub fn tests_of_the_crates() -> BTreeSet<String> {
    let crates = root().join("crates");
    let mut known = BTreeSet::new();
    for path in sources(&crates) {
        let place = place(path.strip_prefix(&crates).unwrap());
        let source = std::fs::read_to_string(&path).unwrap();
        known.extend(tests(&source).map(|name| format!("{place}::{name}")));
    }
    known
}

/// Whether there is a test of this name, with or without its place.
pub fn exists(known: &BTreeSet<String>, name: &str) -> bool {
    known.iter().any(|known| known == name || known.ends_with(&format!("::{name}")))
}

#[test]
fn every_test_that_the_requirements_name_exists() {
    let known = tests_of_the_crates();
    let named = named(&document("docs/requirements.md"));
    assert!(named.len() > 30, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !exists(&known, name)).collect();
    assert!(missing.is_empty(), "docs/requirements.md names tests that do not exist: {missing:#?}");
}
