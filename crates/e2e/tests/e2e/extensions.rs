//! Extensions: version selection, dependencies, parameters, defaults, and the lifetime of releases.

use std::time::Duration;

use chandler_api::extensions::{GIVEN_ANNOTATION, IMPLIED_BY_LABEL};
use chandler_core::release::OperationKind;
use chandler_e2e::{
    extension_world::ExtensionWorld,
    wait::{eventually, eventually_within},
    world::config_value,
};
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

#[tokio::test]
async fn dependencies_are_installed_first_and_removed_last() {
    let test = ExtensionWorld::new("dependencies").await;
    let alpha = test.world.create_cluster("alpha").await;
    let manager = test.world.start_manager();
    test.apply_extension("base", json!([{"version": "1.0.0"}]), json!({})).await;
    let versions = json!([
        {"version": "1.0.0", "kubernetes": "<1.34"},
        {"version": "1.1.0", "kubernetes": ">=1.34", "dependencies": [{"extension": "base"}]},
        {"version": "2.0.0", "kubernetes": ">=1.40"},
    ]);
    test.apply_extension("app", versions, json!({})).await;
    test.apply_instance("app", "app", json!({})).await;

    let app = test.wait_ready("app", "alpha", "1.1.0").await;
    let base = test.wait_ready("base", "alpha", "1.0.0").await;
    let steps = |kind: OperationKind| -> Vec<_> {
        let all = manager.operations().into_iter().filter(|operation| operation.kind == kind);
        all.map(|operation| (operation.release, operation.outcome)).collect()
    };
    let completed =
        |release: &str| [(release.to_owned(), None), (release.to_owned(), Some("success".to_owned()))];
    assert_eq!(
        steps(OperationKind::INSTALL),
        [completed("base/base"), completed("default/app")].concat(),
        "a dependency is installed before the installation of its dependent starts"
    );
    assert_eq!(app.spec.depends_on, [base.name_any()]);
    let status = eventually("the status of the instance shows its version", || async {
        test.instances()
            .get("app")
            .await
            .unwrap()
            .status
            .filter(|status| status.versions.as_deref() == Some("1.1.0"))
    })
    .await;
    assert!(status.resolution[0].message.contains("1.1.0"), "{status:?}");
    assert_eq!(test.wait_cluster_condition("alpha", "AddonsReady", "True").await, "");
    let plan = test.wait_cluster_condition("alpha", "AddonsUpgradable", "True").await;
    assert!(plan.contains("Kubernetes 1.35: base 1.0.0 stays; app 1.1.0 stays"), "{plan}");

    // An explicit instance of the dependency does not change its release.
    test.apply_instance("mine", "base", json!({"release": {}})).await;
    eventually("the explicit instance replaces the implied one", || async {
        let all = test.instances().list(&ListParams::default()).await.unwrap();
        all.items.iter().all(|one| !one.labels().contains_key(IMPLIED_BY_LABEL)).then_some(())
    })
    .await;
    let base = test.wait_ready("base", "alpha", "1.0.0").await;
    assert_eq!(base.metadata.owner_references.as_ref().unwrap()[0].name, "mine");
    assert_eq!(base.status.unwrap().revision, Some(1), "it was not installed twice");

    test.instances().delete("mine", &DeleteParams::default()).await.unwrap();
    let message = test.wait_instance_reason("mine", "StillNeeded").await;
    assert!(message.contains("app is removed"), "{message}");
    test.instances().delete("app", &DeleteParams::default()).await.unwrap();
    eventually("both instances are deleted", || async {
        test.instances().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    assert_eq!(test.world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    assert_eq!(
        steps(OperationKind::REMOVE),
        [completed("default/app"), completed("base/base")].concat(),
        "the dependent is removed before the removal of its dependency starts"
    );
    let events: Api<Event> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    let warnings: Vec<_> = events
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter(|event| {
            event.type_.as_deref() == Some("Warning") && event.reason.as_deref() != Some("StillNeeded")
        })
        .collect();
    assert_eq!(warnings, [], "waiting for a dependency is not a failure");
}

#[tokio::test]
async fn parameters_from_all_sources_are_merged_and_validated() {
    let test = ExtensionWorld::new("parameters").await;
    let alpha = test.world.create_cluster("alpha").await;
    let manager = test.world.start_manager();
    let schema = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "greeting": {"type": "string"}}});
    let parameters = json!({"defaults": {"greeting": "Hi", "replicas": 1}, "schema": schema});
    let versions = json!([{"version": "1.0.0", "kubernetes": "*", "parameters": parameters}]);
    test.apply_extension("hello", versions, json!({})).await;
    test.world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": test.world.namespace},
        "stringData": {"token": "CANARY-5c1"},
    })).await;
    let template = "cluster: {{ .Cluster.metadata.name }}\n";
    test.apply_instance(
        "hello",
        "hello",
        json!({"parametersTemplate": template, "parameters": {"replicas": 2}}),
    )
    .await;
    let release = test.wait_ready("hello", "alpha", "1.0.0").await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hi from alpha"));
    assert!(release.spec.values_secret.is_none() && release.spec.values.is_some());
    assert_eq!(test.world.helm(&alpha, &["get", "values", "hello"])["replicas"], 2);

    // Changed defaults are applied to existing releases.
    let parameters = json!({"defaults": {"greeting": "Ahoy", "replicas": 1}, "schema": schema});
    let versions = json!([{"version": "1.0.0", "kubernetes": "*", "parameters": parameters}]);
    test.apply_extension("hello", versions, json!({})).await;
    eventually("the new default is applied to the cluster", || async {
        (config_value(&alpha, "hello", "greeting").await.as_deref() == Some("Ahoy from alpha")).then_some(())
    })
    .await;

    // Values from a Secret are stored in a Secret.
    let from = json!([{"secret": {"name": "token", "key": "token"}, "parameter": "greeting"}]);
    test.apply_instance("hello", "hello", json!({"parametersTemplate": template, "parametersFrom": from}))
        .await;
    eventually("the secret greeting is applied to the cluster", || async {
        (config_value(&alpha, "hello", "greeting").await.as_deref() == Some("CANARY-5c1 from alpha"))
            .then_some(())
    })
    .await;
    let release = test.wait_ready("hello", "alpha", "1.0.0").await;
    let reference = release.spec.values_secret.clone().unwrap();
    assert_eq!(release.spec.values, None);
    let secrets: Api<Secret> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    let secret = secrets.get(&reference.name).await.unwrap();
    assert_eq!(secret.metadata.owner_references.unwrap()[0].name, release.name_any());
    assert!(!serde_json::to_string(&release).unwrap().contains("CANARY"));
    assert!(!manager.logs().contains("CANARY"));

    test.apply_instance("hello", "hello", json!({"parameters": {"replicas": "many"}})).await;
    let message = test.wait_instance_reason("hello", "ResolutionFailed").await;
    assert!(
        message.contains("replicas") && message.contains("integer") && !message.contains("many"),
        "{message}"
    );
    assert_eq!(
        config_value(&alpha, "hello", "greeting").await.as_deref(),
        Some("CANARY-5c1 from alpha"),
        "the running release is left unchanged"
    );
}

