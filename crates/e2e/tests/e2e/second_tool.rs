//! A second package tool beside the Helm driver, selected by the format of the package.

use chandler_api::extensions::AddonRelease;
use chandler_core::release::OperationKind;
use chandler_e2e::{
    extension_world::{ExtensionWorld, is_ready},
    manager::Manager,
    oci, programs,
    wait::eventually,
    world::{condition, config_value},
};
use chandler_sandbox::{plane::Plane, registry::Registry};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

const TOOL: &str = env!("CARGO_BIN_EXE_manifest-tool");
const FORMAT: &str = "application/vnd.chandler.test.manifests.v1+yaml";

/// A package of one ConfigMap that contains its version and its values.
fn package(version: &str) -> Vec<u8> {
    let manifest = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: $(release)\ndata:\n  version: \"{version}\"\n  values: $(values)\n"
    );
    json!({"name": "notice", "version": version, "manifests": [manifest]}).to_string().into_bytes()
}

/// Starts a registry with an Extension whose packages are of the second tool's format.
async fn start_registry(test: &ExtensionWorld) -> Registry {
    let home = test.world.dir.join("registry");
    std::fs::create_dir_all(&home).unwrap();
    let authority = test.world.sandbox.authority();
    let registry = Registry::start(test.world.sandbox.assets(), authority, &home).await.unwrap();
    publish(test, &registry).await;
    registry
}

async fn publish(test: &ExtensionWorld, registry: &Registry) {
    for version in ["1.0.0", "2.0.0"] {
        oci::push(registry, "notice", version, FORMAT, &package(version)).await;
    }
    let namespace = &test.world.namespace;
    let catalog = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
        "metadata": {"name": "artifacts", "namespace": namespace},
        "spec": {
            "url": registry.url(), "certificateAuthority": {"name": "ca", "key": "ca.crt"},
            "filter": {"include": ["notice"]},
        },
    });
    let source = json!({"catalog": {"name": "artifacts"}, "chart": "notice"});
    let version = |version: &str| json!({"version": version, "kubernetes": "*", "source": source});
    let extension = json!({
        "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
        "metadata": {"name": "notice", "namespace": namespace},
        "spec": {"versions": [version("1.0.0"), version("2.0.0")]},
    });
    test.world.apply(&catalog).await;
    test.world.apply(&extension).await;
}

fn manager(test: &ExtensionWorld) -> Manager {
    test.world.start_manager_with(&["--tool", programs::package_tool(), "--tool", TOOL])
}

async fn change(test: &ExtensionWorld, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    test.instances().patch("notice", &PatchParams::default(), &patch).await.unwrap();
}

/// The records of the second tool: revision and status, in the order of revisions, and their resource versions.
async fn records(alpha: &Plane) -> Vec<(u32, String, Option<String>)> {
    let api: Api<ConfigMap> = Api::namespaced(alpha.client().await.unwrap(), "default");
    let selector = ListParams::default().labels("manifest-tool.chandler.dev/record=true");
    let records = api.list(&selector).await.unwrap().items;
    let mut all: Vec<_> = records
        .iter()
        .map(|record| {
            let label = |name: &str| record.labels()[&format!("manifest-tool.chandler.dev/{name}")].clone();
            (label("revision").parse().unwrap(), label("status"), record.resource_version())
        })
        .collect();
    all.sort();
    all
}

fn short(records: &[(u32, String, Option<String>)]) -> Vec<(u32, &str)> {
    records.iter().map(|(revision, status, _)| (*revision, status.as_str())).collect()
}

/// Waits until the release is ready with a value.
async fn ready_with(test: &ExtensionWorld, alpha: &Plane, version: &str, notice: &str) -> AddonRelease {
    let release = test.wait_ready("notice", "alpha", version).await;
    let expected = format!("{{\"text\":\"{notice}\"}}");
    eventually(&format!("the ConfigMap has the text {notice}"), || async {
        let values = config_value(alpha, "notice", "values").await?;
        let release = test.release("notice", "alpha").await?;
        (values == expected && is_ready(&release)).then_some(())
    })
    .await;
    assert_eq!(config_value(alpha, "notice", "version").await.as_deref(), Some(version));
    release
}

