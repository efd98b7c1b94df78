//! Leader election: only one manager is active at a time.

use chandler_e2e::{manager::Manager, wait::eventually, world::World};
use chandler_sandbox::requests::AuditEntry;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// A Lease that does not expire during a test: a takeover shows that it was released.
const LONG_LEASE_SECONDS: u32 = 600;

async fn wait_leading(manager: &Manager) {
    eventually("the manager leads", || async { is_leading(manager).then_some(()) }).await;
}

async fn wait_standby(manager: &Manager) {
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
async fn wait_ended(manager: &Manager) {
    eventually("the manager ends", || async { (!manager.is_running()).then_some(()) }).await;
    assert!(manager.logs().contains("leadership was lost"), "{}", manager.logs());
}

async fn wait_ready(manager: &Manager) {
    eventually("the manager is ready", || async {
        manager.get("/readyz").await.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
}

fn signal(manager: &Manager, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(manager.pid()).unwrap()).unwrap(), signal).unwrap();
}

fn is_leading(manager: &Manager) -> bool {
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
    wait_ready(&first).await;
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
    wait_ready(&second).await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(world.history(&alpha, "hello").len(), 2, "each change adds one revision");

    // An administrator releases it: the leader ends, although nothing is wrong with it.
    let third = start_with_long_lease(&world);
    wait_standby(&third).await;
    second.wait_idle().await;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "chandler-system");
    let released = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
    let name = format!("chandler-leader-{}", world.namespace);
    leases.patch(&name, &PatchParams::default(), &released).await.unwrap();
    wait_ended(&second).await;
    wait_leading(&third).await;
    wait_ready(&third).await;
    third.stop().await;
    let holder = leases.get(&name).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.unwrap_or_default(), "", "a manager that is stopped releases the Lease");
}

#[tokio::test]
async fn a_leader_whose_process_was_stopped_ends_when_it_continues() {
    let world = World::new("stopped").await;
    let arguments = ["--lease-renew-deadline-seconds", "4", "--lease-retry-seconds", "2"];
    let start = || Manager::start(&world, 6, &arguments);
    let first = start();
    wait_leading(&first).await;
    let second = start();
    wait_standby(&second).await;
    signal(&first, Signal::STOP);
    wait_leading(&second).await;
    signal(&first, Signal::CONT);
    wait_ended(&first).await;
    wait_ready(&second).await;
    assert!(second.is_running());
    second.stop().await;
}

/// The driver of a manager that is stopped goes on until the Lease ends, and not longer: then the successor works on the same
/// release.
#[tokio::test]
async fn a_stopped_leader_and_its_driver_never_disturb_the_successor() {
    let world = World::new("fenced").await;
    let alpha = world.create_cluster("alpha").await;
    let times = ["--lease-renew-deadline-seconds", "4", "--lease-retry-seconds", "2"];
    let start = || Manager::start(&world, 6, &times);
    let first = start();
    wait_leading(&first).await;
    // The hook does not end. Without a limit, the first driver would write this failure after 30 seconds.
    let options = json!({"timeout": "30s"});
    world.apply_placement("slow", "slow", json!({"valuesTemplate": "hold: true", "options": options})).await;
    crate::crash::wait_helm_status(&world, &alpha, "pending-install").await;
    let second = start();
    wait_standby(&second).await;
    let mut audit = alpha.audit_log();
    signal(&first, Signal::STOP);
    wait_leading(&second).await;
    let record = |revision: u32| format!("sh.helm.release.v1.slow.v{revision}");
    let mut entries = Vec::new();
    let created = eventually("the successor makes a revision of its own", || {
        entries.extend(audit.read().unwrap().into_iter().filter(AuditEntry::is_write));
        let second = entries.iter().find(|entry| entry.uri.contains("/secrets") && entry.verb == "create");
        std::future::ready(second.map(|entry| entry.received))
    })
    .await;
    world
        .wait_status("slow", "alpha", "failed at revision 2", |status| {
            status.revision == Some(2) && status.last_failure.is_some()
        })
        .await;
    entries.extend(audit.read().unwrap().into_iter().filter(AuditEntry::is_write));
    let late: Vec<_> =
        entries.iter().filter(|entry| entry.name == record(1) && entry.received > created).collect();
    assert!(late.is_empty(), "the first driver still wrote: {late:#?}");
    signal(&first, Signal::CONT);
    wait_ended(&first).await;
    second.stop().await;
}
