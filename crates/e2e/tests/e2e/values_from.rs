//! Values of HelmChartProxies from Secrets and ConfigMaps, which their policy names.

use chandler_api::{addons::HelmReleaseProxy, extensions::VALUES_SECRET_ANNOTATION};
use chandler_e2e::{
    wait::eventually,
    world::{World, config_value},
};
use chandler_sandbox::plane::Plane;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

fn object(world: &World, kind: &str, name: &str, data: Value) -> Value {
    let field = if kind == "Secret" { "stringData" } else { "data" };
    let mut object = json!({
        "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": world.namespace},
    });
    object[field] = data;
    object
}

async fn wait_greeting(plane: &Plane, release: &str, expected: &str) {
    eventually(&format!("the greeting is {expected}"), || async {
        (config_value(plane, release, "greeting").await.as_deref() == Some(expected)).then_some(())
    })
    .await;
}

/// Returns the Secret with the values of a release. It belongs to the release, which contains none of the values.
async fn values_secret(world: &World, release: &HelmReleaseProxy) -> Secret {
    assert!(!serde_json::to_string(release).unwrap().contains("CANARY"));
    let reference = &release.annotations()[VALUES_SECRET_ANNOTATION];
    let (name, digest) = reference.split_once('@').unwrap();
    assert!(digest.starts_with("sha256:"), "{reference}");
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    secrets.get(name).await.unwrap()
}

#[tokio::test]
async fn values_of_a_policy_are_merged_and_secret_ones_stay_in_a_secret() {
    let world = World::new("values-from").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager_with(&["--parameters-seconds", "1"]);
    world.apply(&object(&world, "Secret", "login", json!({"greeting": "CANARY-1a7"}))).await;
    let settings =
        |text: &str| object(&world, "ConfigMap", "settings-of-alpha", json!({"values.yaml": text}));
    world.apply(&settings("replicas: 2\ncluster: the map\n")).await;
    let settings_of =
        json!({"configMap": {"name": "settings-of-{{ .Cluster.metadata.name }}", "key": "values.yaml"}});
    let login = json!({"secret": {"name": "login", "key": "greeting"}, "parameter": "greeting"});
    // The policy comes later than its placement, which is not installed without its values.
    let template = json!({"valuesTemplate": "cluster: {{ .Cluster.metadata.name }}"});
    world.apply_placement_with_policy("hello", "hello", "values", template).await;
    world.wait_reason("hello", "alpha", "PolicyNotFound").await;
    world.apply_policy("values", json!({"valuesFrom": [settings_of, login]})).await;
    world.wait_ready("hello", "alpha", 1).await;
    wait_greeting(&alpha, "hello", "CANARY-1a7 from alpha").await;
    assert_eq!(world.helm(&alpha, &["get", "values", "hello"])["replicas"], 2);
    let release = world.release("hello", "alpha").await.unwrap();
    let secret = values_secret(&world, &release).await;
    let owner = eventually("the release owns the Secret", || async {
        let secret = values_secret(&world, &release).await;
        secret.owner_references().iter().find(|owner| owner.kind == "HelmReleaseProxy").cloned()
    })
    .await;
    assert_eq!((&owner.name, &owner.uid), (&release.name_any(), &release.uid().unwrap()));

    // After `clusterctl move`, an earlier owner has been set by another field manager.
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let placement = world.placements().get("hello").await.unwrap().controller_owner_ref(&()).unwrap();
    let moved = Patch::Merge(json!({"metadata": {"ownerReferences": [placement]}}));
    let clusterctl = PatchParams { field_manager: Some("clusterctl".to_owned()), ..PatchParams::default() };
    secrets.patch(&secret.name_any(), &clusterctl, &moved).await.unwrap();

    // Another value, and another setting, are one upgrade each.
    world.apply(&object(&world, "Secret", "login", json!({"greeting": "CANARY-2b8"}))).await;
    world.wait_ready("hello", "alpha", 2).await;
    wait_greeting(&alpha, "hello", "CANARY-2b8 from alpha").await;
    let written = values_secret(&world, &release).await;
    assert_eq!(written.owner_references(), [owner], "the release owns the Secret again");
    world.apply(&settings("replicas: 3\n")).await;
    world.wait_ready("hello", "alpha", 3).await;
    manager.wait_idle().await;
    assert_eq!(world.history(&alpha, "hello").len(), 3, "equal values add no revision");

    // A release object that loses its annotation is not taken for one without values.
    let lost = Patch::Merge(json!({"metadata": {"annotations": {VALUES_SECRET_ANNOTATION: null}}}));
    world.releases().patch(&release.name_any(), &PatchParams::default(), &lost).await.unwrap();
    eventually("the annotation is set again", || async {
        let release = world.release("hello", "alpha").await?;
        release.annotations().contains_key(VALUES_SECRET_ANNOTATION).then_some(())
    })
    .await;
    manager.wait_idle().await;
    assert_eq!(world.history(&alpha, "hello").len(), 3, "a lost annotation adds no revision");

    // A policy that does not exist any more, and a source that is missing, change nothing.
    world.delete_policy("values").await;
    world.wait_condition("hello", "alpha", "PolicyAccepted", ("False", "PolicyNotFound")).await;
    manager.wait_idle().await;
    wait_greeting(&alpha, "hello", "CANARY-2b8 from alpha").await;
    let missing = json!({"secret": {"name": "none", "key": "greeting"}});
    world.apply_policy("values", json!({"valuesFrom": [missing]})).await;
    let message = eventually("the placement names the missing Secret", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        status.conditions.into_iter().find(|condition| condition.message.contains("none")).map(|c| c.message)
    })
    .await;
    assert!(message.contains("does not exist"), "{message}");
    wait_greeting(&alpha, "hello", "CANARY-2b8 from alpha").await;

    // Without a Secret, the values are in the release object again. Theirs is empty, and goes with the release.
    world.apply_policy("values", json!({"valuesFrom": [settings_of]})).await;
    world.wait_ready("hello", "alpha", 4).await;
    let release = world.release("hello", "alpha").await.unwrap();
    assert!(release.spec.values.contains("replicas: 3"), "{}", release.spec.values);
    assert!(!release.annotations().contains_key(VALUES_SECRET_ANNOTATION));
    eventually("the Secret has no values", || async {
        let data = secrets.get(&secret.name_any()).await.unwrap().data?;
        data["values.yaml"].0.is_empty().then_some(())
    })
    .await;
    let unselected = Patch::Merge(json!({"metadata": {"labels": {"fleet": "none"}}}));
    world.clusters().patch("alpha", &PatchParams::default(), &unselected).await.unwrap();
    eventually("the Secret is deleted with the release", || async {
        secrets.get_opt(&secret.name_any()).await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(!manager.logs().contains("CANARY"));
}
