//! What the add-on provider for Helm is known to do badly, each done better here.
//!
//! Covered elsewhere: a no-op pass that costs (`nothing_to_do`); work that grows with the square of the fleet (`scale`);
//! stale `.ControlPlane` and `.InfraCluster` (`templates`); one failing template that stops all (`isolation`); `atomic`
//! that loops (`atomic`); `clusterctl move` (`moving`); long names, options that never reach the release object
//! (`strategies`); two placements of one release (`collisions`); private authorities for https (all of `World`);
//! Events, inventory, chart version and digest (`path`); metrics (`nothing_to_do`).

use std::time::Duration;

use chandler_core::release::OperationKind;
use chandler_e2e::{
    bare::Bare,
    manager::Manager,
    wait::eventually,
    world::{World, condition, config_value},
};
use chandler_sandbox::{apply, chart, repository::ChartRepository, requests::AuditEntry};
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    events::v1::Event,
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The first wait after a failure, at least: 5 s less a fifth.
const FIRST_BACKOFF: Duration = Duration::from_secs(4);
/// Well below it.
const SOON: Duration = Duration::from_secs(3);

fn clusters(client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Cluster"));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

async fn passes(manager: &Manager) -> f64 {
    manager.metrics().await["chandler_reconciles_total{kind=\"HelmReleaseProxy\"}"]
}

#[tokio::test]
async fn a_failed_upgrade_is_no_hot_loop() {
    let world = World::new("hotloop").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    world.change("hello", json!({"valuesTemplate": "replicas: many"})).await;
    world.status("hello", "alpha", "failed", |status| status.last_failure.is_some()).await;
    let before = passes(&manager).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(manager.ended(OperationKind::UPGRADE), 1, "nothing is tried before its time");
    assert_eq!(world.history(&alpha, "hello").len(), 2);
    let looked = passes(&manager).await - before;
    assert!(looked <= 5.0, "{looked} passes over a release that only waits");
}

#[tokio::test]
async fn reused_values_do_not_loop() {
    let world = World::new("reuse").await;
    let alpha = world.cluster("alpha").await;
    let manager = world.manager();
    let reuse = json!({"upgrade": {"reuseValues": true}});
    world.place("hello", "hello", json!({"options": reuse, "valuesTemplate": "greeting: Hi"})).await;
    world.ready("hello", "alpha", 1).await;
    world.change("hello", json!({"valuesTemplate": "cluster: alpha"})).await;
    world.ready("hello", "alpha", 2).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hi from alpha"));
    tokio::time::sleep(SOON).await;
    assert_eq!(manager.ended(OperationKind::UPGRADE), 1);
    manager.stop().await;
    let manager = world.manager();
    manager.settled().await;
    world.ready("hello", "alpha", 2).await;
    assert_eq!(world.history(&alpha, "hello").len(), 2, "what was kept of older values is no difference");
}

#[tokio::test]
async fn a_manager_killed_at_any_moment_makes_no_second_release_object() {
    let world = World::new("twins").await;
    let (_alpha, _bravo) = tokio::join!(world.cluster("alpha"), world.cluster("bravo"));
    world.place("hello", "hello", json!({"releaseName": ""})).await;
    for milliseconds in [300, 600, 1200] {
        let manager = world.manager();
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        manager.kill().await;
    }
    let _manager = world.manager();
    for cluster in ["alpha", "bravo"] {
        world.ready_at_any_revision("hello", cluster).await;
    }
    let all = world.releases().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.len(), 2, "{:?}", all.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_namespace_that_is_not_to_be_created_is_not() {
    let world = World::new("nonamespace").await;
    let alpha = world.cluster("alpha").await;
    let _manager = world.manager();
    let absent = json!({"namespace": "absent", "options": {"install": {"createNamespace": false}}});
    world.place("hello", "hello", absent).await;
    let failed = world.status("hello", "alpha", "refused", |status| status.last_failure.is_some()).await;
    let ready = condition(&failed, "Ready").unwrap();
    assert!(ready.message.contains("namespace") && ready.message.contains("absent"), "{ready:?}");
    let release = world.release("hello", "alpha").await.unwrap();
    assert!(!release.spec.options.install.create_namespace);
    let namespaces: Api<Namespace> = Api::all(alpha.client().await.unwrap());
    assert!(namespaces.get_opt("absent").await.unwrap().is_none());

    world.change("hello", json!({"options": {"install": {"createNamespace": true}}})).await;
    world.ready_at_any_revision("hello", "alpha").await;
}

#[tokio::test]
async fn values_and_credentials_are_told_to_nobody() {
    let world = World::new("told-to-nobody").await;
    let alpha = world.cluster("alpha").await;
    let config = json!({"auths": {"127.0.0.1": {"username": "user", "password": "CANARY-credential"}}});
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": world.namespace},
            "stringData": {"config.json": config.to_string()},
        }))
        .await;
    let manager = world.manager();
    let login = json!({"secret": {"name": "login"}, "key": "config.json"});
    world
        .place("hello", "hello", json!({"credentials": login, "valuesTemplate": "greeting: CANARY-good"}))
        .await;
    world.ready("hello", "alpha", 1).await;
    for (step, bad) in [
        ("a value that is out of range", "image: CANARY-2\nreplicas: -424242"),
        ("a value of the wrong type", "greeting: CANARY-1\nreplicas: CANARY-type"),
        ("values that are no YAML", "greeting: CANARY-3\n  - CANARY-indented: {"),
    ] {
        world.change("hello", json!({"valuesTemplate": bad})).await;
        eventually("the values reach the release object", || async {
            (world.release("hello", "alpha").await?.spec.values == bad).then_some(())
        })
        .await;
        world
            .status("hello", "alpha", step, |status| {
                condition(status, "Ready").is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed")
            })
            .await;
    }
    let template =
        json!({"valuesTemplate": "greeting: CANARY-4 {{ .Cluster.metadata.name | atoi | first }}"});
    world.change("hello", template).await;
    eventually("the template fails", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        status.conditions.into_iter().find(|c| c.reason == "ValueParsingFailed")
    })
    .await;
    world.change("hello", json!({"valuesTemplate": "greeting: CANARY-mended"})).await;
    world.ready_at_any_revision("hello", "alpha").await;
    assert!(config_value(&alpha, "hello", "greeting").await.unwrap().contains("CANARY-mended"));

    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let events = serde_json::to_string(&events.list(&ListParams::default()).await.unwrap().items).unwrap();
    let metrics = manager.get("/metrics").await;
    for (place, text) in [("logs", &manager.logs()), ("Events", &events), ("metrics", &metrics)] {
        for secret in ["CANARY", "424242"] {
            let lines: Vec<_> = text.split(['\n', '}']).filter(|line| line.contains(secret)).collect();
            assert_eq!(lines, [] as [&str; 0], "in the {place}");
        }
    }
}

