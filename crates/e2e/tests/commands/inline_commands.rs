//! Checks commands in the text of the documentation: their subcommands, flags, xtasks and verbs must exist.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use chandler_e2e::programs;

use crate::documents::{document, pages, prose, root};

/// Prefixes of code spans that are commands.
const COMMANDS: [&str; 7] =
    ["chandler ", "chandler-sandbox ", "kubectl ", "helm ", "clusterctl ", "cargo xtask ", "cargo test"];

/// Verbs of third-party programs that the documentation may use.
const KUBECTL: [&str; 17] = [
    "annotate",
    "apply",
    "auth",
    "create",
    "delete",
    "describe",
    "diff",
    "edit",
    "exec",
    "get",
    "label",
    "logs",
    "patch",
    "port-forward",
    "rollout",
    "scale",
    "wait",
];
const HELM: [&str; 10] =
    ["get", "history", "install", "list", "package", "push", "rollback", "template", "uninstall", "upgrade"];
const CLUSTERCTL: [&str; 7] = ["delete", "describe", "generate", "get", "init", "move", "upgrade"];

/// Returns the commands of all pages, each with a page that contains it.
fn inline_commands() -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for page in pages() {
        let text = prose(&std::fs::read_to_string(&page).unwrap());
        for span in spans(&text) {
            if COMMANDS.iter().any(|command| span.starts_with(command)) {
                found.insert(span, page.clone());
            }
        }
    }
    found
}

/// Returns the code spans of a text. A span may continue on the next line, but not in the next paragraph.
fn spans(text: &str) -> Vec<String> {
    let of_paragraph = |paragraph: &str| {
        let parts: Vec<&str> = paragraph.split('`').collect();
        assert!(parts.len() % 2 == 1, "a backtick is missing: {paragraph}");
        let spans = parts.iter().skip(1).step_by(2);
        spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    text.split("\n\n").flat_map(of_paragraph).collect()
}

/// Checks a command. Returns an error message if it is invalid.
fn check(words: &[&str]) -> Result<(), String> {
    match words {
        ["chandler", rest @ ..] | ["kubectl", "chandler", rest @ ..] => chandler(rest),
        // The remaining arguments are passed to kubectl, including `--help`.
        ["chandler-sandbox", "kubectl", rest @ ..] => known_verb(rest, &KUBECTL),
        ["chandler-sandbox", rest @ ..] => sandbox(rest),
        ["kubectl", rest @ ..] => known_verb(rest, &KUBECTL).and_then(|()| check_pod_command(rest)),
        ["helm", rest @ ..] => known_verb(rest, &HELM),
        ["clusterctl", rest @ ..] => known_verb(rest, &CLUSTERCTL),
        // All arguments are passed to `chandler-sandbox bench`, including `--help`.
        ["cargo", "xtask", "bench", rest @ ..] => sandbox(&[&["bench"][..], rest].concat()),
        ["cargo", "xtask", "chaos", rest @ ..] => sandbox(&[&["chaos"][..], rest].concat()),
        ["cargo", "xtask", rest @ ..] => {
            check_arguments(Command::new(env!("CARGO")).current_dir(root()).arg("xtask"), rest)
        }
        ["cargo", "test", rest @ ..] => cargo_test(rest),
        _ => Ok(()),
    }
}

fn chandler(words: &[&str]) -> Result<(), String> {
    check_arguments(&mut Command::new(programs::chandler()), words)
}

fn sandbox(words: &[&str]) -> Result<(), String> {
    check_arguments(&mut Command::new(programs::sandbox()), words)
}

/// Runs a program with `--help` after its arguments. Invalid arguments are rejected before `--help` is parsed; required
/// ones may be missing.
fn check_arguments(program: &mut Command, words: &[&str]) -> Result<(), String> {
    let words = words.iter().filter(|word| **word != "…");
    let output = program.args(words).arg("--help").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let invalid_value =
        stderr.strip_prefix("error: invalid value '").and_then(|rest| rest.split('\'').next());
    if output.status.success() || invalid_value.is_some_and(is_placeholder) {
        return Ok(());
    }
    Err(stderr.into_owned())
}

/// Returns whether a word is a placeholder such as `NAME`.
fn is_placeholder(word: &str) -> bool {
    word.chars().any(char::is_uppercase) && !word.chars().any(char::is_lowercase)
}

fn known_verb(words: &[&str], known: &[&str]) -> Result<(), String> {
    match verb(words) {
        Some(verb) if !known.contains(&verb) => Err(format!("`{verb}` is not among the verbs of this test")),
        _ => Ok(()),
    }
}

/// Returns the first word that is neither a flag nor the value of one.
fn verb<'a>(words: &[&'a str]) -> Option<&'a str> {
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            return Some(word);
        }
        if !word.contains('=') {
            words.next();
        }
    }
    None
}

