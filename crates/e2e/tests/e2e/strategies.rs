//! Behavior that users of the Cluster API Add-on Provider for Helm (CAAPH) rely on.

use chandler_e2e::{
    wait::eventually,
    world::{World, condition, config_value, hello},
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

#[tokio::test]
async fn install_once_neither_upgrades_nor_uninstalls_the_release() {
    let world = World::new("once").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world
        .apply_placement(
            "hello",
            "hello",
            json!({"reconcileStrategy": "InstallOnce", "valuesTemplate": "greeting: First"}),
        )
        .await;
    world.wait_ready("hello", "alpha", 1).await;
    eventually("the release is marked as installed", || async {
        let annotations = world.release("hello", "alpha").await?.metadata.annotations?;
        annotations
            .contains_key("helmreleaseproxy.addons.cluster.x-k8s.io/release-successfully-installed")
            .then_some(())
    })
    .await;
    let archive = world.archive(&hello()).to_string_lossy().into_owned();
    let upgrade = ["upgrade", "hello", &archive, "--namespace", "default", "--set", "greeting=ByHand"];
    assert!(world.helm_command(&alpha, &upgrade).output().unwrap().status.success());
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Second"})).await;
    eventually("the manager has seen the change", || async {
        let placement = world.placements().get("hello").await.unwrap();
        (placement.status?.observed_generation == placement.metadata.generation).then_some(())
    })
    .await;
    manager.wait_idle().await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("ByHand from somewhere"));

    let unlabeled = Patch::Merge(json!({"metadata": {"labels": {"fleet": null}}}));
    world.clusters().patch("alpha", &PatchParams::default(), &unlabeled).await.unwrap();
    world.delete_placement("hello").await;
    world.wait_deleted("hello").await;
    assert_eq!(world.history(&alpha, "hello").len(), 2, "the release is not uninstalled");
}

/// The manager does not run while the Cluster is replaced, so that the release object of the old one is still there.
#[tokio::test]
async fn a_release_that_is_installed_once_is_installed_on_a_cluster_that_was_created_again() {
    let world = World::new("once-again").await;
    let _old = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"reconcileStrategy": "InstallOnce"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    eventually("the release is marked as installed", || async {
        let annotations = world.release("hello", "alpha").await?.metadata.annotations?;
        annotations.contains_key("chandler.dev/installed-on").then_some(())
    })
    .await;
    manager.stop().await;

    world.clusters().delete("alpha", &DeleteParams::default()).await.unwrap();
    eventually("the Cluster is deleted", || async {
        world.clusters().get_opt("alpha").await.unwrap().is_none().then_some(())
    })
    .await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    eventually("the release is installed on the new cluster", || async {
        config_value(&alpha, "hello", "greeting").await
    })
    .await;
    world.wait_ready("hello", "alpha", 1).await;
    manager.stop().await;
}

#[tokio::test]
async fn a_conflict_is_explained_and_resolved_by_take_ownership() {
    let world = World::new("ownership").await;
    let alpha = world.create_cluster("alpha").await;
    let maps: Api<ConfigMap> = Api::namespaced(alpha.client().await.unwrap(), "default");
    let mut existing = ConfigMap::default();
    existing.metadata.name = Some("hello".to_owned());
    maps.create(&PostParams::default(), &existing).await.unwrap();
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    let failed = world
        .wait_status("hello", "alpha", "in conflict", |status| {
            status.last_failure.as_ref().is_some_and(|failure| failure.category == "Conflict")
        })
        .await;
    assert!(condition(&failed, "Ready").unwrap().message.contains("hello"), "{failed:?}");
    world.patch_placement("hello", json!({"options": {"takeOwnership": true}})).await;
    world.wait_ready_at_any_revision("hello", "alpha").await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hello from somewhere"));
}

#[tokio::test]
async fn a_paused_cluster_is_left_unchanged_until_it_is_resumed() {
    let world = World::new("paused").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let paused = |value: bool| Patch::Merge(json!({"spec": {"paused": value}}));
    world.clusters().patch("alpha", &PatchParams::default(), &paused(true)).await.unwrap();
    manager.wait_idle().await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Later"})).await;
    world.delete_placement("hello").await;
    manager.wait_idle().await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())], "neither upgraded nor removed");
    world.clusters().patch("alpha", &PatchParams::default(), &paused(false)).await.unwrap();
    world.wait_deleted("hello").await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}

#[tokio::test]
async fn a_generated_release_name_does_not_change() {
    let world = World::new("generated").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"releaseName": ""})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let name = world.release("hello", "alpha").await.unwrap().spec.release_name;
    assert!(name.starts_with("hello-"), "{name}");
    manager.stop().await;
    let _manager = world.start_manager();
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(world.release("hello", "alpha").await.unwrap().spec.release_name, name);
    assert_eq!(world.history(&alpha, &name).len(), 2);
}

#[tokio::test]
async fn execution_options_reach_the_release_object_and_add_no_revision() {
    let world = World::new("options").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let options = json!({"options": {"wait": true, "timeout": "5m", "install": {"createNamespace": false}}});
    world.patch_placement("hello", options).await;
    eventually("the options reach the release object", || async {
        let options = world.release("hello", "alpha").await?.spec.options;
        (options.wait && !options.install.create_namespace).then_some(())
    })
    .await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello").len(), 1, "they apply to the next operation only");
    world.patch_placement("hello", json!({"options": {"disableHooks": true}})).await;
    world.wait_ready("hello", "alpha", 2).await;
}

#[tokio::test]
async fn long_names_and_new_namespaces_are_supported() {
    let world = World::new("long").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    let name = "n".repeat(80);
    world.apply_placement(&name, "hello", json!({"releaseName": "hello", "namespace": "created"})).await;
    let ready = eventually("the release is ready", || async {
        let release = world.releases().list(&kube::api::ListParams::default()).await.unwrap().items.pop()?;
        let ready = condition(release.status.as_ref()?, "Ready")?.status == "True";
        ready.then_some(release)
    })
    .await;
    assert!(ready.metadata.name.unwrap().len() <= 63);
    let list = world.helm(&alpha, &["list", "--namespace", "created"]);
    assert_eq!(list.as_array().unwrap().len(), 1, "the namespace was created");
}
