//! Widely used charts are installed, upgraded and removed on two clusters.

use std::time::Duration;

use chandler_api::status::{ObjectRecord, ReleaseStatus};
use chandler_e2e::{
    third_party::{REAL_CHARTS, RealChart},
    wait::eventually_within,
    world::{World, condition},
};
use chandler_sandbox::plane::Plane;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, GroupVersionKind, Patch, PatchParams},
    discovery::{self, Scope},
};
use serde_json::json;

const LIMIT: Duration = Duration::from_mins(4);
const CLUSTERS: [&str; 2] = ["alpha", "bravo"];

/// Returns the values of a chart with one more label on every object.
fn relabeled(chart: &RealChart) -> String {
    let labels = if chart.name() == "kyverno" { "customLabels" } else { "commonLabels" };
    format!("{}{labels}: {{changed: really}}\n", chart.values)
}

async fn apply_placement(world: &World, chart: &RealChart) {
    let package = world.repository.publish(&chart.path().await).unwrap();
    let changes = json!({
        "version": package.version, "namespace": chart.name(), "valuesTemplate": literal(chart.values),
        "options": {"wait": true, "timeout": "3m"},
    });
    world.apply_placement(chart.name(), chart.name(), changes).await;
}

/// Gives the Service of ingress-nginx an address, as a cloud provider does: without one it never becomes ready.
async fn give_address(plane: &Plane) {
    let services: Api<Service> = Api::namespaced(plane.client().await.unwrap(), "ingress-nginx");
    let name = "ingress-nginx-controller";
    let what = "the Service of ingress-nginx exists";
    eventually_within(LIMIT, what, || async { services.get_opt(name).await.unwrap() }).await;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    services.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Returns the values after a check that they are not a template.
fn literal(values: &str) -> String {
    assert!(!values.contains("{{"), "{values}");
    values.to_owned()
}

async fn wait_ready(world: &World, chart: &RealChart, cluster: &str, revision: u32) -> ReleaseStatus {
    let what = format!("{} is ready on {cluster} at revision {revision}", chart.name());
    eventually_within(LIMIT, &what, || async {
        let status = world.release(chart.name(), cluster).await?.status?;
        let ready = condition(&status, "Ready")?;
        (ready.status == "True" && status.revision == Some(revision)).then_some(status)
    })
    .await
}

/// Returns an object of a release from the cluster, if it exists.
async fn get_object(client: &Client, record: &ObjectRecord) -> Option<DynamicObject> {
    let (group, version) = record.api_version.split_once('/').unwrap_or(("", &record.api_version));
    let kind = GroupVersionKind::gvk(group, version, &record.kind);
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.unwrap();
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), &record.namespace, &resource),
    };
    api.get_opt(&record.name).await.unwrap()
}

fn has_keep_policy(object: &DynamicObject) -> bool {
    object.annotations().get("helm.sh/resource-policy").is_some_and(|policy| policy == "keep")
}

/// Returns whether an object's deletion was requested and only waits for finalizers. The API server may need five minutes for
/// a CRD: it ignores a conflict with its own write of the status, and looks at the CRD again only at the next resync.
fn is_terminating(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// Returns the objects of a release that exist on the cluster.
async fn existing_objects(plane: &Plane, status: &ReleaseStatus) -> Vec<(ObjectRecord, DynamicObject)> {
    let client = plane.client().await.unwrap();
    let mut found = Vec::new();
    for record in &status.inventory {
        found.extend(get_object(&client, record).await.map(|object| (record.clone(), object)));
    }
    found
}

#[tokio::test]
async fn real_charts_are_installed_upgraded_and_removed() {
    let world = World::new("real").await;
    let planes = join_all(CLUSTERS.map(|name| world.create_cluster(name))).await;
    let manager = world.start_manager_with_long_lease();
    for chart in REAL_CHARTS {
        apply_placement(&world, chart).await;
    }
    join_all(planes.iter().map(|plane| give_address(plane))).await;
    for chart in REAL_CHARTS {
        for cluster in CLUSTERS {
            let status = wait_ready(&world, chart, cluster, 1).await;
            assert!(!status.inventory.is_empty(), "{}", chart.name());
        }
    }

    for chart in REAL_CHARTS {
        world.patch_placement(chart.name(), json!({"valuesTemplate": literal(&relabeled(chart))})).await;
    }
    let mut kept = Vec::new();
    let mut statuses = Vec::new();
    for chart in REAL_CHARTS {
        for (plane, cluster) in planes.iter().zip(CLUSTERS) {
            let status = wait_ready(&world, chart, cluster, 2).await;
            let objects = existing_objects(plane, &status).await;
            assert_eq!(objects.len(), status.inventory.len(), "{} on {cluster}", chart.name());
            let changed = objects.iter().any(|(record, object)| {
                ["Deployment", "DaemonSet"].contains(&record.kind.as_str())
                    && object.labels().get("changed").is_some_and(|value| value == "really")
            });
            assert!(changed, "{} on {cluster} does not show the upgrade", chart.name());
            let to_keep = objects.into_iter().filter(|(_, object)| has_keep_policy(object));
            kept.extend(to_keep.map(|(record, _)| (cluster, record)));
            statuses.push((plane, cluster, status));
        }
    }

    for chart in REAL_CHARTS {
        world.delete_placement(chart.name()).await;
    }
    for chart in REAL_CHARTS {
        eventually_within(LIMIT, &format!("{} is deleted", chart.name()), || async {
            world.placements().get_opt(chart.name()).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    for (plane, cluster, status) in statuses {
        let left =
            existing_objects(plane, &status).await.into_iter().filter(|(_, object)| !is_terminating(object));
        let left: Vec<_> =
            left.map(|(record, _)| (cluster, record)).filter(|left| !kept.contains(left)).collect();
        assert_eq!(left, [], "only objects with the keep policy are left");
    }
    for plane in &planes {
        assert_eq!(world.helm(plane, &["list", "--all-namespaces"]), json!([]));
    }
    manager.stop().await;
}
