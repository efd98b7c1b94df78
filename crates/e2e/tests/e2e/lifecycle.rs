//! The lifecycle of a HelmChartProxy and its releases.

use std::time::Duration;

use chandler_api::addons::HelmReleaseProxy;
use chandler_e2e::{
    wait::eventually,
    world::{World, condition, config_value, finalizers, hello},
};
use chandler_sandbox::{chart::Package, fault_proxy::Mode, registry::Registry};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

#[tokio::test]
async fn a_release_is_installed_upgraded_and_removed_on_every_selected_cluster() {
    let world = World::new("lifecycle").await;
    let (alpha, bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let manager = world.start_manager();
    let template = "cluster: {{ .Cluster.metadata.name }}\nreplicas: 2\n";
    world
        .apply_placement("hello", "hello", json!({"valuesTemplate": template, "options": {"wait": true}}))
        .await;

    let status = world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("hello", "bravo", 1).await;
    assert_eq!(status.inventory.len(), 4, "{:?}", status.inventory);
    assert_eq!(status.package.unwrap().version, "1.0.0");
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hello from alpha"));
    assert_eq!(config_value(&bravo, "hello", "greeting").await.as_deref(), Some("Hello from bravo"));
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
    assert_eq!(world.helm(&alpha, &["get", "values", "hello"]), json!({"cluster": "alpha", "replicas": 2}));
    let placement = eventually("the placement is ready on both", || async {
        let placement = world.placements().get("hello").await.unwrap();
        let ready = placement.status.as_ref()?.ready_clusters.as_deref() == Some("2/2");
        ready.then_some(placement)
    })
    .await;
    assert_eq!(placement.status.unwrap().matching_clusters.len(), 2);

    world
        .patch_placement(
            "hello",
            json!({"valuesTemplate": "greeting: Ahoy\ncluster: {{ .Cluster.metadata.name }}\n"}),
        )
        .await;
    world.wait_ready("hello", "alpha", 2).await;
    world.wait_ready("hello", "bravo", 2).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Ahoy from alpha"));
    assert_eq!(world.history(&alpha, "hello"), [(1, "superseded".to_owned()), (2, "deployed".to_owned())]);

    let release = world.release("hello", "alpha").await.unwrap();
    assert_eq!(finalizers(&release), ["helmreleaseproxy.addons.cluster.x-k8s.io"]);
    world.delete_placement("hello").await;
    world.wait_deleted("hello").await;
    for plane in [&alpha, &bravo] {
        assert_eq!(world.helm(plane, &["list", "--all-namespaces"]), json!([]));
        assert_eq!(config_value(plane, "hello", "greeting").await, None);
    }
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    // Events are published in the background.
    let reasons = eventually("the Events are published", || async {
        let all = events.list(&ListParams::default()).await.unwrap().into_iter();
        let reasons: Vec<_> = all.filter_map(|event| event.reason).collect();
        let count = |expected: &str| reasons.iter().filter(|reason| *reason == expected).count();
        let is_complete = ["Installed", "Upgraded", "Removed"].into_iter().all(|reason| count(reason) >= 2);
        is_complete.then_some(reasons)
    })
    .await;
    for expected in ["Installed", "Upgraded", "Removed"] {
        let count = reasons.iter().filter(|reason| *reason == expected).count();
        assert_eq!(count, 2, "one {expected} Event per cluster: {reasons:?}");
    }
    manager.stop().await;
}

#[tokio::test]
async fn a_removal_is_published_once_although_the_object_is_changed_meanwhile() {
    let world = World::new("removal-event").await;
    world.create_cluster("alpha").await;
    let (proxy, kubeconfig) = world.management_proxy().await;
    let manager = world.start_manager_with(&["--kubeconfig", &kubeconfig]);
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;

    // The finalizer is removed from the object as the watch has shown it. That fails if another client has changed it since.
    proxy.set_mode(Mode::Delay(2 * CHANGE_INTERVAL));
    let name = world.release("hello", "alpha").await.unwrap().name_any();
    let changes = tokio::spawn(annotate_repeatedly(world.releases(), name.clone()));
    world.delete_placement("hello").await;
    eventually("a removal of the finalizer fails", || async {
        let is_conflict = |line: &str| line.contains("the object has been modified") && line.contains(&name);
        manager.logs().lines().any(is_conflict).then_some(())
    })
    .await;
    changes.abort();
    proxy.set_mode(Mode::Forward);
    world.wait_deleted("hello").await;
    let removals = published(&world, "Removed").await;
    assert!(removals.len() == 1 && removals[0].series.is_none(), "{removals:#?}");
    manager.stop().await;
}

#[tokio::test]
async fn an_upgrade_is_published_once_although_its_status_cannot_be_written() {
    let world = World::new("upgrade-event").await;
    world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let name = world.release("hello", "alpha").await.unwrap().name_any();

    let rejection = RejectedRevision::create(&world, 2).await;
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually("a status with the new revision is rejected", || async {
        let status = Patch::Merge(json!({"status": {"revision": 2}}));
        let error = world.releases().patch_status(&name, &dry_run, &status).await.err()?;
        error.to_string().contains("revision 2 is rejected").then_some(())
    })
    .await;
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "greeting: Ahoy"})).await;
    published(&world, "Upgraded").await;
    let rejected = || {
        let is_rejected = |line: &&str| line.contains("revision 2 is rejected") && line.contains(&name);
        manager.logs().lines().filter(is_rejected).count()
    };
    let before = rejected();
    eventually("the status is rejected again", || async { (rejected() >= before + 2).then_some(()) }).await;
    rejection.delete().await;
    world.wait_ready("hello", "alpha", 2).await;
    let upgrades = published(&world, "Upgraded").await;
    assert!(upgrades.len() == 1 && upgrades[0].series.is_none(), "{upgrades:#?}");
    manager.stop().await;
}

