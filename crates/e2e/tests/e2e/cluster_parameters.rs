//! Extensions that their cluster configures: parameters in lists of extensions and in defaults, as templates over the cluster.

use chandler_e2e::{extension_world::ExtensionWorld, wait::eventually, world::config_value};
use chandler_sandbox::{assets::KubernetesVersion, plane::Plane};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

async fn wait_greeting(plane: &Plane, release: &str, expected: &str) {
    eventually(&format!("the greeting of {release} is {expected}"), || async {
        (config_value(plane, release, "greeting").await.as_deref() == Some(expected)).then_some(())
    })
    .await;
}

async fn annotate(test: &ExtensionWorld, cluster: &str, annotations: Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    test.clusters().patch(cluster, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn lists_and_defaults_carry_parameters_that_are_templates_over_the_cluster() {
    let test = ExtensionWorld::new("cluster-parameters").await;
    let alpha = test.world.create_topology_cluster("alpha").await;
    annotate(&test, "alpha", json!({"zone": "harbour"})).await;
    let _manager = test.world.start_manager();
    let template = "cluster: {{ .ClusterClass.metadata.name }} {{ .KubernetesVersion }}\n\
                    greeting: {{ .Values.greeting | default \"Hi\" }} in {{ required \"no zone\" .Cluster.metadata.annotations.zone }}\n";
    let versions =
        json!([{"version": "1.0.0", "kubernetes": "*", "parameters": {"defaultsTemplate": template}}]);
    let selector = json!({"matchLabels": {"fleet": "test"}});
    let install = json!({"default": selector, "namespace": "default", "parametersTemplate": "note: {{ .Values.greeting | lower }}"});
    test.apply_extension("standard", versions.clone(), json!({"install": install})).await;
    test.apply_extension("listed", versions, json!({})).await;
    let entry = json!({"name": "listed", "parameters": {"cluster": "the list"}});
    annotate(&test, "alpha", json!({"chandler.dev/extensions": json!([entry]).to_string()})).await;

    let place = format!("sandbox {}", KubernetesVersion::default());
    test.wait_ready("standard", "alpha", "1.0.0").await;
    wait_greeting(&alpha, "standard", &format!("Hi in harbour from {place}")).await;
    let values = test.world.helm(&alpha, &["get", "values", "standard"]);
    assert_eq!(values["note"], "hi in harbour", "a template sees the layers below it");
    let listed = test.wait_ready("listed", "alpha", "1.0.0").await;
    let greeting = |release: &chandler_api::extensions::AddonRelease| release.spec.values.clone().unwrap();
    assert!(greeting(&listed).contains("greeting: \"Hi in harbour\""), "{}", greeting(&listed));
    assert!(greeting(&listed).contains("cluster: \"the list\""), "parameters win: {}", greeting(&listed));

    // Defaults see what the instance sets, and a change of the list reaches the instance.
    let entry =
        json!({"name": "listed", "parameters": {"cluster": "the list"}, "parametersTemplate": "replicas: 2"});
    annotate(&test, "alpha", json!({"zone": "dock", "chandler.dev/extensions": json!([entry]).to_string()}))
        .await;
    wait_greeting(&alpha, "standard", &format!("Hi in dock from {place}")).await;
    eventually("the release has the new parameters", || async {
        let values = test.release("listed", "alpha").await?.spec.values?;
        (values.contains("replicas: 2") && values.contains("Hi in dock")).then_some(())
    })
    .await;
    assert!(test.warning_events().await.is_empty(), "an update is nothing to warn about");

    // A template that fails changes nothing, and its own message is reported.
    annotate(&test, "alpha", json!({"zone": null})).await;
    let instance =
        test.release("listed", "alpha").await.unwrap().metadata.owner_references.unwrap().remove(0).name;
    let message = test.wait_instance_reason(&instance, "ResolutionFailed").await;
    assert!(message.contains("no zone") && message.contains("alpha"), "{message}");
    wait_greeting(&alpha, "standard", &format!("Hi in dock from {place}")).await;
}
