//! Upgrades of Kubernetes: accepted and rejected versions, and the data of upgraded clusters.

use std::time::{Duration, Instant};

use chandler_sandbox::assets::{Binary, KubernetesVersion};
use chandler_sandbox::plane::Plane;
use chandler_sandbox::provider::sandbox_control_plane::{SandboxControlPlane, SandboxControlPlaneStatus};
use chandler_sandbox::provider::{ClusterKey, cluster_resource};
use chandler_sandbox::{clusters, testing};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::clusters::{assert_deleted, create_without_topology};

const TIMEOUT: Duration = Duration::from_mins(2);

#[tokio::test]
async fn a_cluster_is_upgraded_to_the_next_minor_and_keeps_its_data() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("upgrade").await.unwrap();
    let plane = sandbox.topology_cluster(&namespace, "moving", 1, &[]).await.unwrap();
    let client = plane.client().await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let kept: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "kept"}})).unwrap();
    config_maps.create(&PostParams::default(), &kept).await.unwrap();
    let before = plane.processes().await;
    assert_paused_cluster_is_not_upgraded(&namespace, &plane).await;

    let started = Instant::now();
    let resume = json!({"spec": {"paused": false, "topology": {"version": "v1.35.4"}}});
    // Cluster API reads the control plane from a cache, which may still have the version that was requested above.
    while let Err(error) = patch_cluster(&namespace, "moving", resume.clone()).await {
        assert!(error.to_string().contains("was not propagated"), "{error}");
        assert!(started.elapsed() < TIMEOUT, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let status = wait_status(&namespace, |status| status.version.as_deref() == Some("v1.35.4")).await;
    println!("upgraded after {:?}", started.elapsed());
    assert_eq!(status.observed_generation, control_plane(&namespace).await.metadata.generation);
    sandbox.wait_cluster(&namespace, "moving").await.unwrap();
    println!("available again after {:?}", started.elapsed());

    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.35.4");
    config_maps.get("kept").await.unwrap();
    assert_eq!(kubelet_versions(&plane).await, ["v1.35.4"]);
    let after = plane.processes().await;
    assert_eq!(pid(&after, Binary::Etcd), pid(&before, Binary::Etcd));
    for binary in Binary::CONTROL_PLANE {
        assert_ne!(pid(&after, binary), pid(&before, binary), "{binary}");
    }

    for (version, expected) in [("v1.34.4", "decreased"), ("v1.35.9", "one of the versions")] {
        let patch = json!({"spec": {"topology": {"version": version}}});
        let error = patch_cluster(&namespace, "moving", patch).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_deleted(&namespace, "moving").await;
}

#[tokio::test]
async fn workers_are_upgraded_after_their_control_plane() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("workers").await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &cluster_resource());
    let cluster: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "manned", "namespace": namespace},
        "spec": {"topology": {
            "classRef": {"name": clusters::CLASS, "namespace": clusters::NAMESPACE},
            "version": "v1.34.4",
            "variables": [{"name": "nodes", "value": 0}],
            "workers": {"machineDeployments": [{"class": clusters::WORKERS, "name": "crew", "replicas": 2}]},
        }},
    }))
    .unwrap();
    clusters.create(&PostParams::default(), &cluster).await.unwrap();
    let plane = sandbox.wait_cluster(&namespace, "manned").await.unwrap();
    assert_eq!(kubelet_versions(&plane).await, ["v1.34.4", "v1.34.4"]);

    let started = Instant::now();
    let patch = json!({"spec": {"topology": {"version": "v1.35.4"}}});
    patch_cluster(&namespace, "manned", patch).await.unwrap();
    let status = wait_status(&namespace, |status| status.version.as_deref() == Some("v1.35.4")).await;
    let deadline = Instant::now() + TIMEOUT;
    while kubelet_versions(&plane).await != ["v1.35.4", "v1.35.4"] {
        assert!(Instant::now() < deadline, "{:?}", kubelet_versions(&plane).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("workers upgraded after {:?}", started.elapsed());
    let available = status.conditions.iter().find(|condition| condition.type_ == "Available").unwrap();
    let control_plane_since: jiff::Timestamp = available.last_transition_time.parse().unwrap();
    for node in nodes(&plane).await {
        let created = node.metadata.creation_timestamp.unwrap().0;
        assert!(created >= control_plane_since, "workers are upgraded after the control plane");
    }
    sandbox.wait_cluster(&namespace, "manned").await.unwrap();
    assert_deleted(&namespace, "manned").await;
}

async fn nodes(plane: &Plane) -> Vec<Node> {
    let nodes: Api<Node> = Api::all(plane.client().await.unwrap());
    nodes.list(&ListParams::default()).await.unwrap().items
}

/// Returns the sorted kubelet versions of the Nodes.
async fn kubelet_versions(plane: &Plane) -> Vec<String> {
    let infos = nodes(plane).await.into_iter().filter_map(|node| node.status?.node_info);
    let mut versions: Vec<_> = infos.map(|info| info.kubelet_version).collect();
    versions.sort();
    versions
}

/// Pauses the Cluster and leaves it paused.
async fn assert_paused_cluster_is_not_upgraded(namespace: &str, plane: &Plane) {
    let before = plane.processes().await;
    patch_cluster(namespace, "moving", json!({"spec": {"paused": true}})).await.unwrap();
    request_version(namespace, "v1.35.4").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let status = control_plane(namespace).await.status.unwrap();
    assert_eq!(status.version.as_deref(), Some("v1.34.4"));
    assert_eq!(plane.processes().await, before);
    // Cluster API accepts a new version only if the control plane has the old one.
    request_version(namespace, "v1.34.4").await;
}

#[tokio::test]
async fn a_control_plane_keeps_running_if_the_requested_version_is_rejected() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("rejection").await.unwrap();
    create_without_topology(&namespace, "steady", "v1.34.4").await;
    let plane = sandbox.wait_cluster(&namespace, "steady").await.unwrap();
    let before = plane.processes().await;

    request_version(&namespace, "v1.36.0").await;
    let is_rejected = |status: &SandboxControlPlaneStatus| {
        status.conditions.iter().any(|condition| condition.reason == "VersionRefused")
    };
    let status = wait_status(&namespace, is_rejected).await;
    assert_eq!(status.version.as_deref(), Some("v1.34.4"));
    let available = status.conditions.iter().find(|condition| condition.type_ == "Available").unwrap();
    assert_eq!(available.status, "True");
    assert!(available.message.contains("not v1.36.0"), "{}", available.message);
    assert_eq!(plane.processes().await, before);
    assert_deleted(&namespace, "steady").await;
}

