//! Control planes that are used again.

use std::time::{Duration, Instant};

use chandler_sandbox::apply::apply;
use chandler_sandbox::plane::Contents;
use chandler_sandbox::provider::ClusterKey;
use chandler_sandbox::{clusters, testing};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Objects that tests leave: some cannot be deleted without help, and one refuses every write.
fn leftovers() -> [Value; 7] {
    let stuck = json!(["example.com/never"]);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    [
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        }),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "left"}}),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "stuck", "namespace": "left", "finalizers": stuck},
        }),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left", "namespace": "default"}}),
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "default", "labels": {"name": "default"}},
        }),
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "stuck", "finalizers": stuck}}),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "refuses"},
            "webhooks": [{
                "name": "refuses.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{
                    "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                }],
            }],
        }),
    ]
}

/// Applies an object. A new kind takes a moment until it is served.
async fn apply_once_served(client: &Client, object: &Value) {
    let deadline = Instant::now() + TIMEOUT;
    while let Err(error) = apply(client, object).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_used_plane_is_cleaned_or_found_different() {
    let plane = testing::full_plane(1).await.unwrap();
    let client = plane.client().await.unwrap();
    let new = Contents::of_new(&client, TIMEOUT).await.unwrap();
    for object in leftovers() {
        apply_once_served(&client, &object).await;
    }
    assert_ne!(Contents::of_new(&client, TIMEOUT).await.unwrap(), new);
    new.restore(&client, TIMEOUT).await.unwrap();
    assert_eq!(Contents::of_new(&client, TIMEOUT).await.unwrap(), new);

    // Objects of a kind that is not served are not seen, but they could still be stored.
    let [definition, .., thing, _] = leftovers();
    apply_once_served(&client, &definition).await;
    let other =
        json!({"apiVersion": thing["apiVersion"], "kind": thing["kind"], "metadata": {"name": "other"}});
    apply_once_served(&client, &other).await;
    let kind = GroupVersionKind::gvk("example.com", "v1", "Thing");
    let things: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let names = things.list(&ListParams::default()).await.unwrap().into_iter().map(|thing| thing.name_any());
    assert_eq!(names.collect::<Vec<_>>(), ["other"]);
    new.restore(&client, TIMEOUT).await.unwrap();

    let roles: Api<ClusterRole> = Api::all(client.clone());
    roles.delete("system:discovery", &DeleteParams::default()).await.unwrap();
    let difference = new.restore(&client, Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(difference, "ClusterRole /system:discovery is missing");
}

#[tokio::test]
async fn the_plane_of_a_failed_test_is_not_used_again() {
    let sandbox = testing::sandbox().await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let namespace = sandbox.namespace("failed").await.unwrap();
    let plane = sandbox.cluster(&namespace, "alpha", 1, &[]).await.unwrap();
    let directory = plane.dir().to_owned();
    drop(plane);
    sandbox.discard(&namespace);
    clusters::delete(&client, &ClusterKey::new(&namespace, "alpha"), TIMEOUT).await.unwrap();
    assert!(!directory.exists());
}

/// The address of an API server is in its kubeconfig and its certificate.
#[tokio::test]
async fn a_cluster_with_a_host_name_gets_a_new_plane() {
    let sandbox = testing::sandbox().await.unwrap();
    let client = sandbox.management().client().await.unwrap();
    let namespace = sandbox.namespace("named").await.unwrap();
    drop(sandbox.cluster(&namespace, "alpha", 1, &[]).await.unwrap());
    clusters::delete(&client, &ClusterKey::new(&namespace, "alpha"), TIMEOUT).await.unwrap();
    sandbox.wait_cleaned().await.unwrap();
    let infrastructure = json!({"hostName": "api.bravo.invalid"});
    for object in
        clusters::plain_cluster(&ClusterKey::new(&namespace, "bravo"), 1, &json!({}), &infrastructure)
    {
        apply(&client, &object).await.unwrap();
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let deadline = Instant::now() + TIMEOUT;
    let secret = loop {
        if let Some(secret) = secrets.get_opt("bravo-kubeconfig").await.unwrap() {
            break secret;
        }
        assert!(Instant::now() < deadline, "there is no kubeconfig");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let kubeconfig = String::from_utf8(secret.data.unwrap().remove("value").unwrap().0).unwrap();
    assert!(kubeconfig.contains("server: https://api.bravo.invalid:"), "{kubeconfig}");
    clusters::delete(&client, &ClusterKey::new(&namespace, "bravo"), TIMEOUT).await.unwrap();
}
