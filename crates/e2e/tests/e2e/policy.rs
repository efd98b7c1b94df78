//! AddonPolicy: suspended releases, missing policies, dependencies, and what happens to unselected releases and to those of
//! deleted clusters.

use chandler_core::release::OperationKind;
use chandler_e2e::{
    chandler_command::run_ok,
    extension_world::ExtensionWorld,
    manager::{Manager, Operation},
    signals::signal_api_server,
    wait::{eventually, until},
    world::{World, config_value},
};
use chandler_sandbox::plane::Plane;
use kube::api::{DeleteParams, ListParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hooks::Hooks;

/// Placements of the same chart, each suspended in another way.
const SUSPENDED: [&str; 3] = ["by-policy", "by-placement", "by-release"];

/// Suspends or resumes each of [`SUSPENDED`] in its own way.
async fn set_suspended(world: &World, suspended: bool) {
    world.apply_policy("hold", json!({"suspend": suspended})).await;
    let verb = if suspended { "suspend" } else { "resume" };
    run_ok(world, &[verb, "hcp/by-placement"]).await;
    run_ok(world, &[verb, "hcp/by-release", "--cluster", "alpha"]).await;
}

fn histories(world: &World, plane: &Plane, releases: &[&str]) -> Vec<Vec<(u64, String)>> {
    releases.iter().map(|release| world.history(plane, release)).collect()
}

#[tokio::test]
async fn a_suspended_release_is_neither_upgraded_nor_removed_until_it_is_resumed() {
    let world = World::new("suspended").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_policy("hold", json!({"suspend": false})).await;
    world.apply_placement_with_policy("by-policy", "hello", "hold", json!({})).await;
    for name in ["by-placement", "by-release"] {
        world.apply_placement(name, "hello", json!({})).await;
    }
    for name in SUSPENDED {
        world.wait_ready(name, "alpha", 1).await;
    }
    set_suspended(&world, true).await;
    manager.wait_idle().await;
    let before = histories(&world, &alpha, &SUSPENDED);
    for name in SUSPENDED {
        // A release that is up to date stays Ready.
        world.wait_ready(name, "alpha", 1).await;
        world.patch_placement(name, json!({"valuesTemplate": "greeting: Later"})).await;
    }
    for name in SUSPENDED {
        world.wait_reason(name, "alpha", "Suspended").await;
    }
    manager.wait_idle().await;
    assert_eq!(histories(&world, &alpha, &SUSPENDED), before, "nothing is upgraded");
    set_suspended(&world, false).await;
    for name in SUSPENDED {
        world.wait_ready(name, "alpha", 2).await;
    }

    set_suspended(&world, true).await;
    manager.wait_idle().await;
    let before = histories(&world, &alpha, &SUSPENDED);
    for name in SUSPENDED {
        world.delete_placement(name).await;
    }
    for name in SUSPENDED {
        world.wait_reason(name, "alpha", "Suspended").await;
    }
    manager.wait_idle().await;
    assert_eq!(histories(&world, &alpha, &SUSPENDED), before, "nothing is removed");
    assert_eq!(manager.started(OperationKind::REMOVE), 0);
    set_suspended(&world, false).await;
    for name in SUSPENDED {
        world.wait_deleted(name).await;
    }
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}

#[tokio::test]
async fn suspending_withdraws_queued_operations_and_lets_running_ones_end() {
    const BOTH: [&str; 2] = ["first", "second"];
    let world = World::new("suspended-queue").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager_with(&["--concurrency", "1"]);
    world.apply_policy("hold", json!({"suspend": false})).await;
    for name in BOTH {
        world.apply_placement_with_policy(name, "hello", "hold", json!({})).await;
    }
    for name in BOTH {
        world.wait_ready(name, "alpha", 1).await;
    }
    manager.wait_idle().await;
    let queued = async || manager.metrics().await["chandler_operations_queued"] > 0.5;
    // While the API server is stopped, an operation begins and does not end.
    signal_api_server(&alpha, Signal::STOP).await;
    for name in BOTH {
        world.patch_placement(name, json!({"valuesTemplate": "greeting: Hi"})).await;
    }
    until("one upgrade is running and the other one is queued", async || {
        manager.started(OperationKind::UPGRADE) == 1 && queued().await
    })
    .await;
    world.apply_policy("hold", json!({"suspend": true})).await;
    until("nothing is queued", async || !queued().await).await;
    signal_api_server(&alpha, Signal::CONT).await;
    until("the running upgrade ends", async || manager.succeeded(OperationKind::UPGRADE) == 1).await;
    manager.wait_idle().await;
    assert_eq!(manager.started(OperationKind::UPGRADE), 1, "the queued one has not started");
    let mut lengths = BOTH.map(|name| world.history(&alpha, name).len());
    lengths.sort_unstable();
    assert_eq!(lengths, [1, 2]);
    world.apply_policy("hold", json!({"suspend": false})).await;
    for name in BOTH {
        world.wait_ready(name, "alpha", 2).await;
    }
}

/// Waits until all three releases are held because their policy does not exist.
async fn wait_held(test: &ExtensionWorld, platform: &str) {
    let world = &test.world;
    let own = format!("AddonPolicy {}/rules", world.namespace);
    let shared = format!("AddonPolicy {platform}/rules");
    for (name, policy) in [("own", &own), ("shared", &shared)] {
        let message = world.wait_reason(name, "alpha", "PolicyNotFound").await;
        assert!(message.contains(policy), "{message}");
        world.wait_condition(name, "alpha", "PolicyAccepted", ("False", "PolicyNotFound")).await;
    }
    let message = test.wait_release_reason("hello", "alpha", "PolicyNotFound").await;
    assert!(message.contains(&shared), "{message}");
}

#[tokio::test]
async fn a_missing_policy_holds_releases_and_a_changed_one_adds_no_revision() {
    let test = ExtensionWorld::new("policy-missing").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    let platform = world.sandbox.namespace("policy-platform").await.unwrap();
    let manager = world.start_manager_with(&["--platform-namespace", &platform]);
    world.apply_placement_with_policy("own", "hello", "rules", json!({})).await;
    world.apply_placement_with_policy("shared", "hello", "platform/rules", json!({})).await;
    test.apply_extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    let reference = json!({"name": "rules", "scope": "Platform"});
    test.apply_instance("hello", "hello", json!({"policyRef": reference})).await;
    wait_held(&test, &platform).await;
    assert_eq!(manager.operations(), [], "nothing is installed");

    // A policy of the same name in another namespace is another policy.
    world.apply_policy("rules", json!({})).await;
    world.wait_ready("own", "alpha", 1).await;
    world.wait_condition("own", "alpha", "PolicyAccepted", ("True", "Accepted")).await;
    manager.wait_idle().await;
    assert!(manager.operations().iter().all(|operation| operation.release == "default/own"));
    world.apply_policy_in(&platform, "rules", json!({})).await;
    world.wait_ready("shared", "alpha", 1).await;
    test.wait_ready("hello", "alpha", "1.0.0").await;
    world.wait_condition("shared", "alpha", "PolicyAccepted", ("True", "Accepted")).await;

    manager.wait_idle().await;
    let operations = manager.operations();
    let everything = json!({
        "remediation": {"retries": 1, "onFailure": "Rollback"}, "conflicts": "Force", "crds": "CreateReplace",
        "onUnselect": "Orphan", "onClusterDelete": "Uninstall", "health": {"enabled": false},
    });
    for namespace in [&world.namespace, &platform] {
        world.apply_policy_in(namespace, "rules", everything.clone()).await;
    }
    manager.wait_idle().await;
    assert_eq!(manager.operations(), operations, "a changed policy starts no operation");
    for release in ["own", "shared", "hello"] {
        assert_eq!(world.history(&alpha, release), [(1, "deployed".to_owned())]);
    }
}

/// Returns the releases and outcomes of the operations of a kind, in the order in which they were logged.
fn steps(manager: &Manager, kind: OperationKind) -> Vec<(String, Option<String>)> {
    let all = manager.operations().into_iter().filter(|operation| operation.kind == kind);
    all.map(|operation| (operation.release, operation.outcome)).collect()
}

/// Returns the start and the successful end of one operation for each release.
fn completed(releases: [&str; 2]) -> Vec<(String, Option<String>)> {
    let both = |release: &str| [(release.to_owned(), None), (release.to_owned(), Some("success".to_owned()))];
    releases.into_iter().flat_map(both).collect()
}

#[tokio::test]
async fn dependencies_across_kinds_are_installed_first_and_removed_last() {
    let test = ExtensionWorld::new("policy-order").await;
    let world = &test.world;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let depends_on = |kind: &str, name: &str| json!({"dependsOn": [{"kind": kind, "name": name}]});
    world.apply_policy("after-base", depends_on("ExtensionInstance", "base")).await;
    world.apply_placement_with_policy("app", "hello", "after-base", json!({})).await;
    let message = world.wait_reason("app", "alpha", "WaitingForDependencies").await;
    assert!(message.contains("ExtensionInstance base, which does not exist"), "{message}");
    test.apply_extension("base", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    test.apply_instance("base", "base", json!({})).await;
    world.wait_ready("app", "alpha", 1).await;
    test.wait_ready("base", "alpha", "1.0.0").await;
    assert_eq!(
        steps(&manager, OperationKind::INSTALL),
        completed(["default/base", "default/app"]),
        "the dependency is installed before the installation of its dependent starts"
    );

    test.instances().delete("base", &DeleteParams::default()).await.unwrap();
    let message = test.wait_release_reason("base", "alpha", "StillNeeded").await;
    assert!(message.contains("app"), "{message}");
    world.delete_placement("app").await;
    world.wait_deleted("app").await;
    eventually("the instance is deleted", || async {
        test.instances().get_opt("base").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(
        steps(&manager, OperationKind::REMOVE),
        completed(["default/app", "default/base"]),
        "the dependent is removed before the removal of its dependency starts"
    );

    // Each of two placements depends on the other one.
    world.apply_policy("after-right", depends_on("ExtensionInstance", "right")).await;
    world.apply_policy("after-left", depends_on("HelmChartProxy", "left")).await;
    world.apply_placement_with_policy("left", "hello", "after-right", json!({})).await;
    test.apply_extension("right", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    test.apply_instance("right", "right", json!({"policyRef": {"name": "after-left"}})).await;
    let cycle = "HelmChartProxy left -> ExtensionInstance right -> HelmChartProxy left";
    eventually("the cycle is reported", || async {
        let message = world.wait_reason("left", "alpha", "WaitingForDependencies").await;
        message.contains(cycle).then_some(())
    })
    .await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]), "none of them is installed");
    // A cycle does not prevent the deletion.
    world.delete_placement("left").await;
    world.wait_deleted("left").await;
}

#[tokio::test]
async fn a_policy_decides_what_happens_to_unselected_releases_and_to_those_of_deleted_clusters() {
    let world = World::new("policy-removal").await;
    let hooks = Hooks::new(&world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let alpha = world.create_cluster("alpha").await;
    world.apply_policy("orphan", json!({"onUnselect": "Orphan"})).await;
    world.apply_policy("uninstall", json!({"onClusterDelete": "Uninstall"})).await;
    world.apply_placement_with_policy("orphaned", "hello", "orphan", json!({})).await;
    world.apply_placement_with_policy("external", "hello", "uninstall", json!({})).await;
    world.apply_placement("plain", "hello", json!({})).await;
    for name in ["orphaned", "external", "plain"] {
        world.wait_ready(name, "alpha", 1).await;
    }

    let select = |fleet: &str| json!({"clusterSelector": {"matchLabels": {"fleet": fleet}}});
    world.patch_placement("orphaned", select("none")).await;
    eventually("the release object is deleted", || async {
        world.release("orphaned", "alpha").await.is_none().then_some(())
    })
    .await;
    manager.wait_idle().await;
    assert_eq!(world.history(&alpha, "orphaned"), [(1, "deployed".to_owned())], "the release stays");
    assert!(config_value(&alpha, "orphaned", "greeting").await.is_some(), "and so do its objects");
    world.patch_placement("orphaned", select("test")).await;
    world.wait_ready("orphaned", "alpha", 1).await;
    // A placement that is deleted is uninstalled.
    world.delete_placement("orphaned").await;
    world.wait_deleted("orphaned").await;
    assert_eq!(config_value(&alpha, "orphaned", "greeting").await, None);

    drop(alpha);
    hooks.clusters().delete("alpha", &DeleteParams::default()).await.unwrap();
    eventually("the Cluster is deleted", || async {
        hooks.clusters().get_opt("alpha").await.unwrap().is_none().then_some(())
    })
    .await;
    let removed = |operation: &Operation| operation.kind == OperationKind::REMOVE && operation.succeeded();
    let removed: Vec<_> = manager.operations().into_iter().filter(removed).map(|one| one.release).collect();
    assert_eq!(removed, ["default/orphaned", "default/external"]);
    eventually("the release objects are deleted", || async {
        world.releases().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}
