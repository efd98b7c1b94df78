//! Logins in URLs: objects that had them before they were refused keep working, and nothing shows them.

use std::process::Command;

use chandler_api::{addons::HelmChartProxy, extensions::ExtensionCatalog};
use chandler_e2e::{
    extension_world::{ExtensionWorld, is_ready},
    programs,
    wait::eventually,
    world::{World, condition, hello},
};
use chandler_sandbox::{
    apply,
    repository::{Authentication, ChartRepository},
};
use kube::{
    CustomResourceExt as _,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

const PASSWORD: &str = "canary-in-a-url";
const REFUSAL: &str = "must not contain a user name or password";

/// Removes the rules that refuse logins.
fn without_rule(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(rules)) = fields.get_mut("x-kubernetes-validations") {
                rules.retain(|rule| !rule["message"].as_str().is_some_and(|text| text.starts_with(REFUSAL)));
            }
            fields.values_mut().for_each(without_rule);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rule),
        _ => {}
    }
}

/// Installs the CRDs of the kinds of this test, without the rules that refuse logins if `old`.
async fn install_crds(world: &World, old: bool) {
    for crd in [HelmChartProxy::crd(), ExtensionCatalog::crd()] {
        let mut crd = serde_json::to_value(crd).unwrap();
        if old {
            without_rule(&mut crd);
        }
        apply::apply(&world.client, &crd).await.unwrap();
    }
    eventually("the API server uses the CRDs", || async {
        let result = create_chart_proxy(world, "probe", "https://user:word@charts.example", true).await;
        (result.is_ok() == old).then_some(())
    })
    .await;
}

async fn create_chart_proxy(world: &World, name: &str, url: &str, dry_run: bool) -> Result<(), String> {
    let object = serde_json::from_value(json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"clusterSelector": {}, "chartName": "hello", "repoURL": url},
    }))
    .unwrap();
    let created = world.placements().create(&PostParams { dry_run, field_manager: None }, &object).await;
    created.map(drop).map_err(|error| error.to_string())
}

/// The test harness checks statuses, Events, logs and files (see `canary.rs`).
#[tokio::test]
async fn logins_in_urls_are_used_and_never_shown() {
    let test = ExtensionWorld::new("logins").await;
    let world = &test.world;
    let _alpha = world.create_cluster("alpha").await;
    let guard = Authentication::Basic { user: "user".to_owned(), password: PASSWORD.to_owned() };
    let folder = world.dir.join("private");
    let repository =
        ChartRepository::start_with_authentication(world.sandbox.authority(), &folder, guard).await.unwrap();
    repository.publish(&hello()).unwrap();
    let url = repository.url().replace("https://", &format!("https://user:{PASSWORD}@"));

    install_crds(world, true).await;
    world.apply_placement("old", "hello", json!({"repoURL": url})).await;
    world.apply_placement("missing", "absent", json!({"repoURL": url})).await;
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionCatalog",
            "metadata": {"name": "private", "namespace": world.namespace},
            "spec": {"url": url, "certificateAuthority": {"name": "ca", "key": "ca.crt"}},
        }))
        .await;
    install_crds(world, false).await;

    let refused = create_chart_proxy(world, "new", &url, false).await.unwrap_err();
    assert!(refused.contains(REFUSAL), "{refused}");
    let manager = world.start_manager_with(&["--log-level", "trace"]);
    let source = json!({"catalog": {"name": "private"}, "chart": "hello", "version": "1.0.0"});
    world
        .apply(&json!({
            "apiVersion": "chandler.dev/v1alpha1", "kind": "ExtensionInstance",
            "metadata": {"name": "from-catalog", "namespace": world.namespace},
            "spec": {
                "source": source, "clusters": {"selector": {"matchLabels": {"fleet": "test"}}},
                "release": {"namespace": "default"},
            },
        }))
        .await;
    let before = world.wait_ready("old", "alpha", 1).await.package.unwrap();
    assert_eq!(before.reference, format!("{}/hello:1.0.0", repository.url()), "without the login");
    let from_catalog = eventually("the package of the catalog is installed", || async {
        let all = test.releases().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().find(is_ready)?.status?.package
    })
    .await;
    assert_eq!(from_catalog.reference, before.reference, "without the login of the catalog");
    let status = world
        .wait_status("missing", "alpha", "refused", |status| {
            condition(status, "Ready").is_some_and(|ready| ready.status == "False")
        })
        .await;
    let message = &condition(&status, "Ready").unwrap().message;
    assert!(message.contains("has no chart absent"), "{message}");

    // What does not change is accepted, whatever else changes.
    world.patch_placement("old", json!({"valuesTemplate": "greeting: Aye"})).await;
    world.wait_ready("old", "alpha", 2).await;
    assert_doctor_warns(world);
    manager.stop().await;
}

fn assert_doctor_warns(world: &World) {
    let mut doctor = Command::new(programs::chandler());
    doctor.args(["doctor", "--namespace", &world.namespace]);
    let output = doctor.env("KUBECONFIG", world.sandbox.management().kubeconfig_path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for object in ["HelmChartProxy", "ExtensionCatalog"] {
        let warned = text.lines().any(|line| {
            line.contains(&format!("logins: {object} {}/", world.namespace))
                && line.contains("contains a user name or password")
        });
        assert!(warned, "{object}: {text}");
    }
    assert!(!text.contains(PASSWORD), "{text}");
}
