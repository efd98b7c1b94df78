//! What Chandler writes itself comes back as events, and these cost nothing that grows with the fleet.

use std::{collections::BTreeMap, time::Duration};

use chandler_api::addons::{HelmChartProxy, HelmReleaseProxy};
use chandler_e2e::{bare::Bare, manager::Manager, wait::eventually, world::Turn};
use chandler_sandbox::apply;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const CLUSTERS: usize = 20;
/// Longer than the pause between two writes of a placement's counts.
const QUIET: Duration = Duration::from_secs(3);

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

/// The numbers that an event may raise.
#[derive(Debug, PartialEq)]
struct Counts {
    /// Reconciles of placements.
    reconciles: f64,
    /// Those that were about all clusters, and about some.
    all: f64,
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

    /// The counts once they stand still.
    async fn settled(manager: &Manager) -> Self {
        eventually("the manager has nothing to do", || async {
            let before = Self::of(manager).await;
            tokio::time::sleep(QUIET).await;
            let after = Self::of(manager).await;
            (before == after && before.reconciles >= 1.0).then_some(after)
        })
        .await
    }
}

#[tokio::test]
async fn status_writes_of_our_own_reconcile_no_cluster_again() {
    let _turn = Turn::alone().await;
    let bare = Bare::new("routing").await;
    for number in 0..CLUSTERS {
        apply::apply(&bare.client, &cluster(number)).await.unwrap();
    }
    apply::apply(&bare.client, &placement()).await.unwrap();
    let manager = Manager::of(bare.manager());
    let releases: Api<HelmReleaseProxy> = Api::namespaced(bare.client.clone(), "default");
    eventually("every cluster has its release object with a status", || async {
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        (all.len() == CLUSTERS && all.iter().all(|release| release.status.is_some())).then_some(())
    })
    .await;
    let before = Counts::settled(&manager).await;

    // As the manager writes it: another count, the same state.
    let placements: Api<HelmChartProxy> = Api::namespaced(bare.client.clone(), "default");
    let counted = Patch::Merge(json!({"status": {"readyClusters": "7/20"}}));
    placements.patch_status("hello", &PatchParams::default(), &counted).await.unwrap();
    tokio::time::sleep(QUIET).await;
    assert_eq!(Counts::of(&manager).await, before, "the status of a placement");

    let release = releases.list(&ListParams::default()).await.unwrap().items.remove(0);
    let reported = Patch::Merge(json!({"status": {"revision": 7}}));
    releases.patch_status(&release.name_any(), &PatchParams::default(), &reported).await.unwrap();
    let counted = eventually("the placement is counted again", || async {
        let counts = Counts::of(&manager).await;
        (counts.reconciles > before.reconciles).then_some(counts)
    })
    .await;
    let counted = Counts { reconciles: before.reconciles, ..counted };
    assert_eq!(counted, before, "the status of a release is about no cluster");

    let before = Counts::settled(&manager).await;
    write_conditions(&bare, "c7", &["AddonsReady", "AddonsUpgradable"]).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(Counts::of(&manager).await, before, "Chandler's own conditions of a Cluster");

    write_conditions(&bare, "c7", &["AddonsReady", "AddonsUpgradable", "Available"]).await;
    let after = eventually("a condition of others is rendered", || async {
        let counts = Counts::of(&manager).await;
        (counts.renders > before.renders).then_some(counts)
    })
    .await;
    let grown =
        BTreeMap::from([("all", after.all - before.all), ("renders", after.renders - before.renders)]);
    assert_eq!(grown, BTreeMap::from([("all", 0.0), ("renders", 1.0)]), "for one cluster alone");
    manager.stop().await;
}

async fn write_conditions(bare: &Bare, cluster: &str, types: &[&str]) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
    let clusters: Api<DynamicObject> = Api::namespaced_with(bare.client.clone(), "default", &resource);
    let condition = |type_: &&str| {
        json!({
            "type": type_, "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions: Vec<_> = types.iter().map(condition).collect();
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    clusters.patch_status(cluster, &PatchParams::default(), &patch).await.unwrap();
}
