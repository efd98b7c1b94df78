//! The cost of an event does not depend on the size of the fleet.

use std::{collections::BTreeSet, time::Duration};

use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    management_cluster::ManagementCluster,
    manager::Manager,
    wait::{eventually, eventually_within},
    world::TestSlot,
};
use chandler_sandbox::{apply, requests::AuditEntry};
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
async fn a_change_of_one_cluster_in_a_thousand_causes_requests_for_that_cluster_only() {
    let _slot = TestSlot::exclusive().await;
    let management = ManagementCluster::new("scale").await;
    let objects = (0..CLUSTERS).map(cluster).chain((0..PLACEMENTS).map(placement));
    stream::iter(objects)
        .for_each_concurrent(16, |object| {
            let client = management.client.clone();
            async move { apply::apply(&client, &object).await.unwrap() }
        })
        .await;
    let mut audit = management.plane.audit_log();
    let manager = Manager::from_process(management.start_manager());
    let releases: Api<HelmReleaseProxy> = Api::namespaced(management.client.clone(), "default");
    let has_conditions =
        |release: &HelmReleaseProxy| release.status.as_ref().is_some_and(|s| !s.conditions.is_empty());
    let limit = Duration::from_mins(4);
    eventually_within(limit, "every cluster has a release object with conditions", || async {
        assert!(manager.is_running(), "see {}", manager.log_file().display());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let all = releases.list(&ListParams::default()).await.unwrap().items;
        (all.len() == CLUSTERS && all.iter().all(has_conditions)).then_some(())
    })
    .await;
    // The placements count their releases later.
    manager.wait_idle().await;

    // A watch ends after some minutes, and is opened again.
    let watched = |entry: &AuditEntry| (entry.verb == "watch").then(|| entry.resource.clone());
    let open_watches: BTreeSet<_> = audit.read().unwrap().iter().filter_map(watched).collect();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
    let clusters: Api<DynamicObject> = Api::namespaced_with(management.client.clone(), "default", &resource);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"zone": "two"}}}));
    clusters.patch("c77", &PatchParams::default(), &patch).await.unwrap();
    let selector = ListParams::default().labels("cluster.x-k8s.io/cluster-name=c77");
    eventually("its release object is updated", || async {
        let release = releases.list(&selector).await.unwrap().items.pop()?;
        (release.spec.values == "zone: two").then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let requests: Vec<_> = audit
        .read()
        .unwrap()
        .into_iter()
        .filter(|entry| entry.user_agent.starts_with("chandler/") && entry.resource != "leases")
        .filter(|entry| watched(entry).is_none_or(|resource| !open_watches.contains(&resource)))
        .map(|entry| format!("{} {}/{} {}", entry.verb, entry.resource, entry.subresource, entry.name))
        .collect();
    assert!(!requests.is_empty() && requests.len() <= 4, "{requests:#?}");
    assert!(
        requests.iter().all(|request| request.contains("c77") || request.contains("p27")),
        "{requests:#?}"
    );
    manager.stop().await;
}
