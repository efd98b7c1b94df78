//! Extensions during the lifecycle of a cluster with a topology: creation, Kubernetes upgrade, and deletion.

use std::{sync::Mutex, time::Duration};

use chandler_core::release::OperationKind;
use chandler_e2e::{
    extension_world::{ExtensionWorld, is_ready},
    wait::{eventually, eventually_within},
};
use chandler_sandbox::{assets::KubernetesVersion, testing};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

use crate::{
    health::set_schedulable,
    hooks::{Hooks, condition},
};

const UPGRADE_LIMIT: Duration = Duration::from_mins(4);

/// The versions at one point in time during an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Snapshot {
    control_plane: String,
    workers: Vec<String>,
    /// The name and version of each extension, and whether it is ready.
    extensions: Vec<(String, String, bool)>,
}

impl Snapshot {
    fn version(&self, name: &str) -> &str {
        self.extensions.iter().find(|(known, ..)| known == name).map_or("", |(_, version, _)| version)
    }

    fn is_ready(&self, name: &str, version: &str) -> bool {
        self.extensions.iter().any(|(known, at, ready)| known == name && at == version && *ready)
    }
}

async fn versions(test: &ExtensionWorld, kind: &str, group: &str, path: &str) -> Vec<String> {
    let version = if group == "cluster.x-k8s.io" { "v1beta2" } else { "v1alpha1" };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> =
        Api::namespaced_with(test.world.client.clone(), &test.world.namespace, &resource);
    let of_alpha = ListParams::default().labels("cluster.x-k8s.io/cluster-name=alpha");
    let all = api.list(&of_alpha).await.unwrap();
    let version = |object: &DynamicObject| Some(object.data.pointer(path)?.as_str()?.to_owned());
    all.items.iter().filter_map(version).collect()
}

/// Reads the parts in the reverse order of their upgrade: when a part is read, everything that a previously read part
/// waited for has been upgraded.
async fn snapshot(test: &ExtensionWorld) -> Snapshot {
    let mut extensions = vec![extension(test, "app").await];
    let workers = versions(test, "Machine", "cluster.x-k8s.io", "/spec/version").await;
    extensions.extend([
        extension(test, "cloud").await,
        chart(test, "cpi").await,
        extension(test, "net").await,
    ]);
    let control_planes =
        versions(test, "SandboxControlPlane", "controlplane.cluster.x-k8s.io", "/status/version").await;
    let [control_plane] = control_planes.as_slice() else { panic!("{control_planes:?}") };
    Snapshot { control_plane: control_plane.clone(), workers, extensions }
}

/// Returns the name and version of an extension of the cluster, and whether it is ready.
async fn extension(test: &ExtensionWorld, name: &str) -> (String, String, bool) {
    let release = test.release(name, "alpha").await.unwrap();
    let ready = is_ready(&release);
    (name.to_owned(), release.spec.version.unwrap(), ready)
}

