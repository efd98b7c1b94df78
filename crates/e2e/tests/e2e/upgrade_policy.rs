//! The `ValidatingAdmissionPolicy` of the chart: it rejects Kubernetes versions of Clusters without a topology that extensions
//! do not support.

use std::process::Command;

use chandler_e2e::{
    manager::Manager,
    packaging,
    self_hosted::{NAMESPACE, SelfHosted},
    wait::{eventually, until},
    world::hello,
};
use chandler_sandbox::{assets::Binary, provider::cluster_resource, testing};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Renders the policy from the packaged chart and applies it.
async fn apply_policy(test: &SelfHosted) {
    let assets = testing::assets().await.unwrap();
    let file = testing::fresh_dir("upgrade-policy-manifest").await.unwrap().join("policy.yaml");
    let mut helm = Command::new(assets.path(Binary::Helm));
    helm.arg("template").arg("chandler").arg(packaging::chart().await);
    helm.args(["--namespace", "chandler-system", "--set", "upgradePolicy.enabled=true"]);
    let rendered = helm.args(["--show-only", "templates/upgrade-policy.yaml"]).output().unwrap();
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    std::fs::write(&file, rendered.stdout).unwrap();
    let mut kubectl = Command::new(assets.path(Binary::Kubectl));
    kubectl.arg("--kubeconfig").arg(test.management.plane.kubeconfig_path());
    let applied = kubectl.args(["apply", "--filename"]).arg(&file).output().unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
}

/// Creates a Cluster without a topology, with a control plane that runs Kubernetes 1.34.
async fn create_cluster(test: &SelfHosted) {
    test.serve_control_planes().await;
    test.create_control_plane("alpha", "v1.34.4").await;
    test.report_version("alpha", Some("v1.34.4")).await;
    test.create_cluster_with_control_plane("alpha").await;
}

/// Applies an Extension with these versions, each with a range of Kubernetes versions.
async fn apply_extension(test: &SelfHosted, versions: &[(&str, &str)]) {
    let source = json!({"catalog": {"name": "charts"}, "chart": "hello"});
    let versions: Vec<_> = versions
        .iter()
        .map(|(version, kubernetes)| json!({"version": version, "kubernetes": kubernetes, "source": source}))
        .collect();
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
        "metadata": {"name": "net", "namespace": NAMESPACE}, "spec": {"versions": versions},
    }))
    .await;
}

async fn apply_instance(test: &SelfHosted) {
    test.repository.publish_version(&hello(), "1.1.0").unwrap();
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
        "metadata": {"name": "charts", "namespace": NAMESPACE},
        "spec": {"url": test.repository.url(), "certificateAuthority": {"name": "ca", "key": "ca.crt"}},
    }))
    .await;
    test.apply(&json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
        "metadata": {"name": "net", "namespace": NAMESPACE},
        "spec": {
            "extension": {"name": "net"}, "clusters": {"selector": {"matchLabels": {"cluster": "alpha"}}},
            "release": {"namespace": NAMESPACE},
        },
    }))
    .await;
}

fn clusters(test: &SelfHosted) -> Api<DynamicObject> {
    Api::namespaced_with(test.management.client.clone(), NAMESPACE, &cluster_resource())
}

/// Asks the API server whether the version could be changed. Returns why it could not.
async fn rejection(test: &SelfHosted, version: &str) -> Option<String> {
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"version": version}}));
    test.control_planes().patch("alpha", &dry_run, &patch).await.err().map(|error| error.to_string())
}

async fn wait_accepted(test: &SelfHosted, version: &str, why: &str) {
    until(&format!("{version} is accepted: {why}"), async || rejection(test, version).await.is_none()).await;
}

async fn wait_rejected(test: &SelfHosted, version: &str) -> String {
    eventually(&format!("{version} is rejected"), || rejection(test, version)).await
}

async fn patch_cluster(test: &SelfHosted, patch: Value) {
    clusters(test).patch("alpha", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until the condition `AddonsUpgradable` of the Cluster has this status.
async fn wait_upgradable(test: &SelfHosted, status: &str) {
    until(&format!("AddonsUpgradable is {status}"), async || {
        let cluster = clusters(test).get("alpha").await.unwrap();
        let conditions = cluster.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.is_some_and(|all| {
            all.iter().any(|one| one["type"] == "AddonsUpgradable" && one["status"] == status)
        })
    })
    .await;
}

#[tokio::test]
async fn a_version_that_an_extension_does_not_support_is_rejected_without_a_topology() {
    let test = SelfHosted::new("upgrade-policy").await;
    create_cluster(&test).await;
    apply_extension(&test, &[("1.0.0", "<1.35")]).await;
    apply_instance(&test).await;
    let manager = Manager::from_process(test.management.start_manager());
    wait_upgradable(&test, "False").await;
    assert_eq!(rejection(&test, "v1.35.4").await, None, "the policy is off by default");
    apply_policy(&test).await;

    let rejected = wait_rejected(&test, "v1.35.4").await;
    for expected in ["Cluster alpha", "v1.35.4", "Kubernetes 1.35: ", "net", "chandler.dev/proceed"] {
        assert!(rejected.contains(expected), "{expected}: {rejected}");
    }
    assert_eq!(rejection(&test, "v1.34.9").await, None, "the same minor version");
    assert_eq!(rejection(&test, "v1.34.4").await, None, "no change");

    let proceed = |value: Value| json!({"metadata": {"annotations": {"chandler.dev/proceed": value}}});
    patch_cluster(&test, proceed(json!("BeforeClusterUpgrade"))).await;
    wait_accepted(&test, "v1.35.4", "a user has overridden it").await;
    patch_cluster(&test, proceed(Value::Null)).await;
    wait_rejected(&test, "v1.35.4").await;

    let topology = |value: Value| json!({"spec": {"topology": value}});
    patch_cluster(&test, topology(json!({"classRef": {"name": "class"}, "version": "v1.34.4"}))).await;
    wait_accepted(&test, "v1.35.4", "Cluster API calls hooks").await;
    patch_cluster(&test, topology(Value::Null)).await;
    wait_rejected(&test, "v1.35.4").await;

    apply_extension(&test, &[("1.0.0", "<1.35"), ("1.1.0", "*")]).await;
    wait_upgradable(&test, "True").await;
    wait_accepted(&test, "v1.35.4", "the extension has a version for it").await;
    manager.stop().await;
}
