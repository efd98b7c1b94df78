//! Runs `chandler` as a user of the management cluster.

use std::process::{Command, Output};

use crate::{programs, world::World};

/// Runs a command without blocking the servers of the test.
async fn run(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(programs::chandler());
    command.args(arguments).args(["--namespace", &world.namespace]);
    command.env("KUBECONFIG", world.sandbox.management().kubeconfig_path());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Runs a command that must succeed. Returns its stdout.
pub async fn run_ok(world: &World, arguments: &[&str]) -> String {
    let output = run(world, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with exit code 1. Returns its stderr.
pub async fn run_err(world: &World, arguments: &[&str]) -> String {
    let output = run(world, arguments).await;
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}