#[tokio::test]
async fn a_second_tool_installs_upgrades_recovers_and_removes_its_packages() {
    let test = ExtensionWorld::new("second-tool").await;
    let alpha = test.world.create_cluster("alpha").await;
    let registry = start_registry(&test).await;
    test.apply_extension("hello", json!([{"version": "1.1.0", "kubernetes": "*"}]), json!({})).await;

    // Both tools serve their packages, each selected by the format.
    let first = manager(&test);
    test.apply_instance("notice", "notice", json!({"version": "1.0.0", "parameters": {"text": "one"}})).await;
    test.apply_instance("hello", "hello", json!({})).await;
    let release = ready_with(&test, &alpha, "1.0.0", "one").await;
    test.wait_ready("hello", "alpha", "1.1.0").await;
    let status = release.status.unwrap();
    assert_eq!(status.package.unwrap().format.as_deref(), Some(FORMAT));
    assert_eq!((status.revision, status.status.as_str()), (Some(1), "deployed"));
    let installed = records(&alpha).await;
    assert_eq!(short(&installed), [(1, "deployed")]);
    let listed = test.world.helm(&alpha, &["list", "--all-namespaces"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "Helm knows of its own release only: {listed}");

    // A restart changes nothing and calls no tool.
    first.wait_idle().await;
    first.stop().await;
    let second = manager(&test);
    second.wait_idle().await;
    assert_eq!(records(&alpha).await, installed);
    assert_eq!(second.operations(), [], "a restart operates on nothing");

    // An upgrade is one revision.
    change(&test, json!({"version": "2.0.0"})).await;
    ready_with(&test, &alpha, "2.0.0", "one").await;
    assert_eq!(short(&records(&alpha).await), [(1, "superseded"), (2, "deployed")]);

    // kill -9 of the manager in the middle of operations.
    let mut current = second;
    for round in 0..3 {
        // An interrupted upgrade is followed by a recovery.
        let starts = |manager: &Manager| {
            manager.started(OperationKind::UPGRADE) + manager.started(OperationKind::RECOVER)
        };
        let before = starts(&current);
        change(&test, json!({"parameters": {"text": format!("round {round}")}})).await;
        eventually("an operation starts", || async { (starts(&current) > before).then_some(()) }).await;
        current.kill().await;
        current = manager(&test);
    }
    ready_with(&test, &alpha, "2.0.0", "round 2").await;
    let deployed = records(&alpha).await.into_iter().filter(|(_, status, _)| status == "deployed").count();
    assert_eq!(deployed, 1, "one revision is the current one");

    // Removal leaves neither objects nor records.
    test.instances().delete("notice", &DeleteParams::default()).await.unwrap();
    eventually("the release is gone", || async {
        let gone = test.release("notice", "alpha").await.is_none();
        (gone && config_value(&alpha, "notice", "version").await.is_none()).then_some(())
    })
    .await;
    assert_eq!(records(&alpha).await, []);
    assert!(config_value(&alpha, "hello", "greeting").await.is_some(), "the Helm release stays");
    current.stop().await;
    registry.stop().await;
}

#[tokio::test]
async fn drift_and_tests_are_unknown_with_a_tool_that_cannot_check_them() {
    let test = ExtensionWorld::new("unchecked").await;
    let alpha = test.world.create_cluster("alpha").await;
    let registry = start_registry(&test).await;
    let manager = manager(&test);
    test.world.apply_policy("checked", json!({"drift": {"mode": "Correct"}, "test": {}})).await;
    let fields = json!({"version": "1.0.0", "parameters": {"text": "one"}, "policyRef": {"name": "checked"}});
    test.apply_instance("notice", "notice", fields).await;
    ready_with(&test, &alpha, "1.0.0", "one").await;
    let unknown = [
        ("Drifted", "DriftUnknown", "the package tool cannot compare objects"),
        ("Tested", "TestsUnknown", "the package tool cannot run tests"),
    ];
    for (type_, reason, message) in unknown {
        eventually(&format!("{type_} is Unknown: {message}"), || async {
            let status = test.release("notice", "alpha").await?.status?;
            let found = condition(&status, type_)?;
            let found = (&*found.status, &*found.reason, &*found.message);
            (found.0 == "Unknown" && found.1 == reason && found.2.starts_with(message)).then_some(())
        })
        .await;
    }

    // A change by hand stays, and the tool is not called.
    let maps: Api<ConfigMap> = Api::namespaced(alpha.client().await.unwrap(), "default");
    let by_hand = Patch::Merge(json!({"data": {"version": "by hand"}}));
    maps.patch("notice", &PatchParams::default(), &by_hand).await.unwrap();
    manager.wait_idle().await;
    assert_eq!(config_value(&alpha, "notice", "version").await.as_deref(), Some("by hand"));
    let checks = [OperationKind::Compare, OperationKind::Test].map(|kind| manager.started(kind));
    assert_eq!(checks, [0, 0]);
    let release = test.release("notice", "alpha").await.unwrap();
    assert!(is_ready(&release), "Ready does not depend on what cannot be checked");
    manager.stop().await;
    registry.stop().await;
}

#[tokio::test]
async fn a_package_that_no_tool_reads_is_refused() {
    let test = ExtensionWorld::new("no-tool").await;
    let _alpha = test.world.create_cluster("alpha").await;
    let registry = start_registry(&test).await;
    let manager = test.world.start_manager();
    test.apply_instance("notice", "notice", json!({"version": "1.0.0"})).await;
    let message = eventually("the condition names the format", || async {
        let message = test.wait_instance_reason("notice", "NotAllReady").await;
        message.contains(FORMAT).then_some(message)
    })
    .await;
    assert!(message.contains("--tool"), "{message}");
    assert_eq!(manager.operations(), [], "nothing is installed");
    manager.stop().await;
    registry.stop().await;
}