#[tokio::test]
async fn credentials_of_another_namespace_are_refused() {
    let world = World::new("deputy").await;
    let _alpha = world.cluster("alpha").await;
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foreign", "namespace": "default"},
            "stringData": {"config.json": "{}", "ca.crt": world.repository.ca_pem()},
        }))
        .await;
    let mut audit = world.sandbox.management().audit_log();
    let _manager = world.manager();
    let foreign = json!({"name": "foreign", "namespace": "default"});
    world.place("login", "hello", json!({"credentials": {"secret": foreign, "key": "config.json"}})).await;
    world.place("authority", "hello", json!({"tlsConfig": {"caSecret": foreign}})).await;
    for (placement, reason) in [("login", "GetCredentialsFailed"), ("authority", "GetCACertificateFailed")] {
        let refused = world
            .status(placement, "alpha", "refused", |status| {
                condition(status, "Ready").is_some_and(|c| c.reason == reason)
            })
            .await;
        let message = &condition(&refused, "Ready").unwrap().message;
        assert!(message.contains("create a ReferenceGrant in namespace default"), "{message}");
        assert!(message.contains(&format!("or copy the Secret to {}", world.namespace)), "{message}");
        world.delete(placement).await;
        world.gone(placement).await;
    }
    let read = audit.read().unwrap().into_iter().filter(|entry| {
        entry.user_agent.starts_with("chandler/") && entry.resource == "secrets" && entry.name == "foreign"
    });
    assert_eq!(read.count(), 0, "it is not even read");
}

#[tokio::test]
async fn repositories_with_equal_file_names_keep_their_charts() {
    let world = World::new("samename").await;
    let alpha = world.cluster("alpha").await;
    let folder = world.dir.join("other");
    let template =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {greeting: Other}\n";
    let files =
        [("Chart.yaml", "apiVersion: v2\nname: hello\nversion: 1.0.0\n"), ("templates/map.yaml", template)];
    let other = chart::write(&folder, &files).unwrap();
    let repository =
        ChartRepository::start(world.sandbox.authority(), &world.dir.join("other-charts")).await.unwrap();
    repository.publish(&other).unwrap();
    let _manager = world.manager();
    let names: Vec<_> = (0..4).flat_map(|n| [format!("ours-{n}"), format!("theirs-{n}")]).collect();
    for name in &names {
        let changes = if name.starts_with("ours") { json!({}) } else { json!({"repoURL": repository.url()}) };
        world.place(name, "hello", changes).await;
    }
    for name in &names {
        world.ready(name, "alpha", 1).await;
        let expected = if name.starts_with("ours") { "Hello from somewhere" } else { "Other" };
        assert_eq!(config_value(&alpha, name, "greeting").await.as_deref(), Some(expected), "{name}");
    }
}

