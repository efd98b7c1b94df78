//! An event costs what it concerns, not what the fleet holds.

use std::time::Duration;

use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    bare::Bare,
    wait::{eventually, eventually_within},
    world::Turn,
};
use chandler_sandbox::apply;
use futures::{StreamExt as _, stream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const CLUSTERS: usize = 1000;
const PLACEMENTS: usize = 50;

fn cluster(number: usize) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": format!("c{number}"), "namespace": "default",
            "labels": {"group": format!("g{}", number % PLACEMENTS)}, "annotations": {"zone": "one"},
        },
        "spec": {},
    })
}

fn placement(number: usize) -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": format!("p{number}"), "namespace": "default"},
        "spec": {
            "clusterSelector": {"matchLabels": {"group": format!("g{number}")}}, "chartName": "hello",
            "repoURL": "https://charts.example", "version": "1.0.0", "releaseName": "hello",
            "valuesTemplate": "zone: {{ .Cluster.metadata.annotations.zone }}",
        },
    })
}

#[tokio::test]
async fn one_cluster_among_a_thousand_costs_one_cluster() {
    let _turn = Turn::alone().await;
    let bare = Bare::new("scale").await;
    let objects = (0..CLUSTERS).map(cluster).chain((0..PLACEMENTS).map(placement));
    stream::iter(objects)
        .for_each_concurrent(16, |object| {
            let client = bare.client.clone();
            async move { apply::apply(&client, &object).await.unwrap() }
        })
        .await;
    let manager = bare.manager();
    let releases: Api<HelmReleaseProxy> = Api::namespaced(bare.client.clone(), "default");
    let said = |release: &HelmReleaseProxy| release.status.as_ref().is_some_and(|s| !s.conditions.is_empty());
    let limit = Duration::from_mins(4);
    eventually_within(limit, "every cluster has its release object, and that has said something", || async {
        assert!(manager.is_running(), "see {}", manager.log().display());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        (all.len() == CLUSTERS && all.iter().all(said)).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;

    let mut audit = bare.plane.audit_log();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
    let clusters: Api<DynamicObject> = Api::namespaced_with(bare.client.clone(), "default", &resource);
    let moved = Patch::Merge(json!({"metadata": {"annotations": {"zone": "two"}}}));
    clusters.patch("c77", &PatchParams::default(), &moved).await.unwrap();
    let mine = ListParams::default().labels("cluster.x-k8s.io/cluster-name=c77");
    eventually("its release object follows", || async {
        let release = releases.list(&mine).await.unwrap().items.pop()?;
        (release.spec.values == "zone: two").then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let requests: Vec<_> = audit
        .read()
        .unwrap()
        .into_iter()
        .filter(|entry| entry.user_agent.starts_with("chandler/") && entry.resource != "leases")
        .map(|entry| format!("{} {}/{} {}", entry.verb, entry.resource, entry.subresource, entry.name))
        .collect();
    assert!(!requests.is_empty() && requests.len() <= 4, "{requests:#?}");
    assert!(
        requests.iter().all(|request| request.contains("c77") || request.contains("p27")),
        "{requests:#?}"
    );
    manager.stop(Duration::from_secs(10)).await;
}