/// Checks a command in the manager's Pod: the names of its Deployment and of the program in the image.
fn check_pod_command(words: &[&str]) -> Result<(), String> {
    let deployment = deployment();
    let named = words
        .iter()
        .filter_map(|word| word.strip_prefix("deploy/").or_else(|| word.strip_prefix("deployment/")));
    for name in named {
        if name != deployment {
            return Err(format!("the chart's Deployment is {deployment}"));
        }
    }
    match words.splitn(2, |word| *word == "--").nth(1) {
        Some([program, rest @ ..]) if *program == entrypoint() => chandler(rest),
        Some(_) => Err(format!("the program of the image is {}", entrypoint())),
        None => Ok(()),
    }
}

/// Returns the name of the Deployment in the chart.
fn deployment() -> String {
    let chart = document("deploy/chart/templates/deployment.yaml");
    chart.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap().to_owned()
}

/// Returns the entry point of the image.
fn entrypoint() -> String {
    let images = document("xtask/src/image/contents.rs");
    let programs = images.lines().find_map(|line| line.trim().strip_prefix("programs: &[\""));
    format!("/{}", programs.unwrap().split('"').next().unwrap())
}

/// Checks that the named package and test exist.
fn cargo_test(words: &[&str]) -> Result<(), String> {
    for pair in words.windows(2) {
        let exists = match pair {
            ["-p" | "--package", package] => is_package(package),
            ["--test", test] => is_test(test),
            _ => true,
        };
        if !exists {
            return Err(format!("there is no {}", pair[1]));
        }
    }
    Ok(())
}

fn is_package(name: &str) -> bool {
    name == "xtask"
        || name.strip_prefix("chandler-").is_some_and(|folder| root().join("crates").join(folder).is_dir())
}

fn is_test(name: &str) -> bool {
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut folders = crates.map(|folder| folder.join("tests"));
    folders
        .any(|tests| tests.join(format!("{name}.rs")).exists() || tests.join(name).join("main.rs").exists())
}

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

#[test]
fn every_command_in_the_text_exists() {
    let found = inline_commands();
    assert!(found.len() > 20, "{found:?}");
    let errors = found.iter().filter_map(|(command, page)| {
        let error = check(&words(command)).err()?;
        Some(format!("{}: `{command}`: {error}", page.display()))
    });
    let errors: Vec<_> = errors.collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn invalid_commands_are_detected() {
    let invalid = [
        "chandler nosuch",
        "chandler get --nosuch",
        "chandler manager --concurrency many",
        "kubectl chandler nosuch",
        "chandler sandbox up",
        "chandler-sandbox nosuch",
        "chandler-sandbox kubectl frobnicate",
        "kubectl frobnicate pods",
        "kubectl exec deploy/nosuch -- /chandler log-level",
        "kubectl exec deploy/chandler-manager -- chandler log-level",
        "kubectl exec deploy/chandler-manager -- /chandler nosuch",
        "helm --namespace get frobnicate",
        "clusterctl frobnicate",
        "cargo xtask nosuch",
        "cargo xtask test --nosuch",
        "cargo xtask bench nosuch",
        "cargo xtask chaos --nosuch",
        "cargo test -p chandler-nosuch",
        "cargo test --test nosuch",
    ];
    for command in invalid {
        assert!(check(&words(command)).is_err(), "{command}");
    }
}

#[test]
fn placeholders_and_flags_before_the_verb_are_accepted() {
    let valid = [
        "chandler get …",
        "chandler describe",
        "chandler manager --concurrency N",
        "kubectl chandler get --namespace NAME",
        "kubectl --namespace chandler-system get pods",
        "kubectl exec deploy/chandler-manager -- /chandler log-level LEVEL",
        "cargo xtask test --quick",
        "chandler-sandbox kubectl --cluster alpha get nodes",
        "cargo test --package chandler-e2e --test commands",
    ];
    for command in valid {
        assert_eq!(check(&words(command)), Ok(()), "{command}");
    }
}

#[test]
fn code_spans_may_continue_on_the_next_line() {
    assert_eq!(spans("a `b` c `d\ne`\n\nf `g`"), ["b", "d e", "g"]);
}