#[tokio::test]
async fn a_lost_values_secret_is_written_again() {
    let test = ExtensionWorld::new("lost-values").await;
    let alpha = test.world.create_cluster("alpha").await;
    let read_often = ["--parameters-seconds", "1"];
    let manager = test.world.start_manager_with(&read_often);
    test.apply_extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    test.world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": test.world.namespace},
        "stringData": {"token": "CANARY-8d2"},
    })).await;
    let from = json!([{"secret": {"name": "token", "key": "token"}, "parameter": "greeting"}]);
    test.apply_instance("hello", "hello", json!({"parametersFrom": from})).await;
    let release = test.wait_ready("hello", "alpha", "1.0.0").await;

    // To install the release again, a manager needs the values that are in the Secret. Another one has not cached them.
    manager.stop().await;
    let secrets: Api<Secret> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    let secret = release.spec.values_secret.unwrap().name;
    secrets.delete(&secret, &DeleteParams::default()).await.unwrap();
    let uninstalled = test.world.helm_command(&alpha, &["uninstall", "hello"]).output().unwrap();
    assert!(uninstalled.status.success(), "{}", String::from_utf8_lossy(&uninstalled.stderr));
    let _manager = test.world.start_manager_with(&read_often);
    eventually("the Secret exists again", || async { secrets.get_opt(&secret).await.unwrap() }).await;
    // After the failure Chandler retries within 72 seconds.
    eventually_within(Duration::from_mins(3), "the release is installed again", || async {
        let greeting = config_value(&alpha, "hello", "greeting").await?;
        (greeting == "CANARY-8d2 from somewhere").then_some(())
    })
    .await;
}

