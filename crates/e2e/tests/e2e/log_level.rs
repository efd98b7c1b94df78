//! `chandler log-level` changes the log level of the running manager and of its package tool.

use std::process::Command;

use chandler_e2e::{manager::Manager, programs, wait::eventually, world::World};
use serde_json::json;

/// Runs `chandler log-level`. Returns whether it succeeded, and its stdout or stderr.
fn log_level(world: &World, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(programs::chandler());
    let output =
        command.arg("log-level").args(arguments).arg("--store").arg(world.dir.join("store")).output();
    let output = output.unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap().trim().to_owned())
}

fn count_debug_lines(manager: &Manager, text: &str) -> usize {
    let logs = manager.logs();
    logs.lines().filter(|line| line.contains("\"level\":\"DEBUG\"") && line.contains(text)).count()
}

#[tokio::test]
async fn the_log_level_of_manager_and_tool_changes_at_runtime() {
    let world = World::new("log-level").await;
    world.create_cluster("alpha").await;
    let (success, output) = log_level(&world, &[]);
    assert!(!success && output.contains("no manager is listening"), "{output}");

    let manager = world.start_manager_with(&["--log-level", "info"]);
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(log_level(&world, &[]), (true, "info".to_owned()));
    assert_eq!(count_debug_lines(&manager, ""), 0, "no line below level info");

    let (success, output) = log_level(&world, &["loud"]);
    assert!(!success && output.contains("invalid log level `loud`"), "{output}");
    assert!(log_level(&world, &["info,chandler_tool=debug"]).0);
    assert_eq!(log_level(&world, &[]), (true, "info,chandler_tool=debug".to_owned()));
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: moin"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    eventually("the running tool logs at level debug", || async {
        (count_debug_lines(&manager, "chandler_tool::driver") > 0).then_some(())
    })
    .await;

    assert_eq!(log_level(&world, &["info"]), (true, "info".to_owned()));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let before = count_debug_lines(&manager, "");
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: servus"})).await;
    world.wait_ready("hello", "alpha", 3).await;
    assert_eq!(count_debug_lines(&manager, ""), before, "no line below level info is added");

    manager.kill().await;
    let manager = world.start_manager();
    eventually("the next manager replaces the socket of the killed one", || async {
        log_level(&world, &[]).0.then_some(())
    })
    .await;
    manager.stop().await;
}
