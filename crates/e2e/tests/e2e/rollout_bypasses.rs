//! What users do while a change is checked is no way for it to reach other clusters.

use chandler_api::status::RolloutState;
use chandler_e2e::{
    chandler_command::run_ok,
    wait::eventually_within,
    world::{World, condition},
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    rollout::LIMIT,
    rollout_health::{
        FIRST, SECOND, apply_careful, apply_fragile, assert_stopped_at_first, change, is_unhealthy, rollout,
        two_clusters, wait_installed, wait_state, wait_updated,
    },
};

const BROKEN: &str = "change: two\nnode: missing\n";

async fn set_paused(world: &World, paused: bool) {
    let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
    world.clusters().patch(FIRST, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn undoing_pausing_or_renaming_a_release_does_not_let_a_change_on() {
    let world = World::new("rollout-bypasses").await;
    let _planes = two_clusters(&world).await;
    apply_careful(&world, "undone", json!({})).await;
    apply_careful(&world, "renamed", json!({"timeout": "45s"})).await;
    apply_careful(&world, "paused", json!({"timeout": "45s", "minReady": "1s"})).await;
    let manager = world.start_manager();
    let names = ["undone", "renamed", "paused"];
    for name in names {
        apply_fragile(&world, name).await;
    }
    wait_installed(&world, &names).await;

    let moved = json!({"releaseName": "moved", "namespace": "elsewhere", "valuesTemplate": BROKEN});
    world.patch_placement("renamed", moved).await;
    change(&world, "undone", BROKEN).await;
    wait_updated(&world, "undone", is_unhealthy).await;
    run_ok(&world, &["rollback", "hcp/undone", "--cluster", FIRST]).await;
    world.wait_reason("undone", FIRST, "RolledBack").await;
    assert_stopped_at_first(&world, "undone").await;
    run_ok(&world, &["rollout", "resume", "hcp/undone"]).await;
    eventually_within(LIMIT, "a user has decided", || async {
        world.release("undone", SECOND).await.filter(|release| release.spec.values.contains("two"))
    })
    .await;

    assert_stopped_at_first(&world, "renamed").await;
    let replaced = world.release("renamed", FIRST).await.unwrap();
    assert_eq!(replaced.spec.release_name, "moved");
    world.patch_placement("renamed", json!({"valuesTemplate": "change: three"})).await;
    assert_eq!(wait_state(&world, "renamed", RolloutState::Done).await.updated, 2);
    let replaced = world.release("renamed", SECOND).await.unwrap();
    assert_eq!(replaced.spec.release_namespace, "elsewhere");

    change(&world, "paused", BROKEN).await;
    wait_updated(&world, "paused", |_| true).await;
    set_paused(&world, true).await;
    eventually_within(LIMIT, "the rollout is held", || async {
        rollout(&world, "paused").await.filter(|rollout| rollout.message.contains("1 paused or suspended"))
    })
    .await;
    manager.wait_idle().await;
    let held = rollout(&world, "paused").await.unwrap();
    assert_eq!((held.updating, held.waiting, held.failed), (1, 1, 0), "{held:?}");
    assert_eq!(world.release("paused", SECOND).await.unwrap().status.unwrap().revision, Some(1));
    set_paused(&world, false).await;
    assert_stopped_at_first(&world, "paused").await;
    change(&world, "paused", "change: three").await;
    assert_eq!(wait_state(&world, "paused", RolloutState::Done).await.updated, 2);
    manager.stop().await;
}

/// Writes the ConfigMap whose values the policy names.
async fn apply_settings(world: &World, values: &str) {
    let object: Value = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"values.yaml": values},
        "metadata": {"name": "settings", "namespace": world.namespace},
    });
    world.apply(&object).await;
}

/// Waits until the values of a release contain a text.
async fn wait_values(world: &World, cluster: &str, text: &str) {
    eventually_within(LIMIT, &format!("{cluster} has {text}"), || async {
        world.release("settings", cluster).await.filter(|release| release.spec.values.contains(text))
    })
    .await;
}

#[tokio::test]
async fn values_from_elsewhere_that_change_during_the_last_wave_begin_with_the_first() {
    let world = World::new("rollout-values").await;
    let _planes = two_clusters(&world).await;
    let settings = json!({"maxConcurrent": 1, "minReady": "15s"});
    let values_from = json!([{"configMap": {"name": "settings", "key": "values.yaml"}}]);
    world.apply_policy("settings", json!({"rollout": settings, "valuesFrom": values_from})).await;
    apply_settings(&world, "change: one").await;
    let manager = world.start_manager_with(&["--parameters-seconds", "1"]);
    let fields = json!({
        "clusterSelector": {"matchLabels": {"rollout": "yes"}}, "releaseName": "", "valuesTemplate": "",
    });
    world.apply_placement_with_policy("settings", "fragile", "settings", fields).await;
    wait_installed(&world, &["settings"]).await;

    apply_settings(&world, "change: two").await;
    wait_values(&world, SECOND, "change: two").await;
    apply_settings(&world, "change: three\nnode: missing\n").await;
    wait_values(&world, FIRST, "change: three").await;
    world
        .wait_status("settings", FIRST, "unhealthy", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.reason == "Unhealthy")
        })
        .await;
    let second = world.release("settings", SECOND).await.unwrap();
    assert!(second.spec.values.contains("change: two"), "{}", second.spec.values);
    assert_eq!(wait_state(&world, "settings", RolloutState::Progressing).await.updating, 1);
    manager.stop().await;
}
