//! Leader election: only one manager is active at a time.

use std::time::Duration;

use chandler_e2e::{
    clock_shift::ShiftedClock, manager::Manager, signals::send_signal, wait::eventually, world::World,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rustix::process::Signal;
use serde_json::json;

/// A Lease that does not expire during a test: a takeover shows that it was released.
const LONG_LEASE_SECONDS: u32 = 600;

pub async fn wait_leading(manager: &Manager) {
    eventually("the manager leads", || async { is_leading(manager).then_some(()) }).await;
}

pub async fn wait_standby(manager: &Manager) {
    eventually("the manager waits for the Lease", || async {
        manager.logs().contains("\"another process leads; waiting\"").then_some(())
    })
    .await;
}

/// Starts a manager with a long Lease that it renews, or reads as a standby, every few seconds.
fn start_with_long_lease(world: &World) -> Manager {
    Manager::start(world, LONG_LEASE_SECONDS, &["--lease-retry-seconds", "2"])
}

/// Waits until the manager has ended by itself because it lost the Lease.
pub async fn wait_ended(manager: &Manager) {
    eventually("the manager ends", || async { (!manager.is_running()).then_some(()) }).await;
    assert!(manager.logs().contains("leadership was lost"), "{}", manager.logs());
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client.clone(), "chandler-system")
}

fn lease_name(world: &World) -> String {
    format!("chandler-leader-{}", world.namespace)
}

async fn lease(world: &World) -> Lease {
    leases(world).get(&lease_name(world)).await.unwrap()
}

/// Clears the holder of the Lease, as an administrator may do.
pub async fn release_lease(world: &World) {
    let released = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
    leases(world).patch(&lease_name(world), &PatchParams::default(), &released).await.unwrap();
}

pub fn is_leading(manager: &Manager) -> bool {
    manager.logs().contains("\"leading\"")
}

#[tokio::test]
async fn a_standby_takes_over_from_a_killed_or_stopped_leader() {
    let world = World::new("leader").await;
    let alpha = world.create_cluster("alpha").await;
    let first = world.start_manager();
    wait_leading(&first).await;
    let second = world.start_manager();
    wait_standby(&second).await;
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    assert!(!is_leading(&second), "two managers lead");

    first.kill().await;
    wait_leading(&second).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 2).await;

    let third = world.start_manager();
    wait_standby(&third).await;
    assert!(!is_leading(&third));
    second.stop().await;
    wait_leading(&third).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    world.wait_ready("hello", "alpha", 3).await;
    assert_eq!(world.history(&alpha, "hello").len(), 3, "each change adds one revision");
    third.stop().await;
}

#[tokio::test]
async fn a_standby_is_ready_and_takes_over_as_soon_as_the_leader_releases_the_lease() {
    let world = World::new("standby").await;
    let alpha = world.create_cluster("alpha").await;
    let first = start_with_long_lease(&world);
    wait_leading(&first).await;
    first.wait_ready().await;
    assert!(first.get("/readyz").await.ends_with("\r\n\r\nok\n"));
    let second = start_with_long_lease(&world);
    wait_standby(&second).await;
    let answer = second.get("/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("standby"), "{answer}");
    assert!(second.metrics().await["chandler_leader"].abs() < 0.5, "a standby is not the leader");
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;

    // SIGTERM, with no operation running.
    first.wait_idle().await;
    first.stop().await;
    wait_leading(&second).await;
    second.wait_ready().await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(world.history(&alpha, "hello").len(), 2, "each change adds one revision");

    // An administrator releases it: the leader ends, although nothing is wrong with it.
    let third = start_with_long_lease(&world);
    wait_standby(&third).await;
    second.wait_idle().await;
    release_lease(&world).await;
    wait_ended(&second).await;
    wait_leading(&third).await;
    third.wait_ready().await;
    third.stop().await;
    let holder = lease(&world).await.spec.unwrap().holder_identity;
    assert_eq!(holder.unwrap_or_default(), "", "a manager that is stopped releases the Lease");
}

#[tokio::test]
async fn a_leader_whose_process_was_stopped_ends_when_it_continues() {
    let world = World::new("stopped").await;
    let arguments = ["--lease-renew-deadline-seconds", "6", "--lease-retry-seconds", "2"];
    let start = || Manager::start(&world, 9, &arguments);
    let first = start();
    wait_leading(&first).await;
    let second = start();
    wait_standby(&second).await;
    send_signal(first.pid(), Signal::STOP);
    wait_leading(&second).await;
    send_signal(first.pid(), Signal::CONT);
    wait_ended(&first).await;
    second.wait_ready().await;
    assert!(second.is_running());
    second.stop().await;
}

/// The leader's wall clock jumps, then that of the standby, by an hour in both directions.
#[tokio::test]
async fn a_wall_clock_that_jumps_changes_no_leader() {
    let world = World::new("clock").await;
    let alpha = world.create_cluster("alpha").await;
    let clocks = ["leader", "standby"].map(|name| {
        let dir = world.dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        ShiftedClock::new(&dir)
    });
    let times = ["--lease-renew-deadline-seconds", "6", "--lease-retry-seconds", "2"];
    let start =
        |clock: &ShiftedClock| Manager::start_with_environment(&world, 9, &times, clock.environment());
    let leader = start(&clocks[0]);
    wait_leading(&leader).await;
    let standby = start(&clocks[1]);
    wait_standby(&standby).await;
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Hello"})).await;
    world.wait_ready("hello", "alpha", 1).await;

    let mut revision = 1;
    for clock in &clocks {
        for hour in [3600, -3600] {
            clock.set(hour);
            // Longer than a standby waits for a Lease that is not renewed.
            tokio::time::sleep(Duration::from_secs(13)).await;
            revision += 1;
            world.patch_placement("hello", json!({"valuesTemplate": format!("greeting: {revision}")})).await;
            world.wait_ready("hello", "alpha", revision).await;
            assert!(leader.is_running() && standby.is_running() && !is_leading(&standby), "{hour}");
        }
    }
    let lease = lease(&world).await;
    let renewed = lease.spec.unwrap().renew_time.unwrap().0;
    assert!(
        renewed < Timestamp::now() - SignedDuration::from_mins(50),
        "the shifted clock is used: {renewed}"
    );
    leader.stop().await;
    wait_leading(&standby).await;
    assert_eq!(world.history(&alpha, "hello").len(), 5, "each change adds one revision");
    standby.stop().await;
}
