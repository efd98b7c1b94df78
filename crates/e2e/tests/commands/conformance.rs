//! The conformance suite passes for the Helm driver and for a tool without Helm, and names what is wrong with others.

use std::{
    collections::BTreeSet,
    process::{Command, Output},
};

use chandler_e2e::programs;
use serde::Deserialize;

const MANIFEST_TOOL: &str = env!("CARGO_BIN_EXE_manifest-tool");

/// The contract, topic by topic.
const CONTRACT: [&str; 13] = [
    "anywhere",
    "apis",
    "cancel",
    "crash",
    "lifecycle",
    "marks",
    "ownership",
    "packages",
    "process",
    "reach",
    "records",
    "values",
    "waiting",
];

/// A case in the output of `tool verify --output json`.
#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    outcome: String,
    #[serde(default)]
    reason: String,
}

impl Case {
    fn topic(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

#[derive(Debug, Deserialize)]
struct Report {
    cases: Vec<Case>,
}

impl Report {
    /// Returns the cases with an outcome.
    fn with(&self, outcome: &str) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(move |case| case.outcome == outcome)
    }
}

fn verify(arguments: &[&str]) -> Output {
    Command::new(programs::sandbox())
        .args(["tool", "verify"])
        .args(arguments)
        .env_remove("CHANDLER_TOOL")
        .output()
        .expect("chandler-sandbox runs")
}

#[test]
fn the_helm_driver_keeps_the_contract() {
    let driver = programs::package_tool();
    let output = verify(&["--tool", driver]);
    let (table, progress) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{table}\n{progress}");
    let summary = table.lines().last().unwrap_or_default();
    assert!(summary.ends_with(" passed, 0 failed"), "{summary}");
}

#[test]
fn a_tool_without_helm_keeps_the_contract() {
    let packer = format!("'{MANIFEST_TOOL}' pack");
    let output = verify(&["--tool", MANIFEST_TOOL, "--packer", &packer, "--output", "json"]);
    let progress = String::from_utf8_lossy(&output.stderr);
    let report: Report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {progress}"));
    let failed: Vec<_> = report.with("failed").collect();
    assert!(failed.is_empty() && output.status.success(), "{failed:#?}\n{progress}");

    let passed: BTreeSet<_> = report.with("passed").map(|case| case.name.as_str()).collect();
    let topics: BTreeSet<_> = report.with("passed").map(Case::topic).collect();
    assert_eq!(topics, BTreeSet::from(CONTRACT), "every topic of the contract ran");
    assert!(passed.len() >= 60, "only {} cases passed: {passed:?}", passed.len());
    for name in [
        "records/watched",
        "records/pending",
        "marks/same-write",
        "crash/upgrade",
        "crash/remove",
        "cancel/install",
        "cancel/remove",
        "anywhere/killed",
        "reach/proxied",
        "process/recycled",
    ] {
        assert!(passed.contains(name), "{name} did not run");
    }

    // The tool declares no capability. Whatever needs one is skipped, and nothing else.
    for case in report.with("skipped") {
        let reason = match case.topic() {
            "helm" => "the tool does not declare the capability helm-records",
            "templates" | "builds" => "no template service is given",
            "boundary" | "ownership" => "the tool does not declare the capability",
            "rollback" => "the tool does not declare the capability rollback",
            "bundles" => "the tool does not declare the format manifests/v1",
            "drift" => "the tool does not declare the capability compare",
            "render" => "the tool does not declare the capability render",
            _ => "the tool does not declare the capability wait",
        };
        assert!(case.reason.starts_with(reason), "{case:?}");
    }
    let helm = report.with("skipped").filter(|case| case.topic() == "helm").count();
    assert!(helm >= 50, "only {helm} cases about Helm were skipped");
}

#[test]
fn a_tool_for_another_format_needs_a_packer() {
    let output = verify(&["--tool", MANIFEST_TOOL, "--filter", "packages/inspect"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("--packer") && message.contains("application/vnd.chandler.test"), "{message}");
}

#[test]
fn a_packer_that_fails_fails_the_cases() {
    let arguments = ["--packer", "echo no such format >&2; exit 3", "--filter", "lifecycle/plan"];
    let output = verify(&[&["--tool", MANIFEST_TOOL][..], &arguments].concat());
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{table}");
    assert!(table.contains("no such format") && table.ends_with("0 passed, 1 failed\n"), "{table}");
}

#[test]
fn a_program_that_is_no_tool_is_named() {
    let output = verify(&["--tool", "/bin/false", "--filter", "lifecycle/install"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let last = message.lines().last().unwrap_or_default();
    assert!(last.contains("exited while starting"), "{message}");
}

#[test]
fn a_tool_that_is_not_there_is_named() {
    let output = verify(&["--tool", "/no/such/tool"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("/no/such/tool") && message.contains("cargo xtask build"), "{message}");
}
