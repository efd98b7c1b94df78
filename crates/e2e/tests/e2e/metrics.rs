//! Metrics of the manager: their values, their number, and their documentation.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    management_cluster::ManagementCluster,
    manager::Manager,
    wait::{eventually, eventually_within},
    world::{TestSlot, World},
};
use chandler_sandbox::apply;
use futures::{StreamExt as _, stream};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

const FEW: usize = 5;
const MANY: usize = 200;

fn cluster(number: usize) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": format!("fleet-member-{number}"), "namespace": "default", "labels": {"fleet": "all"}},
        "spec": {},
    })
}

fn placement() -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": "fleet-wide", "namespace": "default"},
        "spec": {
            "clusterSelector": {"matchLabels": {"fleet": "all"}}, "chartName": "hello", "version": "1.0.0",
            "repoURL": "https://charts.example", "releaseName": "fleet-release",
            "valuesTemplate": "cluster: {{ .Cluster.metadata.name }}",
        },
    })
}

async fn create_clusters(management: &ManagementCluster, clusters: std::ops::Range<usize>) {
    stream::iter(clusters.map(cluster))
        .for_each_concurrent(8, |object| {
            let client = management.client.clone();
            async move { apply::apply(&client, &object).await.unwrap() }
        })
        .await;
}

/// Waits until the release objects of all clusters have conditions and are counted. Returns the metrics.
async fn wait_counted(
    management: &ManagementCluster,
    manager: &Manager,
    clusters: usize,
) -> BTreeMap<String, f64> {
    let releases: Api<HelmReleaseProxy> = Api::namespaced(management.client.clone(), "default");
    let has_conditions =
        |release: &HelmReleaseProxy| release.status.as_ref().is_some_and(|s| !s.conditions.is_empty());
    eventually_within(
        Duration::from_mins(3),
        "every cluster has a release object with conditions",
        || async {
            let all = releases.list(&ListParams::default()).await.unwrap().items;
            tokio::time::sleep(Duration::from_secs(1)).await;
            (all.len() == clusters && all.iter().all(has_conditions)).then_some(())
        },
    )
    .await;
    eventually("all release objects are counted", || async {
        let metrics = manager.metrics().await;
        let waiting = "chandler_releases{kind=\"HelmReleaseProxy\",state=\"Waiting\"}";
        (metrics[waiting].to_string() == clusters.to_string()).then_some(metrics)
    })
    .await
}

#[tokio::test]
async fn the_number_of_metric_series_does_not_grow_with_the_fleet() {
    let _slot = TestSlot::exclusive().await;
    let management = ManagementCluster::new("series").await;
    apply::apply(&management.client, &placement()).await.unwrap();
    create_clusters(&management, 0..FEW).await;
    let manager = Manager::from_process(management.start_manager());
    let few: BTreeSet<_> = wait_counted(&management, &manager, FEW).await.into_keys().collect();
    create_clusters(&management, FEW..MANY).await;
    let many: BTreeSet<_> = wait_counted(&management, &manager, MANY).await.into_keys().collect();

    let new: Vec<_> = many.difference(&few).collect();
    // New results of requests may add series. No series contains the name of an object.
    assert!(new.len() <= 5 && new.iter().all(|series| series.contains("_requests_total")), "{new:#?}");
    assert!(few.len() > 50 && few.len() < 400, "{}", few.len());
    for series in &many {
        for name in ["fleet-member", "fleet-wide", "fleet-release", "\"default\"", "charts.example"] {
            assert!(!series.contains(name), "{series} contains a name");
        }
    }
    manager.stop().await;
}

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
