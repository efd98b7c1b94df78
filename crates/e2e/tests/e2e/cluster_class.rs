//! The example ClusterClass: its clusters are Available if, and only if, their add-ons are ready.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use chandler_api::extensions::AddonRelease;
use chandler_e2e::{
    wait::{eventually, eventually_within, until},
    world::{World, condition},
};
use chandler_sandbox::{assets::KubernetesVersion, clusters::unavailable_message};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

const CLUSTER: &str = "harbour";
const EXAMPLE: [&str; 3] = [
    include_str!("../../../../examples/cluster-class/1-extensions.yaml"),
    include_str!("../../../../examples/cluster-class/2-class.yaml"),
    include_str!("../../../../examples/cluster-class/3-cluster.yaml"),
];

/// Applies the files of the example in order, with the namespace and the chart repository of the test.
async fn apply_example(world: &World) {
    let authority = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "charts-ca", "namespace": world.namespace},
        "stringData": {"ca.crt": world.repository.ca_pem()},
    });
    world.apply(&authority).await;
    for file in EXAMPLE {
        let file = file.replace("https://charts.example", world.repository.url());
        let objects: Vec<Value> = serde_saphyr::from_multiple(&file).unwrap();
        for mut object in objects {
            object["metadata"]["namespace"] = json!(world.namespace);
            world.apply(&object).await;
        }
    }
}

fn example_chart(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/charts").join(name)
}

fn cluster_condition<'c>(cluster: &'c DynamicObject, type_: &str) -> Option<&'c Value> {
    let conditions = cluster.data.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

/// Returns the example's Cluster with another name and an empty list of extensions.
fn without_extensions(world: &World) -> Value {
    let mut cluster: Value = serde_saphyr::from_str(EXAMPLE[2]).unwrap();
    cluster["metadata"] = json!({"name": "plain", "namespace": world.namespace});
    cluster["spec"]["topology"]["variables"] = json!([{"name": "extensions", "value": []}]);
    cluster
}

/// Records the statuses of a condition of the example's Cluster from now on, without repetitions.
fn record_statuses(world: &World, type_: &'static str) -> Arc<Mutex<Vec<String>>> {
    let statuses = Arc::new(Mutex::new(Vec::new()));
    let (clusters, recorded) = (world.clusters(), statuses.clone());
    tokio::spawn(async move {
        let changes =
            watcher(clusters, watcher::Config::default().fields(&format!("metadata.name={CLUSTER}")))
                .applied_objects();
        let record = changes.try_for_each(|cluster| {
            let status = cluster_condition(&cluster, type_).and_then(|found| found["status"].as_str());
            if let Some(status) = status {
                let mut recorded: std::sync::MutexGuard<'_, Vec<String>> = recorded.lock().unwrap();
                if recorded.last().map(String::as_str) != Some(status) {
                    recorded.push(status.to_owned());
                }
            }
            futures::future::ready(Ok(()))
        });
        record.await.unwrap();
    });
    statuses
}

/// Returns a client of the example's Cluster, which need not be Available.
async fn workload_client(world: &World) -> Client {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret = secrets.get(&format!("{CLUSTER}-kubeconfig")).await.unwrap();
    let config = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
    let config = Kubeconfig::from_yaml(&config).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Cordons or uncordons all Nodes of the cluster. Pods of `DaemonSets` are scheduled in any case.
async fn set_cordoned(workload: &Client, cordoned: bool) {
    let nodes: Api<Node> = Api::all(workload.clone());
    let all = eventually("the cluster has nodes", || async {
        let all = nodes.list(&ListParams::default()).await.unwrap().items;
        (!all.is_empty()).then_some(all)
    })
    .await;
    for node in all {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": cordoned}}));
        nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_of_the_example_class_is_available_when_its_add_ons_are_ready() {
    let world = World::new("class").await;
    for chart in ["network", "cloud-provider"] {
        world.repository.publish(&example_chart(chart)).unwrap();
    }
    let addons_ready = record_statuses(&world, "AddonsReady");
    apply_example(&world).await;
    world.apply(&without_extensions(&world)).await;
    let cluster = world.clusters().get(CLUSTER).await.unwrap();
    let version = cluster.data["spec"]["topology"]["version"].as_str().unwrap();
    assert_eq!(version, KubernetesVersion::default().to_string(), "the example is for the sandbox");

    // The control plane runs, but AddonsReady is not set yet.
    let clusters = world.clusters();
    eventually_within(Duration::from_mins(4), "the control plane runs", || async {
        let cluster = clusters.get(CLUSTER).await.unwrap();
        (cluster_condition(&cluster, "ControlPlaneAvailable")?["status"] == "True").then_some(())
    })
    .await;
    let message = unavailable_message(&clusters.get(CLUSTER).await.unwrap().data).unwrap();
    assert!(message.contains("AddonsReady"), "{message}");

    // No Pod of the cloud provider can run yet: one add-on is ready, and the message names the other.
    let workload = workload_client(&world).await;
    set_cordoned(&workload, true).await;
    let _manager = world.start_manager();
    let message = eventually("the Cluster names the add-on that it waits for", || async {
        let message = unavailable_message(&clusters.get(CLUSTER).await.unwrap().data)?;
        (message.contains("cloud-provider") && !message.contains("network-")).then_some(message)
    })
    .await;
    assert!(message.contains("AddonsReady"), "{message}");
    eventually("a Cluster without extensions is Available", || async {
        unavailable_message(&clusters.get("plain").await.unwrap().data).is_none().then_some(())
    })
    .await;
    set_cordoned(&workload, false).await;
    eventually("the Cluster is Available", || async {
        unavailable_message(&clusters.get(CLUSTER).await.unwrap().data).is_none().then_some(())
    })
    .await;
    let releases: Api<AddonRelease> = Api::namespaced(world.client.clone(), &world.namespace);
    let mut found: Vec<_> = Vec::new();
    for release in releases.list(&ListParams::default()).await.unwrap().items {
        let status = release.status.unwrap();
        assert_eq!(condition(&status, "Ready").unwrap().status, "True");
        found.push(format!("{} {}", release.spec.extension.unwrap(), release.spec.version.unwrap()));
    }
    found.sort();
    assert_eq!(found, ["cloud-provider 1.34.0", "network 1.0.0"]);
    // The watch may be behind.
    until("the watch has shown AddonsReady", async || {
        addons_ready.lock().unwrap().last().is_some_and(|status| status == "True")
    })
    .await;
    assert_eq!(*addons_ready.lock().unwrap(), ["False", "True"], "it becomes True once, and not too early");

    let plane = world.sandbox.wait_cluster(&world.namespace, CLUSTER).await.unwrap();
    let values = world.helm(&plane, &["get", "values", "cloud-provider", "--namespace", "cloud-provider"]);
    assert_eq!(values, json!({"region": "harbour", "replicas": 2}));
}
