//! A Cluster API that calls no runtime hooks.

use std::process::Command;

use chandler_e2e::{management_cluster::ManagementCluster, programs, wait::eventually};
use chandler_sandbox::{apply, capi::RuntimeSdk, plane::free_port, process::GRACE_PERIOD};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::json;

fn api(management: &ManagementCluster, kind: &GroupVersionKind, plural: &str) -> Api<DynamicObject> {
    Api::all_with(management.client.clone(), &ApiResource::from_gvk_with_plural(kind, plural))
}

#[tokio::test]
async fn without_its_feature_gate_cluster_api_calls_no_hooks_and_the_manager_works() {
    let (management, cluster_api) =
        ManagementCluster::with_cluster_api("nohooks", RuntimeSdk::Disabled).await;
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let hooks = ["--hooks-pod-ip", "127.0.0.1", "--hooks-address", &address];
    let manager = management.start_manager_with(&hooks);
    eventually("the manager finds that the feature gate is disabled", || async {
        let log = std::fs::read_to_string(manager.log()).unwrap_or_default();
        log.contains("its feature gate RuntimeSDK is disabled").then_some(())
    })
    .await;
    let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let configs = api(&management, &kind, "extensionconfigs");
    assert_eq!(configs.list(&ListParams::default()).await.unwrap().items.len(), 0);

    let mut doctor = Command::new(programs::chandler());
    doctor.arg("doctor").env("KUBECONFIG", management.plane.kubeconfig_path());
    let text = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
    assert!(text.contains("hooks are off") && text.contains("RuntimeSDK"), "{text}");

    let placement = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": "hello", "namespace": "default"},
        "spec": {
            "clusterSelector": {"matchLabels": {"selects": "nothing"}},
            "repoURL": "https://charts.example", "chartName": "hello",
        },
    });
    apply::apply(&management.client, &placement).await.unwrap();
    let kind = GroupVersionKind::gvk("addons.cluster.x-k8s.io", "v1alpha1", "HelmChartProxy");
    let placements = api(&management, &kind, "helmchartproxies");
    eventually("the placement is reconciled", || async {
        let found = placements.list(&ListParams::default()).await.unwrap().items.pop()?;
        found.data["status"]["conditions"].as_array().filter(|all| !all.is_empty()).map(drop)
    })
    .await;
    manager.check().unwrap();
    manager.stop(GRACE_PERIOD).await;
    cluster_api.stop().await;
}
