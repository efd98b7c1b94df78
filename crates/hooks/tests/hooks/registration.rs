//! Creation, update and deletion of the ExtensionConfig.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use chandler_hooks::{Endpoint, FailurePolicy, Hook, Owner, unregister};
use chandler_sandbox::plane::free_port;
use k8s_openapi::{
    api::rbac::v1::ClusterRole,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::env::{ScriptedHandler, TestEnv, wait_for};

fn ca_bundle(config: &DynamicObject) -> String {
    let encoded = config.data["spec"]["clientConfig"]["caBundle"].as_str().unwrap();
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
}

#[tokio::test]
async fn cluster_api_rediscovers_the_hooks_after_renewals_and_restarts() {
    let mut env = TestEnv::new("renewal").await;
    env.options.certificate_lifetime = Duration::from_secs(12);
    let handler = Arc::new(ScriptedHandler::default());
    let server = env.serve(&handler).await;
    let first = env.wait_for_discovery().await;
    let hooks: Vec<&str> =
        handlers(&first).map(|handler| handler["requestHook"]["hook"].as_str().unwrap()).collect();
    assert_eq!(hooks, Hook::ALL.map(Hook::name));
    let policies: Vec<&str> =
        handlers(&first).map(|handler| handler["failurePolicy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["Fail", "Fail", "Ignore", "Ignore", "Fail"]);

    let replaced = wait_for("only the new CA", async || {
        let config = env.wait_for_discovery().await;
        let new = ca_bundle(&config);
        (new != ca_bundle(&first) && new.matches("BEGIN CERTIFICATE").count() == 1).then_some(config)
    })
    .await;
    // A change makes Cluster API call discovery again, with the new CA, and after the first certificate has expired.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let change = Patch::Merge(json!({"spec": {"settings": {"touched": "yes"}}}));
    let name = &env.options.registration.name;
    env.extension_configs().patch(name, &PatchParams::default(), &change).await.unwrap();
    env.wait_for_discovery().await;

    server.stop().await;
    env.options.certificate_lifetime = chandler_hooks::CERTIFICATE_LIFETIME;
    let server = env.serve(&handler).await;
    wait_for("the CA of the next server", async || {
        (ca_bundle(&env.wait_for_discovery().await) != ca_bundle(&replaced)).then_some(())
    })
    .await;

    server.stop().await;
    for _ in 0..2 {
        unregister(&env.client, name).await.unwrap();
    }
    assert!(env.extension_configs().get_opt(name).await.unwrap().is_none());
}

#[tokio::test]
async fn extension_config_is_deleted_with_the_first_existing_owner() {
    let mut env = TestEnv::new("owned").await;
    let role = format!("{}-manager", env.namespace);
    let roles: Api<ClusterRole> = Api::all(env.client.clone());
    roles.create(&PostParams::default(), &cluster_role(&role)).await.unwrap();
    let crd = create_crd(&env).await;
    let owners = vec![Owner::ClusterRole(role.clone()), Owner::CustomResourceDefinition(crd.name_any())];
    env.options.registration.owners = owners;
    let (configs, name) = (env.extension_configs(), env.options.registration.name.clone());
    let deleted =
        || wait_for("deleted", async || configs.get_opt(&name).await.unwrap().is_none().then_some(()));
    let handler = Arc::new(ScriptedHandler::default());
    let server = env.serve(&handler).await;
    env.wait_for_discovery().await;
    server.stop().await;
    roles.delete(&role, &DeleteParams::default()).await.unwrap();
    deleted().await;

    let server = env.serve(&handler).await;
    env.wait_for_discovery().await;
    server.stop().await;
    let crds: Api<CustomResourceDefinition> = Api::all(env.client.clone());
    crds.delete(&crd.name_any(), &DeleteParams::default()).await.unwrap();
    deleted().await;
}

/// Cluster API does not start while an ExtensionConfig exists whose hooks it cannot reach.
#[tokio::test]
async fn hooks_that_cluster_api_cannot_reach_are_unregistered() {
    let mut env = TestEnv::new("unreached").await;
    env.options.failure_policy = FailurePolicy::Ignore;
    env.options.unreachable_limit = Duration::from_secs(5);
    let closed = format!("https://localhost:{}", free_port().unwrap());
    env.options.registration.endpoint = Endpoint::url(&closed).unwrap();
    let (configs, name) = (env.extension_configs(), env.options.registration.name.clone());
    let server = env.serve(&Arc::new(ScriptedHandler::default())).await;
    wait_for("registered", async || configs.get_opt(&name).await.unwrap()).await;
    wait_for("unregistered", async || configs.get_opt(&name).await.unwrap().is_none().then_some(())).await;
    server.stop().await;
}

fn cluster_role(name: &str) -> ClusterRole {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

async fn create_crd(env: &TestEnv) -> CustomResourceDefinition {
    let group = format!("{}.test", env.namespace);
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    }))
    .unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(env.client.clone());
    crds.create(&PostParams::default(), &crd).await.unwrap()
}

fn handlers(config: &DynamicObject) -> impl Iterator<Item = &Value> {
    config.data["status"]["handlers"].as_array().unwrap().iter()
}
