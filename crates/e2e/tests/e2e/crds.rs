//! CustomResourceDefinitions in the `crds/` folder of a chart, from one version of the chart to the next.

use std::collections::BTreeMap;

use chandler_api::extensions::REPLACE_CRDS_ANNOTATION;
use chandler_e2e::{
    chandler_command::run_ok,
    world::{World, config_value},
};
use chandler_sandbox::{chart, plane::Plane};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};

/// A template that shows the version of the chart.
const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n\
                        data:\n  version: {{ .Chart.Version }}\n";

fn crd(name: &str, properties: &Value) -> Value {
    let spec = json!({"type": "object", "properties": properties});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}.e2e.example")},
        "spec": {
            "group": "e2e.example", "scope": "Namespaced",
            "names": {"kind": name.to_uppercase(), "plural": name, "singular": name},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

/// Publishes three versions of a chart with a CRD: the second one adds a field, and the third one removes a field.
fn publish(world: &World, name: &str) {
    let (size, color) = (json!({"type": "integer"}), json!({"type": "string"}));
    let versions = [
        ("1.0.0", json!({"size": size})),
        ("2.0.0", json!({"size": size, "color": color})),
        ("3.0.0", json!({"color": color})),
    ];
    for (version, properties) in versions {
        let metadata = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
        let files = [
            ("Chart.yaml", metadata.as_str()),
            ("crds/crd.yaml", &crd(name, &properties).to_string()),
            ("templates/version.yaml", TEMPLATE),
        ];
        let folder = chart::write(&world.dir.join(format!("sources/{name}-{version}")), &files).unwrap();
        world.repository.publish(&folder).unwrap();
    }
}

/// Returns the generation of a CRD and the fields of its kind.
async fn fields(plane: &Plane, name: &str) -> (Option<i64>, Vec<String>) {
    let crds: Api<CustomResourceDefinition> = Api::all(plane.client().await.unwrap());
    let crd = crds.get(&format!("{name}.e2e.example")).await.unwrap();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    let mut properties: BTreeMap<_, _> = schema.properties.unwrap();
    let spec = properties.remove("spec").unwrap();
    (crd.metadata.generation, spec.properties.unwrap().into_keys().collect())
}

#[tokio::test]
async fn crds_are_kept_or_replaced_by_policy_and_never_replaced_unsafely_unasked() {
    let world = World::new("crds").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    for name in ["creates", "replaces"] {
        publish(&world, name);
    }
    world.apply_policy("replace", json!({"crds": "CreateReplace"})).await;
    world.apply_placement("creates", "creates", json!({})).await;
    world.apply_placement_with_policy("replaces", "replaces", "replace", json!({})).await;
    for name in ["creates", "replaces"] {
        world.wait_ready(name, "alpha", 1).await;
        assert_eq!(fields(&alpha, name).await.1, ["size"]);
        world.patch_placement(name, json!({"version": "2.0.0"})).await;
    }
    for (name, expected) in [("creates", &["size"][..]), ("replaces", &["color", "size"])] {
        world.wait_ready(name, "alpha", 2).await;
        assert_eq!(config_value(&alpha, name, "version").await.as_deref(), Some("2.0.0"));
        assert_eq!(fields(&alpha, name).await.1, expected, "{name}");
    }

    // The next version would lose the values of a field.
    let before = fields(&alpha, "replaces").await;
    world.patch_placement("replaces", json!({"version": "3.0.0"})).await;
    let refused = world
        .wait_status("replaces", "alpha", "refused", |status| {
            status.last_failure.as_ref().is_some_and(|failure| failure.category == "Rejected")
        })
        .await;
    let message = refused.last_failure.unwrap().message;
    for expected in ["replaces.e2e.example", "v1", "spec.size", REPLACE_CRDS_ANNOTATION] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    assert_eq!(fields(&alpha, "replaces").await, before, "the CRD is left unchanged");
    assert_eq!(config_value(&alpha, "replaces", "version").await.as_deref(), Some("2.0.0"));
    assert_eq!(world.history(&alpha, "replaces").len(), 2, "nothing is written");

    world.annotate_placement("replaces", json!({REPLACE_CRDS_ANNOTATION: "true"})).await;
    manager.wait_idle().await;
    run_ok(&world, &["retry", "hcp/replaces", "--cluster", "alpha"]).await;
    world.wait_ready_at_any_revision("replaces", "alpha").await;
    assert_eq!(fields(&alpha, "replaces").await.1, ["color"]);
    assert_eq!(config_value(&alpha, "replaces", "version").await.as_deref(), Some("3.0.0"));
    manager.stop().await;
}
