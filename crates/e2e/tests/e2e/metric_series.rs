//! The number of metric series in a large fleet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    management_cluster::ManagementCluster,
    manager::Manager,
    wait::{eventually, eventually_within},
    world::TestSlot,
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
    let _slot = TestSlot::shared().await;
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