#[tokio::test]
async fn defaults_are_installed_once_and_enforced_extensions_are_restored() {
    let test = ExtensionWorld::new("defaults").await;
    let _alpha = test.world.create_cluster("alpha").await;
    let _manager = test.world.start_manager();
    let versions = json!([{"version": "1.0.0", "kubernetes": "*"}]);
    let selector = json!({"matchLabels": {"fleet": "test"}});
    let install = |enforced: bool| json!({"install": {"default": selector, "enforced": enforced, "namespace": "default"}});
    test.apply_extension("optional", versions.clone(), install(false)).await;
    test.apply_extension("forced", versions.clone(), install(true)).await;
    test.apply_extension("listed", versions.clone(), json!({})).await;
    let list = Patch::Merge(json!({"metadata": {"annotations": {"chandler.dev/extensions": "listed@1.x"}}}));
    test.clusters().patch("alpha", &PatchParams::default(), &list).await.unwrap();
    for name in ["optional", "forced", "listed"] {
        test.wait_ready(name, "alpha", "1.0.0").await;
    }
    let cluster = test.clusters().get("alpha").await.unwrap();
    assert_eq!(cluster.annotations()[GIVEN_ANNOTATION], "forced,listed,optional");

    let instance_of = |name: &str| {
        let (instances, name) = (test.instances(), name.to_owned());
        async move {
            let all = instances.list(&ListParams::default()).await.unwrap().items;
            all.into_iter()
                .find(|one| one.spec.extension.as_ref().is_some_and(|extension| extension.name == name))
        }
    };
    let [optional, forced] = [instance_of("optional").await.unwrap(), instance_of("forced").await.unwrap()];
    for instance in [&optional, &forced] {
        test.instances().delete(&instance.name_any(), &DeleteParams::default()).await.unwrap();
    }
    eventually("the enforced instance is created again", || async {
        instance_of("forced").await.filter(|again| again.uid() != forced.uid())
    })
    .await;
    eventually("the optional release is removed", || async {
        test.release("optional", "alpha").await.is_none().then_some(())
    })
    .await;
    test.wait_ready("forced", "alpha", "1.0.0").await;
    assert!(instance_of("optional").await.is_none(), "a deleted default is not installed again");

    let changed = Patch::Merge(json!({"spec": {"parameters": {"greeting": "mine"}}}));
    let forced = instance_of("forced").await.unwrap().name_any();
    test.instances().patch(&forced, &PatchParams::default(), &changed).await.unwrap();
    eventually("the change of the enforced instance is reverted", || async {
        instance_of("forced").await.filter(|instance| instance.spec.parameters.is_none())
    })
    .await;
    let listed = instance_of("listed").await.unwrap().name_any();
    test.instances().patch(&listed, &PatchParams::default(), &changed).await.unwrap();
    let unlisted = Patch::Merge(json!({"metadata": {"annotations": {"chandler.dev/extensions": null}}}));
    test.clusters().patch("alpha", &PatchParams::default(), &unlisted).await.unwrap();
    test.apply_extension("forced", versions, json!({})).await;
    eventually("an extension that is no longer a default is removed", || async {
        test.release("forced", "alpha").await.is_none().then_some(())
    })
    .await;
    assert!(instance_of("listed").await.is_some(), "an instance that a user has changed is kept");
    test.wait_ready("listed", "alpha", "1.0.0").await;
}

#[tokio::test]
async fn a_changed_version_range_upgrades_or_downgrades_in_place() {
    let test = ExtensionWorld::new("ranges").await;
    let alpha = test.world.create_cluster("alpha").await;
    let _manager = test.world.start_manager();
    let versions = ["1.0.0", "1.1.0", "2.0.0"].map(|version| json!({"version": version, "kubernetes": "*"}));
    test.apply_extension("hello", json!(versions), json!({})).await;
    for (revision, (range, version)) in (1..).zip([("1.0.x", "1.0.0"), ("^2", "2.0.0"), ("<2", "1.1.0")]) {
        test.apply_instance("hello", "hello", json!({"version": range})).await;
        let release = test.wait_ready("hello", "alpha", version).await;
        assert_eq!(release.status.unwrap().revision, Some(revision), "{range}");
    }
    let charts: Vec<_> = test.world.helm(&alpha, &["history", "hello"]).as_array().unwrap().clone();
    let charts: Vec<_> = charts.iter().map(|revision| revision["chart"].as_str().unwrap()).collect();
    assert_eq!(charts, ["hello-1.0.0", "hello-2.0.0", "hello-1.1.0"]);
}

#[tokio::test]
async fn a_running_release_survives_the_deletion_of_its_extension_and_catalog() {
    let test = ExtensionWorld::new("survival").await;
    let alpha = test.world.create_cluster("alpha").await;
    let manager = test.world.start_manager();
    test.apply_extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    test.apply_instance("hello", "hello", json!({})).await;
    test.wait_ready("hello", "alpha", "1.0.0").await;

    let newer = json!([{"version": "1.0.0", "kubernetes": "*", "withdrawn": true}, {"version": "1.1.0", "kubernetes": "*"}]);
    test.apply_extension("hello", newer, json!({})).await;
    eventually("the status reports that the version is withdrawn", || async {
        let status = test.instances().get("hello").await.unwrap().status?;
        status.resolution.first()?.message.contains("withdrawn").then_some(())
    })
    .await;
    test.apply_extension("hello", json!([{"version": "1.1.0", "kubernetes": "*"}]), json!({})).await;
    manager.wait_idle().await;
    test.wait_ready("hello", "alpha", "1.0.0").await;
    let extensions: Api<chandler_api::extensions::Extension> =
        Api::namespaced(test.world.client.clone(), &test.world.namespace);
    extensions.delete("hello", &DeleteParams::default()).await.unwrap();
    let catalogs: Api<chandler_api::extensions::ExtensionCatalog> =
        Api::namespaced(test.world.client.clone(), &test.world.namespace);
    catalogs.delete("charts", &DeleteParams::default()).await.unwrap();
    manager.wait_idle().await;
    assert_eq!(test.world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    assert!(test.release("hello", "alpha").await.is_some());
    // It can still be removed.
    test.instances().delete("hello", &DeleteParams::default()).await.unwrap();
    eventually("the instance is deleted", || async {
        test.instances().get_opt("hello").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(test.world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}
