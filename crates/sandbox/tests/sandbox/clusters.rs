use std::time::{Duration, Instant};

use chandler_sandbox::provider::ClusterKey;
use chandler_sandbox::{clusters, testing};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::json;

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

pub async fn assert_deleted(namespace: &str, name: &str) {
    let sandbox = testing::sandbox().await.unwrap();
    let plane = sandbox.wait_cluster(namespace, name).await.unwrap();
    let (pids, dir) = (plane.processes().await, plane.dir().to_owned());
    let client = sandbox.management().client().await.unwrap();
    let key = ClusterKey::new(namespace, name);
    clusters::delete(&client, &key, Duration::from_mins(1)).await.unwrap();
    for (process, pid) in pids {
        assert!(chandler_sandbox::process::Identity::of(pid).is_none(), "{process} is still running");
    }
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_cluster_with_a_topology_is_created_and_deleted() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("topology").await.unwrap();
    let started = Instant::now();
    sandbox.cluster(&namespace, "classy", 2, &[]).await.unwrap();
    println!("topology cluster available after {:?}", started.elapsed());
    assert_kubeconfig_works(&namespace, "classy", 2).await;
    assert_deleted(&namespace, "classy").await;
}

/// Creates a Cluster without a topology, together with its infrastructure and control plane objects.
pub async fn create_without_topology(namespace: &str, name: &str, version: &str) {
    let sandbox = testing::sandbox().await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let metadata = json!({"name": name, "namespace": namespace});
    let objects = [
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "SandboxCluster",
            "metadata": metadata, "spec": {},
        }),
        json!({
            "apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1", "kind": "SandboxControlPlane",
            "metadata": metadata, "spec": {"version": version},
        }),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": metadata,
            "spec": {
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "SandboxCluster", "name": name},
                "controlPlaneRef": {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "SandboxControlPlane", "name": name},
            },
        }),
    ];
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let resource = kube::api::ApiResource::from_gvk(&(&types).try_into().unwrap());
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_without_a_topology_is_created_and_deleted() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("plain").await.unwrap();
    create_without_topology(&namespace, "simple", "v1.34.4").await;
    sandbox.wait_cluster(&namespace, "simple").await.unwrap();
    assert_kubeconfig_works(&namespace, "simple", 1).await;
    assert_deleted(&namespace, "simple").await;
}
