//! kill -9 at any moment: the next start converges.

use std::time::Duration;

use chandler_e2e::{
    manager::Manager,
    wait::eventually,
    world::{World, config_value},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

fn kill(pid: u32) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

async fn driver(manager: &Manager) -> u32 {
    eventually("the driver runs", || async { manager.drivers().first().copied() }).await
}

pub async fn pending(world: &World, plane: &chandler_sandbox::plane::Plane, status: &str) {
    eventually(&format!("the release is {status}"), || async {
        let list = world.helm(plane, &["list", "--all-namespaces"]);
        (list.as_array()?.first()?["status"] == status).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_manager_is_killed_in_the_middle_of_an_install_and_of_an_upgrade() {
    let world = World::new("crash").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("slow", "slow", json!({"valuesTemplate": "hold: true"})).await;
    pending(&world, &alpha, "pending-install").await;
    let orphan = driver(&manager).await;
    manager.kill().await;
    eventually("the driver ends with the manager", || async {
        (!std::path::Path::new(&format!("/proc/{orphan}")).exists()).then_some(())
    })
    .await;

    world.change("slow", json!({"valuesTemplate": "hold: false"})).await;
    let manager = world.manager();
    let first = world.ready_at_any_revision("slow", "alpha").await;
    assert_eq!(config_value(&alpha, "slow", "hold").await.as_deref(), Some("false"));

    world.change("slow", json!({"valuesTemplate": "hold: true"})).await;
    pending(&world, &alpha, "pending-upgrade").await;
    manager.kill().await;
    world.change("slow", json!({"valuesTemplate": "hold: false\nagain: true"})).await;
    let manager = world.manager();
    let second = world.ready_at_any_revision("slow", "alpha").await;
    assert!(second > first);
    world.delete("slow").await;
    world.gone("slow").await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    manager.stop().await;
}

#[tokio::test]
async fn the_driver_is_killed_in_the_middle_of_an_upgrade() {
    let world = World::new("driver").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("slow", "slow", json!({"valuesTemplate": "hold: false"})).await;
    world.ready("slow", "alpha", 1).await;
    world.change("slow", json!({"valuesTemplate": "hold: true"})).await;
    pending(&world, &alpha, "pending-upgrade").await;
    kill(driver(&manager).await);
    world
        .status("slow", "alpha", "told that the tool broke off", |status| {
            status.last_failure.as_ref().is_some_and(|failure| failure.category == "ToolUnavailable")
        })
        .await;
    world.change("slow", json!({"valuesTemplate": "hold: false\nagain: true"})).await;
    world.ready_at_any_revision("slow", "alpha").await;
    manager.stop().await;
}

#[tokio::test]
async fn deleting_stops_a_running_operation_and_removes_what_it_left() {
    let world = World::new("cancel").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("slow", "slow", json!({"valuesTemplate": "hold: true"})).await;
    pending(&world, &alpha, "pending-install").await;
    world.delete("slow").await;
    tokio::time::timeout(Duration::from_secs(30), world.gone("slow")).await.unwrap();
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    manager.stop().await;
}
