//! Charts that people use, installed, upgraded and removed on two clusters.

use std::time::Duration;

use chandler_api::status::{ObjectRecord, ReleaseStatus};
use chandler_e2e::{
    third_party::{REAL_CHARTS, RealChart},
    wait::eventually_within,
    world::{World, condition},
};
use chandler_sandbox::plane::Plane;
use futures::future::join_all;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, GroupVersionKind},
    discovery::{self, Scope},
};
use serde_json::json;

const LIMIT: Duration = Duration::from_mins(4);
const CLUSTERS: [&str; 2] = ["alpha", "bravo"];

/// The values with a label more on every object.
fn relabelled(chart: &RealChart) -> String {
    let labels = if chart.name() == "kyverno" { "customLabels" } else { "commonLabels" };
    format!("{}{labels}: {{changed: really}}\n", chart.values)
}

async fn place(world: &World, chart: &RealChart) {
    let package = world.repository.publish(&chart.path()).unwrap();
    // Nobody gives its Service an address here, so it would wait for ever.
    let wait = chart.name() != "ingress-nginx";
    let changes = json!({
        "version": package.version, "namespace": chart.name(), "valuesTemplate": literally(chart.values),
        "options": {"wait": wait, "timeout": "3m"},
    });
    world.place(chart.name(), chart.name(), changes).await;
}

/// Values that are not meant as a template.
fn literally(values: &str) -> String {
    assert!(!values.contains("{{"), "{values}");
    values.to_owned()
}

async fn ready(world: &World, chart: &RealChart, cluster: &str, revision: u32) -> ReleaseStatus {
    let what = format!("{} is ready on {cluster} at revision {revision}", chart.name());
    eventually_within(LIMIT, &what, || async {
        let status = world.release(chart.name(), cluster).await?.status?;
        let ready = condition(&status, "Ready")?;
        (ready.status == "True" && status.revision == Some(revision)).then_some(status)
    })
    .await
}

/// An object of a release as it is on the cluster.
async fn live(client: &Client, record: &ObjectRecord) -> Option<DynamicObject> {
    let (group, version) = record.api_version.split_once('/').unwrap_or(("", &record.api_version));
    let kind = GroupVersionKind::gvk(group, version, &record.kind);
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.unwrap();
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), &record.namespace, &resource),
    };
    api.get_opt(&record.name).await.unwrap()
}

fn is_kept(object: &DynamicObject) -> bool {
    object.annotations().get("helm.sh/resource-policy").is_some_and(|policy| policy == "keep")
}

/// What is there of a release's objects.
async fn present(plane: &Plane, status: &ReleaseStatus) -> Vec<(ObjectRecord, DynamicObject)> {
    let client = plane.client().await.unwrap();
    let mut found = Vec::new();
    for record in &status.inventory {
        found.extend(live(&client, record).await.map(|object| (record.clone(), object)));
    }
    found
}

#[tokio::test]
async fn charts_that_people_use_come_change_and_go() {
    let world = World::alone("real").await;
    let planes = join_all(CLUSTERS.map(|name| world.cluster(name))).await;
    let manager = world.patient_manager();
    for chart in REAL_CHARTS {
        place(&world, chart).await;
    }
    for chart in REAL_CHARTS {
        for cluster in CLUSTERS {
            let status = ready(&world, chart, cluster, 1).await;
            assert!(!status.inventory.is_empty(), "{}", chart.name());
        }
    }

    for chart in REAL_CHARTS {
        world.change(chart.name(), json!({"valuesTemplate": literally(&relabelled(chart))})).await;
    }
    let mut kept = Vec::new();
    let mut statuses = Vec::new();
    for chart in REAL_CHARTS {
        for (plane, cluster) in planes.iter().zip(CLUSTERS) {
            let status = ready(&world, chart, cluster, 2).await;
            let there = present(plane, &status).await;
            assert_eq!(there.len(), status.inventory.len(), "{} on {cluster}", chart.name());
            let changed = there.iter().any(|(record, object)| {
                ["Deployment", "DaemonSet"].contains(&record.kind.as_str())
                    && object.labels().get("changed").is_some_and(|value| value == "really")
            });
            assert!(changed, "{} on {cluster} does not show the upgrade", chart.name());
            let staying = there.into_iter().filter(|(_, object)| is_kept(object));
            kept.extend(staying.map(|(record, _)| (cluster, record)));
            statuses.push((plane, cluster, status));
        }
    }

    for chart in REAL_CHARTS {
        world.delete(chart.name()).await;
    }
    for chart in REAL_CHARTS {
        eventually_within(LIMIT, &format!("{} is gone", chart.name()), || async {
            world.placements().get_opt(chart.name()).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    for (plane, cluster, status) in statuses {
        let left = present(plane, &status).await.into_iter().map(|(record, _)| (cluster, record));
        let left: Vec<_> = left.filter(|left| !kept.contains(left)).collect();
        assert_eq!(left, [], "nothing is left of it but what asks to be kept");
    }
    for plane in &planes {
        assert_eq!(world.helm(plane, &["list", "--all-namespaces"]), json!([]));
    }
    manager.stop().await;
}
