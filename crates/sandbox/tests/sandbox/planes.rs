use std::time::{Duration, Instant};

use chandler_sandbox::plane::{Plane, PlaneOptions, SharedEtcd};
use chandler_sandbox::testing;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": "value"}})).unwrap()
}

async fn config_maps(plane: &Plane) -> Api<ConfigMap> {
    Api::namespaced(plane.client().await.unwrap(), "default")
}

#[tokio::test]
async fn a_bare_plane_keeps_its_data_after_a_restart() {
    testing::assets().await.unwrap();
    let started = Instant::now();
    let plane = testing::bare_plane().await.unwrap();
    println!("bare control plane up after {:?}", started.elapsed());
    config_maps(&plane).await.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    let endpoint = plane.endpoint();

    plane.restart().await.unwrap();

    assert_eq!(plane.endpoint(), endpoint);
    config_maps(&plane).await.get("kept").await.unwrap();
    let pids: Vec<_> = plane.processes().await.into_iter().map(|(_, pid)| pid).collect();
    plane.stop().await;
    for pid in pids {
        assert!(chandler_sandbox::process::Identity::of(pid).is_none());
    }
}

#[tokio::test]
async fn planes_that_share_an_etcd_have_separate_data() {
    let assets = testing::assets().await.unwrap();
    let dir = testing::fresh_dir("sharing").await.unwrap();
    let etcd = SharedEtcd::start(assets, &dir.join("etcd")).await.unwrap();
    let start = |name: &str| Plane::start(assets, PlaneOptions::sharing(&etcd, name, &dir.join(name)));
    let (one, other) = (start("one").await.unwrap(), start("other").await.unwrap());
    config_maps(&one).await.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    assert!(config_maps(&other).await.get_opt("kept").await.unwrap().is_none());
    assert_eq!(one.processes().await.len(), 1);
    one.restart().await.unwrap();
    config_maps(&one).await.get("kept").await.unwrap();
    for plane in [one, other] {
        plane.kill().await;
    }
    etcd.kill().await;
}

#[tokio::test]
async fn a_deployment_becomes_ready_on_a_full_plane() {
    testing::assets().await.unwrap();
    let started = Instant::now();
    let plane = testing::full_plane(2).await.unwrap();
    println!("full control plane up after {:?}", started.elapsed());
    let deployments: Api<Deployment> = Api::namespaced(plane.client().await.unwrap(), "default");
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "example.org/web:1"}]},
            },
        },
    }))
    .unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();

    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
        if status.ready_replicas == Some(3) {
            break;
        }
        assert!(Instant::now() < deadline, "not ready: {status:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("deployment ready after {:?}", started.elapsed());
    plane.stop().await;
}

#[tokio::test]
async fn requests_are_in_the_audit_log_and_the_metrics() {
    let plane = testing::bare_plane().await.unwrap();
    let client = plane.client_as("chandler-test/1").await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let before = plane.request_counts().await.unwrap();
    let mut log = plane.audit_log();

    config_maps.create(&PostParams::default(), &config_map("seen")).await.unwrap();
    config_maps.get("seen").await.unwrap();

    let requests: Vec<_> = log
        .read()
        .unwrap()
        .into_iter()
        .filter(|entry| entry.user_agent == "chandler-test/1")
        .map(|entry| (entry.verb, entry.resource, entry.name))
        .collect();
    let entry = |verb: &str| (verb.to_owned(), "configmaps".to_owned(), "seen".to_owned());
    assert_eq!(requests, [entry("create"), entry("get")]);
    let counted = plane.request_counts().await.unwrap().since(&before);
    let counted =
        counted.filter(|key| key.resource == "configmaps" && matches!(key.verb.as_str(), "POST" | "GET"));
    assert!(counted.total() >= 2, "{counted:?}");
    assert_eq!(log.read().unwrap(), []);
}