#[tokio::test]
async fn no_secret_of_the_management_cluster_is_listed_or_watched() {
    let world = World::new("secrets").await;
    let _alpha = world.cluster("alpha").await;
    let mut audit = world.sandbox.management().audit_log();
    let manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    manager.stop().await;
    let entries = audit.read().unwrap();
    let ours: Vec<_> = entries
        .iter()
        .filter(|entry| entry.user_agent.starts_with("chandler/") && entry.resource == "secrets")
        .collect();
    assert!(ours.iter().any(|entry| entry.name == "alpha-kubeconfig"), "{ours:?}");
    assert!(ours.iter().all(|entry| entry.verb == "get"), "{ours:?}");
}

#[tokio::test]
async fn a_placement_goes_while_its_clusters_go() {
    let world = World::new("going").await;
    let (_alpha, bravo) = tokio::join!(world.cluster("alpha"), world.cluster("bravo"));
    let _manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    world.ready("hello", "bravo", 1).await;
    clusters(&world.client, &world.namespace).delete("alpha", &DeleteParams::default()).await.unwrap();
    world.delete("hello").await;
    world.gone("hello").await;
    assert_eq!(world.helm(&bravo, &["list", "--all-namespaces"]), json!([]));
}

/// Its release cannot be removed yet and is not forgotten: the release object says so and waits. The placement, which
/// wants nothing of that cluster, is Ready meanwhile.
#[tokio::test]
async fn an_unreachable_cluster_that_is_not_selected_any_more_does_not_fail_its_placement() {
    let world = World::new("lost").await;
    let (alpha, _bravo) = tokio::join!(world.cluster("alpha"), world.cluster("bravo"));
    let _manager = world.manager();
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    world.ready("hello", "bravo", 1).await;
    alpha.kill().await;
    world
        .status("hello", "alpha", "unreachable", |status| {
            condition(status, "ClusterAvailable").is_some_and(|c| c.reason == "ClusterUnreachable")
        })
        .await;
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": {"fleet": null}}}));
    let all = clusters(&world.client, &world.namespace);
    all.patch("alpha", &PatchParams::default(), &unlabelled).await.unwrap();
    eventually("the placement is ready on what it selects", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready")?.status == "True";
        (ready && status.ready_clusters.as_deref() == Some("1/1")).then_some(())
    })
    .await;
    let waiting = world.release("hello", "alpha").await.unwrap();
    assert!(waiting.metadata.deletion_timestamp.is_some(), "its release is not forgotten");
    let ready = condition(waiting.status.as_ref().unwrap(), "Ready").unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("False", "ClusterUnreachable"), "{ready:?}");

    alpha.restart().await.unwrap();
    eventually("the release goes once its cluster is back", || async {
        world.release("hello", "alpha").await.is_none().then_some(())
    })
    .await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}

fn bare_placement(url: &str) -> Value {
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1alpha1", "kind": "HelmChartProxy",
        "metadata": {
            "name": "hello", "namespace": "default",
            "finalizers": ["helmchartproxy.addons.cluster.x-k8s.io"],
        },
        "spec": {
            "clusterSelector": {}, "chartName": "hello", "repoURL": url, "version": "1.0.0",
            "releaseName": "hello",
        },
    })
}

