//! Chandler installs its own chart.

use chandler_e2e::{
    packaging,
    world::{World, hello},
};
use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::ListParams};
use serde_json::json;

#[tokio::test]
async fn chandler_installs_its_own_chart_on_a_cluster() {
    let archive = packaging::chart().await;
    let world = World::new("own-chart").await;
    let alpha = world.create_cluster("alpha").await;
    let served = world.dir.join("charts").join(archive.file_name().unwrap());
    std::fs::copy(&archive, served).unwrap();
    // This also writes a new index.
    world.repository.publish(&hello()).unwrap();
    let changes = json!({
        "version": env!("CARGO_PKG_VERSION"), "namespace": "chandler-system",
        "valuesTemplate": "hooks: {enabled: true}\nwatchNamespace: '{{ .Cluster.metadata.namespace }}'\n",
        "options": {"wait": true, "timeout": "2m"},
    });
    world.apply_placement("chandler", "chandler", changes).await;
    let manager = world.start_manager();
    world.wait_ready("chandler", "alpha", 1).await;

    let client = alpha.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "chandler-system");
    let deployment = deployments.get("chandler-manager").await.unwrap();
    assert_eq!(deployment.status.unwrap().available_replicas, Some(2), "the leader and a standby");
    let arguments = deployment.spec.unwrap().template.spec.unwrap().containers[0].args.clone().unwrap();
    assert!(arguments.contains(&format!("--namespace={}", world.namespace)), "{arguments:?}");

    world.delete_placement("chandler").await;
    world.wait_deleted("chandler").await;
    assert!(deployments.get_opt("chandler-manager").await.unwrap().is_none());
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    let kept = crds.list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(kept, chandler_api::crds().len(), "CRDs are kept, and with them the objects of users");
    manager.stop().await;
}
