//! After SIGKILL at any moment, the next start converges.

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

async fn wait_driver(manager: &Manager) -> u32 {
    eventually("the driver runs", || async { manager.tool_pids().first().copied() }).await
}

/// Waits until the first release on the cluster has this status.
pub async fn wait_helm_status(world: &World, plane: &chandler_sandbox::plane::Plane, status: &str) {
    eventually(&format!("the release is {status}"), || async {
        let list = world.helm(plane, &["list", "--all-namespaces"]);
        (list.as_array()?.first()?["status"] == status).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_manager_killed_during_an_install_or_an_upgrade_recovers() {
    let world = World::new("crash").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("slow", "slow", json!({"valuesTemplate": "hold: true"})).await;
    wait_helm_status(&world, &alpha, "pending-install").await;
    let driver = wait_driver(&manager).await;
    manager.kill().await;
    eventually("the driver exits with the manager", || async {
        (!std::path::Path::new(&format!("/proc/{driver}")).exists()).then_some(())
    })
    .await;

    world.patch_placement("slow", json!({"valuesTemplate": "hold: false"})).await;
    let manager = world.start_manager();
    let first = world.wait_ready_at_any_revision("slow", "alpha").await;
    assert_eq!(config_value(&alpha, "slow", "hold").await.as_deref(), Some("false"));

    world.patch_placement("slow", json!({"valuesTemplate": "hold: true"})).await;
    wait_helm_status(&world, &alpha, "pending-upgrade").await;
    manager.kill().await;
    world.patch_placement("slow", json!({"valuesTemplate": "hold: false\nagain: true"})).await;
    let manager = world.start_manager();
    let second = world.wait_ready_at_any_revision("slow", "alpha").await;
    assert!(second > first);
    world.delete_placement("slow").await;
    world.wait_deleted("slow").await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    manager.stop().await;
}

#[tokio::test]
async fn a_driver_killed_during_an_upgrade_is_recovered() {
    let world = World::new("driver").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("slow", "slow", json!({"valuesTemplate": "hold: false"})).await;
    world.wait_ready("slow", "alpha", 1).await;
    world.patch_placement("slow", json!({"valuesTemplate": "hold: true"})).await;
    wait_helm_status(&world, &alpha, "pending-upgrade").await;
    kill(wait_driver(&manager).await);
    world
        .wait_status("slow", "alpha", "failed because the tool ended", |status| {
            status.last_failure.as_ref().is_some_and(|failure| failure.category == "ToolCrashed")
        })
        .await;
    world.patch_placement("slow", json!({"valuesTemplate": "hold: false\nagain: true"})).await;
    world.wait_ready_at_any_revision("slow", "alpha").await;
    manager.stop().await;
}

#[tokio::test]
async fn deleting_a_placement_cancels_its_operation_and_uninstalls_the_release() {
    let world = World::new("cancel").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("slow", "slow", json!({"valuesTemplate": "hold: true"})).await;
    wait_helm_status(&world, &alpha, "pending-install").await;
    world.delete_placement("slow").await;
    // The operation would take ten minutes if it were not canceled.
    world.wait_deleted("slow").await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    manager.stop().await;
}
