//! The log level changes while the manager runs, and the package tool follows.

use std::process::Command;

use chandler_e2e::{manager::Manager, programs, wait::eventually, world::World};
use serde_json::json;

fn log_level(world: &World, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(programs::chandler());
    let output =
        command.arg("log-level").args(arguments).arg("--store").arg(world.dir.join("store")).output();
    let output = output.unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap().trim().to_owned())
}

fn debug_lines(manager: &Manager, of: &str) -> usize {
    let logs = manager.logs();
    logs.lines().filter(|line| line.contains("\"level\":\"DEBUG\"") && line.contains(of)).count()
}

#[tokio::test]
async fn the_level_changes_while_the_manager_runs_and_the_tool_follows() {
    let world = World::new("log-level").await;
    world.cluster("alpha").await;
    let (found, told) = log_level(&world, &[]);
    assert!(!found && told.contains("no manager is listening"), "{told}");

    let manager = world.manager_with(&["--log-level", "info"]);
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    assert_eq!(log_level(&world, &[]), (true, "info".to_owned()));
    assert_eq!(debug_lines(&manager, ""), 0, "nothing but what info tells");

    let (done, told) = log_level(&world, &["loud"]);
    assert!(!done && told.contains("invalid log level `loud`"), "{told}");
    assert!(log_level(&world, &["info,chandler_tool=debug"]).0);
    assert_eq!(log_level(&world, &[]), (true, "info,chandler_tool=debug".to_owned()));
    world.change("hello", json!({"valuesTemplate": "greeting: moin"})).await;
    world.ready("hello", "alpha", 2).await;
    eventually("the running tool tells its steps", || async {
        (debug_lines(&manager, "chandler_tool::driver") > 0).then_some(())
    })
    .await;

    assert_eq!(log_level(&world, &["info"]), (true, "info".to_owned()));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let before = debug_lines(&manager, "");
    world.change("hello", json!({"valuesTemplate": "greeting: servus"})).await;
    world.ready("hello", "alpha", 3).await;
    assert_eq!(debug_lines(&manager, ""), before, "as quiet as before");

    manager.kill().await;
    let manager = world.manager();
    eventually("the next manager takes over what a killed one has left", || async {
        log_level(&world, &[]).0.then_some(())
    })
    .await;
    manager.stop().await;
}
