use std::time::{Duration, Instant};

use chandler_sandbox::apply::apply;
use chandler_sandbox::provider::ClusterKey;
use chandler_sandbox::provider::sandbox_control_plane::SandboxControlPlane;
use chandler_sandbox::{clusters, testing};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::config::Kubeconfig;
use serde_json::json;

const TIMEOUT: Duration = Duration::from_mins(1);

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
    sandbox.topology_cluster(&namespace, "classy", 2, &[]).await.unwrap();
    println!("topology cluster available after {:?}", started.elapsed());
    assert_kubeconfig_works(&namespace, "classy", 2).await;
    assert_deleted(&namespace, "classy").await;
}

/// Creates a Cluster without a topology, together with its infrastructure and control plane objects.
pub async fn create_without_topology(namespace: &str, name: &str, version: &str) {
    let sandbox = testing::sandbox().await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let mut objects = clusters::plain_cluster(&ClusterKey::new(namespace, name), 1, &json!({}), &json!({}));
    objects[1]["spec"]["version"] = version.into();
    for object in objects {
        apply(&client, &object).await.unwrap();
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

fn kubeconfig(secret: &Secret) -> Kubeconfig {
    let value = &secret.data.as_ref().unwrap()["value"];
    Kubeconfig::from_yaml(std::str::from_utf8(&value.0).unwrap()).unwrap()
}

/// Adds a proxy to the kubeconfig of the Secret, as another controller does.
async fn add_proxy(secrets: &Api<Secret>, mut kubeconfig: Kubeconfig) -> Secret {
    kubeconfig.clusters[0].cluster.as_mut().unwrap().proxy_url = Some("http://proxy.invalid:8132".to_owned());
    let value = serde_saphyr::to_string(&kubeconfig).unwrap();
    let patch = Patch::Merge(json!({"stringData": {"value": value}}));
    secrets.patch("kept-kubeconfig", &PatchParams::default(), &patch).await.unwrap()
}

/// Makes the provider reconcile the control plane, and waits until it has.
async fn reconcile(control_planes: &Api<SandboxControlPlane>, nodes: u32) {
    let patch = Patch::Merge(json!({"spec": {"nodes": nodes}}));
    let patched = control_planes.patch("kept", &PatchParams::default(), &patch).await.unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = control_planes.get("kept").await.unwrap().status.unwrap_or_default();
        if status.observed_generation == patched.metadata.generation {
            return;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_kubeconfig_secret_is_left_unchanged_until_its_certificate_is_renewed() {
    let sandbox = testing::sandbox().await.unwrap();
    let namespace = sandbox.namespace("secret").await.unwrap();
    create_without_topology(&namespace, "kept", "v1.34.4").await;
    let plane = sandbox.wait_cluster(&namespace, "kept").await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let control_planes: Api<SandboxControlPlane> = Api::namespaced(client, &namespace);
    let created = secrets.get("kept-kubeconfig").await.unwrap();
    assert_eq!(created.labels()["cluster.x-k8s.io/cluster-name"], "kept");
    let [owner] = created.owner_references() else { panic!("{:?}", created.owner_references()) };
    assert_eq!((owner.kind.as_str(), owner.controller), ("SandboxControlPlane", Some(true)));

    let proxied = add_proxy(&secrets, kubeconfig(&created)).await;
    reconcile(&control_planes, 2).await;
    let unchanged = secrets.get("kept-kubeconfig").await.unwrap();
    assert_eq!(unchanged.resource_version(), proxied.resource_version(), "only its age makes it renew it");

    let short = plane.issue_kubeconfig(&plane.endpoint(), Duration::from_hours(24 * 100)).unwrap();
    add_proxy(&secrets, Kubeconfig::from_yaml(&short).unwrap()).await;
    reconcile(&control_planes, 3).await;
    let renewed = secrets.get("kept-kubeconfig").await.unwrap();
    let cluster = kubeconfig(&renewed).clusters.remove(0);
    let (name, cluster) = (cluster.name, cluster.cluster.unwrap());
    assert_eq!((name.as_str(), cluster.server, cluster.proxy_url), ("kept", Some(plane.endpoint()), None));
    assert_eq!((renewed.type_.clone(), renewed.labels()), (created.type_.clone(), created.labels()));
    assert_eq!(renewed.owner_references(), created.owner_references());
    assert_kubeconfig_works(&namespace, "kept", 1).await;
    assert_deleted(&namespace, "kept").await;
}
