//! The hostile inputs that cost little are refused, each for its reason and within limits of time and memory. `cargo xtask
//! hostile` runs all. Some need the Helm driver, beside the program or at `CHANDLER_TOOL`.
#![allow(clippy::unwrap_used, reason = "tests report failures by panicking")]

use std::{collections::BTreeSet, process::Command};

use chandler_hostile::{INPUTS, Needs};

#[test]
fn cheap_inputs_are_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_chandler-hostile")).args(["--cheap", "--reasons"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    for input in INPUTS.iter().filter(|input| input.needs != Needs::Time) {
        let beginning = format!("{}: ", input.id());
        assert!(printed.lines().any(|line| line.starts_with(&beginning)), "{beginning}{printed}");
    }
}

#[test]
fn inputs_have_names_of_their_own_and_cover_every_kind() {
    assert!(INPUTS.len() >= 40);
    assert!(INPUTS.iter().all(|input| !input.because.is_empty()));
    let ids: BTreeSet<_> = INPUTS.iter().map(chandler_hostile::Input::id).collect();
    assert_eq!(ids.len(), INPUTS.len());
    let kinds: BTreeSet<_> = INPUTS.iter().map(|input| input.kind).collect();
    let expected = [
        "API server",
        "archive",
        "chart",
        "expression",
        "graph",
        "hook",
        "index",
        "kubeconfig",
        "manifest",
        "range",
        "redirect",
        "schema",
        "signature",
        "template",
        "values",
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_documentation_lists_every_input() {
    let document = include_str!("../../../docs/security.md");
    for input in INPUTS.iter() {
        let row = format!("| {} | {} |", input.id(), input.what);
        assert!(document.contains(&row), "{row} is missing: run `cargo xtask hostile --write`");
    }
}
