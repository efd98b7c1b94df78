//! Packages of folders of Sources: charts, kustomizations and plain manifests, per cluster, and what a push changes.

use chandler_core::{package_format::PackageFormat, release::OperationKind};
use chandler_e2e::{
    extension_world::ExtensionWorld,
    git_repository::{CHART, Repository, TEMPLATE, apply_folder, map, wait_pinned, wait_revision},
    wait::eventually,
    world::config_value,
};
use serde_json::json;

const SCHEMA: &str = r#"{"properties": {"greeting": {"type": "string"}}}"#;

/// Waits until the condition `Ready` of an instance has a message with this text.
async fn wait_message(test: &ExtensionWorld, instance: &str, expected: &str) -> String {
    eventually(&format!("{instance} reports {expected}"), || async {
        let status = test.instances().get(instance).await.unwrap().status?;
        let ready = status.placement.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False" && ready.message.contains(expected)).then_some(ready.message)
    })
    .await
}

#[tokio::test]
async fn a_push_upgrades_a_chart_and_a_commit_elsewhere_does_not() {
    let test = ExtensionWorld::new("git-chart").await;
    let alpha = test.world.create_cluster("alpha").await;
    let manager = test.world.start_manager();
    let repository = Repository::new(&test).await;
    let first = repository
        .push(&[
            ("greeter/Chart.yaml", CHART),
            ("greeter/values.yaml", "greeting: Hello\n"),
            ("greeter/values.schema.json", SCHEMA),
            ("greeter/templates/map.yaml", TEMPLATE),
        ])
        .await;
    apply_folder(&test, "greeter", "greeter", json!({})).await;
    let release = wait_pinned(&test, "greeter", "alpha", &first).await;
    let pinned = release.spec.pinned.unwrap();
    assert_eq!((pinned.format, pinned.includes_values), (None, false));
    assert_eq!(release.status.unwrap().package.unwrap().digest, pinned.digest);
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Hello"));

    // A commit that does not change the folder starts no operation and writes no release object.
    let elsewhere = repository.push(&[("README.md", "text")]).await;
    wait_revision(&test, &elsewhere).await;
    manager.wait_idle().await;
    wait_pinned(&test, "greeter", "alpha", &first).await;
    assert_eq!(test.world.history(&alpha, "greeter").len(), 1);

    // The schema of the chart is checked before anything is sent to the cluster.
    apply_folder(&test, "greeter", "greeter", json!({"parameters": {"greeting": 7}})).await;
    wait_message(&test, "greeter", "greeting").await;
    apply_folder(&test, "greeter", "greeter", json!({})).await;

    let second = repository.push(&[("greeter/values.yaml", "greeting: Good morning\n")]).await;
    wait_pinned(&test, "greeter", "alpha", &second).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Good morning"));

    // A folder that is deleted is reported; the release is left unchanged. A revert is enough.
    repository.tree.git(&["rm", "-r", "--quiet", "greeter"]).await.unwrap();
    repository.push(&[]).await;
    wait_message(&test, "greeter", "has no folder").await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Good morning"));
    repository.tree.git(&["revert", "--no-edit", "HEAD"]).await.unwrap();
    repository.tree.push().await.unwrap();
    wait_pinned(&test, "greeter", "alpha", &second).await;
    manager.wait_idle().await;
    assert_eq!(test.world.history(&alpha, "greeter").len(), 2);

    // A manager with an empty store makes the package again.
    manager.stop().await;
    std::fs::remove_dir_all(test.world.dir.join("store")).unwrap();
    let manager = test.world.start_manager();
    let third = repository.push(&[("greeter/values.yaml", "greeting: Good night\n")]).await;
    wait_pinned(&test, "greeter", "alpha", &third).await;
    manager.wait_idle().await;
    assert_eq!((manager.started(OperationKind::REMOVE), test.world.history(&alpha, "greeter").len()), (0, 3));
}

