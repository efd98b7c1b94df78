//! The ExtensionConfig over its life.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_hooks::{Hook, Owner, unregister};
use k8s_openapi::{
    api::rbac::v1::ClusterRole,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{Script, World, until};

/// The trusted authorities.
fn bundle(config: &DynamicObject) -> String {
    let encoded = config.data["spec"]["clientConfig"]["caBundle"].as_str().unwrap();
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
}

#[tokio::test]
async fn cluster_api_discovers_the_hooks_again_over_renewals_and_restarts() {
    let mut world = World::new("renewal").await;
    world.options.lifetime = Duration::from_secs(12);
    let script = Arc::new(Script::default());
    let serving = world.serve(&script).await;
    let first = world.discovered().await;
    let hooks: Vec<&str> =
        handlers(&first).map(|handler| handler["requestHook"]["hook"].as_str().unwrap()).collect();
    assert_eq!(hooks, Hook::ALL.map(Hook::name));
    let policies: Vec<&str> =
        handlers(&first).map(|handler| handler["failurePolicy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["Fail", "Fail", "Ignore", "Ignore", "Ignore"]);

    let replaced = until("another authority alone", async || {
        let config = world.discovered().await;
        let new = bundle(&config);
        (new != bundle(&first) && new.matches("BEGIN CERTIFICATE").count() == 1).then_some(config)
    })
    .await;
    // A change makes Cluster API ask anew: with what it trusts now, and past the life of the first certificate.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let touched = Patch::Merge(json!({"spec": {"settings": {"touched": "yes"}}}));
    let name = &world.options.registration.name;
    world.extension_configs().patch(name, &PatchParams::default(), &touched).await.unwrap();
    world.discovered().await;

    serving.stop().await;
    world.options.lifetime = chandler_hooks::LIFETIME;
    let serving = world.serve(&script).await;
    until("the authority of the successor", async || {
        (bundle(&world.discovered().await) != bundle(&replaced)).then_some(())
    })
    .await;

    serving.stop().await;
    for _ in 0..2 {
        unregister(&world.client, name).await.unwrap();
    }
    assert!(world.extension_configs().get_opt(name).await.unwrap().is_none());
}

#[tokio::test]
async fn the_extension_config_goes_with_the_first_owner_that_is_there() {
    let mut world = World::new("owned").await;
    let role = format!("{}-manager", world.namespace);
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    roles.create(&PostParams::default(), &named(&role)).await.unwrap();
    let definition = define(&world).await;
    let owners = vec![Owner::ClusterRole(role.clone()), Owner::Definition(definition.name_any())];
    world.options.registration.owners = owners;
    let (configs, name) = (world.extension_configs(), world.options.registration.name.clone());
    let gone = || until("gone", async || configs.get_opt(&name).await.unwrap().is_none().then_some(()));
    let script = Arc::new(Script::default());
    let serving = world.serve(&script).await;
    world.discovered().await;
    serving.stop().await;
    roles.delete(&role, &DeleteParams::default()).await.unwrap();
    gone().await;

    let serving = world.serve(&script).await;
    world.discovered().await;
    serving.stop().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.delete(&definition.name_any(), &DeleteParams::default()).await.unwrap();
    gone().await;
}

fn named(name: &str) -> ClusterRole {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// A kind as Chandler has them.
async fn define(world: &World) -> CustomResourceDefinition {
    let group = format!("{}.test", world.namespace);
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap()
}

fn handlers(config: &DynamicObject) -> impl Iterator<Item = &Value> {
    config.data["status"]["handlers"].as_array().unwrap().iter()
}
