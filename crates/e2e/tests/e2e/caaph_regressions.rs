//! Known problems of the Cluster API Add-on Provider for Helm (CAAPH) that Chandler does not have.
//!
//! Covered elsewhere: expensive no-op reconciles and metrics (`no_op`); work that grows with the square of the fleet
//! (`scale`); stale `.ControlPlane` and `.InfraCluster` (`templates`); one failing template that blocks all clusters
//! (`isolation`); `atomic` in an endless loop (`atomic`); `clusterctl move` (`clusterctl_move`); long names, and options
//! that never reach the release object (`strategies`); two placements with the same release (`collisions`); private CAs
//! (every test with a `World`); Events, inventory, chart version and digest (`lifecycle`).

use std::time::Duration;

use chandler_core::release::OperationKind;
use chandler_e2e::{
    management_cluster::ManagementCluster,
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
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The shortest backoff after a first failure: 5 s minus 20 % jitter.
const FIRST_BACKOFF: Duration = Duration::from_secs(4);
/// Well below [`FIRST_BACKOFF`].
const WITHIN_BACKOFF: Duration = Duration::from_secs(3);

async fn reconciles(manager: &Manager) -> f64 {
    manager.metrics().await["chandler_reconciles_total{kind=\"HelmReleaseProxy\"}"]
}

#[tokio::test]
async fn a_failed_upgrade_does_not_cause_a_hot_loop() {
    let world = World::new("hotloop").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.patch_placement("hello", json!({"valuesTemplate": "replicas: many"})).await;
    world.wait_status("hello", "alpha", "failed", |status| status.last_failure.is_some()).await;
    let before = reconciles(&manager).await;
    tokio::time::sleep(WITHIN_BACKOFF).await;
    assert_eq!(manager.ended(OperationKind::UPGRADE), 1, "nothing is retried before the backoff is over");
    assert_eq!(world.history(&alpha, "hello").len(), 2);
    let count = reconciles(&manager).await - before;
    assert!(count <= 5.0, "{count} reconciles of a release that waits for its backoff");
}

#[tokio::test]
async fn reuse_values_does_not_cause_repeated_upgrades() {
    let world = World::new("reuse").await;
    let alpha = world.create_cluster("alpha").await;
    let manager = world.start_manager();
    let reuse = json!({"upgrade": {"reuseValues": true}});
    world
        .apply_placement("hello", "hello", json!({"options": reuse, "valuesTemplate": "greeting: Hi"}))
        .await;
    world.wait_ready("hello", "alpha", 1).await;
    world.patch_placement("hello", json!({"valuesTemplate": "cluster: alpha"})).await;
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(config_value(&alpha, "hello", "greeting").await.as_deref(), Some("Hi from alpha"));
    tokio::time::sleep(WITHIN_BACKOFF).await;
    assert_eq!(manager.ended(OperationKind::UPGRADE), 1);
    manager.stop().await;
    let manager = world.start_manager();
    manager.wait_idle().await;
    world.wait_ready("hello", "alpha", 2).await;
    assert_eq!(world.history(&alpha, "hello").len(), 2, "reused values do not count as a difference");
}

#[tokio::test]
async fn a_manager_killed_at_any_moment_creates_no_duplicate_release_objects() {
    let world = World::new("duplicates").await;
    let (_alpha, _bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    world.apply_placement("hello", "hello", json!({"releaseName": ""})).await;
    for milliseconds in [300, 600, 1200] {
        let manager = world.start_manager();
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        manager.kill().await;
    }
    let _manager = world.start_manager();
    for cluster in ["alpha", "bravo"] {
        world.wait_ready_at_any_revision("hello", cluster).await;
    }
    let all = world.releases().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.len(), 2, "{:?}", all.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>());
}

#[tokio::test]
async fn no_namespace_is_created_if_create_namespace_is_false() {
    let world = World::new("nonamespace").await;
    let alpha = world.create_cluster("alpha").await;
    let _manager = world.start_manager();
    let absent = json!({"namespace": "absent", "options": {"install": {"createNamespace": false}}});
    world.apply_placement("hello", "hello", absent).await;
    let failed = world.wait_status("hello", "alpha", "refused", |status| status.last_failure.is_some()).await;
    let ready = condition(&failed, "Ready").unwrap();
    assert!(ready.message.contains("namespace") && ready.message.contains("absent"), "{ready:?}");
    let release = world.release("hello", "alpha").await.unwrap();
    assert!(!release.spec.options.install.create_namespace);
    let namespaces: Api<Namespace> = Api::all(alpha.client().await.unwrap());
    assert!(namespaces.get_opt("absent").await.unwrap().is_none());

    world.patch_placement("hello", json!({"options": {"install": {"createNamespace": true}}})).await;
    world.wait_ready_at_any_revision("hello", "alpha").await;
}

#[tokio::test]
async fn values_and_credentials_do_not_appear_in_logs_events_or_metrics() {
    let world = World::new("leaks").await;
    let alpha = world.create_cluster("alpha").await;
    let config = json!({"auths": {"127.0.0.1": {"username": "user", "password": "CANARY-credential"}}});
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": world.namespace},
            "stringData": {"config.json": config.to_string()},
        }))
        .await;
    let manager = world.start_manager();
    let login = json!({"secret": {"name": "login"}, "key": "config.json"});
    world
        .apply_placement(
            "hello",
            "hello",
            json!({"credentials": login, "valuesTemplate": "greeting: CANARY-good"}),
        )
        .await;
    world.wait_ready("hello", "alpha", 1).await;
    for (step, bad) in [
        ("a value that is out of range", "image: CANARY-2\nreplicas: -424242"),
        ("a value of the wrong type", "greeting: CANARY-1\nreplicas: CANARY-type"),
        ("values that are not YAML", "greeting: CANARY-3\n  - CANARY-indented: {"),
    ] {
        world.patch_placement("hello", json!({"valuesTemplate": bad})).await;
        eventually("the values reach the release object", || async {
            (world.release("hello", "alpha").await?.spec.values == bad).then_some(())
        })
        .await;
        world
            .wait_status("hello", "alpha", step, |status| {
                condition(status, "Ready").is_some_and(|c| c.reason == "HelmInstallOrUpgradeFailed")
            })
            .await;
    }
    let template =
        json!({"valuesTemplate": "greeting: CANARY-4 {{ .Cluster.metadata.name | atoi | first }}"});
    world.patch_placement("hello", template).await;
    eventually("the template fails", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        status.conditions.into_iter().find(|c| c.reason == "ValueParsingFailed")
    })
    .await;
    world.patch_placement("hello", json!({"valuesTemplate": "greeting: CANARY-fixed"})).await;
    world.wait_ready_at_any_revision("hello", "alpha").await;
    assert!(config_value(&alpha, "hello", "greeting").await.unwrap().contains("CANARY-fixed"));

    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let events = serde_json::to_string(&events.list(&ListParams::default()).await.unwrap().items).unwrap();
    let metrics = manager.get("/metrics").await;
    for (output, text) in [("logs", &manager.logs()), ("Events", &events), ("metrics", &metrics)] {
        for secret in ["CANARY", "424242"] {
            let lines: Vec<_> = text.split(['\n', '}']).filter(|line| line.contains(secret)).collect();
            assert_eq!(lines, [] as [&str; 0], "in the {output}");
        }
    }
}

