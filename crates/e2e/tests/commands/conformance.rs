//! The Helm driver keeps the contract, and a tool that does not is found out.

use std::process::{Command, Output};

use chandler_e2e::programs;

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
