//! API servers of workload clusters that send responses without an end, or lead Chandler to other servers.

use std::{net::Ipv4Addr, time::Duration};

use chandler_e2e::{manager::Manager, self_hosted::SelfHosted, tenant::Tenant};
use chandler_sandbox::{
    hostile::api_server::{Attack, HostileServer, INTERNAL_SECRET, InternalServer},
    testing,
};
use serde_json::json;

/// The usual time is a few seconds. The rest is for a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// What the manager and each of its drivers may take at most, in KiB.
const MAX_MEMORY: u64 = 700 << 10;

/// Returns the largest resident memory that a process has had, in KiB.
fn peak_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// Starts the attacks as clusters of a tenant. Each entry: the name of the cluster, how it attacks, the condition of its
/// release, and a part of the message.
async fn attack(tenant: &Tenant, name: &str, attacks: &[(&str, Attack, &str, &str)]) -> Vec<HostileServer> {
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
    let mallory = Tenant::new(&test, "mallory").await;
    let attacks = [
        ("lists", Attack::EndlessLists, "ClusterAvailable", "a response has more than 64 MiB"),
        ("errors", Attack::EndlessErrors, "ClusterAvailable", "answered 500: the response is not a status"),
        ("events", Attack::EndlessEvents, "ClusterAvailable", "an event of a watch has more than 16 MiB"),
        ("discovery", Attack::EndlessDiscovery, "Ready", "has more than 16 MiB, which is not read"),
    ];
    let servers = attack(&mallory, "endless-servers", &attacks).await;
    let manager = Manager::from_process(test.management.start_manager());
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    tokio::time::timeout(READY_WITHIN, test.wait_ready("hello", 1)).await.expect("another tenant waits");
    for (cluster, _, condition, message) in &attacks {
        mallory.wait_refused("hello", cluster, condition, message).await;
    }
    for process in std::iter::once(manager.pid()).chain(manager.driver_pids()) {
        let peak = peak_memory(process);
        assert!(peak < MAX_MEMORY, "process {process} has taken {peak} KiB");
    }
    drop(servers);
    manager.stop().await;
}

#[tokio::test]
async fn redirects_are_not_followed_and_nothing_of_other_servers_is_reported() {
    let test = SelfHosted::new("redirects").await;
    let mallory = Tenant::new(&test, "mallory").await;
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
    ];
    let servers = attack(&mallory, "redirecting-servers", &attacks).await;
    let manager = Manager::from_process(test.management.start_manager());
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    tokio::time::timeout(READY_WITHIN, test.wait_ready("hello", 1)).await.expect("another tenant waits");
    for (cluster, _, condition, message) in &attacks {
        mallory.wait_refused("hello", cluster, condition, message).await;
    }
    assert_eq!(internal.connections(), 0, "a redirect was followed");
    assert!(!mallory.statuses().await.contains(INTERNAL_SECRET));
    drop(servers);
    manager.stop().await;
}
