//! Objects that value templates can read, and how fast their changes are applied.

use chandler_api::capi::{ClusterView, ContractReference};
use chandler_e2e::{
    wait::eventually,
    world::{World, condition, config_value},
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::json;

fn api(world: &World, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(world.client.clone(), &world.namespace, &resource)
}

/// Returns the references to the control plane and the infrastructure of a cluster.
async fn references(world: &World, cluster: &str) -> [ContractReference; 2] {
    let cluster = api(world, "cluster.x-k8s.io", "v1beta2", "Cluster").get(cluster).await.unwrap();
    let spec = ClusterView::of(&cluster.data).unwrap().spec;
    [spec.control_plane_ref.unwrap(), spec.infrastructure_ref.unwrap()]
}

#[tokio::test]
async fn changes_of_control_plane_and_infrastructure_objects_are_applied_immediately() {
    let world = World::new("referenced").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    let template = "greeting: {{ .InfraCluster.kind }} {{ .ControlPlane.spec.version }}\n\
                    cluster: {{ dig \"metadata\" \"annotations\" \"zone\" \"nowhere\" .ControlPlane }} and \
                    {{ dig \"metadata\" \"annotations\" \"zone\" \"nowhere\" .InfraCluster }}\n";
    world.apply_placement("hello", "hello", json!({"valuesTemplate": template})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let greeting = config_value(&alpha, "hello", "greeting").await.unwrap();
    assert_eq!(greeting, "SandboxCluster v1.34.4 from nowhere and nowhere");

    // `wait_ready` waits two minutes; without an event, a placement is reconciled again only after ten minutes.
    let zone = Patch::Merge(json!({"metadata": {"annotations": {"zone": "harbour"}}}));
    let steps = ["from harbour and nowhere", "from harbour and harbour"];
    for ((revision, reference), expected) in (2..).zip(references(&world, "alpha").await).zip(steps) {
        let objects = api(&world, &reference.api_group, "v1alpha1", &reference.kind);
        objects.patch(&reference.name, &PatchParams::default(), &zone).await.unwrap();
        world.wait_ready("hello", "alpha", revision).await;
        let greeting = config_value(&alpha, "hello", "greeting").await.unwrap();
        assert!(greeting.ends_with(expected), "{}: {greeting}", reference.kind);
    }
}

#[tokio::test]
async fn an_unreadable_reference_is_reported() {
    let world = World::new("dangling").await;
    world.apply(&json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "loose", "namespace": world.namespace, "labels": {"fleet": "test"}},
        "spec": {"infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "NoSuchCluster", "name": "x"}},
    }))
    .await;
    let _manager = world.start_manager();
    world
        .apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: {{ .InfraCluster.kind }}"}))
        .await;
    let message = eventually("the placement reports the error", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        status.conditions.into_iter().find(|c| c.reason == "ValueParsingFailed").map(|c| c.message)
    })
    .await;
    assert!(message.contains("loose") && message.contains("NoSuchCluster"), "{message}");
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: Hi"})).await;
    world
        .wait_status("hello", "loose", "waiting for its control plane", |status| {
            condition(status, "Ready").is_some_and(|c| c.reason == "NotAvailable")
        })
        .await;
}