#[tokio::test]
async fn credentials_of_another_namespace_are_refused() {
    let world = World::new("foreign-secrets").await;
    let _alpha = world.create_cluster("alpha").await;
    world
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foreign", "namespace": "default"},
            "stringData": {"config.json": "{}", "ca.crt": world.repository.ca_pem()},
        }))
        .await;
    let mut audit = world.sandbox.management().audit_log();
    let _manager = world.start_manager();
    let foreign = json!({"name": "foreign", "namespace": "default"});
    world
        .apply_placement("login", "hello", json!({"credentials": {"secret": foreign, "key": "config.json"}}))
        .await;
    world.apply_placement("authority", "hello", json!({"tlsConfig": {"caSecret": foreign}})).await;
    for (placement, reason) in [("login", "GetCredentialsFailed"), ("authority", "GetCACertificateFailed")] {
        let refused = world
            .wait_status(placement, "alpha", "refused", |status| {
                condition(status, "Ready").is_some_and(|c| c.reason == reason)
            })
            .await;
        let message = &condition(&refused, "Ready").unwrap().message;
        assert!(message.contains("create a ReferenceGrant in namespace default"), "{message}");
        assert!(message.contains(&format!("or copy the Secret to {}", world.namespace)), "{message}");
        world.delete_placement(placement).await;
        world.wait_deleted(placement).await;
    }
    let read = audit.read().unwrap().into_iter().filter(|entry| {
        entry.user_agent.starts_with("chandler/") && entry.resource == "secrets" && entry.name == "foreign"
    });
    assert_eq!(read.count(), 0, "the Secret is not read");
}

