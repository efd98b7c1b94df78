//! Options of a HelmChartProxy: each has its effect on the release.
//!
//! Covered elsewhere: `wait` (`waiting`); `atomic` (`atomic`); `takeOwnership`, `disableHooks` and `timeout` (`strategies`);
//! `createNamespace` and `reuseValues` (`caaph_regressions`).

use chandler_api::status::ReleaseStatus;
use chandler_e2e::{
    wait::eventually,
    world::{World, chart, condition, config_value},
};
use chandler_sandbox::{chart::write, plane::Plane};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Options that are kept for compatibility, and change nothing.
fn without_effect() -> Value {
    json!({
        "dependencyUpdate": true, "disableOpenAPIValidation": true, "enableClientCache": true,
        "install": {"includeCRDs": true}, "upgrade": {"recreate": true, "resetValues": true},
    })
}

/// Returns the fields of a placement without CRDs, with these values and options.
fn fields(values: &str, mut options: Value) -> Value {
    options["skipCRDs"] = json!(true);
    json!({"valuesTemplate": values, "options": options})
}

async fn crd_exists(plane: &Plane) -> bool {
    let crds: Api<CustomResourceDefinition> = Api::all(plane.client().await.unwrap());
    crds.get_opt("gadgets.options.example").await.unwrap().is_some()
}

fn notes(world: &World, plane: &Plane, release: &str) -> String {
    let output = world.helm_command(plane, &["get", "notes", release, "--namespace", "default"]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Another client takes a field of a release's ConfigMap over.
async fn take_over_greeting(plane: &Plane, name: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "default");
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"greeting": "Theirs"},
    });
    maps.patch(name, &PatchParams::apply("another").force(), &Patch::Apply(theirs)).await.unwrap();
}

/// Lets the Nodes of a cluster run the Jobs of the chart.
async fn allow_chores(plane: &Plane) {
    let nodes: Api<Node> = Api::all(plane.client().await.unwrap());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"chores": "allowed"}}}));
        nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Publishes a version of a chart whose defaults are this place.
fn publish_place(world: &World, version: &str, place: &str) {
    let metadata = format!("apiVersion: v2\nname: place\nversion: {version}\n");
    let values = format!("greeting: Hello\nplace: {place}\n");
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n\
                    data: {greeting: {{ .Values.greeting }}, place: {{ .Values.place }}}\n";
    let files = [("Chart.yaml", &*metadata), ("values.yaml", &values), ("templates/map.yaml", template)];
    world.repository.publish(&write(&world.dir.join(format!("place-{version}")), &files).unwrap()).unwrap();
}

#[tokio::test]
async fn every_option_has_its_effect() {
    let world = World::new("helm-options").await;
    world.repository.publish(&chart("options")).unwrap();
    publish_place(&world, "1.0.0", "old");
    publish_place(&world, "1.1.0", "new");
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let jobs = |wait_for_jobs: bool| fields("job: true", json!({"wait": true, "waitForJobs": wait_for_jobs}));
    let cleanup =
        |clean: bool| fields("greeting: Hello", json!({"wait": true, "upgrade": {"cleanupOnFail": clean}}));
    let mut short = without_effect();
    short["upgrade"]["maxHistory"] = json!(2);
    let uninstall = json!({"uninstall": {"keepHistory": true, "description": "retired"}});
    let reuse = json!({"upgrade": {"resetThenReuseValues": true}});
    for (name, chart, spec) in [
        ("waits", "options", jobs(true)),
        ("starts", "options", jobs(false)),
        ("cleans", "options", cleanup(true)),
        ("leaves", "options", cleanup(false)),
        ("kept", "options", fields("greeting: Kept", uninstall)),
        ("short", "options", fields("greeting: 1", short)),
        ("forced", "options", fields("greeting: Hello", json!({"upgrade": {"force": true}}))),
        ("noted", "options", fields("greeting: Hello", json!({"options": true}))),
        ("reused", "place", fields("greeting: Hi", reuse)),
    ] {
        world.apply_placement(name, chart, spec).await;
    }
    for name in ["starts", "cleans", "leaves", "kept", "short", "forced", "noted", "reused"] {
        world.wait_ready(name, "alpha", 1).await;
    }
    expect_history(&world, &alpha).await;
    expect_values_and_fields(&world, &alpha).await;
    expect_cleanup(&world, &alpha).await;
    expect_jobs(&world, &alpha).await;

    assert!(!crd_exists(&alpha).await, "skipCRDs");
    world.apply_placement("crds", "options", json!({})).await;
    world.wait_ready("crds", "alpha", 1).await;
    assert!(crd_exists(&alpha).await, "the chart has this CRD");
    manager.stop().await;
}