/// Lets the API server reject every status of a release in the world's namespace that has a certain revision.
struct RejectedRevision {
    name: String,
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
}

impl RejectedRevision {
    async fn create(world: &World, revision: u32) -> Self {
        let name = format!("{}-rejects-revision", world.namespace);
        let policy = json!({
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
                    "resourceRules": [{
                        "apiGroups": ["addons.cluster.x-k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
                        "resources": ["helmreleaseproxies/status"],
                    }],
                },
                "validations": [{
                    "expression": format!("object.?status.?revision.orValue(0) != {revision}"),
                    "message": format!("revision {revision} is rejected"),
                }],
            },
        });
        let binding = json!({
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        let (policies, bindings) = (Api::all(world.client.clone()), Api::all(world.client.clone()));
        let create = PostParams::default();
        policies.create(&create, &serde_json::from_value(policy).unwrap()).await.unwrap();
        bindings.create(&create, &serde_json::from_value(binding).unwrap()).await.unwrap();
        Self { name, policies, bindings }
    }

    async fn delete(self) {
        self.bindings.delete(&self.name, &DeleteParams::default()).await.unwrap();
        self.policies.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }
}

/// Returns the Events with this reason. They are published in the background.
async fn published(world: &World, reason: &str) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    eventually("the Event is published", || async {
        let mut all = events.list(&ListParams::default()).await.unwrap().items;
        all.retain(|event| event.reason.as_deref() == Some(reason));
        (!all.is_empty()).then_some(all)
    })
    .await
}

#[tokio::test]
async fn a_release_is_uninstalled_although_others_hold_its_object() {
    let world = World::new("held").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    let name = world.release("hello", "alpha").await.unwrap().name_any();
    let own = "helmreleaseproxy.addons.cluster.x-k8s.io";
    let hold = |finalizers: Vec<&str>| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let releases = world.releases();
    releases.patch(&name, &PatchParams::default(), &hold(vec![own, "example.com/hold"])).await.unwrap();
    // A condition of others stays in the status, whatever Chandler writes.
    let condition = json!({
        "type": "Example", "status": "True", "reason": "Example", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmReleaseProxy", "status": {"conditions": [condition]},
    });
    releases.patch_status(&name, &PatchParams::apply("example"), &Patch::Apply(status)).await.unwrap();
    world.delete_placement("hello").await;
    eventually("only the others hold the object", || async {
        (finalizers(&releases.get(&name).await.unwrap()) == ["example.com/hold"]).then_some(())
    })
    .await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    releases.patch(&name, &PatchParams::default(), &hold(vec![])).await.unwrap();
    world.wait_deleted("hello").await;
    manager.stop().await;
}

/// How often [`annotate_repeatedly`] changes an object.
const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// Changes an annotation of a release object until the object is gone.
async fn annotate_repeatedly(releases: Api<HelmReleaseProxy>, name: String) {
    for number in 0.. {
        let patch = json!({"metadata": {"annotations": {"example.com/number": format!("{number}")}}});
        // A request that fails is repeated.
        let written = releases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        if matches!(written, Err(kube::Error::Api(status)) if status.code == 404) {
            return;
        }
        tokio::time::sleep(CHANGE_INTERVAL).await;
    }
}

#[tokio::test]
async fn equivalent_values_add_no_revision() {
    let world = World::new("equivalent").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({"valuesTemplate": "replicas: 2\ngreeting: Hi\n"})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world
        .patch_placement("hello", json!({"valuesTemplate": "# the same\ngreeting: \"Hi\"\nreplicas:   2\n"}))
        .await;
    eventually("the new text is written to the release object", || async {
        world.release("hello", "alpha").await?.spec.values.starts_with("# the same").then_some(())
    })
    .await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello").len(), 1);
}

#[tokio::test]
async fn a_release_is_removed_from_a_cluster_that_is_no_longer_selected() {
    let world = World::new("unselect").await;
    let (alpha, _bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("hello", "bravo", 1).await;
    let unlabeled = Patch::Merge(json!({"metadata": {"labels": {"fleet": null}}}));
    world.clusters().patch("alpha", &PatchParams::default(), &unlabeled).await.unwrap();
    eventually("the release object is deleted", || async {
        world.release("hello", "alpha").await.is_none().then_some(())
    })
    .await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
    world.wait_ready("hello", "bravo", 1).await;
}

#[tokio::test]
async fn charts_are_pulled_from_oci_registries() {
    let world = World::new("oci").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    let home = world.dir.join("registry");
    std::fs::create_dir_all(&home).unwrap();
    let registry = Registry::start(world.sandbox.assets(), world.sandbox.authority(), &home).await.unwrap();
    registry.push(&Package::pack(&hello(), None).unwrap()).await.unwrap();
    world
        .apply_placement(
            "hello",
            "hello",
            json!({"repoURL": registry.url(), "valuesTemplate": "greeting: Aye"}),
        )
        .await;
    world.wait_ready("hello", "alpha", 1).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Aye from somewhere"));
    registry.stop().await;
}

#[tokio::test]
async fn a_changed_release_name_reinstalls_the_release() {
    let world = World::new("identity").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.patch_placement("hello", json!({"releaseName": "ahoy"})).await;
    eventually("the release has its new name", || async {
        let release = world.release("hello", "alpha").await?;
        let ready = condition(release.status.as_ref()?, "Ready")?.status == "True";
        (ready && release.spec.release_name == "ahoy").then_some(())
    })
    .await;
    let names = world.helm(&alpha, &["list", "--all-namespaces"]);
    assert_eq!(
        names.as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["ahoy"]
    );
}
