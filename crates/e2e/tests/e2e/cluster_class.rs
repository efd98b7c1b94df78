//! The example of a ClusterClass: its clusters are Available when, and only when, their add-ons are ready.

use std::sync::{Arc, Mutex};

use chandler_api::extensions::AddonRelease;
use chandler_e2e::{
    wait::eventually,
    world::{World, condition},
};
use chandler_sandbox::{
    assets::KubernetesVersion, clusters::unavailable_message, provider::cluster_resource,
};
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

/// Applies the files of the example in their order, in the world's namespace and from its repository.
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

fn clusters(world: &World) -> Api<DynamicObject> {
    Api::namespaced_with(world.client.clone(), &world.namespace, &cluster_resource())
}

fn cluster_condition<'c>(cluster: &'c DynamicObject, type_: &str) -> Option<&'c Value> {
    let conditions = cluster.data.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

/// The example's Cluster under another name, with a list of its own that is empty.
fn without_extensions(world: &World) -> Value {
    let mut cluster: Value = serde_saphyr::from_str(EXAMPLE[2]).unwrap();
    cluster["metadata"] = json!({"name": "plain", "namespace": world.namespace});
    cluster["spec"]["topology"]["variables"] = json!([{"name": "extensions", "value": []}]);
    cluster
}

/// Everything that the example's Cluster has said of a condition, in its order.
fn said(world: &World, type_: &'static str) -> Arc<Mutex<Vec<String>>> {
    let said = Arc::new(Mutex::new(Vec::new()));
    let (clusters, told) = (clusters(world), said.clone());
    tokio::spawn(async move {
        let changes =
            watcher(clusters, watcher::Config::default().fields(&format!("metadata.name={CLUSTER}")))
                .applied_objects();
        let note = changes.try_for_each(|cluster| {
            let status = cluster_condition(&cluster, type_).and_then(|found| found["status"].as_str());
            if let Some(status) = status {
                let mut told: std::sync::MutexGuard<'_, Vec<String>> = told.lock().unwrap();
                if told.last().map(String::as_str) != Some(status) {
                    told.push(status.to_owned());
                }
            }
            futures::future::ready(Ok(()))
        });
        note.await.unwrap();
    });
    said
}

/// A client of the example's Cluster, Available or not.
async fn workload(world: &World) -> Client {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret = secrets.get(&format!("{CLUSTER}-kubeconfig")).await.unwrap();
    let config = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
    let config = Kubeconfig::from_yaml(&config).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Whether pods may come to the cluster's nodes; those that run on every node always may.
async fn cordon(workload: &Client, cordoned: bool) {
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
    let ready = said(&world, "AddonsReady");
    apply_example(&world).await;
    world.apply(&without_extensions(&world)).await;
    let cluster = clusters(&world).get(CLUSTER).await.unwrap();
    let version = cluster.data["spec"]["topology"]["version"].as_str().unwrap();
    assert_eq!(version, KubernetesVersion::default().to_string(), "the example is for the sandbox");

    // Its control plane runs, and nobody has spoken of its add-ons yet.
    let clusters = clusters(&world);
    eventually("the control plane runs", || async {
        let cluster = clusters.get(CLUSTER).await.unwrap();
        (cluster_condition(&cluster, "ControlPlaneAvailable")?["status"] == "True").then_some(())
    })
    .await;
    let why = unavailable_message(&clusters.get(CLUSTER).await.unwrap().data).unwrap();
    assert!(why.contains("AddonsReady"), "{why}");

    // No pod of the cloud provider can run yet: one add-on is ready, the other is named.
    let workload = workload(&world).await;
    cordon(&workload, true).await;
    let _manager = world.manager();
    let why = eventually("the Cluster names what it waits for", || async {
        let why = unavailable_message(&clusters.get(CLUSTER).await.unwrap().data)?;
        (why.contains("cloud-provider") && !why.contains("network-")).then_some(why)
    })
    .await;
    assert!(why.contains("AddonsReady"), "{why}");
    eventually("a Cluster that wants no extension is Available", || async {
        unavailable_message(&clusters.get("plain").await.unwrap().data).is_none().then_some(())
    })
    .await;
    cordon(&workload, false).await;
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
    assert_eq!(*ready.lock().unwrap(), ["False", "True"], "it is said once, and never too early");

    let plane = world.sandbox.wait_cluster(&world.namespace, CLUSTER).await.unwrap();
    let values = world.helm(&plane, &["get", "values", "cloud-provider", "--namespace", "cloud-provider"]);
    assert_eq!(values, json!({"region": "harbour", "replicas": 2}));
}