#[tokio::test]
async fn plain_manifests_are_a_release_with_pruning_and_history() {
    let test = ExtensionWorld::new("git-manifests").await;
    let alpha = test.world.create_cluster("alpha").await;
    let _manager = test.world.start_manager();
    let repository = Repository::new(&test).await;
    let first = repository.push(&[("maps/a.yaml", &map("a", "1")), ("maps/b.yaml", &map("b", "1"))]).await;
    apply_folder(&test, "maps", "maps", json!({})).await;
    let release = wait_pinned(&test, "maps", "alpha", &first).await;
    assert_eq!(release.spec.pinned.unwrap().format.as_deref(), Some(PackageFormat::MANIFESTS));
    assert_eq!(config_value(&alpha, "b", "value").await.as_deref(), Some("1"));

    repository.tree.git(&["rm", "--quiet", "maps/b.yaml"]).await.unwrap();
    let second = repository.push(&[("maps/a.yaml", &map("a", "2"))]).await;
    wait_pinned(&test, "maps", "alpha", &second).await;
    assert_eq!(config_value(&alpha, "a", "value").await.as_deref(), Some("2"));
    assert_eq!(config_value(&alpha, "b", "value").await, None, "what is no longer in the folder is deleted");
    assert_eq!(test.world.history(&alpha, "maps").len(), 2);

    // With parameters, manifests are templates.
    let third = repository.push(&[("maps/a.yaml", &map("a", "{{ .Values.size }}"))]).await;
    apply_folder(&test, "maps", "maps", json!({"parameters": {"size": "large"}})).await;
    wait_pinned(&test, "maps", "alpha", &third).await;
    eventually("the parameter is used", || async {
        (config_value(&alpha, "a", "value").await.as_deref() == Some("large")).then_some(())
    })
    .await;

    // The folder becomes a chart. The same tool installs both, so it is still the same release.
    repository.tree.git(&["rm", "-r", "--quiet", "maps"]).await.unwrap();
    let chart = [
        ("maps/Chart.yaml", CHART),
        ("maps/values.yaml", "greeting: Hello\n"),
        ("maps/templates/map.yaml", TEMPLATE),
    ];
    let fourth = repository.push(&chart).await;
    wait_pinned(&test, "maps", "alpha", &fourth).await;
    assert_eq!(config_value(&alpha, "maps", "greeting").await.as_deref(), Some("Hello"));
    assert_eq!(config_value(&alpha, "a", "value").await, None);
}

