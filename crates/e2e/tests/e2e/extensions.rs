//! Extensions: versions that fit, what they need, what they are given, and what is never lost.

use chandler_api::extensions::{GIVEN_ANNOTATION, IMPLIED_BY_LABEL};
use chandler_core::release::OperationKind;
use chandler_e2e::{extension_world::Extensions, wait::eventually, world::config_value};
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

#[tokio::test]
async fn what_is_needed_comes_first_and_goes_last() {
    let test = Extensions::new("needs").await;
    let alpha = test.world.cluster("alpha").await;
    let manager = test.world.manager();
    test.extension("base", json!([{"version": "1.0.0"}]), json!({})).await;
    let versions = json!([
        {"version": "1.0.0", "kubernetes": "<1.34"},
        {"version": "1.1.0", "kubernetes": ">=1.34", "dependencies": [{"extension": "base"}]},
        {"version": "2.0.0", "kubernetes": ">=1.40"},
    ]);
    test.extension("app", versions, json!({})).await;
    test.instance("app", "app", json!({})).await;

    let app = test.ready("app", "alpha", "1.1.0").await;
    let base = test.ready("base", "alpha", "1.0.0").await;
    let steps = |kind: OperationKind| -> Vec<_> {
        let all = manager.operations().into_iter().filter(|operation| operation.kind == kind);
        all.map(|operation| (operation.release, operation.outcome)).collect()
    };
    let whole =
        |release: &str| [(release.to_owned(), None), (release.to_owned(), Some("success".to_owned()))];
    assert_eq!(
        steps(OperationKind::INSTALL),
        [whole("base/base"), whole("default/app")].concat(),
        "what is needed is installed before what needs it begins"
    );
    assert_eq!(app.spec.depends_on, [base.name_any()]);
    let status = eventually("the instance tells its versions", || async {
        test.instances()
            .get("app")
            .await
            .unwrap()
            .status
            .filter(|status| status.versions.as_deref() == Some("1.1.0"))
    })
    .await;
    assert!(status.resolution[0].message.contains("1.1.0"), "{status:?}");
    assert_eq!(test.cluster_condition("alpha", "AddonsReady", "True").await, "");
    let verdict = test.cluster_condition("alpha", "AddonsUpgradable", "True").await;
    assert!(verdict.contains("Kubernetes 1.35: base 1.0.0 stays; app 1.1.0 stays"), "{verdict}");

    // Somebody else's wish for what is needed changes nothing that runs.
    test.instance("mine", "base", json!({"release": {}})).await;
    eventually("the wish takes the place of what was implied", || async {
        let all = test.instances().list(&ListParams::default()).await.unwrap();
        all.items.iter().all(|one| !one.labels().contains_key(IMPLIED_BY_LABEL)).then_some(())
    })
    .await;
    let base = test.ready("base", "alpha", "1.0.0").await;
    assert_eq!(base.metadata.owner_references.as_ref().unwrap()[0].name, "mine");
    assert_eq!(base.status.unwrap().revision, Some(1), "it was not installed twice");

    test.instances().delete("mine", &DeleteParams::default()).await.unwrap();
    let why = test.instance_condition("mine", "StillNeeded").await;
    assert!(why.contains("app is removed"), "{why}");
    test.instances().delete("app", &DeleteParams::default()).await.unwrap();
    eventually("both are gone", || async {
        test.instances().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
    assert_eq!(test.world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    assert_eq!(
        steps(OperationKind::REMOVE),
        [whole("default/app"), whole("base/base")].concat(),
        "what needs is gone before what is needed goes"
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
    assert_eq!(warnings, [], "waiting is not failing");
}

#[tokio::test]
async fn parameters_come_from_everywhere_and_are_checked() {
    let test = Extensions::new("parameters").await;
    let alpha = test.world.cluster("alpha").await;
    let manager = test.world.manager();
    let schema = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "greeting": {"type": "string"}}});
    let parameters = json!({"defaults": {"greeting": "Hi", "replicas": 1}, "schema": schema});
    let versions = json!([{"version": "1.0.0", "kubernetes": "*", "parameters": parameters}]);
    test.extension("hello", versions, json!({})).await;
    test.world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": test.world.namespace},
        "stringData": {"token": "CANARY-5c1"},
    })).await;
    let template = "cluster: {{ .Cluster.metadata.name }}\n";
    test.instance("hello", "hello", json!({"parametersTemplate": template, "parameters": {"replicas": 2}}))
        .await;
    let release = test.ready("hello", "alpha", "1.0.0").await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hi from alpha"));
    assert!(release.spec.values_secret.is_none() && release.spec.values.is_some());
    assert_eq!(test.world.helm(&alpha, &["get", "values", "hello"])["replicas"], 2);

    // Defaults that change later reach what is there.
    let parameters = json!({"defaults": {"greeting": "Ahoy", "replicas": 1}, "schema": schema});
    let versions = json!([{"version": "1.0.0", "kubernetes": "*", "parameters": parameters}]);
    test.extension("hello", versions, json!({})).await;
    eventually("the new default is on the cluster", || async {
        (config_value(&alpha, "hello", "greeting").await.as_deref() == Some("Ahoy from alpha")).then_some(())
    })
    .await;

    // A Secret's part is kept in a Secret.
    let from = json!([{"secret": {"name": "token", "key": "token"}, "parameter": "greeting"}]);
    test.instance("hello", "hello", json!({"parametersTemplate": template, "parametersFrom": from})).await;
    eventually("the secret greeting is on the cluster", || async {
        (config_value(&alpha, "hello", "greeting").await.as_deref() == Some("CANARY-5c1 from alpha"))
            .then_some(())
    })
    .await;
    let release = test.ready("hello", "alpha", "1.0.0").await;
    let kept = release.spec.values_secret.clone().unwrap();
    assert_eq!(release.spec.values, None);
    let secrets: Api<Secret> = Api::namespaced(test.world.client.clone(), &test.world.namespace);
    let secret = secrets.get(&kept.name).await.unwrap();
    assert_eq!(secret.metadata.owner_references.unwrap()[0].name, "hello");
    assert!(!serde_json::to_string(&release).unwrap().contains("CANARY"));
    assert!(!manager.logs().contains("CANARY"));

    test.instance("hello", "hello", json!({"parameters": {"replicas": "many"}})).await;
    let why = test.instance_condition("hello", "ResolutionFailed").await;
    assert!(why.contains("replicas") && why.contains("integer") && !why.contains("many"), "{why}");
    assert_eq!(
        config_value(&alpha, "hello", "greeting").await.as_deref(),
        Some("CANARY-5c1 from alpha"),
        "what runs stays"
    );
}