/// Returns the name and version of a HelmChartProxy's release, and whether it is ready.
async fn chart(test: &ExtensionWorld, name: &str) -> (String, String, bool) {
    let release = test.world.release(name, "alpha").await.unwrap();
    let current = release.status.filter(|s| s.observed_generation == release.metadata.generation);
    let ready = current.is_some_and(|status| {
        status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    (name.to_owned(), release.spec.version, ready)
}

/// Applies a HelmChartProxy with a version for each Kubernetes version.
async fn apply_chart(test: &ExtensionWorld, name: &str) {
    let annotations = json!({
        "chandler.dev/kubernetes-versions": r#"{"1.34": "1.0.0", "1.35": "1.1.0"}"#,
        "chandler.dev/kubernetes-upgrade": "AfterControlPlane",
    });
    let fields = json!({"version": "", "clusterSelector": {"matchLabels": {"fleet": "alpha"}}});
    test.world.apply_annotated_placement(name, "hello", annotations, fields).await;
}

/// Records distinct snapshots until the upgrade is complete.
async fn record_upgrade(test: &ExtensionWorld) -> Vec<Snapshot> {
    let snapshots = Mutex::new(Vec::new());
    eventually_within(UPGRADE_LIMIT, "the upgrade is complete", || async {
        let now = snapshot(test).await;
        let mut snapshots = snapshots.lock().unwrap();
        if snapshots.last() != Some(&now) {
            snapshots.push(now.clone());
        }
        let all = [("net", "1.1.0"), ("cloud", "1.1.0"), ("cpi", "1.1.0"), ("app", "2.0.0")];
        let upgraded = all.iter().all(|(name, version)| now.is_ready(name, version));
        (upgraded && now.workers == ["v1.35.4"]).then_some(())
    })
    .await;
    snapshots.into_inner().unwrap()
}

async fn apply_cluster(test: &ExtensionWorld, name: &str, fields: Value) {
    let mut topology = json!({
        "classRef": {"name": "sandbox", "namespace": "default"}, "version": "v1.34.4",
        "variables": [{"name": "nodes", "value": 1}],
    });
    topology.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    test.world
        .apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": test.world.namespace, "labels": {"fleet": name}},
            "spec": {
                "clusterNetwork": {"services": {"cidrBlocks": ["10.0.0.0/16"]}},
                "availabilityGates": [{"conditionType": "AddonsReady"}], "topology": topology,
            },
        }))
        .await;
}

fn default_on(cluster: &str, when: &str) -> Value {
    let selector = json!({"matchLabels": {"fleet": cluster}});
    json!({
        "install": {"default": selector, "namespace": "default"}, "kubernetesUpgrade": {"when": when},
    })
}

#[tokio::test]
async fn a_kubernetes_upgrade_upgrades_each_extension_at_its_configured_time() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = ExtensionWorld::new("life").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let net = json!({"version": "1.0.0", "kubernetes": "<1.35"});
    test.apply_extension("net", json!([net]), default_on("alpha", "AfterControlPlane")).await;
    let per_minor = json!([
        {"version": "1.0.0", "kubernetes": "~1.34.0"}, {"version": "1.1.0", "kubernetes": "~1.35.0"},
    ]);
    test.apply_extension("cloud", per_minor, default_on("alpha", "AfterControlPlane")).await;
    let app = json!([
        {"version": "1.0.0", "kubernetes": "<1.35", "dependencies": [{"extension": "net"}]},
        {"version": "2.0.0", "kubernetes": ">=1.35", "dependencies": [{"extension": "net"}]},
    ]);
    test.apply_extension("app", app, default_on("alpha", "AfterCluster")).await;
    apply_chart(&test, "cpi").await;

    let workers = json!({"machineDeployments": [{"class": "workers", "name": "md", "replicas": 1}]});
    apply_cluster(&test, "alpha", json!({"workers": workers})).await;
    let alpha = test.world.sandbox.wait_cluster(&test.world.namespace, "alpha").await.unwrap();
    for name in ["net", "cloud", "app"] {
        let release = test.release(name, "alpha").await.unwrap();
        assert!(is_ready(&release), "Available only with {name}");
        assert_eq!(release.spec.version.as_deref(), Some("1.0.0"));
    }
    assert_eq!(chart(&test, "cpi").await, ("cpi".to_owned(), "1.0.0".to_owned(), true));

    // The next Kubernetes version is blocked by net until net has a version that supports it.
    let blocked = test.wait_cluster_condition("alpha", "AddonsUpgradable", "False").await;
    assert!(blocked.contains("net 1.0.0 blocks"), "{blocked}");
    let both = json!([net, {"version": "1.1.0", "kubernetes": ">=1.34"}]);
    test.apply_extension("net", both, default_on("alpha", "AfterControlPlane")).await;
    let plan = test.wait_cluster_condition("alpha", "AddonsUpgradable", "True").await;
    for expected in [
        "net 1.0.0 moves to 1.1.0 before the control plane",
        "cloud 1.0.0 moves to 1.1.0 after the control plane",
        "app 1.0.0 moves to 2.0.0 after the cluster",
        "cpi 1.0.0 moves to 1.1.0 after the control plane",
    ] {
        assert!(plan.contains(expected), "{plan}");
    }
    assert_eq!(snapshot(&test).await.version("net"), "1.0.0", "nothing is upgraded before it is needed");

    hooks.patch_cluster("alpha", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let snapshots = record_upgrade(&test).await;
    let (old, new) = ("v1.34.4", "v1.35.4");
    assert!(
        snapshots.iter().any(|now| now.control_plane == old && now.is_ready("net", "1.1.0")),
        "net is ready before the control plane is upgraded: {snapshots:#?}"
    );
    for name in ["cloud", "cpi"] {
        assert!(
            snapshots.iter().any(|now| now.is_ready(name, "1.1.0") && now.workers == [old]),
            "{name} is ready before the workers are upgraded: {snapshots:#?}"
        );
    }
    for now in &snapshots {
        if now.control_plane == new {
            assert_eq!(
                now.version("net"),
                "1.1.0",
                "net is upgraded before the control plane: {snapshots:#?}"
            );
        }
        for name in ["cloud", "cpi"] {
            if now.version(name) == "1.1.0" {
                assert_eq!(
                    now.control_plane, new,
                    "{name} is upgraded after the control plane: {snapshots:#?}"
                );
            }
            if now.workers.iter().any(|version| version == new) {
                assert_eq!(
                    now.version(name),
                    "1.1.0",
                    "{name} is upgraded before the workers: {snapshots:#?}"
                );
            }
        }
        if now.version("app") == "2.0.0" {
            assert!(
                now.control_plane == new && !now.workers.iter().any(|version| version == old),
                "{snapshots:#?}"
            );
        }
    }
    test.wait_cluster_condition("alpha", "AddonsReady", "True").await;
    for name in ["net", "cloud", "cpi", "app"] {
        let revisions = [(1, "superseded".to_owned()), (2, "deployed".to_owned())];
        assert_eq!(test.world.history(&alpha, name), revisions, "{name}");
    }
    assert_eq!((manager.ended(OperationKind::INSTALL), manager.started(OperationKind::REMOVE)), (4, 0));
}

