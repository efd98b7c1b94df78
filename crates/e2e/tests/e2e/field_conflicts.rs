//! Fields of a release's objects that another field manager owns.

use chandler_api::status::ReleaseStatus;
use chandler_e2e::{
    chandler_command::run_ok,
    world::{World, chart, condition, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// Another client takes a field of a release's ConfigMap over.
async fn paint(plane: &Plane, name: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "default");
    let red = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"color": "red"},
    });
    maps.patch(name, &PatchParams::apply("painter").force(), &Patch::Apply(red)).await.unwrap();
}

async fn colors(plane: &Plane, name: &str) -> (Option<String>, Option<String>) {
    (config_value(plane, name, "color").await, config_value(plane, name, "size").await)
}

fn values(data: &Value) -> Value {
    json!({"valuesTemplate": format!("data: {data}")})
}

#[tokio::test]
async fn fields_of_another_manager_are_reported_taken_over_or_left_to_it() {
    const MODES: [&str; 3] = ["Fail", "Force", "IgnoreFields"];
    let world = World::new("field-conflicts").await;
    world.repository.publish(&chart("keys")).unwrap();
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    // Each placement has the name of its mode.
    let names = MODES.map(str::to_lowercase);
    for (name, mode) in names.iter().zip(MODES) {
        world.apply_policy(name, json!({"conflicts": mode})).await;
        let blue = values(&json!({"color": "blue"}));
        world.apply_placement_with_policy(name, "keys", name, blue).await;
    }
    for name in &names {
        world.wait_ready(name, "alpha", 1).await;
        paint(&alpha, name).await;
        let green = values(&json!({"color": "green", "size": "big"}));
        world.patch_placement(name, green).await;
    }

    let is_conflict = |status: &ReleaseStatus| {
        status.last_failure.as_ref().is_some_and(|failure| failure.category == "Conflict")
            && condition(status, "Ready").is_some_and(|ready| ready.reason == "HelmInstallOrUpgradeFailed")
    };
    let status = world.wait_status("fail", "alpha", "in conflict", is_conflict).await;
    let message = &condition(&status, "Ready").unwrap().message;
    for expected in ["painter", "conflicts: Force", "conflicts: IgnoreFields", "color"] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(colors(&alpha, "fail").await.0, some("red"), "the field is left unchanged");
    world.wait_ready("force", "alpha", 2).await;
    assert_eq!(colors(&alpha, "force").await, (some("green"), some("big")));
    world.wait_ready("ignorefields", "alpha", 2).await;
    assert_eq!(colors(&alpha, "ignorefields").await, (some("red"), some("big")));

    // This is what the condition asks for.
    world.apply_policy("fail", json!({"conflicts": "Force"})).await;
    manager.wait_idle().await;
    run_ok(&world, &["retry", "hcp/fail", "--cluster", "alpha"]).await;
    world.wait_ready_at_any_revision("fail", "alpha").await;
    assert_eq!(colors(&alpha, "fail").await, (some("green"), some("big")));
    manager.stop().await;
}
