use std::time::{Duration, Instant};

use chandler_sandbox::provider::sandbox_control_plane::SandboxControlPlane;
use chandler_sandbox::provider::{ClusterKey, cluster_resource};
use chandler_sandbox::{clusters, testing};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

async fn assert_kubeconfig_works(namespace: &str, name: &str, nodes: usize) {
    let sandbox = testing::sandbox().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(sandbox.management().client().await.unwrap(), namespace);
    let secret = secrets.get(&format!("{name}-kubeconfig")).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    let kubeconfig = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
    let client = chandler_sandbox::kubeconfig::client(&kubeconfig).await.unwrap();
    let list = Api::<Node>::all(client).list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), nodes);
}

async fn assert_deleted(namespace: &str, name: &str) {
    let sandbox = testing::sandbox().await.unwrap();
    let plane = sandbox.wait_cluster(namespace, name).await.unwrap();
    let (pids, dir) = (plane.processes().await, plane.dir().to_owned());
    let client = sandbox.management().client().await.unwrap();
    let key = ClusterKey::new(namespace, name);
    clusters::delete(&client, &key, Duration::from_mins(1)).await.unwrap();
    for (process, pid) in pids {
        assert!(chandler_sandbox::process::Identity::of(pid).is_none(), "{process} is left");
    }
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_cluster_with_a_topology_comes_up_and_goes() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("topology").await.unwrap();
    let began = Instant::now();
    sandbox.cluster(&namespace, "classy", 2, &[]).await.unwrap();
    println!("topology cluster available after {:?}", began.elapsed());
    assert_kubeconfig_works(&namespace, "classy", 2).await;
    assert_deleted(&namespace, "classy").await;
}

#[tokio::test]
async fn a_cluster_without_topology_comes_up_and_goes() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("plain").await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let objects = [
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "SandboxCluster",
            "metadata": {"name": "simple", "namespace": namespace}, "spec": {},
        }),
        json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1", "kind": "SandboxControlPlane",
            "metadata": {"name": "simple", "namespace": namespace}, "spec": {"version": "v1.34.4"},
        }),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "simple", "namespace": namespace},
            "spec": {
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "SandboxCluster", "name": "simple"},
                "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "SandboxControlPlane", "name": "simple"},
            },
        }),
    ];
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let resource = kube::api::ApiResource::from_gvk(&(&types).try_into().unwrap());
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    sandbox.wait_cluster(&namespace, "simple").await.unwrap();
    assert_kubeconfig_works(&namespace, "simple", 1).await;
    assert_deleted(&namespace, "simple").await;
}

#[tokio::test]
async fn a_version_without_programs_is_refused_in_words() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("version").await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let key = ClusterKey::new(&namespace, "old");
    let cluster: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": key.name, "namespace": namespace},
        "spec": {"topology": {"classRef": {"name": "sandbox", "namespace": "default"}, "version": "v1.30.0"}},
    }))
    .unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &cluster_resource());
    api.create(&PostParams::default(), &cluster).await.unwrap();

    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let cluster = api.get(&key.name).await.unwrap();
        let why = clusters::unavailable(&cluster.data).expect("such a cluster cannot be available");
        if why.contains("v1.34") {
            break;
        }
        assert!(Instant::now() < deadline, "{why}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    clusters::delete(&client, &key, Duration::from_mins(1)).await.unwrap();
}

#[tokio::test]
async fn an_upgrade_waits_for_the_end_of_a_pause() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("upgrade").await.unwrap();
    let plane = sandbox.cluster(&namespace, "moving", 0, &[]).await.unwrap();
    let before = plane.processes().await;

    patch_cluster(&namespace, json!({"spec": {"paused": true}})).await;
    let control_planes = control_planes(&namespace).await;
    ask_for_version(&control_planes, "v1.34.9").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(reported_version(&control_planes).await, "v1.34.4");
    assert_eq!(plane.processes().await, before);

    // The core takes a new version only when the control plane has the old one.
    ask_for_version(&control_planes, "v1.34.4").await;
    let resume = json!({"spec": {"paused": false, "topology": {"version": "v1.34.9"}}});
    patch_cluster(&namespace, resume).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    while reported_version(&control_planes).await != "v1.34.9" {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_ne!(plane.processes().await, before);
    assert_deleted(&namespace, "moving").await;
}

async fn patch_cluster(namespace: &str, patch: Value) {
    let client = testing::sandbox().await.unwrap().management().client().await.unwrap();
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, namespace, &cluster_resource());
    clusters.patch("moving", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn control_planes(namespace: &str) -> Api<SandboxControlPlane> {
    let client = testing::sandbox().await.unwrap().management().client().await.unwrap();
    Api::namespaced(client, namespace)
}

async fn control_plane(api: &Api<SandboxControlPlane>) -> SandboxControlPlane {
    api.list(&ListParams::default()).await.unwrap().items.remove(0)
}

async fn ask_for_version(api: &Api<SandboxControlPlane>, version: &str) {
    let name = control_plane(api).await.metadata.name.unwrap();
    let asked = Patch::Merge(json!({"spec": {"version": version}}));
    api.patch(&name, &PatchParams::default(), &asked).await.unwrap();
}

async fn reported_version(api: &Api<SandboxControlPlane>) -> String {
    control_plane(api).await.status.unwrap().version.unwrap()
}