#[tokio::test]
async fn an_object_older_than_the_rule_on_repositories_can_go() {
    let bare = Bare::new("http").await;
    for mut definition in chandler_api::crds() {
        for version in &mut definition.spec.versions {
            let open =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            version.schema = Some(serde_json::from_value(open).unwrap());
        }
        apply::apply(&bare.client, &serde_json::to_value(&definition).unwrap()).await.unwrap();
    }
    let placements: Api<chandler_api::addons::HelmChartProxy> =
        Api::namespaced(bare.client.clone(), "default");
    eventually("the old definition takes it", || async {
        apply::apply(&bare.client, &bare_placement("http://charts.example")).await.ok()
    })
    .await;
    for definition in chandler_api::crds() {
        apply::apply(&bare.client, &serde_json::to_value(&definition).unwrap()).await.unwrap();
    }
    eventually("the rule is in force", || async {
        let mut another = bare_placement("http://charts.example");
        another["metadata"]["name"] = json!("another");
        apply::apply(&bare.client, &another).await.is_err().then_some(())
    })
    .await;
    let manager = bare.manager();
    for name in ["hello", "another"] {
        if placements.get_opt(name).await.unwrap().is_some() {
            placements.delete(name, &DeleteParams::default()).await.unwrap();
        }
        eventually("it loses its finalizer", || async {
            placements.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    manager.stop(Duration::from_secs(10)).await;
}

/// When the manager read the kubeconfig.
fn reads(requests: &[AuditEntry]) -> Vec<jiff::Timestamp> {
    let reads = requests.iter().filter(|entry| entry.is_chandlers() && entry.name == "alpha-kubeconfig");
    reads.map(|entry| entry.received).collect()
}

#[tokio::test]
async fn a_missing_kubeconfig_is_told_once() {
    let bare = Bare::new("nokubeconfig").await;
    let mut audit = bare.plane.audit_log();
    apply::apply(
        &bare.client,
        &json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {},
            "metadata": {"name": "alpha", "namespace": "default"},
        }),
    )
    .await
    .unwrap();
    let initialized = Patch::Merge(json!({"status": {"initialization": {"controlPlaneInitialized": true}}}));
    clusters(&bare.client, "default")
        .patch_status("alpha", &PatchParams::default(), &initialized)
        .await
        .unwrap();
    apply::apply(&bare.client, &bare_placement("https://charts.example")).await.unwrap();
    let manager = Manager::of(bare.manager());
    let releases: Api<chandler_api::addons::HelmReleaseProxy> =
        Api::namespaced(bare.client.clone(), "default");
    let available = || async {
        let release = releases.list(&ListParams::default()).await.unwrap().items.pop()?;
        condition(release.status.as_ref()?, "ClusterAvailable").cloned()
    };
    let told = eventually("the release says what is missing", || async {
        available().await.filter(|c| c.reason == "GetKubeconfigFailed")
    })
    .await;
    assert!(told.message.contains("alpha-kubeconfig"), "{told:?}");
    let mut requests = Vec::new();
    eventually("the kubeconfig is looked for again", || {
        requests.extend(audit.read().unwrap());
        std::future::ready((reads(&requests).len() >= 2).then_some(()))
    })
    .await;
    manager.settled().await;
    requests.extend(audit.read().unwrap());
    let reads = reads(&requests);
    let pause = reads[1].duration_since(reads[0]);
    assert!(pause >= FIRST_BACKOFF.try_into().unwrap(), "read again after {pause:?}");
    let told_again: Vec<_> = requests
        .iter()
        .filter(|entry| entry.is_chandlers() && entry.is_write() && entry.resource != "leases")
        .filter(|entry| entry.received > reads[1])
        .collect();
    assert!(told_again.is_empty(), "{told_again:#?}");
    let events: Api<Event> = Api::all(bare.client.clone());
    let warnings: Vec<_> = events
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter(|event| event.type_.as_deref() == Some("Warning"))
        .map(|event| (event.reason, event.note))
        .collect();
    assert_eq!(warnings, [], "the status tells it");
    let complaints: Vec<_> = manager
        .logs()
        .lines()
        .filter(|line| line.contains("\"WARN\"") || line.contains("\"ERROR\""))
        .map(str::to_owned)
        .collect();
    assert_eq!(complaints, [] as [String; 0]);

    let secrets: Api<Secret> = Api::namespaced(bare.client.clone(), "default");
    assert!(secrets.get_opt("alpha-kubeconfig").await.unwrap().is_none());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "alpha-kubeconfig", "namespace": "default"},
        "stringData": {"value": bare.plane.kubeconfig()},
    });
    apply::apply(&bare.client, &kubeconfig).await.unwrap();
    eventually("it goes on once the kubeconfig is there", || async {
        available().await.filter(|c| c.status == "True")
    })
    .await;
    manager.stop().await;
}

#[tokio::test]
async fn releases_that_wait_stall_nobody() {
    let world = World::new("waiting").await;
    let alpha = world.cluster("alpha").await;
    let _manager = world.patient_manager();
    // More than all slots together.
    for number in 0..20 {
        let stuck = json!({"options": {"wait": true, "timeout": "10m"}});
        world.place(&format!("stuck-{number}"), "stubborn", stuck).await;
    }
    for number in 0..20 {
        world
            .status(&format!("stuck-{number}"), "alpha", "waiting", |status| {
                condition(status, "Ready")
                    .is_some_and(|c| c.message.contains("waiting for ") && c.message.contains(" to be ready"))
            })
            .await;
    }
    world.place("hello", "hello", json!({})).await;
    world.ready("hello", "alpha", 1).await;
    assert_eq!(world.history(&alpha, "hello"), [(1, "deployed".to_owned())]);
}