#[tokio::test]
async fn clusters_get_their_defaults_and_keep_what_is_theirs() {
    let test = Extensions::new("defaults").await;
    let _alpha = test.world.cluster("alpha").await;
    let _manager = test.world.manager();
    let versions = json!([{"version": "1.0.0", "kubernetes": "*"}]);
    let selector = json!({"matchLabels": {"fleet": "test"}});
    let install = |enforced: bool| json!({"install": {"default": selector, "enforced": enforced, "namespace": "default"}});
    test.extension("optional", versions.clone(), install(false)).await;
    test.extension("forced", versions.clone(), install(true)).await;
    test.extension("listed", versions.clone(), json!({})).await;
    let list = Patch::Merge(json!({"metadata": {"annotations": {"chandler.dev/extensions": "listed@1.x"}}}));
    test.clusters().patch("alpha", &PatchParams::default(), &list).await.unwrap();
    for name in ["optional", "forced", "listed"] {
        test.ready(name, "alpha", "1.0.0").await;
    }
    let cluster = test.clusters().get("alpha").await.unwrap();
    assert_eq!(cluster.annotations()[GIVEN_ANNOTATION], "forced,listed,optional");

    let of = |name: &str| {
        let (instances, name) = (test.instances(), name.to_owned());
        async move {
            let all = instances.list(&ListParams::default()).await.unwrap().items;
            all.into_iter()
                .find(|one| one.spec.extension.as_ref().is_some_and(|extension| extension.name == name))
        }
    };
    let [optional, forced] = [of("optional").await.unwrap(), of("forced").await.unwrap()];
    for instance in [&optional, &forced] {
        test.instances().delete(&instance.name_any(), &DeleteParams::default()).await.unwrap();
    }
    eventually("what is enforced comes back", || async {
        of("forced").await.filter(|again| again.uid() != forced.uid())
    })
    .await;
    eventually("what is not is gone", || async {
        test.release("optional", "alpha").await.is_none().then_some(())
    })
    .await;
    test.ready("forced", "alpha", "1.0.0").await;
    assert!(of("optional").await.is_none(), "who does away with it does not get it again");

    let changed = Patch::Merge(json!({"spec": {"parameters": {"greeting": "mine"}}}));
    let forced = of("forced").await.unwrap().name_any();
    test.instances().patch(&forced, &PatchParams::default(), &changed).await.unwrap();
    eventually("what is enforced is put right", || async {
        of("forced").await.filter(|instance| instance.spec.parameters.is_none())
    })
    .await;
    let listed = of("listed").await.unwrap().name_any();
    test.instances().patch(&listed, &PatchParams::default(), &changed).await.unwrap();
    let unlisted = Patch::Merge(json!({"metadata": {"annotations": {"chandler.dev/extensions": null}}}));
    test.clusters().patch("alpha", &PatchParams::default(), &unlisted).await.unwrap();
    test.extension("forced", versions, json!({})).await;
    eventually("what is no default any more goes", || async {
        test.release("forced", "alpha").await.is_none().then_some(())
    })
    .await;
    assert!(of("listed").await.is_some(), "what somebody changed is theirs");
    test.ready("listed", "alpha", "1.0.0").await;
}