#[tokio::test]
async fn charts_with_equal_file_names_in_different_repositories_are_not_confused() {
    let world = World::new("samename").await;
    let alpha = world.create_cluster("alpha").await;
    let folder = world.dir.join("other");
    let template =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {greeting: Other}\n";
    let files =
        [("Chart.yaml", "apiVersion: v2\nname: hello\nversion: 1.0.0\n"), ("templates/map.yaml", template)];
    let other = chart::write(&folder, &files).unwrap();
    let repository =
        ChartRepository::start(world.sandbox.authority(), &world.dir.join("other-charts")).await.unwrap();
    repository.publish(&other).unwrap();
    let _manager = world.start_manager();
    let names: Vec<_> = (0..4).flat_map(|n| [format!("ours-{n}"), format!("theirs-{n}")]).collect();
    for name in &names {
        let changes = if name.starts_with("ours") { json!({}) } else { json!({"repoURL": repository.url()}) };
        world.apply_placement(name, "hello", changes).await;
    }
    for name in &names {
        world.wait_ready(name, "alpha", 1).await;
        let expected = if name.starts_with("ours") { "Hello from somewhere" } else { "Other" };
        assert_eq!(config_value(&alpha, name, "greeting").await.as_deref(), Some(expected), "{name}");
    }
}

#[tokio::test]
async fn secrets_of_the_management_cluster_are_neither_listed_nor_watched() {
    let world = World::new("secrets").await;
    let _alpha = world.create_cluster("alpha").await;
    let mut audit = world.sandbox.management().audit_log();
    let manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    manager.stop().await;
    let entries = audit.read().unwrap();
    let ours: Vec<_> = entries
        .iter()
        .filter(|entry| entry.user_agent.starts_with("chandler/") && entry.resource == "secrets")
        // Managers of other tests use this management cluster too. A list of all namespaces has no namespace.
        .filter(|entry| entry.namespace.is_empty() || entry.namespace == world.namespace)
        .collect();
    assert!(ours.iter().any(|entry| entry.name == "alpha-kubeconfig"), "{ours:?}");
    assert!(ours.iter().all(|entry| entry.verb == "get"), "{ours:?}");
}

#[tokio::test]
async fn a_placement_can_be_deleted_while_its_clusters_are_deleted() {
    let world = World::new("deletion").await;
    let (_alpha, bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("hello", "bravo", 1).await;
    world.clusters().delete("alpha", &DeleteParams::default()).await.unwrap();
    world.delete_placement("hello").await;
    world.wait_deleted("hello").await;
    assert_eq!(world.helm(&bravo, &["list", "--all-namespaces"]), json!([]));
}

/// The release cannot be removed while the cluster is unreachable, so the release object reports that and waits. The
/// placement no longer selects the cluster and is Ready meanwhile.
#[tokio::test]
async fn an_unreachable_cluster_that_is_no_longer_selected_does_not_fail_its_placement() {
    let world = World::new("lost").await;
    let (alpha, _bravo) = tokio::join!(world.create_cluster("alpha"), world.create_cluster("bravo"));
    let _manager = world.start_manager();
    world.apply_placement("hello", "hello", json!({})).await;
    world.wait_ready("hello", "alpha", 1).await;
    world.wait_ready("hello", "bravo", 1).await;
    alpha.kill().await;
    world
        .wait_status("hello", "alpha", "unreachable", |status| {
            condition(status, "ClusterAvailable").is_some_and(|c| c.reason == "ClusterUnreachable")
        })
        .await;
    let unlabeled = Patch::Merge(json!({"metadata": {"labels": {"fleet": null}}}));
    let all = world.clusters();
    all.patch("alpha", &PatchParams::default(), &unlabeled).await.unwrap();
    eventually("the placement is ready on the clusters that it selects", || async {
        let status = world.placements().get("hello").await.unwrap().status?;
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready")?.status == "True";
        (ready && status.ready_clusters.as_deref() == Some("1/1")).then_some(())
    })
    .await;
    let waiting = world.release("hello", "alpha").await.unwrap();
    assert!(waiting.metadata.deletion_timestamp.is_some(), "the release object is being deleted");
    let ready = condition(waiting.status.as_ref().unwrap(), "Ready").unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("Unknown", "ClusterUnreachable"), "{ready:?}");

    alpha.restart().await.unwrap();
    eventually("the release is removed once its cluster is reachable", || async {
        world.release("hello", "alpha").await.is_none().then_some(())
    })
    .await;
    assert_eq!(world.helm(&alpha, &["list", "--all-namespaces"]), json!([]));
}

