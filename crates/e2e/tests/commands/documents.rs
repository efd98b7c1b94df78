//! Every command in a code block of the documentation is run by a test. Commands in the text are checked by
//! `inline_commands`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{clusterctl_move, demo, guides, installing, requirements};

/// Languages of code blocks that contain commands.
const SHELLS: [&str; 5] = ["", "sh", "bash", "console", "shell"];

/// Commands that CI runs.
const RUN_BY_CI: [&str; 3] = ["cargo xtask demo", "cargo xtask test", "cargo xtask chaos"];

/// Prefixes of commands, and the tests that run them.
const RUN_BY_TESTS: [(&str, &str); 24] = [
    ("cargo xtask dist", "a_release_needs_a_section_in_the_changelog"),
    ("cargo xtask bench", "the_bench_measures_every_phase"),
    ("chandler hooks unregister", "a_kubernetes_upgrade_waits_for_running_operations_unless_overridden"),
    ("chandler-sandbox tool verify --tool PATH", "the_helm_driver_keeps_the_contract"),
    // Without `--release` the test uses a smaller catalog.
    (
        "cargo test --release -p chandler-source --test large_catalog",
        "a_large_catalog_is_read_and_searched_fast",
    ),
    ("chandler catalog ", "the_commands_of_the_catalog_guide_work"),
    ("chandler plan ", "a_plan_shows_what_a_file_would_change_on_each_cluster"),
    ("chandler diff ", "a_plan_shows_what_a_file_would_change_on_each_cluster"),
    ("chandler upgrade-check ", "upgrade_check_agrees_with_the_addons_upgradable_condition"),
    ("chandler where ", "where_shows_how_far_a_commit_has_come"),
    ("chandler source ", "sources_are_shown_polled_suspended_and_pinned"),
    ("chandler log-level", "the_log_level_of_manager_and_tool_changes_at_runtime"),
    ("cosign ", "the_commands_of_the_guide_to_signed_charts_work"),
    (
        "kubectl --namespace chandler-system create configmap signatures ",
        "the_commands_of_the_guide_to_signed_charts_work",
    ),
    (
        "chandler bundle migrate-clusterresourceset ",
        "a_cluster_resource_set_becomes_a_bundle_without_a_restart",
    ),
    ("chandler tunnel patch ", "cluster_api_accepts_the_patches"),
    ("chandler tunnel import ", "an_existing_cluster_is_imported"),
    ("chandler tunnel ", "the_commands_manage_a_tunnel"),
    // Both tests check that they run every command of their guide.
    ("git ", GITOPS_GUIDE),
    ("cp -r examples/gitops/. fleet", GITOPS_GUIDE),
    ("sed -i ", GITOPS_GUIDE),
    ("kubectl apply -f fleet/bootstrap.yaml", GITOPS_GUIDE),
    ("kubectl --namespace fleet ", GITOPS_GUIDE),
    ("chandler get --namespace fleet", GITOPS_GUIDE),
];

const GITOPS_GUIDE: &str = "the_gitops_guide_works_from_an_empty_namespace";

pub fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

/// Returns the lines of all code blocks that contain commands.
pub fn commands(document: &str) -> Vec<String> {
    let blocks = fenced(document).into_iter().filter(|(language, _)| SHELLS.contains(language));
    let lines = blocks.flat_map(|(_, lines)| lines).map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Returns the commands of a document that must contain some.
pub fn commands_of(name: &str) -> Vec<String> {
    let commands = commands(&document(name));
    assert!(!commands.is_empty(), "{name} has no commands");
    commands
}

/// Returns a section of a document, with its title.
pub fn section<'a>(document: &'a str, title: &str) -> &'a str {
    let begin = document.find(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("no section {title}"));
    let section = &document[begin + 1..];
    section[1..].find("\n## ").map_or(section, |end| &section[..=end])
}

/// Returns the lines of each code block in a language.
pub fn blocks<'a>(document: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    fenced(document).into_iter().filter(|(found, _)| *found == language).map(|(_, lines)| lines).collect()
}

/// Returns the language and the lines of each code block.
fn fenced(document: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        match (fence(line), inside) {
            (Some(language), false) => blocks.push((language, Vec::new())),
            (None, true) => blocks.last_mut().unwrap().1.push(line),
            _ => {}
        }
        inside ^= fence(line).is_some();
    }
    blocks
}