#[tokio::test]
async fn an_unsupported_version_is_rejected_with_a_message() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("version").await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &cluster_resource());
    let cluster: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "old", "namespace": namespace},
        "spec": {"topology": {"classRef": {"name": "sandbox", "namespace": "default"}, "version": "v1.30.0"}},
    }))
    .unwrap();
    let error = api.create(&PostParams::default(), &cluster).await.unwrap_err().to_string();
    assert!(error.contains("v1.30.0") && error.contains("one of the versions"), "{error}");

    create_without_topology(&namespace, "old", "v1.30.0").await;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let cluster = api.get("old").await.unwrap();
        let message =
            clusters::unavailable_message(&cluster.data).expect("such a cluster cannot be available");
        if message.contains("v1.34.4") {
            break;
        }
        assert!(Instant::now() < deadline, "{message}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    clusters::delete(&client, &ClusterKey::new(&namespace, "old"), TIMEOUT).await.unwrap();
}

async fn patch_cluster(namespace: &str, name: &str, patch: Value) -> Result<DynamicObject, kube::Error> {
    let client = testing::sandbox().await.unwrap().management().client().await.unwrap();
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, namespace, &cluster_resource());
    clusters.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}

async fn control_planes(namespace: &str) -> Api<SandboxControlPlane> {
    let client = testing::sandbox().await.unwrap().management().client().await.unwrap();
    Api::namespaced(client, namespace)
}

async fn control_plane(namespace: &str) -> SandboxControlPlane {
    control_planes(namespace).await.list(&ListParams::default()).await.unwrap().items.remove(0)
}

async fn request_version(namespace: &str, version: &str) {
    let name = control_plane(namespace).await.metadata.name.unwrap();
    let patch = Patch::Merge(json!({"spec": {"version": version}}));
    control_planes(namespace).await.patch(&name, &PatchParams::default(), &patch).await.unwrap();
}

async fn wait_status(
    namespace: &str,
    is_expected: impl Fn(&SandboxControlPlaneStatus) -> bool,
) -> SandboxControlPlaneStatus {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = control_plane(namespace).await.status.unwrap_or_default();
        if is_expected(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn pid(processes: &[(String, u32)], binary: Binary) -> u32 {
    processes.iter().find(|(name, _)| name == binary.file_name()).unwrap().1
}
