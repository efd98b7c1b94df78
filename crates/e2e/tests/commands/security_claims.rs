//! Every claim of docs/security.md names a test. That the tests in Rust exist is checked for all pages in `requirements.rs`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    documents::{document, prose, root},
    requirements::named_tests,
};

const PAGE: &str = "docs/security.md";
/// Sections that give advice and promise nothing.
const ADVICE: [&str; 2] = ["Pinning the images", "Reporting a vulnerability"];
/// The beginnings of rows that promise nothing.
const NO_PROMISE: [&str; 1] = ["| administrator of the platform"];
/// The table between these lines is generated, and compared by a test that the text before it names.
const GENERATED: [&str; 2] = ["<!-- hostile inputs: begin -->", "<!-- hostile inputs: end -->"];

/// A part of the page below a title.
#[derive(Default)]
struct Section {
    title: String,
    /// Its paragraphs.
    text: String,
    /// The rows of its tables, and the points of its lists.
    claims: Vec<String>,
}

impl Section {
    fn add(&mut self, line: &str) {
        if line.starts_with("|---") {
            // The row before it has the titles of the columns.
            self.claims.pop();
        } else if line.starts_with("| ") || line.starts_with("- ") {
            self.claims.push(line.to_owned());
        } else if let (Some(claim), true) = (self.claims.last_mut(), line.starts_with("  ")) {
            claim.push_str(line);
        } else {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// Returns what names no test. A test that the text of a section names is for all of its claims.
    fn unproven(&self) -> Vec<String> {
        if ADVICE.contains(&self.title.as_str()) || names_a_test(&self.text) {
            return Vec::new();
        }
        if self.claims.is_empty() && !self.text.trim().is_empty() {
            return vec![format!("section {:?}", self.title)];
        }
        let promises = |claim: &&String| !NO_PROMISE.iter().any(|begin| claim.starts_with(begin));
        self.claims.iter().filter(promises).filter(|claim| !names_a_test(claim)).cloned().collect()
    }
}

fn names_a_test(text: &str) -> bool {
    !named_tests(text).is_empty() || !named_go_tests(text).is_empty()
}

/// Returns the sections below the introduction of the page.
fn sections(page: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut is_generated = false;
    for line in prose(page).lines() {
        is_generated = line == GENERATED[0] || is_generated && line != GENERATED[1];
        if let Some(title) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
            sections.push(Section { title: title.to_owned(), ..Section::default() });
        } else if let (Some(section), false) = (sections.last_mut(), is_generated) {
            section.add(line);
        }
    }
    sections
}

/// Returns the names of Go tests in a document, in backticks.
fn named_go_tests(document: &str) -> BTreeSet<String> {
    let is_test = |text: &&str| {
        let name = text.strip_prefix("Test").unwrap_or_default();
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
    };
    document.split('`').skip(1).step_by(2).filter(is_test).map(str::to_owned).collect()
}

/// Returns the names of the Go tests in a folder.
fn go_tests(folder: &Path) -> BTreeSet<String> {
    let is_test_file = |path: &PathBuf| path.to_string_lossy().ends_with("_test.go");
    let mut found = BTreeSet::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.append(&mut go_tests(&path));
        } else if is_test_file(&path) {
            let source = std::fs::read_to_string(&path).unwrap();
            let names = source.lines().filter_map(|line| line.strip_prefix("func ")?.split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
    found
}

#[test]
fn every_go_test_named_in_the_page_exists() {
    let (named, known) = (named_go_tests(&document(PAGE)), go_tests(&root().join("tools/helm")));
    assert!(named.len() > 10, "{named:?}");
    let missing: Vec<_> = named.difference(&known).collect();
    assert!(missing.is_empty(), "{PAGE} names tests that do not exist: {missing:#?}");
}

#[test]
fn every_claim_names_a_test() {
    let sections = sections(&document(PAGE));
    assert!(sections.len() > 10);
    let unproven: Vec<_> = sections.iter().flat_map(Section::unproven).collect();
    assert!(unproven.is_empty(), "{PAGE} has claims that name no test: {unproven:#?}");
}

#[test]
fn claims_without_a_test_are_found() {
    let page = "# Page\n\n## One\n- Proven\n  (`one::two`).\n- Not\n  proven.\n\n| a |\n|---|\n| proven by `TestIt` |\n| not |\n\n\
        ## Two\nProven by `one::two`.\n- All.\n\n### Three\nNot.\n\n## Reporting a vulnerability\nAdvice.\n";
    let unproven: Vec<_> = sections(page).iter().flat_map(Section::unproven).collect();
    assert_eq!(unproven, ["- Not  proven.", "| not |", "section \"Three\""]);
}
