//! Watch events caused by Chandler's own writes cause no work that grows with the fleet.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_e2e::{
    management_cluster::ManagementCluster, manager::Manager, wait::eventually, world::TestSlot,
};
use chandler_sandbox::apply;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const CLUSTERS: usize = 20;
/// Longer than the minimum interval between two status writes of a placement.
const IDLE_PERIOD: Duration = Duration::from_secs(3);

fn cluster(number: usize) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": format!("c{number}"), "namespace": "default", "labels": {"fleet": "all"}},
        "spec": {},
    })
}

fn placement() -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": "hello", "namespace": "default"},
        "spec": {
            "clusterSelector": {"matchLabels": {"fleet": "all"}}, "chartName": "hello", "version": "1.0.0",
            "repoURL": "https://charts.example", "releaseName": "hello",
            "valuesTemplate": "conditions: {{ .Cluster.status | toJson }}",
        },
    })
}

/// Metrics that an event may increase.
#[derive(Debug, PartialEq)]
struct Counts {
    /// Reconciles of placements.
    reconciles: f64,
    /// Reconciles of placements for all their clusters.
    all: f64,
    /// Reconciles of placements for some of their clusters.
    some: f64,
    /// Calls that evaluate templates.
    renders: f64,
}

impl Counts {
    async fn of(manager: &Manager) -> Self {
        let metrics = manager.metrics().await;
        let get = |series: &str| metrics.get(series).copied().unwrap_or_default();
        Self {
            reconciles: get("chandler_reconciles_total{kind=\"HelmChartProxy\"}"),
            all: get("chandler_placement_reconciles_total{kind=\"HelmChartProxy\",clusters=\"all\"}"),
            some: get("chandler_placement_reconciles_total{kind=\"HelmChartProxy\",clusters=\"some\"}"),
            renders: get("chandler_tool_calls_total{verb=\"render\"}"),
        }
    }

    /// Waits until the counts no longer change.
    async fn wait_idle(manager: &Manager) -> Self {
        eventually("the manager is idle", || async {
            let before = Self::of(manager).await;
            tokio::time::sleep(IDLE_PERIOD).await;
            let after = Self::of(manager).await;
            (before == after && before.reconciles >= 1.0).then_some(after)
        })
        .await
    }
}

#[tokio::test]
async fn chandlers_own_status_writes_reconcile_no_cluster_again() {
    let _slot = TestSlot::shared().await;
    let management = ManagementCluster::new("routing").await;
    for number in 0..CLUSTERS {
        apply::apply(&management.client, &cluster(number)).await.unwrap();
    }
    apply::apply(&management.client, &placement()).await.unwrap();
    let manager = Manager::from_process(management.start_manager());
    let releases: Api<HelmReleaseProxy> = Api::namespaced(management.client.clone(), "default");
    eventually("every cluster has its release object with a status", || async {
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        (all.len() == CLUSTERS && all.iter().all(|release| release.status.is_some())).then_some(())
    })
    .await;
    let before = Counts::wait_idle(&manager).await;

    // As the manager writes it: another number of ready clusters, the same conditions.
    let placements: Api<HelmChartProxy> = Api::namespaced(management.client.clone(), "default");
    let patch = Patch::Merge(json!({"status": {"readyClusters": "7/20"}}));
    placements.patch_status("hello", &PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(IDLE_PERIOD).await;
    assert_eq!(Counts::of(&manager).await, before, "the status of a placement");

    let release = releases.list(&ListParams::default()).await.unwrap().items.remove(0);
    let patch = Patch::Merge(json!({"status": {"revision": 7}}));
    releases.patch_status(&release.name_any(), &PatchParams::default(), &patch).await.unwrap();
    let counts = eventually("the placement is reconciled again", || async {
        let counts = Counts::of(&manager).await;
        (counts.reconciles > before.reconciles).then_some(counts)
    })
    .await;
    let counts = Counts { reconciles: before.reconciles, ..counts };
    assert_eq!(counts, before, "the status of a release reconciles no cluster");

    let before = Counts::wait_idle(&manager).await;
    write_conditions(&management, "c7", &["AddonsReady", "AddonsUpgradable"]).await;
    tokio::time::sleep(IDLE_PERIOD).await;
    assert_eq!(Counts::of(&manager).await, before, "Chandler's own conditions of a Cluster");

    write_conditions(&management, "c7", &["AddonsReady", "AddonsUpgradable", "Available"]).await;
    let after = eventually("a condition of another controller causes a render", || async {
        let counts = Counts::of(&manager).await;
        (counts.renders > before.renders).then_some(counts)
    })
    .await;
    let increase =
        BTreeMap::from([("all", after.all - before.all), ("renders", after.renders - before.renders)]);
    assert_eq!(increase, BTreeMap::from([("all", 0.0), ("renders", 1.0)]), "only for that cluster");

    let before = Counts::wait_idle(&manager).await;
    let annotated = json!({"metadata": {"annotations": {"zone": "harbour"}}});
    clusters(&management).patch("c7", &PatchParams::default(), &Patch::Merge(annotated)).await.unwrap();
    let after = eventually("the placement is reconciled for the cluster", || async {
        let counts = Counts::of(&manager).await;
        (counts.some > before.some).then_some(counts)
    })
    .await;
    let after = Counts { reconciles: before.reconciles, some: before.some, ..after };
    assert_eq!(after, before, "the template does not read annotations");
    manager.stop().await;
}

fn clusters(management: &ManagementCluster) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
    Api::namespaced_with(management.client.clone(), "default", &resource)
}

async fn write_conditions(management: &ManagementCluster, cluster: &str, types: &[&str]) {
    let condition = |type_: &&str| {
        json!({
            "type": type_, "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions: Vec<_> = types.iter().map(condition).collect();
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    clusters(management).patch_status(cluster, &PatchParams::default(), &patch).await.unwrap();
}