async fn expect_history(world: &World, alpha: &Plane) {
    for revision in 2..=4 {
        world.patch_placement("short", json!({"valuesTemplate": format!("greeting: {revision}")})).await;
        world.wait_ready("short", "alpha", revision).await;
    }
    let last_two = [(3, "superseded".to_owned()), (4, "deployed".to_owned())];
    assert_eq!(world.history(alpha, "short"), last_two, "maxHistory");

    world.delete_placement("kept").await;
    world.wait_deleted("kept").await;
    let history = world.helm(alpha, &["history", "kept", "--namespace", "default"]);
    let revision = &history.as_array().unwrap()[0];
    assert_eq!((&revision["status"], &revision["description"]), (&json!("uninstalled"), &json!("retired")));
    assert_eq!(config_value(alpha, "kept", "greeting").await, None, "only the history is kept");
    world.apply_placement("kept", "options", fields("greeting: Again", json!({}))).await;
    assert_eq!(world.wait_ready_at_any_revision("kept", "alpha").await, 2, "the history continues");
}

async fn expect_values_and_fields(world: &World, alpha: &Plane) {
    take_over_greeting(alpha, "forced").await;
    world.patch_placement("forced", json!({"valuesTemplate": "greeting: Ours"})).await;
    world.wait_ready("forced", "alpha", 2).await;
    assert_eq!(config_value(alpha, "forced", "greeting").await.as_deref(), Some("Ours"), "force");

    world.patch_placement("reused", json!({"version": "1.1.0", "valuesTemplate": "unused: true"})).await;
    world.wait_ready("reused", "alpha", 2).await;
    let values =
        [config_value(alpha, "reused", "greeting").await, config_value(alpha, "reused", "place").await];
    assert_eq!(values, [Some("Hi".to_owned()), Some("new".to_owned())], "resetThenReuseValues");

    let [noted, plain] = ["noted", "forced"].map(|release| notes(world, alpha, release));
    assert!(
        plain.contains("Notes of the chart.") && noted.contains("Notes of the chart."),
        "{plain} {noted}"
    );
    assert!(!plain.contains("Notes of the subchart."), "{plain}");
    assert!(noted.contains("Notes of the subchart."), "{noted}");
}

/// Both upgrades create a ConfigMap and a Deployment that never becomes ready.
async fn expect_cleanup(world: &World, alpha: &Plane) {
    for name in ["cleans", "leaves"] {
        let stuck = json!({"valuesTemplate": "stuck: true", "options": {"timeout": "4s"}});
        world.patch_placement(name, stuck).await;
    }
    for name in ["cleans", "leaves"] {
        let failed = |status: &ReleaseStatus| {
            status.last_failure.as_ref().is_some_and(|failure| failure.category == "NotReady")
        };
        world.wait_status(name, "alpha", "failed", failed).await;
    }
    assert_eq!(config_value(alpha, "leaves-new", "greeting").await.as_deref(), Some("New"));
    // A retry creates it again for as long as it waits.
    eventually("the object of the failed upgrade is deleted", || async {
        config_value(alpha, "cleans-new", "greeting").await.is_none().then_some(())
    })
    .await;
    assert_eq!(config_value(alpha, "cleans", "greeting").await.as_deref(), Some("Hello"), "cleanupOnFail");
}

async fn expect_jobs(world: &World, alpha: &Plane) {
    // "starts" has been Ready for long, with the same Job.
    let release = world.release("waits", "alpha").await.unwrap();
    let ready = release.status.as_ref().and_then(|status| condition(status, "Ready")).cloned().unwrap();
    assert_eq!(ready.status, "False", "waitForJobs: {ready:?}");
    assert_eq!(world.history(alpha, "waits"), [(1, "pending-install".to_owned())]);
    allow_chores(alpha).await;
    world.wait_ready("waits", "alpha", 1).await;
}