fn placement(url: &str) -> Value {
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
async fn an_object_older_than_the_repo_url_validation_can_be_deleted() {
    let management = ManagementCluster::new("http").await;
    for mut crd in chandler_api::crds() {
        for version in &mut crd.spec.versions {
            let schemaless =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            version.schema = Some(serde_json::from_value(schemaless).unwrap());
        }
        apply::apply(&management.client, &serde_json::to_value(&crd).unwrap()).await.unwrap();
    }
    let placements: Api<chandler_api::addons::HelmChartProxy> =
        Api::namespaced(management.client.clone(), "default");
    eventually("the old CRD accepts the object", || async {
        apply::apply(&management.client, &placement("http://charts.example")).await.ok()
    })
    .await;
    for crd in chandler_api::crds() {
        apply::apply(&management.client, &serde_json::to_value(&crd).unwrap()).await.unwrap();
    }
    eventually("the new CRD rejects such objects", || async {
        let mut another = placement("http://charts.example");
        another["metadata"]["name"] = json!("another");
        apply::apply(&management.client, &another).await.is_err().then_some(())
    })
    .await;
    let manager = management.start_manager();
    for name in ["hello", "another"] {
        if placements.get_opt(name).await.unwrap().is_some() {
            placements.delete(name, &DeleteParams::default()).await.unwrap();
        }
        eventually("its finalizer is removed", || async {
            placements.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    manager.stop(Duration::from_secs(10)).await;
}

/// Returns the times at which the manager read the kubeconfig Secret.
fn kubeconfig_reads(requests: &[AuditEntry]) -> Vec<jiff::Timestamp> {
    let reads = requests.iter().filter(|entry| entry.is_from_chandler() && entry.name == "alpha-kubeconfig");
    reads.map(|entry| entry.received).collect()
}

#[tokio::test]
async fn a_missing_kubeconfig_is_reported_once() {
    let management = ManagementCluster::new("nokubeconfig").await;
    let mut audit = management.plane.audit_log();
    apply::apply(
        &management.client,
        &json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {},
            "metadata": {"name": "alpha", "namespace": "default"},
        }),
    )
    .await
    .unwrap();
    management.set_control_plane_initialized("alpha").await;
    apply::apply(&management.client, &placement("https://charts.example")).await.unwrap();
    let manager = Manager::from_process(management.start_manager());
    let releases: Api<chandler_api::addons::HelmReleaseProxy> =
        Api::namespaced(management.client.clone(), "default");
    let available = || async {
        let release = releases.list(&ListParams::default()).await.unwrap().items.pop()?;
        condition(release.status.as_ref()?, "ClusterAvailable").cloned()
    };
    let missing = eventually("the release reports the missing kubeconfig", || async {
        available().await.filter(|c| c.reason == "GetKubeconfigFailed")
    })
    .await;
    assert!(missing.message.contains("alpha-kubeconfig"), "{missing:?}");
    let mut requests = Vec::new();
    eventually("the kubeconfig is read again", || {
        requests.extend(audit.read().unwrap());
        std::future::ready((kubeconfig_reads(&requests).len() >= 2).then_some(()))
    })
    .await;
    manager.wait_idle().await;
    requests.extend(audit.read().unwrap());
    let reads = kubeconfig_reads(&requests);
    let pause = reads[1].duration_since(reads[0]);
    assert!(pause >= FIRST_BACKOFF.try_into().unwrap(), "read again after {pause:?}");
    let later_writes: Vec<_> = requests
        .iter()
        .filter(|entry| entry.is_from_chandler() && entry.is_write() && entry.resource != "leases")
        .filter(|entry| entry.received > reads[1])
        .collect();
    assert!(later_writes.is_empty(), "{later_writes:#?}");
    let events: Api<Event> = Api::all(management.client.clone());
    let warnings: Vec<_> = events
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter(|event| event.type_.as_deref() == Some("Warning"))
        .map(|event| (event.reason, event.note))
        .collect();
    assert_eq!(warnings, [], "only the status reports it");
    let logged: Vec<_> = manager
        .logs()
        .lines()
        .filter(|line| line.contains("\"WARN\"") || line.contains("\"ERROR\""))
        .map(str::to_owned)
        .collect();
    assert_eq!(logged, [] as [String; 0]);

    let secrets: Api<Secret> = Api::namespaced(management.client.clone(), "default");
    assert!(secrets.get_opt("alpha-kubeconfig").await.unwrap().is_none());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "alpha-kubeconfig", "namespace": "default"},
        "stringData": {"value": management.plane.kubeconfig()},
    });
    apply::apply(&management.client, &kubeconfig).await.unwrap();
    eventually("the cluster is available once the kubeconfig exists", || async {
        available().await.filter(|c| c.status == "True")
    })
    .await;
    manager.stop().await;
}