#[tokio::test]
async fn kustomizations_and_folders_may_differ_per_cluster() {
    let test = ExtensionWorld::new("git-kustomize").await;
    let alpha = test.world.create_cluster("alpha").await;
    let bravo = test.world.create_cluster("bravo").await;
    let manager = test.world.start_manager();
    let repository = Repository::new(&test).await;
    let overlay = |suffix: &str| format!("resources: [../../base]\nnameSuffix: -{suffix}\n");
    let first = repository
        .push(&[
            ("base/kustomization.yaml", "resources: [map.yaml]\n"),
            ("base/map.yaml", &map("base", "1")),
            ("overlays/alpha/kustomization.yaml", &overlay("a")),
            ("overlays/bravo/kustomization.yaml", &overlay("b")),
        ])
        .await;
    apply_folder(&test, "overlay", "overlays/{{ .Cluster.metadata.name }}", json!({})).await;
    let release = wait_pinned(&test, "overlay", "alpha", &first).await;
    assert_eq!(release.spec.source.path.as_deref(), Some("overlays/alpha"));
    assert!(release.spec.pinned.unwrap().includes_values);
    wait_pinned(&test, "overlay", "bravo", &first).await;
    assert_eq!(config_value(&alpha, "base-a", "value").await.as_deref(), Some("1"));
    assert_eq!(config_value(&bravo, "base-b", "value").await.as_deref(), Some("1"));

    // Only the cluster whose folder has changed is upgraded.
    let second = repository.push(&[("overlays/bravo/kustomization.yaml", &overlay("c"))]).await;
    wait_pinned(&test, "overlay", "bravo", &second).await;
    manager.wait_idle().await;
    wait_pinned(&test, "overlay", "alpha", &first).await;
    assert_eq!(test.world.history(&alpha, "overlay").len(), 1);
    assert_eq!(config_value(&bravo, "base-b", "value").await, None);

    // A file outside of the folder that the kustomization refers to.
    let third = repository.push(&[("base/map.yaml", &map("base", "2"))]).await;
    wait_pinned(&test, "overlay", "alpha", &third).await;
    assert_eq!(config_value(&alpha, "base-a", "value").await.as_deref(), Some("2"));

    // A bad commit is reported with the file, and changes nothing.
    repository.push(&[("base/kustomization.yaml", "resources: [missing.yaml]\n")]).await;
    wait_message(&test, "overlay", "missing.yaml").await;
    manager.wait_idle().await;
    assert_eq!(config_value(&alpha, "base-a", "value").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_version_of_an_extension_may_be_a_folder() {
    let test = ExtensionWorld::new("git-extension").await;
    let alpha = test.world.create_cluster("alpha").await;
    let _manager = test.world.start_manager();
    let repository = Repository::new(&test).await;
    let files = [
        ("greeter/Chart.yaml", CHART),
        ("greeter/values.yaml", "greeting: Hello\n"),
        ("greeter/templates/map.yaml", TEMPLATE),
        ("future/Chart.yaml", "apiVersion: v2\nname: greeter\nversion: 0.2.0\nkubeVersion: '>=1.90.0-0'\n"),
        ("future/templates/map.yaml", TEMPLATE),
    ];
    let first = repository.push(&files).await;
    let version = |version: &str, path: &str| json!({"version": version, "source": {"sourceRef": {"name": "apps"}, "path": path}});
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
            "metadata": {"name": "greeter", "namespace": test.world.namespace},
            "spec": {"versions": [version("1.0.0", "greeter"), version("2.0.0", "future")]},
        }))
        .await;
    test.apply_instance("greeter", "greeter", json!({})).await;
    // The `kubeVersion` of the chart decides that the newer version does not fit.
    let release = test.wait_ready("greeter", "alpha", "1.0.0").await;
    assert_eq!(release.spec.pinned.unwrap().revision, first);
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Hello"));

    let second = repository.push(&[("greeter/values.yaml", "greeting: Good morning\n")]).await;
    wait_pinned(&test, "greeter", "alpha", &second).await;
    assert_eq!(config_value(&alpha, "greeter", "greeting").await.as_deref(), Some("Good morning"));
    assert_eq!(test.world.history(&alpha, "greeter").len(), 2);
}

#[tokio::test]
async fn tags_of_a_source_are_followed_by_kubernetes_versions() {
    let test = ExtensionWorld::new("git-tags").await;
    let alpha = test.world.create_cluster("alpha").await;
    let _manager = test.world.start_manager();
    let repository = Repository::new(&test).await;
    for number in [33, 34, 35] {
        repository.push(&[("maps/a.yaml", &map("a", &number.to_string()))]).await;
        repository.tree.git(&["tag", &format!("v1.{number}")]).await.unwrap();
    }
    let tagged = repository.tree.git(&["rev-list", "-n", "1", "v1.34"]).await.unwrap();
    repository.push(&[("maps/a.yaml", &map("a", "main"))]).await;
    test.world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "Extension",
            "metadata": {"name": "maps", "namespace": test.world.namespace},
            "spec": {"followKubernetes": {"sourceRef": {"name": "apps"}, "path": "maps"}},
        }))
        .await;
    test.apply_instance("maps", "maps", json!({})).await;
    let release = test.wait_ready("maps", "alpha", "v1.34").await;
    assert_eq!(release.spec.pinned.unwrap().revision, tagged);
    assert_eq!(config_value(&alpha, "a", "value").await, Some("34".to_owned()));

    // The branch stays where it is, so only a poll of the tags can notice this.
    let moved = repository.tree.git(&["rev-list", "-n", "1", "v1.35"]).await.unwrap();
    repository.tree.git(&["tag", "--force", "v1.34", &moved]).await.unwrap();
    repository.tree.push().await.unwrap();
    wait_pinned(&test, "maps", "alpha", &moved).await;
    assert_eq!(config_value(&alpha, "a", "value").await, Some("35".to_owned()));
}