#[tokio::test]
async fn another_range_moves_an_extension_up_and_down_in_place() {
    let test = Extensions::new("ranges").await;
    let alpha = test.world.cluster("alpha").await;
    let _manager = test.world.manager();
    let versions = ["1.0.0", "1.1.0", "2.0.0"].map(|version| json!({"version": version, "kubernetes": "*"}));
    test.extension("hello", json!(versions), json!({})).await;
    for (revision, (range, version)) in (1..).zip([("1.0.x", "1.0.0"), ("^2", "2.0.0"), ("<2", "1.1.0")]) {
        test.instance("hello", "hello", json!({"version": range})).await;
        let release = test.ready("hello", "alpha", version).await;
        assert_eq!(release.status.unwrap().revision, Some(revision), "{range}");
    }
    let charts: Vec<_> = test.world.helm(&alpha, &["history", "hello"]).as_array().unwrap().clone();
    let charts: Vec<_> = charts.iter().map(|revision| revision["chart"].as_str().unwrap()).collect();
    assert_eq!(charts, ["hello-1.0.0", "hello-2.0.0", "hello-1.1.0"]);
}

#[tokio::test]
async fn what_runs_is_never_lost() {
    let test = Extensions::new("keeps").await;
    let alpha = test.world.cluster("alpha").await;
    let manager = test.world.manager();
    test.extension("hello", json!([{"version": "1.0.0", "kubernetes": "*"}]), json!({})).await;
    test.instance("hello", "hello", json!({})).await;
    test.ready("hello", "alpha", "1.0.0").await;

    let newer = json!([{"version": "1.0.0", "kubernetes": "*", "withdrawn": true}, {"version": "1.1.0", "kubernetes": "*"}]);
    test.extension("hello", newer, json!({})).await;
    eventually("it is told that the version is withdrawn", || async {
        let status = test.instances().get("hello").await.unwrap().status?;
        status.resolution.first()?.message.contains("withdrawn").then_some(())
    })
    .await;
    test.extension("hello", json!([{"version": "1.1.0", "kubernetes": "*"}]), json!({})).await;
    manager.settled().await;
    test.ready("hello", "alpha", "1.0.0").await;
    let extensions: Api<chandler_api::extensions::Extension> =
        Api::namespaced(test.world.client.clone(), &test.world.namespace);
    extensions.delete("hello", &DeleteParams::default()).await.unwrap();
    let catalogs: Api<chandler_api::extensions::ExtensionCatalog> =
        Api::namespaced(test.world.client.clone(), &test.world.namespace);
    catalogs.delete("charts", &DeleteParams::default()).await.unwrap();
    manager.settled().await;
    assert_eq!(test.world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    assert!(test.release("hello", "alpha").await.is_some());
    // And it can still be removed.
    test.instances().delete("hello", &DeleteParams::default()).await.unwrap();
    eventually("it is gone", || async {
        test.instances().get_opt("hello").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(test.world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}
