//! Addresses that a tenant names, and that Chandler must not connect to.

use std::{net::Ipv4Addr, time::Duration};

use chandler_e2e::{manager::Manager, self_hosted::SelfHosted, tenant::Tenant};
use chandler_sandbox::hostile::api_server::{InternalServer, kubeconfig};
use serde_json::json;

/// The usual time is a few seconds. The rest is for a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(40);
/// An address of this machine that is not allowed, unlike 127.0.0.1.
const REFUSED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[tokio::test]
async fn api_servers_proxies_and_sources_at_refused_addresses_are_not_connected_to() {
    let test = SelfHosted::new("refused").await;
    let mallory = Tenant::without_clusters(&test, "mallory").await;
    let internal = InternalServer::start(REFUSED).await.unwrap();
    let port = internal.address().port();
    let proxy = format!("server: 'https://api.example:6443', proxy-url: 'http://{REFUSED}:{port}'");
    let clusters = [
        ("loopback", format!("server: 'https://{REFUSED}:{port}'"), "a loopback address"),
        ("mapped", format!("server: 'https://[::ffff:{REFUSED}]:{port}'"), "a loopback address"),
        ("metadata", "server: 'https://169.254.169.254'".to_owned(), "a link-local address"),
        ("link-local", "server: 'https://[fe80::1]'".to_owned(), "a link-local address"),
        ("ipv6-metadata", "server: 'https://[fd00:ec2::254]'".to_owned(), "a cloud metadata address"),
        ("unspecified", format!("server: 'https://0.0.0.0:{port}'"), "an unspecified address"),
        ("proxy", proxy, "a loopback address"),
    ];
    for (name, cluster, _) in &clusters {
        mallory.create_cluster(name, &kubeconfig(cluster)).await;
    }
    mallory.apply_placement("hello", &json!({})).await;
    let manager = test.management.start_manager_with(&["--allow-proxy-url", "http://127.0.0.2"]);
    let manager = Manager::from_process(manager);
    manager.wait_ready().await;
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    tokio::time::timeout(READY_WITHIN, test.wait_ready("hello", 1)).await.expect("another tenant waits");
    for (name, _, message) in &clusters {
        let message = mallory.wait_release_refused("hello", name, "ClusterAvailable", message).await;
        assert!(message.contains("--allow-address"), "{message}");
    }
    // Her placement selects all clusters, but those of her own namespace only.
    let statuses = mallory.statuses().await;
    assert!(statuses.contains("\"loopback\"") && !statuses.contains("\"alpha\""), "{statuses}");
    // A source of a tenant whose cluster can be reached.
    let source = json!({"repoURL": format!("https://{REFUSED}:{port}")});
    test.apply_placement("source", "alpha", "hello", &source).await;
    let message = test.wait_condition("source", "Ready", "False", "a loopback address").await;
    assert!(message.contains("--allow-source-address"), "{message}");
    assert_eq!(internal.connections(), 0, "a refused address was connected to");
    manager.stop().await;
}

/// Fails the test if a driver does not have the policy of the manager: the manager refuses first, so nothing else would show it.
fn assert_drivers_are_strict(manager: &Manager) {
    let read =
        |pid: u32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let arguments = |pid: &u32| read(*pid, "cmdline");
    let drivers = manager.driver_pids().into_iter().filter(|pid| {
        let arguments = arguments(pid);
        arguments.contains("--socket") && !arguments.contains("--service")
    });
    let policies: Vec<String> = drivers.map(|pid| read(pid, "environ")).collect();
    assert!(!policies.is_empty(), "no driver runs");
    for policy in policies {
        assert!(policy.contains(r#""refusePrivate":true,"refuseUnverified":true"#), "{policy}");
    }
}

#[tokio::test]
async fn private_networks_and_unverified_servers_are_refused_if_the_installation_is_strict() {
    let test = SelfHosted::new("strict").await;
    let mallory = Tenant::without_clusters(&test, "mallory").await;
    let clusters = [
        ("private", "server: 'https://10.96.0.1'", "10.96.0.1, a private address"),
        ("shared", "server: 'https://100.64.0.1'", "100.64.0.1, a private address"),
        ("unique-local", "server: 'https://[fd12::1]:6443'", "fd12::1, a private address"),
        // From a range for documentation, so that nothing answers.
        (
            "unverified",
            "server: 'https://192.0.2.1', insecure-skip-tls-verify: true",
            "would not be verified",
        ),
        (
            "unverified-allowed",
            "server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true",
            "would not be verified",
        ),
    ];
    for (name, cluster, _) in &clusters {
        mallory.create_cluster(name, &kubeconfig(cluster)).await;
    }
    mallory.apply_placement("hello", &json!({})).await;
    let strict = ["--refuse-private-addresses", "--refuse-unverified-tls"];
    let manager = Manager::from_process(test.management.start_manager_with(&strict));
    manager.wait_ready().await;
    // Its address is allowed explicitly.
    test.create_cluster("alpha", &test.kubeconfig(), &json!({})).await;
    test.apply_placement("hello", "alpha", "hello", &json!({})).await;
    tokio::time::timeout(READY_WITHIN, test.wait_ready("hello", 1)).await.expect("another tenant waits");
    assert_drivers_are_strict(&manager);
    for (name, _, message) in &clusters {
        mallory.wait_release_refused("hello", name, "ClusterAvailable", message).await;
    }
    let source = json!({"repoURL": "https://192.0.2.1", "tlsConfig": {"insecureSkipTLSVerify": true}});
    test.apply_placement("source", "alpha", "hello", &source).await;
    test.wait_condition("source", "Ready", "False", "would not be verified").await;
    manager.stop().await;
}
