//! API servers of workload clusters that send responses without an end, or lead Chandler to other servers.

use std::{net::Ipv4Addr, time::Duration};

use chandler_e2e::{
    manager::{Manager, peak_memory},
    self_hosted::SelfHosted,
    tenant::Tenant,
    wait::eventually,
};
use chandler_sandbox::{
    hostile::api_server::{Attack, HostileServer, INTERNAL_SECRET, InternalServer},
    testing,
};
use serde_json::json;

/// The usual time is a few seconds. The rest is for a busy machine. Two lists in a row, each given up after 21 s, of which the first
/// began at least 5 s before, take longer.
const READY_WITHIN: Duration = Duration::from_secs(35);
/// What the manager and each of its drivers may take at most, in KiB.
const MAX_MEMORY: u64 = 700 << 10;
/// So many clusters with lists of 16 MiB each that they would take 320 MiB.
const HOSTILE: usize = 20;
/// The message about what is not a list or an event.
const UNREADABLE: &str = "answered something else than the objects that were requested";

/// Fails the test if the manager, or a driver that runs now, has taken too much memory.
fn assert_memory(manager: &Manager) {
    let own = peak_memory(manager.pid()).expect("the manager runs");
    assert!(own < MAX_MEMORY, "the manager has taken {own} KiB");
    for driver in manager.driver_pids() {
        let peak = peak_memory(driver).unwrap_or_default();
        assert!(peak < MAX_MEMORY, "driver {driver} has taken {peak} KiB");
    }
}

/// Starts the attacks as clusters of a tenant. Each entry: the name of the cluster, how it attacks, the condition of its
/// release, and a part of the message.
async fn attack(
    tenant: &Tenant<'_>,
    name: &str,
    attacks: &[(&str, Attack, &str, &str)],
) -> Vec<HostileServer> {
    let dir = testing::fresh_dir(name).await.unwrap();
    let mut servers = Vec::new();
    for (cluster, attack, ..) in attacks {
        let server = HostileServer::start(&dir.join(cluster), attack.clone()).await.unwrap();
        tenant.create_cluster(cluster, &server.kubeconfig()).await;
        servers.push(server);
    }
    tenant.apply_placement("hello", &json!({})).await;
    servers
}

#[tokio::test]
async fn responses_without_an_end_are_not_read_and_harm_no_other_tenant() {
    let test = SelfHosted::new("endless").await;
    let mallory = Tenant::without_clusters(&test, "mallory").await;
    let attacks = [
        ("lists", Attack::EndlessLists, "ClusterAvailable", "a response has more than 16 MiB"),
        ("errors", Attack::EndlessErrors, "ClusterAvailable", "answered 500: the response is not a status"),
        ("events", Attack::EndlessEvents, "ClusterAvailable", "an event of a watch has more than 4 MiB"),
        ("objects", Attack::ManyObjects, "ClusterAvailable", UNREADABLE),
        ("version", Attack::LongVersion, "ClusterAvailable", UNREADABLE),
        ("fields", Attack::ManyFields, "ClusterAvailable", "an event of a watch has more than 4 MiB"),
        ("discovery", Attack::EndlessDiscovery, "Ready", "has more than 16 MiB, which is not read"),
    ];
    let servers = attack(&mallory, "endless-servers", &attacks).await;
    let manager = Manager::from_process(test.management.start_manager());
    let ready = tokio::time::timeout(READY_WITHIN, manager.wait_ready()).await;
    ready.expect("the manager waits for clusters of a tenant");
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    tokio::time::timeout(READY_WITHIN, test.wait_ready("hello", 1)).await.expect("another tenant waits");
    for (cluster, _, condition, message) in &attacks {
        // Drivers end after a while, so that their memory is read while they are attacked.
        mallory.wait_release_refused("hello", cluster, condition, message).await;
        assert_memory(&manager);
    }
    drop(servers);
    manager.stop().await;
}

#[tokio::test]
async fn large_responses_of_some_clusters_do_not_affect_others_of_their_namespace() {
    let test = SelfHosted::new("unfinished").await;
    let mallory = Tenant::without_clusters(&test, "mallory").await;
    let dir = testing::fresh_dir("unfinished-server").await.unwrap();
    let server = HostileServer::start(&dir, Attack::UnfinishedLists).await.unwrap();
    for number in 0..HOSTILE {
        mallory.create_cluster(&format!("hostile-{number}"), &server.kubeconfig()).await;
    }
    mallory.apply_placement("hello", &json!({"releaseName": "of-mallory"})).await;
    let manager = Manager::from_process(test.management.start_manager());
    let ready = tokio::time::timeout(READY_WITHIN, manager.wait_ready()).await;
    ready.expect("the manager waits for clusters of a tenant");
    // Each list takes 21 s, until it is given up.
    tokio::time::sleep(Duration::from_secs(5)).await;
    mallory.create_cluster("innocent", test.management.plane.kubeconfig()).await;
    tokio::time::timeout(READY_WITHIN, mallory.wait_release_ready("hello", "innocent"))
        .await
        .expect("another cluster of the namespace waits");
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    tokio::time::timeout(READY_WITHIN, test.wait_ready("hello", 1)).await.expect("another tenant waits");
    mallory.wait_release_refused("hello", "hostile-0", "ClusterAvailable", "").await;
    let logs = manager.logs();
    let unavailable = |line: &&str| line.contains("mallory/innocent") && line.contains("not available");
    assert_eq!(logs.lines().find(unavailable), None, "it was always available");
    assert_memory(&manager);
    drop(server);
    manager.stop().await;
}

#[tokio::test]
async fn redirects_are_not_followed_and_nothing_of_other_servers_is_reported() {
    let test = SelfHosted::new("redirects").await;
    let mallory = Tenant::without_clusters(&test, "mallory").await;
    // The manager may connect to this address, but not because an API server redirects it there.
    let internal = InternalServer::start(Ipv4Addr::LOCALHOST).await.unwrap();
    let attacks = [
        (
            "manager",
            Attack::RedirectManager(internal.address()),
            "ClusterAvailable",
            "redirects to another address (HTTP 307)",
        ),
        (
            "driver",
            Attack::RedirectDriver(internal.address()),
            "Ready",
            "redirects to another address (HTTP 307)",
        ),
        // What another server answers is not repeated.
        ("event", Attack::ErrorEvent, "Ready", ""),
        ("text", Attack::Text, "ClusterAvailable", UNREADABLE),
    ];
    let servers = attack(&mallory, "redirecting-servers", &attacks).await;
    let manager = Manager::from_process(test.management.start_manager());
    let ready = tokio::time::timeout(READY_WITHIN, manager.wait_ready()).await;
    ready.expect("the manager waits for clusters of a tenant");
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    tokio::time::timeout(READY_WITHIN, test.wait_ready("hello", 1)).await.expect("another tenant waits");
    for (cluster, _, condition, message) in &attacks {
        mallory.wait_release_refused("hello", cluster, condition, message).await;
    }
    assert_eq!(internal.connections(), 0, "a redirect was followed");
    let is_about_event = |line: &str| line.contains("mallory/event") && line.contains(UNREADABLE);
    eventually("the event is read", || async { manager.logs().lines().any(is_about_event).then_some(()) })
        .await;
    let logs = manager.logs();
    assert!(!mallory.statuses().await.contains(INTERNAL_SECRET) && !logs.contains(INTERNAL_SECRET));
    drop(servers);
    manager.stop().await;
}
