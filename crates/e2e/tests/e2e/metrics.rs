//! Metrics of the manager: their values, their number, and their documentation.

use std::collections::BTreeSet;

use chandler_e2e::{manager::Manager, wait::eventually, world::World};
use serde_json::json;

#[tokio::test]
async fn an_install_is_counted_in_all_related_metrics() {
    let world = World::new("metrics").await;
    world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world
        .apply_placement("hello", "hello", json!({"valuesTemplate": "cluster: {{ .Cluster.metadata.name }}"}))
        .await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_condition("hello", "alpha", "Healthy", ("True", "Healthy")).await;
    manager.wait_idle().await;
    let metrics = manager.metrics().await;
    let exactly = [
        ("chandler_leader", 1.0),
        ("chandler_releases{kind=\"HelmReleaseProxy\",state=\"Ready\"}", 1.0),
        ("chandler_releases{kind=\"AddonRelease\",state=\"Ready\"}", 0.0),
        ("chandler_operations_total{kind=\"install\",outcome=\"success\"}", 1.0),
        ("chandler_operation_wait_seconds_count{kind=\"install\"}", 1.0),
        ("chandler_workload_clusters{state=\"connected\",category=\"\"}", 1.0),
        // The records of Helm and the four kinds of the release's objects.
        ("chandler_workload_requests_total{client=\"manager\",verb=\"watch\",result=\"success\"}", 5.0),
        // The Helm driver that describes itself, that of the namespace, and the template service.
        ("chandler_tool_starts_total", 3.0),
        ("chandler_queue_depth{kind=\"HelmReleaseProxy\"}", 0.0),
        ("chandler_cache_requests_total{cache=\"index\",result=\"miss\"}", 1.0),
        (concat!("chandler_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ];
    for (series, value) in exactly {
        assert_eq!(metrics.get(series), Some(&value), "{series} in {metrics:#?}");
    }
    let at_least_one = [
        "chandler_workload_requests_total{client=\"tool\",verb=\"patch\",result=\"success\"}",
        "chandler_management_requests_total{verb=\"watch\",result=\"success\"}",
        "chandler_cache_requests_total{cache=\"secret\",result=\"miss\"}",
        "chandler_queue_wait_seconds_count{kind=\"HelmReleaseProxy\"}",
        "chandler_reconcile_duration_seconds_count{kind=\"HelmChartProxy\"}",
        "chandler_tool_resident_bytes",
    ];
    for series in at_least_one {
        assert!(metrics.get(series).is_some_and(|value| *value >= 1.0), "{series} in {metrics:#?}");
    }
    let (head, healthy) = scrape(&manager).await;
    assert!(head.contains("content-type: application/openmetrics-text"), "{head}");

    world.apply_placement("absent", "absent", json!({})).await;
    world.wait_status("absent", "alpha", "failed", |status| status.last_failure.is_some()).await;
    let failing = eventually("the failure is counted", || async {
        let series = "chandler_releases_failing{kind=\"HelmReleaseProxy\",category=\"PackageNotFound\"} 1";
        Some(scrape(&manager).await.1).filter(|metrics| metrics.contains(series))
    })
    .await;
    manager.stop().await;
    assert_documented(&failing);
    assert_queries_work(&world, &healthy, None);
    assert_queries_work(&world, &failing, Some("ChandlerReleasesFailing"));
}

/// Returns the head and the body of the response of `/metrics`.
async fn scrape(manager: &Manager) -> (String, String) {
    let response = manager.get("/metrics").await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// docs/operations.md documents all metrics, and only existing ones.
fn assert_documented(served: &str) {
    let page = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let words = page.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let documented: BTreeSet<_> = words.filter(|word| word.starts_with("chandler_")).collect();
    let types = served.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names: BTreeSet<String> = types
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect();
    let undocumented: Vec<_> = names.iter().filter(|name| !documented.contains(name.as_str())).collect();
    assert!(undocumented.is_empty(), "docs/operations.md does not document {undocumented:?}");
    let log_targets = ["chandler_tool"];
    let unknown: Vec<_> =
        documented.iter().filter(|name| !names.contains(**name) && !log_targets.contains(name)).collect();
    assert!(unknown.is_empty(), "docs/operations.md documents {unknown:?}, which do not exist");
}

/// Runs the queries of the dashboard and the alerts with Prometheus on served metrics. Only the alert `firing` fires.
fn assert_queries_work(world: &World, served: &str, firing: Option<&str>) {
    let metrics = world.dir.join("metrics.txt");
    std::fs::write(&metrics, served).unwrap();
    let monitoring = root().join("deploy/monitoring");
    let mut command = std::process::Command::new("go");
    command.current_dir(root().join("tools/promcheck")).env("CGO_ENABLED", "0").args(["run", "."]);
    command.arg("--metrics").arg(metrics);
    command.arg("--dashboard").arg(monitoring.join("dashboard.json"));
    command.arg("--rules").arg(monitoring.join("alerts.yaml"));
    command.args(firing.map(|alert| format!("--firing={alert}")));
    let output = command.output().expect("Go is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
