//! The tests named in docs/requirements.md, docs/reliability.md and docs/security.md exist.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::documents::{document, root};

/// Returns the names of tests in a document, in backticks: `crate::file::name`, or the name alone, which is a sentence. Names of
/// metrics begin with that of the product.
pub fn named_tests(document: &str) -> BTreeSet<String> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        let part = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let is_sentence = text.matches('_').count() >= 3 && !text.starts_with("chandler_");
        (text.contains("::") || is_sentence) && text.split("::").all(part)
    };
    quoted.filter(is_path).map(str::to_owned).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let nested = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Returns the module path of a file: `crates/e2e/tests/commands/api.rs` is `e2e::commands::api`.
fn module_path(path: &Path) -> String {
    let parts =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let is_module = |part: &&String| !["src", "tests", "main", "lib"].contains(&part.as_str());
    parts.iter().filter(is_module).cloned().collect::<Vec<_>>().join("::")
}

/// Returns the names of the tests in a source file.
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

/// Returns the paths of all tests of the workspace's crates and of `xtask`.
pub fn all_tests() -> BTreeSet<String> {
    let (root, crates) = (root(), root().join("crates"));
    let mut known = BTreeSet::new();
    for path in sources(&crates).into_iter().chain(sources(&root.join("xtask"))) {
        let module = module_path(path.strip_prefix(&crates).or(path.strip_prefix(&root)).unwrap());
        let source = std::fs::read_to_string(&path).unwrap();
        known.extend(tests(&source).map(|name| format!("{module}::{name}")));
    }
    known
}

/// Returns whether a test of this name exists; its path may be shortened from the left.
pub fn exists(known: &BTreeSet<String>, name: &str) -> bool {
    known.iter().any(|known| known == name || known.ends_with(&format!("::{name}")))
}

#[test]
fn every_test_named_in_the_documents_exists() {
    let known = all_tests();
    for (page, at_least) in
        [("docs/requirements.md", 30), ("docs/reliability.md", 10), ("docs/security.md", 150)]
    {
        let named = named_tests(&document(page));
        assert!(named.len() > at_least, "{page}: {named:?}");
        let missing: Vec<_> = named.iter().filter(|name| !exists(&known, name)).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:#?}");
    }
}