/// Returns the language if the line begins or ends a code block. Blocks in lists are indented.
fn fence(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("```").map(|info| info.split_whitespace().next().unwrap_or_default())
}

/// Returns the text outside of code blocks.
pub fn prose(document: &str) -> String {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in document.lines() {
        let is_fence = fence(line).is_some();
        inside ^= is_fence;
        lines.push(if inside || is_fence { "" } else { line });
    }
    lines.join("\n")
}

/// Returns all pages that are not generated.
pub fn pages() -> Vec<PathBuf> {
    let others = ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    markdown(&root().join("docs")).into_iter().chain(others).collect()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let nested = entries.flat_map(|path| match path.is_dir() {
        true if path.ends_with("reference") => vec![],
        true => markdown(&path),
        false => vec![path],
    });
    nested.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn every_command_in_the_documentation_is_run_by_a_test() {
    let run_by_demo_and_sandbox = ["docs/guides/sandbox.md", "docs/concepts/releases.md"]
        .into_iter()
        .flat_map(commands_of)
        .chain(demo::getting_started_commands())
        .filter(|line| !line.starts_with("cargo "));
    let guides =
        [guides::MIGRATING, guides::USING, clusterctl_move::GUIDE].into_iter().chain(demo::ON_THE_FLEET);
    let run_by_guides = guides.flat_map(commands_of).chain(guides::getting_started_commands());
    let run_here: Vec<String> =
        run_by_demo_and_sandbox.chain(run_by_guides).chain(installing::kubectl_and_helm_commands()).collect();
    let mut elsewhere: Vec<_> = RUN_BY_CI.into_iter().chain(RUN_BY_TESTS.map(|(line, _)| line)).collect();
    let mut used = Vec::new();
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in commands(&text) {
            let known = elsewhere.iter().find(|known| line.starts_with(**known));
            used.extend(known);
            assert!(run_here.contains(&line) || known.is_some(), "{}: no test runs `{line}`", path.display());
        }
    }
    elsewhere.retain(|known| !used.contains(known));
    assert_eq!(elsewhere, [] as [&str; 0], "no document contains these commands");
}

#[test]
fn the_tests_that_run_documented_commands_exist() {
    let known = requirements::all_tests();
    for (line, test) in RUN_BY_TESTS {
        assert!(requirements::exists(&known, test), "there is no test {test}, which should run `{line}`");
    }
}

#[test]
fn links_between_documents_are_valid() {
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || target.starts_with("https://") {
                continue;
            }
            assert!(
                path.parent().unwrap().join(file).exists(),
                "{}: {target} does not exist",
                path.display()
            );
        }
    }
}

#[test]
fn shell_blocks_are_read_as_commands() {
    let page = "```\na\n```\n```yaml\nb: c\n```\n- d\n  ```sh title\n  e f\n\n  ```\n```console\ng\n```\n";
    assert_eq!(commands(page), ["a", "e f", "g"]);
    assert_eq!(blocks(page, "yaml"), [["b: c"]]);
    assert_eq!(prose(page).split_whitespace().collect::<Vec<_>>(), ["-", "d"]);
}

#[test]
fn the_index_of_decision_records_is_complete() {
    let index = document("docs/adr/README.md");
    let listed: BTreeSet<&str> =
        index.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let pages = markdown(&root().join("docs/adr"));
    let names = pages.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
    let decisions: BTreeSet<&str> = names.filter(|name| *name != "README.md").collect();
    assert_eq!(listed, decisions);
}

#[test]
fn alerts_link_to_existing_runbook_sections() {
    let page = document("docs/operations.md");
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    let anchors: Vec<String> = headings.map(|line| line.trim().to_lowercase().replace(' ', "-")).collect();
    let alerts = ["alerts.yaml", "tunnel-alerts.yaml"]
        .map(|name| document(&format!("deploy/monitoring/{name}")))
        .concat();
    let from_alerts = alerts.split("runbook_url: ../../docs/operations.md#").skip(1);
    let from_alerts: Vec<_> = from_alerts.filter_map(|rest| rest.lines().next()).collect();
    assert_eq!(from_alerts.len(), alerts.matches("- alert:").count(), "every alert has a runbook URL");
    let own = page.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    for anchor in own.chain(from_alerts) {
        assert!(
            anchors.iter().any(|known| known == anchor),
            "#{anchor} does not exist; existing anchors: {anchors:?}"
        );
    }
}
