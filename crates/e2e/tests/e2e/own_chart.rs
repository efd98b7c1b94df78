//! Chandler installs itself.

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
    let alpha = world.cluster("alpha").await;
    let served = world.dir.join("charts").join(archive.file_name().unwrap());
    std::fs::copy(&archive, served).unwrap();
    // Which writes the index anew.
    world.repository.publish(&hello()).unwrap();
    let changes = json!({
        "version": env!("CARGO_PKG_VERSION"), "namespace": "chandler-system",
        "valuesTemplate": "hooks: {enabled: true}\nwatchNamespace: '{{ .Cluster.metadata.namespace }}'\n",
        "options": {"wait": true, "timeout": "2m"},
    });
    world.place("chandler", "chandler", changes).await;
    let manager = world.manager();
    world.ready("chandler", "alpha", 1).await;

    let client = alpha.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "chandler-system");
    let deployment = deployments.get("chandler-manager").await.unwrap();
    assert_eq!(deployment.status.unwrap().available_replicas, Some(1));
    let arguments = deployment.spec.unwrap().template.spec.unwrap().containers[0].args.clone().unwrap();
    assert!(arguments.contains(&format!("--namespace={}", world.namespace)), "{arguments:?}");

    world.delete("chandler").await;
    world.gone("chandler").await;
    assert!(deployments.get_opt("chandler-manager").await.unwrap().is_none());
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let kept = definitions.list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(kept, chandler_api::crds().len(), "definitions stay, and with them what people wrote");
    manager.stop().await;
}