#[tokio::test]
async fn a_kubernetes_upgrade_that_an_extension_does_not_support_is_blocked_and_can_be_forced() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = ExtensionWorld::new("refused").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let old = json!([{"version": "1.0.0", "kubernetes": "<1.35"}]);
    test.apply_extension("old", old, default_on("bravo", "AfterControlPlane")).await;
    apply_cluster(&test, "bravo", json!({})).await;
    let bravo = test.world.sandbox.wait_cluster(&test.world.namespace, "bravo").await.unwrap();
    hooks.patch_cluster("bravo", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    hooks.wait_topology_message("bravo", "old 1.0.0 blocks").await;
    hooks.wait_topology_message("bravo", "chandler.dev/proceed=BeforeClusterUpgrade").await;
    let workload = bravo.client().await.unwrap();
    assert_eq!(workload.apiserver_version().await.unwrap().git_version, "v1.34.4");

    let hooks_to_skip = "BeforeClusterUpgrade,BeforeControlPlaneUpgrade";
    hooks
        .patch_cluster("bravo", json!({"metadata": {"annotations": {"chandler.dev/proceed": hooks_to_skip}}}))
        .await;
    eventually_within(UPGRADE_LIMIT, "the upgrade proceeds", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;
    // The release is left unchanged, and the Cluster reports that it does not support the version.
    eventually("AddonsReady reports the version", || async {
        let cluster = hooks.clusters().get("bravo").await.unwrap();
        let ready = condition(&cluster, "AddonsReady")?;
        (ready["status"] == "False" && ready["message"].as_str()?.contains("1.35")).then_some(())
    })
    .await;
    assert_eq!(test.world.history(&bravo, "old"), [(1, "deployed".to_owned())]);
    assert_eq!((manager.ended(OperationKind::INSTALL), manager.started(OperationKind::REMOVE)), (1, 0));
}

#[tokio::test]
async fn an_unhealthy_extension_that_need_not_move_does_not_block_a_kubernetes_upgrade() {
    testing::prepare(KubernetesVersion::V1_35).await.unwrap();
    let test = ExtensionWorld::new("unhealthy-upgrade").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let any = json!([{"version": "1.0.0", "kubernetes": "*"}]);
    test.apply_extension("broken", any, default_on("charlie", "AfterControlPlane")).await;
    // The hooks have to wait for this one, so that they look at both.
    let moves = json!([
        {"version": "1.0.0", "kubernetes": "<1.35"}, {"version": "1.1.0", "kubernetes": ">=1.34"},
    ]);
    let pinned = json!([{"version": "1.0.0", "kubernetes": "<1.35"}]);
    test.apply_extension("moving", pinned, default_on("charlie", "AfterControlPlane")).await;
    apply_cluster(&test, "charlie", json!({})).await;
    let charlie = test.world.sandbox.wait_cluster(&test.world.namespace, "charlie").await.unwrap();
    test.wait_ready("broken", "charlie", "1.0.0").await;
    test.wait_ready("moving", "charlie", "1.0.0").await;
    test.apply_extension("moving", moves, default_on("charlie", "AfterControlPlane")).await;
    test.wait_cluster_condition("charlie", "AddonsUpgradable", "True").await;

    set_schedulable(&charlie, "broken", false).await;
    let message = test.wait_release_reason("broken", "charlie", "Unhealthy").await;
    assert!(message.contains("Deployment default/broken"), "{message}");
    let not_ready = test.wait_cluster_condition("charlie", "AddonsReady", "False").await;
    assert!(not_ready.contains("Deployment default/broken is unhealthy"), "{not_ready}");
    let upgradable = test.wait_cluster_condition("charlie", "AddonsUpgradable", "True").await;
    assert!(upgradable.contains("moving 1.0.0 moves to 1.1.0 before the control plane"), "{upgradable}");

    hooks.patch_cluster("charlie", json!({"spec": {"topology": {"version": "v1.35.4"}}})).await;
    let workload = charlie.client().await.unwrap();
    eventually_within(UPGRADE_LIMIT, "the Kubernetes upgrade proceeds", || async {
        let version = workload.apiserver_version().await.ok()?.git_version;
        (version == "v1.35.4").then_some(())
    })
    .await;
    test.wait_ready("moving", "charlie", "1.1.0").await;
    test.wait_release_reason("broken", "charlie", "Unhealthy").await;
    assert_eq!(test.world.history(&charlie, "broken"), [(1, "deployed".to_owned())]);
    manager.stop().await;
}

#[tokio::test]
async fn extensions_with_external_resources_are_uninstalled_before_their_cluster_is_deleted() {
    let test = ExtensionWorld::new("cluster-deletion").await;
    let hooks = Hooks::new(&test.world);
    let manager = hooks.start_manager();
    hooks.wait_discovered(&Value::Null).await;
    let versions = json!([{"version": "1.0.0", "kubernetes": "*"}]);
    test.apply_extension("plain", versions.clone(), json!({})).await;
    test.apply_extension("external", versions, json!({"onClusterDelete": "Uninstall"})).await;
    let alpha = test.world.create_cluster("alpha").await;
    for name in ["plain", "external"] {
        test.apply_instance(name, name, json!({})).await;
        test.wait_ready(name, "alpha", "1.0.0").await;
    }
    drop(alpha);
    hooks.clusters().delete("alpha", &kube::api::DeleteParams::default()).await.unwrap();
    eventually_within(UPGRADE_LIMIT, "the Cluster is deleted", || async {
        hooks.clusters().get_opt("alpha").await.unwrap().is_none().then_some(())
    })
    .await;
    let removals: Vec<_> = manager
        .operations()
        .into_iter()
        .filter(|operation| operation.kind == OperationKind::REMOVE)
        .collect();
    assert!(
        removals.iter().all(|removal| removal.release == "default/external"),
        "only the release with external resources is uninstalled: {removals:?}"
    );
    assert_eq!(manager.succeeded(OperationKind::REMOVE), 1, "it was uninstalled: {removals:?}");
    eventually("the release objects are deleted", || async {
        test.releases().list(&ListParams::default()).await.unwrap().items.is_empty().then_some(())
    })
    .await;
}
